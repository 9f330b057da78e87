"""Drivers: programs that copy whole trees by themselves, with streams, queues and a run state of their own.

One driver works at a time, over one tree after the other, through the mounts. What it leaves out is brought by the
ordinary chunks that follow, so that nothing depends on what it says of itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from migrator.domain.site import TargetCapabilities
from migrator.domain.transfer import Outcome, ProcessIdentity, StopReason, StreamCounters
from migrator.ports.activity import Activity
from migrator.ports.processes import Command, Completed


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverView:
    """Where a driver sees things: absolute paths of the tree on both sides, and of its own directory."""

    source_tree: bytes
    target_tree: bytes
    work: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverWork:
    """What a driver is asked for one tree, of about `size_bytes`. `jobs` streams at once share `bwlimit_bytes_per_s`
    (None: no limit); a part holds up to `part_files` files and `part_bytes` bytes. `recopy`: send everything, whatever
    lies on the target.
    """

    size_bytes: int
    jobs: int
    part_files: int
    part_bytes: int
    capabilities: TargetCapabilities
    bwlimit_bytes_per_s: int | None = None
    recopy: bool = False


class DriverReader(Protocol):
    """Follows one run of a driver: what it says, and the logs that it keeps in its directory."""

    def stdout(self, piece: bytes) -> None:
        """Take a piece of standard output, cut anywhere."""

    def stderr(self, piece: bytes) -> None:
        """Take a piece of standard error, cut anywhere."""

    @property
    def counters(self) -> StreamCounters:
        """What all of its streams have brought so far. Looks into their logs."""

    @property
    def stderr_tail(self) -> bytes:
        """The last few KiB of standard error, and what its streams said last."""

    @property
    def exit_code(self) -> int | None:
        """Of a run that was judged; None before."""

    @property
    def trouble(self) -> tuple[StopReason, str] | None:
        """An error that no file is to blame for, as soon as a stream has told it: the driver itself would go on through
        all of its queue.
        """

    def outcome(self, completed: Completed) -> Outcome:
        """Judge the run, once all of its processes have ended. DONE with a message: something was left to look at."""


class Driver(Protocol):
    """A program that copies whole trees. It starts nothing itself."""

    @property
    def name(self) -> str:
        """As in `--engine`."""

    @property
    def files(self) -> Sequence[bytes]:
        """Absolute paths of the programs that it consists of: the confinement makes them visible."""

    def refusal(self, view: DriverView) -> str | None:
        """Why it cannot take a tree that lies there; None where it can."""

    def command(self, work: DriverWork, view: DriverView, directory: Path) -> Command:
        """The argv. `directory` is its own one as this program sees it: a run that it holds and that can go on is gone
        on with, any other is cleared away.
        """

    def reader(self, view: DriverView, directory: Path) -> DriverReader:
        """A new reader for one run."""


class DriverExecutor(Protocol):
    """Runs drivers on this machine, confined to one tree of each side and their own directory."""

    @property
    def host(self) -> str:
        """The host's name."""

    @property
    def boot_id(self) -> str:
        """Which boot of the machine this is."""

    @property
    def activity(self) -> Activity:
        """Whether the streams of a driver still do something: its own shell, which looks around all the time, aside."""

    def view(self, tree: bytes, directory: Path) -> DriverView:
        """Where a driver sees a tree, and its directory."""

    async def execute(
        self,
        command: Command,
        *,
        files: Sequence[bytes],
        tree: bytes,
        directory: Path,
        on_start: Callable[[ProcessIdentity], None],
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None],
    ) -> Completed:
        """Run a driver until it and all that it has started have ended; cancellation ends every process of it first."""

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        """End what is left of earlier attempts; returns the tokens of those that could not be ended."""


class DriverStates(Protocol):
    """The drivers' own directories, one for each tree of a pass. They outlive a run, so that it can be gone on with."""

    def directory(self, pass_id: int, chunk: int) -> Path:
        """The directory, made where it was missing. Raises OSError."""

    def read_boot(self, pass_id: int, chunk: int) -> str | None:
        """What was noted; None where nothing was, or it was taken back."""

    def note_boot(self, pass_id: int, chunk: int, boot_id: str) -> None:
        """Note durably, before a driver starts, that what it writes need not have reached the target's disks."""

    def clear(self, pass_id: int, chunk: int, *, keep_logs: bool) -> None:
        """All that was written has reached the disks: take the note back, and remove what is not worth keeping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driving:
    """All that the step needs to run a driver."""

    driver: Driver
    executor: DriverExecutor
    states: DriverStates
    part_files: int
    part_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverResult:
    """What the step came to: how many trees were driven, what their streams brought, and which were left out and why.
    Attempts after `last_attempt_id` are those of the look that follows.
    """

    trees: int
    counters: StreamCounters
    left_out: Mapping[bytes, str]
    last_attempt_id: int
