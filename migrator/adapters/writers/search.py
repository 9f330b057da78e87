"""The `WriterSearch` port: over the bricks of a Gluster volume, and over the processes of this machine."""

import asyncio
import os
import platform
import sys
from collections.abc import Collection, Sequence

from migrator.adapters.writers.asking import ask
from migrator.decide.freezing import clients_unseen, unopened_unseen
from migrator.domain.brick import Brick
from migrator.domain.errors import MigratorError
from migrator.domain.freezing import Writers
from migrator.ports.filesystem import SourceFileSystem
from migrator.ports.hosts import Hosts
from migrator.ports.processes import Processes

_AT_ONCE = 32


class LocalWriters:
    """Over all processes of this machine: descriptors, working directories, mappings, loop devices. What only other
    machines see is `unseen`, where the source's file system is one that they may have mounted.

    `own` are processes that are left out, this one always.
    """

    def __init__(self, processes: Processes, source: SourceFileSystem, *, own: Collection[int] = ()) -> None:
        self._processes = processes
        self._source = source
        self._own = frozenset({os.getpid(), *own})

    async def find_writers(self, trees: Sequence[bytes]) -> Writers:
        """As the port says."""
        try:
            identity = await asyncio.to_thread(self._source.identity)
        except OSError as error:
            return Writers(unseen=(f"the source's root cannot be read: {error.strerror}",))
        found = await look_here(self._processes, self._source.root, trees, way="source", own=self._own)
        others = clients_unseen(identity.filesystem, mount=self._source.root)
        return Writers(open_files=found.open_files, unseen=(*found.unseen, *others))


class BrickWriters:
    """Over the processes of every brick, each on its host: whatever any client has open shows there; and over those of
    this machine, which show more of themselves. `names` are the hosts that site.toml names.

    Of a client's working directories bricks know nothing.
    """

    def __init__(self, hosts: Hosts, names: Collection[str], source: SourceFileSystem, *, processes: Processes) -> None:
        self._hosts = hosts
        self._names = frozenset(names)
        self._source = source
        self._processes = processes

    async def find_writers(self, trees: Sequence[bytes]) -> Writers:
        """As the port says."""
        health = await self._source.health()
        if health.state is None or not health.state.bricks:
            return Writers(unseen=("the bricks of the source are not known: " + "; ".join(health.problems),))
        gate = asyncio.Semaphore(_AT_ONCE)
        here, *looks = await asyncio.gather(
            look_here(self._processes, self._source.root, trees, way="client", own={os.getpid()}),
            *(self._look(brick, trees, gate) for brick in health.state.bricks),
        )
        # What cannot be seen of this machine's processes shows on the bricks, as that of any other client does.
        return Writers(
            open_files=tuple(one for look in (here, *looks) for one in look.open_files),
            unseen=(*unopened_unseen(health.state), *(one for look in looks for one in look.unseen)),
        )

    async def _look(self, brick: Brick, trees: Sequence[bytes], gate: asyncio.Semaphore) -> Writers:
        if brick.host not in self._names:
            return Writers(unseen=(f"brick {brick.name}: site.toml has no section for its host",))
        async with gate:
            try:
                host = await self._hosts.reach(brick.host)
                python = (await host.identity()).python
                answer = await ask(
                    host.processes,
                    python=python,
                    way="brick",
                    root=brick.path,
                    trees=trees,
                    host=brick.host,
                    brick=brick.name,
                )
            except MigratorError as error:
                return Writers(unseen=(f"brick {brick.name}: {error.message}",))
        unseen = answer.unseen
        if not answer.served:
            unseen = (
                *unseen,
                "no process of Gluster's has it open, so it is down, or served in a way that is not known",
            )
        return Writers(
            open_files=answer.open_files, unseen=tuple(f"brick {brick.name}: {sentence}" for sentence in unseen)
        )


async def look_here(
    processes: Processes, root: bytes, trees: Sequence[bytes], *, way: str, own: Collection[int]
) -> Writers:
    """The processes of this machine."""
    try:
        answer = await ask(
            processes,
            python=os.fsencode(sys.executable),
            way=way,
            root=root,
            trees=trees,
            host=platform.node(),
            own=own,
        )
    except MigratorError as error:
        return Writers(unseen=(error.message,))
    return Writers(open_files=answer.open_files, unseen=answer.unseen)
