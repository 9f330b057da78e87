"""Fakes of the ports that keep things in memory, and a clock of its own."""

import asyncio
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from migrator.catalog.model import ListedPath
from migrator.core.errors import LockHeld, Refused, UsageError
from migrator.core.events import Event
from migrator.core.progress import Snapshot
from migrator.core.states import ChunkKind
from migrator.gluster.model import DiskFacts
from migrator.hosts.ports import Command
from migrator.ledger.locks import Locks
from migrator.ledger.model import Holder
from migrator.operations.run_files import AttemptFiles, RunDirectory, RunFiles
from migrator.plan.chunk_lists import ListedPaths
from migrator.plan.model import Chunk, Plan

T = TypeVar("T")


class VirtualClock:
    """Time stands still while anything can go on, and then goes to the first sleeper's end."""

    def __init__(self) -> None:
        self.at_s = 1000.0
        self.set_by_s = 0.0
        """By how much somebody has set the clock on the wall."""
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0
        self._idle: asyncio.Task[None] | None = None

    def now_s(self) -> float:
        return 1_700_000_000.0 + self.at_s + self.set_by_s

    def monotonic_s(self) -> float:
        return self.at_s

    async def sleep(self, duration_s: float) -> None:
        self._count += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.at_s + duration_s, self._count, future))
        if self._idle is None or self._idle.done():
            self._idle = asyncio.create_task(self._advance())
        await future

    async def _advance(self) -> None:
        while self._sleepers:
            for _ in range(60):
                await asyncio.sleep(0)
            while self._sleepers and self._sleepers[0][2].done():
                heapq.heappop(self._sleepers)
            if self._sleepers:
                at_s, _, future = heapq.heappop(self._sleepers)
                self.at_s = max(self.at_s, at_s)
                if not future.done():
                    future.set_result(None)


async def inline(work: Callable[[], T], *, timeout_s: float) -> T:
    """The `Blocking` of tests: at once, in the same thread."""
    await asyncio.sleep(0)
    return work()


def still(tokens: Sequence[str]) -> Mapping[str, int]:
    """The `Activity` of tests: nothing ever moves."""
    return dict.fromkeys(tokens, 7)


class FakeChunkLists:
    """Lists in memory. A chunk's number says where its half of a split lies."""

    def __init__(self) -> None:
        self.lists: dict[str, list[tuple[Chunk, tuple[ListedPath, ...]]]] = {}

    def add(
        self, name: str, kind: ChunkKind, tree: bytes, paths: Iterable[ListedPath], brick: str | None = None
    ) -> None:
        rows, listed = self.lists.setdefault(name, []), tuple(paths)
        size_bytes = sum(path.size_bytes for path in listed)
        files = 0 if kind is ChunkKind.RANGES else len(listed)
        chunk = Chunk(number=len(rows) + 1, kind=kind, tree=tree, files=files, size_bytes=size_bytes, brick=brick)
        rows.append((chunk, listed))

    def chunks(self, chunk_list: str) -> Iterable[Chunk]:
        self.digest(chunk_list)
        return [chunk for chunk, _ in self.lists[chunk_list]]

    def paths(self, chunk_list: str, number: int) -> ListedPaths:
        self.digest(chunk_list)
        return next(ListedPaths.of(paths) for chunk, paths in self.lists[chunk_list] if chunk.number == number)

    def digest(self, chunk_list: str) -> str:
        if chunk_list not in self.lists:
            raise Refused(f"no list {chunk_list}")
        return f"digest of {chunk_list}"

    def write_split(self, pass_id: int, chunk: Chunk, paths: Sequence[ListedPath]) -> str:
        name = f"split-{pass_id}-{chunk.number}"
        self.lists[name] = [(chunk, tuple(paths))]
        return name


@dataclass(slots=True)
class FakeDocuments:
    """Plans in memory, with their checksums."""

    plans: dict[str, tuple[Plan, str]] = field(default_factory=dict)

    def write(self, plan: Plan) -> tuple[str, str]:
        self.plans[plan.name] = (plan, f"sum of {plan.name}")
        return f"plans/{plan.name}.json", f"sum of {plan.name}"

    def read(self, name: str) -> tuple[Plan, str]:
        if name not in self.plans:
            raise UsageError(f"no plan {name}")
        return self.plans[name]


class FakeLocks(Locks):
    """Locks of one process."""

    def __init__(self) -> None:
        self.held: list[Holder] = []
        self._journal = None

    @contextmanager
    def hold(self, purpose: str, *names: str, shared: Collection[str] = (), noted: bool = True) -> Iterator[None]:
        del noted
        for one in self.held:
            if (name := one.conflict(names, shared)) is not None:
                raise LockHeld(f"{name} is held: {one}")
        held = Holder(1, purpose, 0.0, names, tuple(shared))
        self.held.append(held)
        try:
            yield
        finally:
            if held in self.held:  # a simulated kill has released it
                self.held.remove(held)

    def holders(self, *, clear: bool = False) -> list[Holder]:
        return list(self.held)


@dataclass(slots=True)
class FakeProgress:
    """Remembers what was shown."""

    snapshots: list[Snapshot] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def show(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def event(self, event: Event) -> None:
        self.events.append(event)


class FakeRunFiles(RunFiles, RunDirectory, AttemptFiles):
    """A run directory that keeps nothing; as its own directory and attempt files. `opened` were there before."""

    def __init__(self, locks: Locks | None = None, *, opened: int = 0) -> None:
        super().__init__(Path(), locks or FakeLocks())
        self.opened = opened

    @contextmanager
    def open(self, verb: str, at_s: float) -> Iterator["FakeRunFiles"]:
        self.opened += 1
        self.path = f"runs/{self.opened}"
        yield self

    def attempt(self, chunk: int, number: int, command: Command) -> "FakeRunFiles":
        return self

    def stdout(self, piece: bytes) -> None: ...

    def stderr(self, piece: bytes) -> None: ...

    def close(self, *, keep_list: bool) -> None: ...

    def output(self, chunk: int, number: int) -> bytes:
        return b""

    def remove_output(self, chunk: int, number: int) -> None: ...


async def empty_disks(names: Sequence[str]) -> Mapping[str, DiskFacts]:
    """Every brick has a disk of its own, with nothing else on it."""
    return {name: DiskFacts(name=name, mount="/srv/b", identity=f"serial of {name}") for name in names}
