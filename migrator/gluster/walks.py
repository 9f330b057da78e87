"""Walks of bricks, each on its own host: the ports, the frames that the walking program writes, and its start."""

import struct
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from migrator.core.errors import MigratorError
from migrator.core.paths import show
from migrator.fs.model import ScanProblem
from migrator.fs.ports import WalkedRoot
from migrator.fs.rules_owners import SAME_OWNERS, OwnerMap, owner_options
from migrator.gluster.model import Brick, BrickRules
from migrator.hosts.ports import Command, Completed, Host, Hosts, Processes
from migrator.native.program import malformed


class BrickLost(MigratorError):
    """The walk of a brick did not finish: its program died, or its output cannot be parsed."""


class BrickHello(Struct, frozen=True, kw_only=True):
    """The facts of a brick before its first row. Without marks on its root, `volume_id` is None and `root_gfid` empty.
    `device` is that of its file system.
    """

    volume_id: str | None
    root_gfid: bytes
    device: int


class BrickTotals(NamedTuple):
    """The walk's own counts, for comparison with what arrived, in the order of its last frame.

    `migrating` counts files with the marks of a migration, `filling_links` link-to files that already have content:
    both mean that files move between bricks. `strange` counts files without a gfid, which were written past Gluster;
    `hidden_marks` files whose setgid and sticky bits the mount hides (`BrickRules`); `marked` entries with a `Mark`.
    """

    rows: int
    directories: int
    size_bytes: int = 0
    problems: int = 0
    vanished: int = 0
    migrating: int = 0
    links: int = 0
    filling_links: int = 0
    ask_the_mount: int = 0
    strange: int = 0
    hidden_marks: int = 0
    marked: int = 0


class WalkProblems(Struct, frozen=True, kw_only=True):
    """Paths that a walk reports instead of rows, or (`marked`) beside them.

    `unreadable` ones failed. `to_ask` have no row and must be read through the mount, with the reason. `strange` ones have
    no gfid, and must not be looked up through the mount (GlusterFS #3688). `marked` ones have a `Mark` as operation: this
    copy, or another one, may differ from what the mount shows; the empty path is the brick's root.
    """

    unreadable: tuple[ScanProblem, ...] = ()
    to_ask: tuple[ScanProblem, ...] = ()
    strange: tuple[ScanProblem, ...] = ()
    marked: tuple[ScanProblem, ...] = ()


class WalkFinding(NamedTuple):
    """An entry that a walk reports, with a value that depends on the report."""

    path: bytes
    value: bytes


class BrickListener(Protocol):
    """Receives the results of a walk, one call at a time; the walk waits for each, so memory stays bounded."""

    async def hello(self, hello: BrickHello) -> None:
        """The first call. An exception ends the walk."""

    async def rows(self, payload: memoryview) -> None:
        """A block of entries other than directories, for the catalog to decode."""

    async def directories(self, payload: memoryview) -> None:
        """A block of directories, in the same format."""

    async def listings(self, payload: memoryview) -> None:
        """A block of directories with the sums of their names, if the walk was started for that."""

    async def problems(self, found: WalkProblems) -> None:
        """Take some of the paths that the walk reports."""


# The frames of a walk, as in `native/src/frames.h`, `walk.c` and `walk_rows.c`.
#
# They come from another machine: malformed ones raise MigratorError and nothing else.


FORMAT_VERSION = 3

_MAGIC = 0x57474D31
_HEAD = struct.Struct("<IIQ")
_LIMIT_BYTES = 512 * 1024 * 1024
"""Far above the size of any valid frame."""

_HELLO = struct.Struct("<II16s16s8xQ")
_PROBLEM = struct.Struct("<Iiiii")
_COUNT = struct.Struct("<Q")
_FINDING = struct.Struct("<II")
_END = struct.Struct("<12Q")
_HAS_VOLUME_ID, _HAS_ROOT_GFID = 2, 4


class FrameKind(IntEnum):
    """The kinds of frames."""

    HELLO = 1
    ROWS = 2
    DIRECTORIES = 3
    PROBLEMS = 4
    END = 5
    LISTINGS = 6
    FINDINGS = 7


class WalkFrames:
    """Cuts a stream into frames. `feed` takes pieces cut anywhere; `finish` is called at the end of the stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes | memoryview) -> Iterator[tuple[FrameKind, memoryview]]:
        """The frames that are complete now, each with a payload in a buffer of its own. The iterator has to be
        exhausted. Raises MigratorError.
        """
        self._buffer += piece
        while len(self._buffer) >= _HEAD.size:
            kind, length = self._head()
            end = _HEAD.size + length
            if len(self._buffer) < end:
                return
            payload = memoryview(bytes(memoryview(self._buffer)[_HEAD.size : end]))
            del self._buffer[:end]
            yield kind, payload

    def finish(self) -> None:
        """Raises MigratorError if the stream ended within a frame."""
        if self._buffer:
            raise malformed("it ends within a frame")

    def _head(self) -> tuple[FrameKind, int]:
        magic, kind, length = _HEAD.unpack_from(self._buffer)
        if magic != _MAGIC:
            raise malformed("no frame begins where one should")
        if length > _LIMIT_BYTES:
            raise malformed(f"a frame claims {length} bytes")
        try:
            return FrameKind(kind), length
        except ValueError as error:
            raise malformed(f"a frame has the unknown kind {kind}") from error


def decode_hello(payload: memoryview) -> BrickHello:
    """The first frame. Raises MigratorError, also for another version of the format."""
    if len(payload) >= 4 and (version := int.from_bytes(payload[:4], "little")) != FORMAT_VERSION:
        raise malformed(f"it is written in version {version} of the format, not {FORMAT_VERSION}")
    _, flags, volume_id, root_gfid, device = _unpack(_HELLO, payload)
    return BrickHello(
        volume_id=str(uuid.UUID(bytes=volume_id)) if flags & _HAS_VOLUME_ID else None,
        root_gfid=root_gfid if flags & _HAS_ROOT_GFID else b"",
        device=device,
    )


def decode_problems(payload: memoryview) -> WalkProblems:
    """A frame of problems, by kind. Raises MigratorError."""
    kinds: tuple[list[ScanProblem], ...] = ([], [], [], [])
    try:
        (count,) = _COUNT.unpack_from(payload)
        position = _COUNT.size
        for _ in range(count):
            kind, number, *lengths = _PROBLEM.unpack_from(payload, position)
            if kind >= len(kinds):
                raise malformed(f"a problem has the unknown kind {kind}")
            position += _PROBLEM.size
            words: list[bytes] = []
            for length in lengths:
                if not 0 <= length <= len(payload) - position:
                    raise malformed("a problem is longer than its frame")
                words.append(bytes(payload[position : position + length]))
                position += length
            path, operation, reason = words
            kinds[kind].append(
                ScanProblem(
                    path=path,
                    operation=operation.decode("utf-8", "backslashreplace"),
                    errno=number or None,
                    reason=reason.decode("utf-8", "backslashreplace"),
                )
            )
    except struct.error as error:
        raise malformed("a problem is cut off") from error
    if position != len(payload):
        raise malformed("a frame of problems is longer than its problems")
    unreadable, to_ask, strange, marked = map(tuple, kinds)
    return WalkProblems(unreadable=unreadable, to_ask=to_ask, strange=strange, marked=marked)


def decode_findings(payload: memoryview) -> list[WalkFinding]:
    """A frame of findings. Raises MigratorError."""
    findings: list[WalkFinding] = []
    try:
        (count,) = _COUNT.unpack_from(payload)
        position = _COUNT.size
        for _ in range(count):
            lengths = _FINDING.unpack_from(payload, position)
            position += _FINDING.size
            if sum(lengths) > len(payload) - position:
                raise malformed("a finding is longer than its frame")
            path_end, end = position + lengths[0], position + sum(lengths)
            findings.append(WalkFinding(bytes(payload[position:path_end]), bytes(payload[path_end:end])))
            position = end
    except struct.error as error:
        raise malformed("a finding is cut off") from error
    if position != len(payload):
        raise malformed("a frame of findings is longer than its findings")
    return findings


def decode_end(payload: memoryview) -> BrickTotals:
    """The last frame. Raises MigratorError."""
    return BrickTotals(*_unpack(_END, payload))


def _unpack(form: struct.Struct, payload: memoryview) -> tuple[Any, ...]:
    if len(payload) != form.size:
        raise malformed(f"a frame has {len(payload)} bytes where {form.size} belong")
    return form.unpack(payload)


# The walk itself.
#
# The compiled program is placed on the brick's host for the duration of the connection; nothing is installed there.


_STDERR_TAIL_BYTES = 2000
_NOT_A_BRICK = 3
"""The walk's exit code for a path that is no brick's root."""


class HostBrickWalks:
    """Walks bricks on their hosts. `place` puts the compiled program on a host; it raises HostLost and ToolFailed."""

    def __init__(self, hosts: Hosts, place: Callable[[Host], Awaitable[bytes]], *, names: Collection[str]) -> None:
        self._hosts = hosts
        self._place = place
        self.hosts: Collection[str] = frozenset(names)
        """The hosts that the site names, as in the brick list."""

    async def reach(self, host: str) -> None:
        """Connect to a host. Raises HostLost, and UsageError if the site does not name it."""
        await self._hosts.reach(host)

    async def walk(
        self,
        brick: Brick,
        *,
        trees: Sequence[bytes],
        only_trees: bool,
        rules: BrickRules,
        listener: BrickListener,
        own: bool = False,
        marks_only: bool = False,
    ) -> BrickTotals:
        """Walk a brick on its host, and return after the last call of the listener.

        `only_trees` reads only the trees and the directories that lead to them. `own` includes this program's own files
        in the root, which no scan lists. `marks_only` reports no rows of files: another copy of them is read. On cancellation, the walk is ended on the host before the call returns. Raises
        BrickLost, HostLost, ToolFailed, UsageError, and what the listener raises.
        """
        host = await self._hosts.reach(brick.host)
        flags = (
            *((b"--distributed", rules.distributed), (b"--only-trees", only_trees), (b"--own", own)),
            *((b"--listings", rules.replicated), (b"--marks", rules.marks), (b"--marks-only", marks_only)),
        )
        argv = (
            *(await self._place(host), b"walk", b"--brick", brick.path),
            *(b"--times", b"mdata" if rules.times_from_mdata else b"file"),
            *(flag for flag, wanted in flags if wanted),
        )
        return await run_walk(host.processes, argv, trees, f"brick {brick.name}", listener)


MOUNT_WORKERS = 16
"""Each call on the mount of a network file system waits for a server."""


async def walk_mount(
    processes: Processes,
    program: bytes,
    root: bytes,
    *,
    trees: Sequence[bytes],
    listener: BrickListener,
    owners: OwnerMap = SAME_OWNERS,
) -> BrickTotals:
    """Walk trees of a mounted file system by the program at this path, as `HostBrickWalks.walk` walks a brick. `owners`
    as in `WalkedRoot`.
    """
    argv = (
        *(program, b"walk", b"--mount", root, b"--only-trees", b"--workers", b"%d" % MOUNT_WORKERS),
        *owner_options(owners.inverse, b"--uids", b"--gids"),
    )
    return await run_walk(processes, argv, trees, f"the mount {show(root)}", listener)


async def walk_whole_mount(
    processes: Processes,
    program: bytes,
    root: WalkedRoot,
    *,
    begin: Sequence[bytes],
    trees: Sequence[bytes],
    listener: BrickListener,
    workers: int,
    block_rows: int,
) -> BrickTotals:
    """Walk a mounted file system from the directories `begin` on, in an order that can be resumed: a listing arrives after
    all rows and problems of its directory, and after the listing of the directory above it. Frames have at most
    `block_rows` rows.
    """
    counted = ((b"--begin", begin), (b"--hidden", root.hidden), (b"--mounted", root.mounted))
    argv = (
        *(program, b"walk", b"--mount", root.path, b"--listings", b"--workers", b"%d" % workers),
        *(b"--block-rows", b"%d" % block_rows),
        *((b"--distributed",) if root.hides_marks else ()),
        *owner_options(root.owners.inverse, b"--uids", b"--gids"),
        *(word for option, paths in counted if paths for word in (option, b"%d" % len(paths))),
    )
    paths = (*trees, *(path for _, paths in counted for path in paths))
    return await run_walk(processes, argv, paths, f"the mount {show(root.path)}", listener)


async def run_walk(
    processes: Processes,
    argv: Sequence[bytes],
    paths: Sequence[bytes],
    where: str,
    listener: BrickListener,
    *,
    take_findings: Callable[[Sequence[WalkFinding]], None] | None = None,
) -> BrickTotals:
    """Run the program's walk; `paths` is its input, NUL-separated. Returns after the last call of the listener. Raises
    BrickLost, HostLost, and the errors of the callees.
    """
    stream = _Stream(where, listener, take_findings)
    completed = await processes.stream(
        Command(argv=tuple(argv), stdin=b"".join(path + b"\0" for path in paths), timeout_s=None),
        on_start=lambda _identity: None,
        on_stdout=stream.take,
        on_stderr=stream.take_stderr,
    )
    return stream.end(completed)


class _Stream:
    """Passes the output of one walk to its listener, frame by frame. `where`: what it walks, in words."""

    def __init__(
        self, where: str, listener: BrickListener, take_findings: Callable[[Sequence[WalkFinding]], None] | None
    ) -> None:
        self._where = where
        self._listener = listener
        self._take_findings = take_findings
        self._reader = WalkFrames()
        self._greeted = False
        self._totals: BrickTotals | None = None
        self._stderr = b""

    async def take(self, piece: bytes) -> None:
        for kind, payload in self._reader.feed(piece):
            await self._hand_out(kind, payload)

    def take_stderr(self, piece: bytes) -> None:
        self._stderr = (self._stderr + piece)[-_STDERR_TAIL_BYTES:]

    def end(self, completed: Completed) -> BrickTotals:
        """The walk's own counts. Raises BrickLost if it did not finish."""
        if completed.exit_code == 0 and self._totals is not None:
            self._reader.finish()
            return self._totals
        if completed.exit_code == _NOT_A_BRICK:
            raise BrickLost(
                f"{self._where} is no root of a brick",
                cause="its file system is not mounted there, or glusterd names another path",
                hint="look at that directory on its host and at `gluster volume info`",
            )
        how = f"exit code {completed.exit_code}" if completed.exit_code >= 0 else f"signal {-completed.exit_code}"
        printed = " ".join(self._stderr.decode("utf-8", "backslashreplace").split())
        raise BrickLost(
            f"the walk of {self._where} broke off ({how}){': ' + printed if printed else ''}",
            cause="its program was ended, or the file system has errors",
            hint="look at the host's kernel log, then run the same command again",
        )

    async def _hand_out(self, kind: FrameKind, payload: memoryview) -> None:
        if self._totals is not None or self._greeted == (kind is FrameKind.HELLO):
            raise BrickLost(
                f"the walk of {self._where} sends its frames in the wrong order",
                cause="another version of migrator placed it on that host",
            )
        match kind:
            case FrameKind.HELLO:
                self._greeted = True
                await self._listener.hello(decode_hello(payload))
            case FrameKind.ROWS:
                await self._listener.rows(payload)
            case FrameKind.DIRECTORIES:
                await self._listener.directories(payload)
            case FrameKind.PROBLEMS:
                await self._listener.problems(decode_problems(payload))
            case FrameKind.LISTINGS:
                await self._listener.listings(payload)
            case FrameKind.FINDINGS:
                if self._take_findings is None:
                    raise malformed("it has findings, and no report was asked for")
                self._take_findings(decode_findings(payload))
            case FrameKind.END:
                self._totals = decode_end(payload)
