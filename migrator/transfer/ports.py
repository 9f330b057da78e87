"""Engines, executors, lanes and drivers: the interfaces that a run uses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from migrator.core.errors import MigratorError
from migrator.core.paths import is_beneath
from migrator.core.states import ChunkKind
from migrator.fs.model import TargetCapabilities
from migrator.gluster.model import BrickRules
from migrator.hosts.ports import Command, Completed, OnStart
from migrator.plan.model import ListedPath
from migrator.transfer.model import Outcome, StreamCounters, StreamView

if TYPE_CHECKING:
    from migrator.transfer.engines.drivers import Driver, DriverDirectories
    from migrator.transfer.executors import LocalExecutor

# Engines turn a chunk into a command, and its output into an outcome. Executors run that command on a host, confined.


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkWork:
    """One chunk for an engine. Paths are relative to the source root and lie in `tree`.

    `bwlimit_bytes_per_s` is this stream's share; None: no limit. `recopy`: copy everything, even if size and times
    match. The data on the target may not have reached its disks before a crash, or may be older than the data that a
    later pass has to send. `brick` is None if the source is a mount.
    """

    kind: ChunkKind
    tree: bytes
    paths: Sequence[ListedPath]
    capabilities: TargetCapabilities
    bwlimit_bytes_per_s: int | None = None
    recopy: bool = False
    brick: BrickRules | None = None

    def name(self, path: bytes) -> bytes:
        """See `name_in_tree`."""
        return name_in_tree(self.tree, path)


def name_in_tree(tree: bytes, path: bytes) -> bytes:
    """A path relative to its tree. Raises ValueError for a path outside it."""
    if not is_beneath(path, tree):
        raise ValueError("a path outside its chunk's tree")
    return path if not tree else path[len(tree) + 1 :]


class StreamReader(Protocol):
    """Follows the output of one stream."""

    def stdout(self, piece: bytes) -> None:
        """Take a piece of standard output, cut anywhere."""

    def stderr(self, piece: bytes) -> None:
        """Take a piece of standard error, cut anywhere."""

    @property
    def counters(self) -> StreamCounters:
        """The files and bytes that have arrived so far."""

    @property
    def stderr_tail(self) -> bytes:
        """The last few KiB of standard error."""

    def outcome(self, completed: Completed) -> Outcome:
        """Judge the attempt after the process has ended."""


class Engine(Protocol):
    """A program that copies one chunk. The engine starts no process itself."""

    @property
    def name(self) -> str:
        """The name used by `--engine`."""

    @property
    def program(self) -> bytes:
        """The executable's absolute path: the confinement makes it and its libraries visible."""

    def fits(self, tree: bytes, path: bytes) -> bool:
        """Whether a stream can take this path of a tree, both relative to the source root; others are copied by
        descriptor.
        """

    def command(self, work: ChunkWork, view: StreamView) -> Command:
        """The argv and the file list on standard input. Pure."""

    def reader(self, work: ChunkWork, view: StreamView) -> StreamReader:
        """A new reader for one attempt."""


class Executor(Protocol):
    """Runs streams on one host, each in a mount namespace that holds only its tree on both sides."""

    @property
    def host(self) -> str:
        """The host's name."""

    def view(self, tree: bytes) -> StreamView:
        """The location of a tree as a stream of this executor sees it."""

    async def execute(
        self,
        command: Command,
        *,
        program: bytes,
        tree: bytes,
        on_start: OnStart,
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None],
    ) -> Completed:
        """Run one stream to its end, confined to `tree`; a cancellation ends all of its processes first."""

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        """End orphaned processes of earlier attempts; returns the tokens of those that could not be ended."""

    async def sync(self) -> None:
        """Return when all writes of streams here have reached the target's disks (syncfs). Raises OSError, HostLost."""


# Drivers: programs that copy whole trees, with their own streams, queues and run state.
#
# One driver runs at a time, over one tree after the other, through the mounts. The ordinary chunks that follow copy the
# omitted files, so nothing depends on the driver's own report.


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverView(StreamView):
    """The locations of the tree, and of the driver's own directory, as the driver sees them."""

    work: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverWork:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Driving:
    """The parts of the driver step."""

    driver: "Driver"
    executor: "LocalExecutor"
    states: "DriverDirectories"
    part_files: int
    part_bytes: int


# Hosts of streams and their sources: this machine reads the mounts; brick servers and nodes of a batch system read
# their bricks.


class BrickRefused(MigratorError):
    """The path of a brick on its host is not that brick. The host itself and its other bricks may be fine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A connected host: its executor over one root of the source, and its engines by name.

    `brick` is None if it reads a mount.
    """

    executor: Executor
    engines: Mapping[str, Engine]
    brick: BrickRules | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickLook:
    """Whether the bricks may be read instead of the mount now: `reasons` against it, as sentences, and the fingerprint
    of the volume (see `SourceHealth`). `lasting`: files have moved, and only a new scan can find them.
    """

    reasons: tuple[str, ...]
    fingerprint: str
    lasting: bool = False
