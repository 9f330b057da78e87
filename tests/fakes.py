"""Fakes of the ports: file systems in memory, an engine and an executor that copy between them, a clock of its own.

Faults are injected by wrapping (`dying`) or by what a test puts into `FakeStreams.faults`.
"""

import asyncio
import errno
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from migrator.domain.brick import SourceHealth, VolumeState
from migrator.domain.entry import Entry, EntryType
from migrator.domain.errors import LockHeld, Refused, UsageError
from migrator.domain.events import Event
from migrator.domain.paths import is_beneath, parent
from migrator.domain.plan import Chunk, ListedPath, Plan
from migrator.domain.progress import Snapshot
from migrator.domain.site import Capacity, MountIdentity, TargetCapabilities
from migrator.domain.states import ChunkKind
from migrator.domain.transfer import (
    FileProblem,
    FileProblemKind,
    Outcome,
    ProcessIdentity,
    StopReason,
    StreamCounters,
    Verdict,
)
from migrator.ports.filesystem import Block, Digest
from migrator.ports.hosts import HostLost
from migrator.ports.lanes import BrickRefused, Way
from migrator.ports.processes import Command, Completed
from migrator.ports.streams import BrickRules, ChunkWork, Engine, Executor, StreamView

T = TypeVar("T")
GIB = 1024**3


class VirtualClock:
    """Time stands still while anything can go on, and then goes to the first sleeper's end."""

    def __init__(self) -> None:
        self.at_s = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0
        self._idle: asyncio.Task[None] | None = None

    def now_s(self) -> float:
        return 1_700_000_000.0 + self.at_s

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


@dataclass(slots=True)
class Node:
    """One file of a fake file system. Names of one file share the node."""

    type: EntryType
    ino: int
    content: bytes = b""


IDENTITY = MountIdentity(filesystem="xfs", mounted_from="/dev/fake", device=1, fsid=1, root_ino=1, sentinel="s")


class FakeFileSystem:
    """Both the source's and the target's port. `writes` counts what changed something."""

    def __init__(self, root: bytes = b"/fake") -> None:
        self.root = root
        self.nodes: dict[bytes, Node] = {}
        self.mount = IDENTITY
        self.room = Capacity(total_bytes=GIB, free_bytes=GIB, total_inodes=10**6, free_inodes=10**6)
        self.sick: tuple[str, ...] = ()
        self.tasks: tuple[str, ...] = ()
        self.look_errors: dict[bytes, int] = {}
        self.copy_errors: dict[bytes, int] = {}
        self.sync_errors: list[int] = []
        self.dirty: set[bytes] = set()
        self.writes = 0
        self.syncs = 0
        self.source: FakeFileSystem | None = None
        self._next_ino = 100

    def add(self, path: bytes, content: bytes | None = None, *, same_as: bytes | None = None) -> None:
        """A file with content, another name of a file, or (neither given) a directory; parents as needed."""
        if (above := parent(path)) and above not in self.nodes:
            self.add(above)
        if same_as is not None:
            self.nodes[path] = self.nodes[same_as]
            return
        self._next_ino += 1
        kind = EntryType.DIRECTORY if content is None else EntryType.FILE
        self.nodes[path] = Node(kind, self._next_ino, content or b"")

    def remove(self, path: bytes) -> None:
        for gone in [name for name in self.nodes if is_beneath(name, path)]:
            del self.nodes[gone]

    def look(self, path: bytes) -> Entry | None:
        if path in self.look_errors:
            raise OSError(self.look_errors[path], "injected", path)
        node = self.nodes.get(path)
        return None if node is None else self._entry(path, node)

    def read_directory(self, path: bytes, *, block_entries: int = 4096) -> Iterator[Block]:
        inside = [self._entry(name, node) for name, node in self.nodes.items() if parent(name) == path]
        yield Block(entries=tuple(inside), problems=())

    def digest(self, path: bytes, algorithm: str) -> Digest:
        return Digest(value=self.nodes[path].content, size_bytes=len(self.nodes[path].content), changed=False)

    def identity(self) -> MountIdentity:
        return self.mount

    def capacity(self) -> Capacity:
        return self.room

    async def health(self) -> SourceHealth:
        state = VolumeState(
            volume="vol", volume_id="v", type="distribute", started=True, bricks=(), options=(), tasks=self.tasks
        )
        return SourceHealth(problems=self.sick, fingerprint="same", state=state)

    async def quotas(self) -> Sequence[tuple[bytes, int]]:
        return ()

    def make_parents(self, tree: bytes, like: Sequence[Entry]) -> None:
        if self.room.read_only:
            raise OSError(errno.EROFS, "read-only", tree)
        self.writes += 1
        if tree not in self.nodes:
            self.add(tree)

    def link(self, existing: bytes, path: bytes) -> None:
        if existing not in self.nodes:
            raise OSError(errno.ENOENT, "no such file", existing)
        self.put(path, self.nodes[existing])

    def copy_from(self, source_root: bytes, entry: Entry) -> None:
        if entry.path in self.copy_errors:
            raise OSError(self.copy_errors[entry.path], "injected", entry.path)
        if parent(entry.path) not in self.nodes:
            raise OSError(errno.ENOENT, "no such directory", entry.path)
        assert self.source is not None
        self._next_ino += 1
        self.put(entry.path, Node(entry.type, self._next_ino, self.source.nodes[entry.path].content))

    def remove_leftover(self, path: bytes) -> None:
        self.writes += 1
        self.nodes.pop(path, None)

    def clock_ns(self) -> int:
        self.writes += 1
        return 0

    def sync(self) -> None:
        self.syncs += 1
        if self.sync_errors:
            raise OSError(self.sync_errors.pop(), "injected")
        self.dirty.clear()

    def probe(self) -> TargetCapabilities:
        self.writes += 1
        return TargetCapabilities()

    def put(self, path: bytes, node: Node) -> None:
        """Write a name."""
        self.writes += 1
        self.dirty.add(path)
        self.nodes[path] = node

    def shown(self) -> dict[bytes, tuple[str, bytes]]:
        """Types and contents, for comparing."""
        return {path: (node.type.value, node.content) for path, node in self.nodes.items()}

    def groups(self) -> set[frozenset[bytes]]:
        """Names that share a file."""
        found: dict[int, set[bytes]] = {}
        for path, node in self.nodes.items():
            found.setdefault(node.ino, set()).add(path)
        return {frozenset(names) for names in found.values() if len(names) > 1}

    def _entry(self, path: bytes, node: Node) -> Entry:
        names = sum(1 for other in self.nodes.values() if other is node)
        return Entry(
            path=path, type=node.type, size_bytes=len(node.content), blocks=1, uid=0, gid=0, mode=0o644, mtime_ns=0,
            atime_ns=0, ctime_ns=0, dev=1, rdev=0, ino=node.ino, nlink=names,
        )  # fmt: skip


@dataclass(slots=True)
class Fault:
    """What happens at a path, so often: `bad` (one file, `code` its errno), `crash` (the stream fails and blames
    none), `stop`, `hang`, `killed` (something else ends the stream), `lie` (told as vanished), `moved`, `changed`, `lost`
    (the host does not answer any more; the stream lives on there). A `hang` goes on when `until` is set.
    """

    kind: str
    times: int = 10**9
    code: int = errno.EACCES
    stop: StopReason = StopReason.TARGET_FULL
    until: asyncio.Event | None = None


@dataclass(slots=True)
class FakeStreams:
    """Engine and executor in one: a stream copies its list path by path from one fake file system to the other."""

    source: FakeFileSystem
    target: FakeFileSystem
    faults: dict[bytes, Fault] = field(default_factory=dict)
    unendable: bool = False
    name: str = "fake"
    program: bytes = b"/bin/fake"
    host: str = "here"
    streams: list[tuple[ChunkKind, tuple[bytes, ...]]] = field(default_factory=list)
    limits: list[int | None] = field(default_factory=list)
    recopied: list[bool] = field(default_factory=list)
    alive: set[str] = field(default_factory=set)
    at_once: int = 0
    copied: list[bytes] = field(default_factory=list)
    before_path: Callable[[bytes], None] = lambda _: None
    too_long: Collection[bytes] = ()

    def fits(self, tree: bytes, path: bytes) -> bool:
        return path not in self.too_long

    def view(self, tree: bytes) -> StreamView:
        return StreamView(source_tree=b"/source", target_tree=b"/target")

    def command(self, work: ChunkWork, view: StreamView) -> Command:
        rows = [(listed.path, listed.link_group) for listed in work.paths]
        stdin = b"\0".join(path for path, _ in rows)
        self.limits.append(work.bwlimit_bytes_per_s)
        self.recopied.append(work.recopy)
        return Command(argv=(b"fake", work.kind.value.encode()), stdin=stdin, timeout_s=None)

    def reader(self, work: ChunkWork, view: StreamView) -> "FakeReader":
        return FakeReader(self)

    async def execute(
        self,
        command: Command,
        *,
        program: bytes,
        tree: bytes,
        on_start: Callable[[ProcessIdentity], None],
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None],
    ) -> Completed:
        assert command.token is not None
        kind, paths = ChunkKind(command.argv[1].decode()), tuple(command.stdin.split(b"\0"))
        self.streams.append((kind, paths))
        self.alive.add(command.token)
        self.at_once = max(self.at_once, len(self.alive))
        partial = lost = False
        try:
            on_start(ProcessIdentity(pid=1, start_ticks=1, boot_id="b"))
            for path in paths:
                await asyncio.sleep(0)
                self.before_path(path)
                fault = self.faults.get(path)
                if fault is not None and fault.times > 0:
                    fault.times -= 1
                    match fault.kind:
                        case "hang":
                            await (fault.until or asyncio.Event()).wait()
                        case "crash":
                            return Completed(exit_code=12, stdout=b"", stderr=b"", timed_out=False)
                        case "lost":
                            lost = True
                            raise HostLost(f"host {self.host} does not answer")
                        case "killed":
                            return Completed(exit_code=-9, stdout=b"", stderr=b"", timed_out=False)
                        case "stop":
                            on_stdout(b"stop %s %d %s\n" % (fault.stop.value.encode(), fault.code, path.hex().encode()))
                            return Completed(exit_code=11, stdout=b"", stderr=b"", timed_out=False)
                        case _:
                            on_stdout(b"%s %s %d\n" % (fault.kind.encode(), path.hex().encode(), fault.code))
                            partial = True
                            continue
                node = self.source.nodes.get(path)
                if node is None:
                    on_stdout(b"gone %s %d\n" % (path.hex().encode(), errno.ENOENT))
                    partial = True
                    continue
                self._copy(path, node, paths)
                on_stdout(b"ok %s %d\n" % (path.hex().encode(), len(node.content)))
            return Completed(exit_code=23 if partial else 0, stdout=b"", stderr=b"", timed_out=False)
        finally:
            if not self.unendable and not lost:
                self.alive.discard(command.token)

    async def sync(self) -> None:
        self.target.sync()

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        await asyncio.sleep(0)
        if not self.unendable:
            self.alive.difference_update(tokens)
        return [token for token in tokens if token in self.alive]

    def of(self, tokens: Sequence[str]) -> Mapping[str, int]:
        """The `Activity` port: nothing ever moves."""
        return dict.fromkeys(tokens, 7)

    def _copy(self, path: bytes, node: Node, paths: Sequence[bytes]) -> None:
        there = self.target.nodes.get(path)
        if there is not None and there.type is node.type and there.content == node.content:
            return
        self.copied.append(path)
        for name in paths:  # names of one file within a list stay names of one file
            if name != path and self.source.nodes.get(name) is node and name in self.target.nodes:
                self.target.put(path, self.target.nodes[name])
                return
        self.target.put(path, Node(node.type, 10_000 + node.ino + len(self.copied) * 1000, node.content))


class FakeReader:
    """Reads what a fake stream says."""

    def __init__(self, streams: FakeStreams) -> None:
        self._streams = streams
        self.counters = StreamCounters()
        self.stderr_tail = b""
        self.digests: Mapping[bytes, bytes] = {}
        self._suspects: list[FileProblem] = []
        self._stop: StopReason | None = None

    def stdout(self, piece: bytes) -> None:
        word, *rest = piece.split()
        match word:
            case b"ok":
                self.counters = StreamCounters(
                    files=self.counters.files + 1, size_bytes=self.counters.size_bytes + int(rest[1])
                )
            case b"stop":
                self._stop = StopReason(rest[0].decode())
                self._suspect(FileProblemKind.BAD, rest[2], int(rest[1]))
            case b"gone" | b"lie":
                self._suspect(FileProblemKind.VANISHED, rest[0], int(rest[1]))
            case b"moved" | b"changed":
                self._suspect(FileProblemKind(word.decode()), rest[0], 0)
            case _:
                self._suspect(FileProblemKind.BAD, rest[0], int(rest[1]))

    def stderr(self, piece: bytes) -> None:
        self.stderr_tail += piece

    def outcome(self, completed: Completed) -> Outcome:
        verdict = {0: Verdict.DONE, 23: Verdict.DONE, -9: Verdict.INTERRUPTED}.get(completed.exit_code, Verdict.RETRY)
        if self._stop is not None:
            verdict = Verdict.STOP
        return Outcome(
            verdict=verdict,
            counters=self.counters,
            suspects=tuple(self._suspects),
            stop=self._stop,
            message=f"exit code {completed.exit_code}",
        )

    def _suspect(self, kind: FileProblemKind, path: bytes, code: int) -> None:
        name = bytes.fromhex(path.decode())
        self._suspects.append(FileProblem(path=name, kind=kind, errno=code, reason=f"errno {code}"))


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

    def paths(self, chunk_list: str, number: int) -> Sequence[ListedPath]:
        return next(paths for chunk, paths in self.lists[chunk_list] if chunk.number == number)

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


class FakeLocks:
    """Locks of one process."""

    def __init__(self) -> None:
        self.held: set[str] = set()

    @contextmanager
    def hold(self, name: str, purpose: str) -> Iterator[None]:
        if name in self.held:
            raise LockHeld(f"{name} is held")
        self.held.add(name)
        try:
            yield
        finally:
            self.held.discard(name)


@dataclass(slots=True)
class FakeProgress:
    """Remembers what was shown."""

    snapshots: list[Snapshot] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def show(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def event(self, event: Event) -> None:
        self.events.append(event)


class FakeRunFiles:
    """A run directory that keeps nothing; as its own directory and attempt files."""

    path = "runs/fake"

    def __init__(self) -> None:
        self.opened = 0

    @contextmanager
    def open(self, verb: str, at_s: float) -> Iterator["FakeRunFiles"]:
        self.opened += 1
        yield self

    def attempt(self, chunk: int, number: int, command: Command) -> "FakeRunFiles":
        return self

    def stdout(self, piece: bytes) -> None: ...

    def stderr(self, piece: bytes) -> None: ...

    def digests(self, algorithm: str, found: Mapping[bytes, bytes]) -> None: ...

    def close(self, *, keep_list: bool) -> None: ...


class Killed(BaseException):
    """The program was killed: nothing that it calls does anything any more."""


@dataclass(slots=True)
class Death:
    """Kills at the `left`-th call of anything that is wrapped, and at every later one."""

    left: int

    def tick(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise Killed

    @property
    def happened(self) -> bool:
        return self.left <= 0


class Dying:
    """Anything, wrapped so that the `Death` may come before each of its calls."""

    def __init__(self, wrapped: Any, death: Death) -> None:
        self._wrapped = wrapped
        self._death = death

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        if not callable(found):
            return found if isinstance(found, int | str | bytes) else Dying(found, self._death)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._death.tick()
            return found(*args, **kwargs)

        return call


def dying(wrapped: T, death: Death) -> T:
    """Wrap something, with the type that it has."""
    return Dying(wrapped, death)  # type: ignore[return-value]


def read_only(capacity: Capacity) -> Capacity:
    """The same room on a mount that is read-only."""
    return replace(capacity, read_only=True)


@dataclass(slots=True)
class FakeLane:
    """The `Lane` port: a host that is there, until `lost` says why it is not."""

    executor: Executor
    engine: Engine
    jobs: int = 2
    bricks: frozenset[str] = frozenset()
    rules: BrickRules | None = None
    lost: HostLost | None = None
    refused: frozenset[str] = frozenset()
    settled_by_others: bool = False
    asked: list[str | None] = field(default_factory=list)
    engine_name: str = "rsync"

    @property
    def host(self) -> str:
        return self.executor.host

    @property
    def ends_by_lease(self) -> bool:
        return not self.settled_by_others

    @property
    def reads_mount(self) -> bool:
        return not self.bricks

    def reads(self, brick: str) -> bool:
        return brick in self.bricks

    def expect(self, bricks: Collection[str]) -> None:
        return None

    async def way(self, brick: str | None) -> Way:
        await asyncio.sleep(0)
        self.asked.append(brick)
        if self.lost is not None:
            raise self.lost
        if brick in self.refused:
            raise BrickRefused(f"{brick} is no brick there")
        return Way(executor=self.executor, engines={self.engine_name: self.engine}, brick=self.rules)

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        if self.lost is not None:
            raise self.lost
        return await self.executor.end_orphans(tokens)
