"""Lanes over hosts that are reached when they are needed. What a way is made of is given by the caller."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Protocol

from migrator.domain.errors import MigratorError
from migrator.ports.hosts import Host, Hosts
from migrator.ports.lanes import Lane, Way

_GRACE_S = 5.0

MakeWay = Callable[[Host, str | None], Awaitable[Way]]
"""The executor and the engines of a host for one brick (None: for the mount there). Raises ToolFailed, HostLost."""


class HostLane:
    """The `Lane` port over one host. Ways are made once for every connection; several callers share the making."""

    def __init__(self, host: str, *, jobs: int, reads_mount: bool, hosts: Hosts, make_way: MakeWay) -> None:
        self._host = host
        self._jobs = jobs
        self._reads_mount = reads_mount
        self._hosts = hosts
        self._make_way = make_way
        self._connection: tuple[int, int] | None = None
        self._ways: dict[str | None, Way] = {}
        self._making = asyncio.Lock()
        self._expecting: set[asyncio.Task[None]] = set()

    @property
    def host(self) -> str:
        """As in the ledger."""
        return self._host

    @property
    def jobs(self) -> int:
        """How many streams may run there at once."""
        return self._jobs

    @property
    def ends_by_lease(self) -> bool:
        """The far end on a host sees to it."""
        return True

    @property
    def reads_mount(self) -> bool:
        """Whether it reads the mount; if not it reads the bricks of its host."""
        return self._reads_mount

    def reads(self, brick: str) -> bool:
        """Bricks are named by their hosts."""
        return not self._reads_mount and brick.startswith(self._host + ":/")

    def expect(self, bricks: Collection[str]) -> None:
        """Make their ways aside."""
        mine = sorted(brick for brick in bricks if self.reads(brick))
        if mine and not self._expecting:
            task = asyncio.ensure_future(self._make_ahead(mine))
            self._expecting.add(task)
            task.add_done_callback(self._expecting.discard)

    async def close(self) -> None:
        """Expect nothing any more. The host belongs to the caller. May be called again."""
        for task in self._expecting:
            task.cancel()
        await asyncio.gather(*self._expecting, return_exceptions=True)

    async def _make_ahead(self, bricks: Sequence[str]) -> None:
        with suppress(MigratorError):
            for brick in bricks:
                await self.way(brick)

    async def way(self, brick: str | None) -> Way:
        """How a chunk of this brick is read there. Raises HostLost, ToolFailed."""
        async with self._making:
            host = await self._hosts.reach(self._host)
            # Another connection: what was placed on the host is gone with the one before.
            connection = (id(host), (await host.identity()).process_id)
            if connection != self._connection:
                self._connection = connection
                self._ways.clear()
            if brick not in self._ways:
                self._ways[brick] = await self._make_way(host, brick)
            return self._ways[brick]

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        """Reach the host, and end what attempts have left there. Raises HostLost."""
        host = await self._hosts.reach(self._host)
        return [token for token in tokens if not await host.processes.end(token, grace_s=_GRACE_S)]


class Movers(Hosts, Protocol):
    """Hosts that a batch system gives, which also knows what has become of them."""

    async def end_orphans(self, name: str, tokens: Sequence[str]) -> Sequence[str]:
        """The tokens of what cannot be ended on a host; asks for no host. Raises HostLost where it is not known."""


class MoverLane(HostLane):
    """A lane over a host that a batch system gives: what is left there when it is lost, the batch system says."""

    def __init__(self, host: str, *, jobs: int, movers: Movers, make_way: MakeWay) -> None:
        super().__init__(host, jobs=jobs, reads_mount=True, hosts=movers, make_way=make_way)
        self._movers = movers

    @property
    def ends_by_lease(self) -> bool:
        """The end of its job is told."""
        return False

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        """The tokens of what cannot be ended there. Raises HostLost while the batch system does not say."""
        return await self._movers.end_orphans(self.host, tokens)


class LaneSet:
    """The `Lanes` port over lanes that are made already; the first reads the mount on this machine."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = tuple(lanes)

    @property
    def all(self) -> Sequence[Lane]:
        """In the order in which they are filled."""
        return self._lanes

    def of_host(self, host: str) -> Lane | None:
        """The lane of a host as the ledger names it."""
        return next((lane for lane in self._lanes if lane.host == host), None)
