"""Finds processes with open files below user trees, with a script on brick servers and on this machine."""

import asyncio
import os
import platform
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from migrator.core.clock import Clock
from migrator.core.errors import MigratorError, ToolFailed
from migrator.core.tasks import result_or_none
from migrator.cutover.rules_writers import (
    OpenFile,
    OpenKind,
    Writers,
    clients_unseen,
    exports_unseen,
    names_kept,
    others_unseen,
    unopened_unseen,
)
from migrator.fs.ports import FileSystem, SourceFileSystem
from migrator.gluster.model import Brick, ClientSeen, volume_state
from migrator.hosts.far_source import ask_script, far_argv, far_source
from migrator.hosts.ports import Hosts, Processes
from migrator.hosts.process import cancel_all

# Sending the script to a host, and reading its answer.


_TIMEOUT_S = 600.0
"""The script takes milliseconds; it walks a tree only if it must look up names by inode number."""

_NOT_SERVED = "no Gluster process has it open, so it is down or served by an unknown program"


class _SearchAnswer(msgspec.Struct, frozen=True):
    open: list[tuple[str, int | None, str, str, bool, bool]]
    unseen: list[str]
    served: bool
    failure: str = ""


@cache
def script() -> bytes:
    """The script as one Python source in ASCII."""
    return far_source(__package__, ("far_search",))


class _Question(Struct, frozen=True, kw_only=True):
    """A search below `root`. `filesystem` is the type that `root` must have. `brick` names the brick with
    that root; the script then searches only that brick's processes.
    """

    way: str
    root: bytes
    trees: Sequence[bytes]
    brick: str = ""
    filesystem: str = ""


async def _ask(
    processes: Processes,
    python: bytes,
    host: str,
    questions: Sequence[_Question],
    *,
    own: Sequence[int] = (),
    asked: asyncio.Event | None = None,
) -> list[Writers | ToolFailed]:
    """Search the processes of a machine once for each question, except its processes `own`. A search that fails has its error
    in the answer. Raises HostLost, ToolFailed.
    """
    documents = [
        {
            "way": question.way,
            "root": question.root.decode("latin-1"),
            "trees": [tree.decode("latin-1") for tree in question.trees],
            "own": own,
            "filesystem": question.filesystem,
        }
        for question in questions
    ]
    otherwise = f"open files cannot be listed on {host}: "
    answers = await ask_script(
        processes,
        far_argv(python, script()),
        list[_SearchAnswer],
        question=documents,
        otherwise=otherwise,
        timeout_s=_TIMEOUT_S,
        asked=asked,
    )
    if len(answers) != len(questions):
        raise ToolFailed(f"{otherwise}its answer is invalid")
    return [
        ToolFailed(f"{otherwise}{answer.failure}") if answer.failure else _writers(host, question.brick, answer)
        for question, answer in zip(questions, answers, strict=True)
    ]


def _writers(host: str, brick: str, answer: _SearchAnswer) -> Writers:
    return Writers(
        open_files=tuple(
            OpenFile(
                host=host,
                path=path.encode("latin-1"),
                kind=OpenKind(kind),
                writable=writable,
                unlinked=unlinked,
                # A brick process belongs to Gluster: the brick does not know the client process behind it.
                pid=None if brick else pid,
                program=b"" if brick else program.encode("latin-1"),
                brick=brick,
            )
            for path, pid, program, kind, writable, unlinked in answer.open
        ),
        unseen=tuple(answer.unseen) if answer.served else (*answer.unseen, _NOT_SERVED),
    )


async def _ask_host(
    hosts: Hosts, name: str, questions: Sequence[_Question], *, asked: asyncio.Event | None = None
) -> list[Writers | ToolFailed]:
    host = await hosts.reach(name)
    return await _ask(host.processes, (await host.identity()).python, name, questions, asked=asked)


def _on_brick(brick: Brick, trees: Sequence[bytes]) -> _Question:
    return _Question(way="brick", root=brick.path, trees=trees, brick=brick.name)


async def _search_host(
    hosts: Hosts,
    name: str,
    subjects: Mapping[str, _Question],
    *,
    gate: asyncio.Semaphore,
    asked: asyncio.Event | None = None,
) -> Sequence[Writers]:
    """Search a host for each subject. Sentences about what cannot be seen there name the subject."""
    answers: Sequence[Writers | MigratorError]
    async with gate:
        try:
            answers = await _ask_host(hosts, name, [*subjects.values()], asked=asked)
        except MigratorError as error:
            answers = [error] * len(subjects)
    found = []
    for subject, answer in zip(subjects, answers, strict=True):
        unseen = (answer.message,) if isinstance(answer, MigratorError) else answer.unseen
        open_files = () if isinstance(answer, MigratorError) else answer.open_files
        found.append(Writers(open_files=open_files, unseen=tuple(f"{subject}: {sentence}" for sentence in unseen)))
    return found


async def _search_here(processes: Processes, question: _Question, *, asked: asyncio.Event | None = None) -> Writers:
    """Search the processes of this machine, except this process."""
    try:
        (found,) = await _ask(
            processes, os.fsencode(sys.executable), platform.node(), [question], own=(os.getpid(),), asked=asked
        )
    except MigratorError as error:
        found = ToolFailed(error.message)
    return Writers(unseen=(found.message,)) if isinstance(found, ToolFailed) else found


def _joined(searches: Sequence[Writers], *unseen: str) -> Writers:
    return Writers(
        open_files=tuple(one for search in searches for one in search.open_files),
        unseen=(*unseen, *(one for search in searches for one in search.unseen)),
    )


# Connections to bricks that belong to this site's mounts or to Gluster.


class OwnClients(Struct, frozen=True, kw_only=True):
    """The connections of this site's mounts and of Gluster's own processes, by local end (`IP:PORT`), the machines whose
    mount keeps names for a while, and sentences about machines that did not answer.
    """

    ends: frozenset[str] = frozenset()
    keeping_names: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


Endpoints = Callable[[], Awaitable[OwnClients]]
"""`own_clients` of a site."""


class _Connections(Struct, frozen=True):
    ends: list[str]
    entry_timeouts_s: list[float]


async def own_clients(
    hosts: Hosts, names: Collection[str], processes: Processes, *, volume: str, mount: bytes
) -> OwnClients:
    """The clients of that mount and of Gluster on this machine and on hosts. Any other connection belongs to another client."""
    question = {"way": "connections", "volume": volume, "mount": os.fsdecode(mount)}

    async def of(name: str) -> OwnClients:
        machine = name or "this machine"
        try:
            host = await hosts.reach(name) if name else None
            python = (await host.identity()).python if host else os.fsencode(sys.executable)
            found = await ask_script(
                host.processes if host else processes,
                far_argv(python, script()),
                _Connections,
                question=question,
            )
        except MigratorError as error:
            return OwnClients(unseen=(f"{machine}: {error.message}",))
        return OwnClients(ends=frozenset(found.ends), keeping_names=(machine,) if any(found.entry_timeouts_s) else ())

    found = await asyncio.gather(*map(of, ("", *sorted(names))))
    return OwnClients(
        ends=frozenset().union(*(one.ends for one in found)),
        keeping_names=tuple(chain.from_iterable(one.keeping_names for one in found)),
        unseen=tuple(chain.from_iterable(one.unseen for one in found)),
    )


_CLIENT_TRIES = 3
_CLIENT_PAUSE_S = 1.0
"""The query of pending heals is briefly a client of the volume itself."""


async def other_clients(
    clients: Callable[[], Awaitable[Sequence[ClientSeen]]], endpoints: Endpoints, *, bricks: Sequence[str], clock: Clock
) -> tuple[tuple[ClientSeen, ...] | None, OwnClients]:
    """The clients of the volume that are neither this site's mount nor Gluster's (None: unknown), and those that are."""
    others: tuple[ClientSeen, ...] | None = None
    own = OwnClients()
    for attempt in range(_CLIENT_TRIES):
        if attempt:
            await clock.sleep(_CLIENT_PAUSE_S)
        found = await result_or_none(clients())
        own = await endpoints()
        others = None if found is None else tuple(one for one in found if one.address not in own.ends)
        # This site's mount is a client of each brick, so a brick without any client was not queried.
        asked = {one.brick for one in found or ()}
        unasked = tuple(f"{brick} reported no client" for brick in bricks if brick not in asked)
        own = replace(own, unseen=(*own.unseen, *unasked))
        if others == () and not own.unseen:
            break
    return others, own


async def unseen_writers(
    source: SourceFileSystem,
    clients: Callable[[], Awaitable[Sequence[ClientSeen]]],
    endpoints: Endpoints,
    clock: Clock,
) -> tuple[str, ...]:
    """Why users may write to a volume past the closed top of their tree, unseen by any search for open files."""
    state = volume_state(await source.health())
    if state is None:
        return ("the exports of the volume are unknown",)
    bricks = [brick.name for brick in state.bricks]
    others, own = await other_clients(clients, endpoints, bricks=bricks, clock=clock)
    return (*exports_unseen(state), *others_unseen(others, own.unseen), *names_kept(own.keeping_names))


# Open files on bricks.


async def open_on_bricks(hosts: Hosts, bricks: Sequence[Brick], trees: Sequence[bytes]) -> int | None:
    """The number of files below user trees that the processes of bricks have open; None if a brick cannot be searched. Files
    that a client opened but has not read yet may not be open on any brick (performance.open-behind).
    """
    found: set[tuple[str, bytes]] = set()
    for brick in bricks:
        searches = await result_or_none(_ask_host(hosts, brick.host, [_on_brick(brick, trees)]))
        search = searches[0] if searches else None
        if not isinstance(search, Writers) or _NOT_SERVED in search.unseen:
            return None
        found |= {(brick.name, one.path) for one in search.open_files if one.kind is OpenKind.FILE}
    return len(found)


# Searches. Each searches all trees once and changes nothing; whatever cannot be searched is `unseen`, and no error.
#
# The result holds files that were open at some time during the search, so begin it after the freeze, when no user can enter any more.
# Working directories of other machines are never found; files made there show in the next scan.


WriterSearch = Callable[[Sequence[bytes]], Awaitable[Writers]]
"""Finds processes with open files below user trees."""

_AT_ONCE = 32


class SearchBegun(Protocol):
    """A search whose programs start at once, and search when `asked` is set (None: at once)."""

    async def __call__(self, trees: Sequence[bytes], *, asked: asyncio.Event | None = None) -> Writers: ...


@dataclass(slots=True)
class SearchesAhead:
    """A WriterSearch whose programs can be started ahead: that takes as long as to search, and a frozen user would wait for it."""

    search: SearchBegun
    _begun: deque[tuple[Sequence[bytes], asyncio.Event, asyncio.Task[Writers]]] = field(
        init=False, default_factory=deque
    )

    def begin(self, trees: Sequence[bytes], *, count: int) -> None:
        """Start the programs of the next searches of these trees."""
        for _ in range(count):
            asked = asyncio.Event()
            self._begun.append((trees, asked, asyncio.create_task(self.search(trees, asked=asked))))

    async def __call__(self, trees: Sequence[bytes]) -> Writers:
        """Search now. Programs that did not start, or ended since, are started anew."""
        while self._begun:
            of, asked, task = self._begun.popleft()
            if of == trees:
                asked.set()
                found = await result_or_none(task)
                if found is not None and not found.unseen:
                    return found
            else:
                await cancel_all([task])
        return await self.search(trees)

    async def end(self) -> None:
        """End the unused programs. May be called again."""
        await cancel_all([task for _, _, task in self._begun])
        self._begun.clear()


async def local_writers(
    processes: Processes, source: FileSystem, trees: Sequence[bytes], *, asked: asyncio.Event | None = None
) -> Writers:
    """Search all processes of this machine: descriptors, working directories, mappings, loop devices. If other machines
    may have mounted the source's file system, `unseen` in the result has it.
    """
    try:
        identity = await asyncio.to_thread(source.identity)
    except OSError as error:
        return Writers(unseen=(f"the source's root cannot be read: {error.strerror}",))
    found = await _search_here(processes, _Question(way="source", root=source.root, trees=trees), asked=asked)
    others = clients_unseen(identity.filesystem, mount=source.root)
    return replace(found, unseen=(*found.unseen, *others))


async def brick_writers(
    hosts: Hosts,
    names: Collection[str],
    source: SourceFileSystem,
    processes: Processes,
    trees: Sequence[bytes],
    *,
    asked: asyncio.Event | None = None,
) -> Writers:
    """Search the processes of every brick on its host, where the open files of all clients show, and the processes of
    this machine, about which more is known.

    `names` are the hosts of site.toml. Bricks do not know the working directories of clients.
    """
    health = await source.health()
    state = volume_state(health)
    if state is None or not state.bricks:
        return Writers(unseen=("the bricks of the source are unknown: " + "; ".join(health.problems),))
    gate, unseen = asyncio.Semaphore(_AT_ONCE), list[str]()
    by_host: dict[str, dict[str, _Question]] = {}
    for brick in state.bricks:
        subject = f"brick {brick.name}"
        if brick.host in names:
            by_host.setdefault(brick.host, {})[subject] = _on_brick(brick, trees)
        else:
            unseen.append(f"{subject}: site.toml has no section for its host")
    here, searches = await asyncio.gather(
        _search_here(processes, _Question(way="client", root=source.root, trees=trees), asked=asked),
        asyncio.gather(
            *(_search_host(hosts, host, bricks, gate=gate, asked=asked) for host, bricks in by_host.items())
        ),
    )
    # Gaps in the search of this machine's processes do not count: their files show on the bricks, as for any other
    # client.
    return _joined([replace(here, unseen=()), *chain(*searches)], *unseen, *unopened_unseen(state))


async def client_writers(
    processes: Processes,
    target: FileSystem,
    clients: Callable[[], Awaitable[Sequence[str]]],
    connect: Callable[[Sequence[str]], AbstractAsyncContextManager[Hosts]],
    trees: Sequence[bytes],
) -> Writers:
    """Search the processes of every client of a target that lists its clients: this machine, and the others by ssh.

    Each client must have mounted the target at the same path. `clients` lists them by host name and raises ToolFailed.
    """
    own_name = platform.node().partition(".")[0]
    try:
        identity = await asyncio.to_thread(target.identity)
        others = [name for name in await clients() if name.partition(".")[0] != own_name]
    except (OSError, ToolFailed) as error:
        return Writers(unseen=(f"the clients of the target are unknown: {error}",))
    gate, here = asyncio.Semaphore(_AT_ONCE), _Question(way="source", root=target.root, trees=trees)
    there = replace(here, filesystem=identity.filesystem)
    async with connect(others) as hosts:
        own, searches = await asyncio.gather(
            _search_here(processes, here),
            asyncio.gather(*(_search_host(hosts, name, {f"client {name}": there}, gate=gate) for name in others)),
        )
    return _joined([own, *chain(*searches)])
