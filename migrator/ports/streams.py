"""Engines turn a chunk into a command and its output into facts; executors run that command on a host, confined."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.domain.plan import ListedPath
from migrator.domain.site import TargetCapabilities
from migrator.domain.states import ChunkKind
from migrator.domain.transfer import Outcome, ProcessIdentity, StreamCounters
from migrator.ports.processes import Command, Completed


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickRules:
    """The source of a stream is a brick and not a mount: link-to files are no data, Gluster's own attributes never
    travel, and times come from `trusted.glusterfs.mdata` where the volume keeps them there (`features.ctime`).
    """

    times_from_mdata: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkWork:
    """All that an engine needs of a chunk. Paths are relative to the source root and lie in `tree`.

    `bwlimit_bytes_per_s` is this stream's share; None: no limit. `recopy`: size and times that fit prove nothing, and
    everything is copied again; what is on the target already may not have reached its disks before a crash, or be older
    than what a later pass was told to send. `brick` is None where the source is a mount.
    """

    kind: ChunkKind
    tree: bytes
    paths: Sequence[ListedPath]
    capabilities: TargetCapabilities
    bwlimit_bytes_per_s: int | None = None
    recopy: bool = False
    brick: BrickRules | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamView:
    """Where a stream sees the tree: absolute paths of the tree itself on both sides, inside the confinement."""

    source_tree: bytes
    target_tree: bytes


class StreamReader(Protocol):
    """Follows the output of one stream."""

    def stdout(self, piece: bytes) -> None:
        """Take a piece of standard output, cut anywhere."""

    def stderr(self, piece: bytes) -> None:
        """Take a piece of standard error, cut anywhere."""

    @property
    def counters(self) -> StreamCounters:
        """What has arrived so far."""

    @property
    def stderr_tail(self) -> bytes:
        """The last few KiB of standard error."""

    @property
    def digests(self) -> Mapping[bytes, bytes]:
        """Digests that were made on the way, by path relative to the source root; empty where none were asked for."""

    def outcome(self, completed: Completed) -> Outcome:
        """Judge the attempt, once the process has ended."""


class Engine(Protocol):
    """A program that copies one chunk. It starts nothing itself."""

    @property
    def name(self) -> str:
        """As in `--engine`."""

    @property
    def program(self) -> bytes:
        """The executable's absolute path: the confinement makes it and its libraries visible."""

    def fits(self, tree: bytes, path: bytes) -> bool:
        """Whether a stream can take this path of a tree, both relative to the source root; others go by descriptor."""

    def command(self, work: ChunkWork, view: StreamView) -> Command:
        """The argv and the file list on standard input. Pure."""

    def reader(self, work: ChunkWork, view: StreamView) -> StreamReader:
        """A new reader for one attempt."""


class Settler(Protocol):
    """Mends what an engine that knows nothing of bricks has copied from one: sets the times that the volume shows, and
    tells the names that were no data there (`moved`).
    """

    @property
    def program(self) -> bytes:
        """The executable's absolute path."""

    def settle_command(self, work: ChunkWork, view: StreamView) -> Command | None:
        """The argv and the list; None where there is nothing to settle. Pure."""

    def reader(self, work: ChunkWork, view: StreamView) -> StreamReader:
        """A new reader for one settling."""


class Executor(Protocol):
    """Runs streams on one host, each in a mount namespace that holds only its tree on both sides."""

    @property
    def host(self) -> str:
        """The host's name."""

    def view(self, tree: bytes) -> StreamView:
        """Where a stream of this executor sees a tree."""

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
        """Run one stream to its end, confined to `tree`; cancellation ends every process of it first."""

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        """End what is left of earlier attempts; returns the tokens of those that could not be ended."""

    async def sync(self) -> None:
        """Return when all that streams here wrote has reached the target's disks (syncfs). Raises OSError, HostLost."""
