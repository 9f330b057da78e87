"""Engines, executors, lanes and drivers: the interfaces that a run uses."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from migrator.core.errors import MigratorError
from migrator.core.events import EventKind, Severity
from migrator.core.states import ChunkKind
from migrator.core.units import KIB
from migrator.fs.model import TargetCapabilities
from migrator.gluster.model import BrickRules
from migrator.hosts.ports import Command, Completed
from migrator.plan.ports import MeasuredDrains
from migrator.transfer.model import StreamCounters, StreamOutcome, StreamView

if TYPE_CHECKING:
    from migrator.plan.chunk_lists import ListedPaths
    from migrator.transfer.engines.drivers import Driver, DriverDirectories
    from migrator.transfer.executors import Executor, LocalExecutor

Report = Callable[[EventKind, Severity, str, str], None]
"""Reports an event: its kind, severity, subject and message."""

# Engines turn a chunk into a command, and its output into an outcome. Executors run that command on a host, confined.


class ChunkWork(Struct, frozen=True, kw_only=True):
    """One chunk for an engine. Paths are relative to the source root and lie beneath `tree`, whose root is not among them:
    it stays closed on the target.

    `bwlimit_bytes_per_s` is this stream's share; None: no limit. `recopy`: copy everything, even if size and times
    match. The data on the target may not have reached its disks before a crash, or may be older than the data that a
    later pass has to send. `own_names`: the engine may make new files under their own names, because no user can access
    the tree and nothing relies on what it holds. `digest`: report the digests of what is copied, if the engine can.
    `brick` is None if the source is a mount.
    """

    kind: ChunkKind
    tree: bytes
    paths: "ListedPaths"
    capabilities: TargetCapabilities
    bwlimit_bytes_per_s: int | None = None
    recopy: bool = False
    digest: bool = False
    own_names: bool = False
    brick: BrickRules | None = None


_LONGEST_LINE_BYTES = 1 << 16
TAIL_BYTES = 8 * KIB


class Lines:
    """Splits pieces into lines. Memory is bounded: lines over 64 KiB, longer than any relevant one, are dropped."""

    def __init__(
        self, take: Callable[[bytes], None], *, ends: bytes = b"\n", but: re.Pattern[bytes] | None = None
    ) -> None:
        """`ends`: any of these bytes ends a line. `but`: whole lines, with their ends, that are not taken."""
        self._take = take
        self._but = but
        self._ends = re.compile(b"[" + ends + b"]")
        self._rest = b""
        self._dropped = False

    @property
    def is_cut(self) -> bool:
        """Whether a line was dropped, or the last one has not ended."""
        return self._dropped or bool(self._rest)

    def add(self, piece: bytes) -> None:
        """Add the next piece."""
        whole = self._rest + piece
        *lines, self._rest = self._ends.split(self._but.sub(b"", whole) if self._but else whole)
        for line in lines:
            self._take(line)
        if len(self._rest) > _LONGEST_LINE_BYTES:
            self._rest, self._dropped = b"", True


class Kept:
    """The beginning and the end of an output of any length."""

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail = b""

    def add(self, piece: bytes) -> None:
        """Add the next piece."""
        room = self._head_bytes - len(self._head)
        self._head += piece[:room]
        if room < len(piece):
            self._tail = (self._tail + piece[room:])[-self._tail_bytes :]

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    @property
    def content(self) -> bytes:
        """The kept output without the first line of the tail: that line may lack its beginning, and a file name in it
        could imitate another message.
        """
        return self.head + b"\n" + self._tail.partition(b"\n")[2] if self._tail else self.head

    @property
    def is_cut(self) -> bool:
        """Whether the output exceeded the head."""
        return bool(self._tail)

    def last(self, size_bytes: int) -> bytes:
        """The last bytes, for display."""
        return (self.head[-size_bytes:] + self._tail)[-size_bytes:]


class StreamReader(ABC):
    """Follows the output of one stream."""

    def __init__(self, *, keep_bytes: int) -> None:
        self._stderr = Kept(keep_bytes, TAIL_BYTES)

    @abstractmethod
    def stdout(self, piece: bytes) -> None:
        """Take a piece of standard output, cut anywhere."""

    def stderr(self, piece: bytes) -> None:
        """Take a piece of standard error, cut anywhere."""
        self._stderr.add(piece)

    @property
    @abstractmethod
    def counters(self) -> StreamCounters:
        """The files and bytes that have arrived so far."""

    @property
    def stderr_tail(self) -> bytes:
        """The last few KiB of standard error."""
        return self._stderr.last(TAIL_BYTES)

    @abstractmethod
    def outcome(self, completed: Completed) -> StreamOutcome:
        """Judge the attempt after the process has ended."""


class CopyEngine(Protocol):
    """A program that copies one chunk. The engine starts no process itself."""

    @property
    def name(self) -> str:
        """The name used by `--engine`."""

    @property
    def program(self) -> bytes:
        """The executable's absolute path: the confinement makes it and its libraries visible."""

    @property
    def longest_name_bytes(self) -> int:
        """The longest path, relative to its tree, that a stream can take."""

    def command(self, work: ChunkWork, view: StreamView) -> Command:
        """The argv and the file list on standard input. Pure."""

    def reader(self, work: ChunkWork, view: StreamView) -> StreamReader:
        """A new reader for one attempt."""


# Drivers: programs that copy whole trees, with their own streams, queues and run state.
#
# One driver runs at a time, over one tree after the other, through the mounts. The ordinary chunks that follow copy the
# omitted files, so nothing depends on the driver's own report.


class DriverView(StreamView, frozen=True, kw_only=True):
    """The locations of the tree, and of the driver's own directory, as the driver sees them."""

    work: bytes


class DriverWork(Struct, frozen=True, kw_only=True):
    """One tree for a driver, of about `size_bytes`. `jobs` concurrent streams share `bwlimit_bytes_per_s` (None: no
    limit); a part holds up to `part_files` files and `part_bytes` bytes. `recopy`: send everything, whatever the state
    of the target.
    """

    size_bytes: int
    jobs: int
    part_files: int
    part_bytes: int
    capabilities: TargetCapabilities
    bwlimit_bytes_per_s: int | None = None
    recopy: bool = False


class Driving(Struct, frozen=True, kw_only=True):
    """A driver, and what it needs to drive trees."""

    driver: "Driver"
    executor: "LocalExecutor"
    states: "DriverDirectories"
    part_files: int
    part_bytes: int


# Hosts of streams and their sources: this machine reads the mounts; brick servers and nodes of a batch system read
# their bricks.


class BrickRefused(MigratorError):
    """The path of a brick on its host is not that brick. The host itself and its other bricks may be fine."""


class ConnectedHost(Struct, frozen=True, kw_only=True):
    """A connected host: its executor over one root of the source, and its engines by name.

    `brick` is None if it reads a mount.
    """

    executor: "Executor"
    engines: Mapping[str, CopyEngine]
    brick: BrickRules | None = None


class BrickReadiness(Struct, frozen=True, kw_only=True):
    """Whether the bricks may be read instead of the mount now: `reasons` against it, as sentences, and the fingerprint
    of the volume (see `SourceHealth`). `lasting`: files have moved, and only a new scan can find them. `held` has the reason
    against each brick whose set alone may not be read.
    """

    reasons: tuple[str, ...]
    fingerprint: str
    lasting: bool = False
    held: Mapping[str, str] = {}


# Drains of the source's bricks: `bricks/` fulfils this protocol.


class BrickDrains(MeasuredDrains, Protocol):
    """The bricks that drains took out of the volume while passes copied."""

    def any_committed(self, *, since_s: float) -> bool:
        """Whether a drain is being committed, or was committed since then."""

    def taken_out(self, volume_id: str, *, since_s: float) -> frozenset[str]:
        """Bricks that drains have committed since then, or are committing: glusterd's list shows whether that is done."""

    def explain(self, before: str, after: str, *, since_s: float) -> bool:
        """Whether drains that were committed since then, and nothing else, explain this change of the volume's fingerprint."""
