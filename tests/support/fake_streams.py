"""An engine and an executor that copy between file systems in memory, with `FakeStreams.faults`."""

import asyncio
import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from migrator.core.states import ChunkKind
from migrator.gluster.model import BrickRules
from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Command, Completed, HostLost, OnOutput, OnStart
from migrator.site.model import DIRECT, RSYNC
from migrator.transfer.executors import Executor
from migrator.transfer.model import (
    AttemptVerdict,
    FileProblem,
    FileProblemKind,
    StopReason,
    StreamCounters,
    StreamOutcome,
    StreamView,
)
from migrator.transfer.ports import BrickRefused, ChunkWork, ConnectedHost, CopyEngine, StreamReader
from tests.support.fake_filesystem import FakeFileSystem, Node


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
class FakeStreams(Executor):
    """Engine and executor in one: a stream copies its list path by path from one fake file system to the other."""

    source: FakeFileSystem
    target: FakeFileSystem
    faults: dict[bytes, Fault] = field(default_factory=dict)
    unendable: bool = False
    name: str = "fake"
    program: bytes = b"/bin/fake"
    host: str = "here"
    streams: list[tuple[ChunkKind, tuple[bytes, ...]]] = field(default_factory=list)
    recopied: list[bool] = field(default_factory=list)
    alive: set[str] = field(default_factory=set)
    at_once: int = 0
    copied: list[bytes] = field(default_factory=list)
    before_path: Callable[[bytes], None] = lambda _: None
    moved: Callable[[], int] = lambda: 7
    """What streams have done so far: nothing ever moves."""
    longest_name_bytes: int = 4000

    def view(self, tree: bytes) -> StreamView:
        return StreamView(source_tree=b"/source", target_tree=b"/target")

    def command(self, work: ChunkWork, view: StreamView) -> Command:
        rows = [(listed.path, listed.link_group) for listed in work.paths]
        stdin = b"\0".join(path for path, _ in rows)
        self.recopied.append(work.recopy)
        return Command(argv=(b"fake", work.kind.value.encode()), stdin=stdin, timeout_s=None)

    def reader(self, work: ChunkWork, view: StreamView) -> "FakeReader":
        return FakeReader()

    async def execute(
        self,
        command: Command,
        *,
        program: bytes,
        tree: bytes,
        on_start: OnStart,
        on_stdout: OnOutput,
        on_stderr: OnOutput,
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

    def limit(self, token: str, bytes_per_s: int | None) -> None:
        """They have none."""

    async def sync(self) -> None:
        self.target.sync()

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        await asyncio.sleep(0)
        if not self.unendable:
            self.alive.difference_update(tokens)
        return [token for token in tokens if token in self.alive]

    async def activity(self, tokens: Sequence[str]) -> Mapping[str, int]:
        return dict.fromkeys(tokens, self.moved())

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


class FakeReader(StreamReader):
    """Reads what a fake stream says."""

    counters = StreamCounters()

    def __init__(self) -> None:
        super().__init__(keep_bytes=0)
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

    def outcome(self, completed: Completed) -> StreamOutcome:
        verdict = {0: AttemptVerdict.DONE, 23: AttemptVerdict.DONE, -9: AttemptVerdict.INTERRUPTED}.get(
            completed.exit_code, AttemptVerdict.RETRY
        )
        if self._stop is not None:
            verdict = AttemptVerdict.STOP
        return StreamOutcome(
            verdict=verdict,
            counters=self.counters,
            suspects=tuple(self._suspects),
            stop=self._stop,
            message=f"exit code {completed.exit_code}",
        )

    def _suspect(self, kind: FileProblemKind, path: bytes, code: int) -> None:
        name = bytes.fromhex(path.decode())
        self._suspects.append(FileProblem(path=name, kind=kind, errno=code, reason=f"errno {code}"))


@dataclass(slots=True)
class FakeLane:
    """The `Lane` port: a host that is there, until `lost` says why it is not."""

    executor: Executor
    engine: CopyEngine
    jobs: int = 2
    bricks: frozenset[str] = frozenset()
    rules: BrickRules | None = None
    rsync: CopyEngine | None = None
    lost: HostLost | None = None
    refused: frozenset[str] = frozenset()
    asked: list[str | None] = field(default_factory=list)

    @property
    def host(self) -> str:
        return self.executor.host

    @property
    def attempts_on(self) -> str:
        return self.host

    @property
    def reads_mount(self) -> bool:
        return not self.bricks

    def reads(self, brick: str) -> bool:
        return brick in self.bricks

    async def connect(self, brick: str | None) -> ConnectedHost:
        await asyncio.sleep(0)
        self.asked.append(brick)
        if self.lost is not None:
            raise self.lost
        if brick in self.refused:
            raise BrickRefused(f"{brick} is no brick there")
        engines = {DIRECT: self.engine, **({} if self.rsync is None else {RSYNC: self.rsync})}
        return ConnectedHost(executor=self.executor, engines=engines, brick=self.rules)

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        if self.lost is not None:
            raise self.lost
        return await self.executor.end_orphans(tokens)
