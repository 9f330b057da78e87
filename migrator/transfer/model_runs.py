"""A run: its request, its findings before the start, and its summary."""

from collections.abc import Mapping

from msgspec import Struct

from migrator.beegfs.model import LayoutRule
from migrator.core.errors import ExitCode, MigratorError
from migrator.core.states import ChunkKind
from migrator.transfer.delta.model import Changes
from migrator.transfer.model import FileProblem, StopReason
from migrator.transfer.model_convergence import ConvergenceOutcome


class RunRequest(Struct, frozen=True, kw_only=True):
    """The options of `run`.

    `trees`: only these user trees; None: all of the batches. `recopy`: send every file, even if size and times on the
    target match. `engine` as in `--engine`. A lost host ends its streams by itself after `lease_s`. A stream may stall
    for at most `stall_timeout_s`. `layout` is for new trees on the target; without a fitting rule they inherit.
    """

    plan: str
    batches: tuple[int, ...]
    jobs: int
    pid: int
    dry_run: bool = False
    trees: frozenset[bytes] | None = None
    recopy: bool = False
    engine: str = "auto"
    lease_s: float = 30.0
    stall_timeout_s: float = 600.0
    sample_interval_s: float = 5.0
    progress_interval_s: float = 0.5
    reserve_bytes: int = 1024**3
    inodes_free: int | None = None
    layout: tuple[LayoutRule, ...] = ()


class GuardFinding(Struct, frozen=True, kw_only=True):
    """The result of one guard."""

    guard: str
    """Name of the guard."""
    problems: tuple[str, ...]
    """Its reasons to refuse; empty if it passed."""


class TreeWork(Struct, frozen=True, kw_only=True):
    """Remaining work on one user tree, or on a whole batch."""

    tree: bytes
    chunks: int
    """Number of chunks."""
    files: int
    size_bytes: int


class Stopped(Struct, frozen=True, kw_only=True):
    """Why all streams stopped."""

    reason: StopReason
    """The reason in one word."""
    message: str
    cause: str
    hint: str
    unended: tuple[str, ...] = ()
    """Processes that could not be ended."""


class TreeApart(Struct, frozen=True, kw_only=True):
    """A user tree that a pass left unchanged, although it covered others."""

    tree: bytes
    reason: str
    """Why."""


class Refusal(Struct, frozen=True, kw_only=True):
    """Why a batch was not copied."""

    message: str
    cause: str
    hint: str


class DeltaSummary(Struct, frozen=True, kw_only=True):
    """One delta pass of this run."""

    number: int
    """Its number in the batch."""
    files: int
    """Files that it sent."""
    size_bytes: int
    """Bytes that it sent."""
    elapsed_s: float
    """Duration after the scan."""
    scan_s: float
    """Duration of scan and comparison."""
    changes: Changes | None
    """The changes."""
    outcome: ConvergenceOutcome | None
    """The decision after it; None: the pass stopped, or covered only some trees of the batch."""
    freeze_s: float | None
    """The predicted freeze."""
    sentence: str
    """The decision in words."""


class BatchSummary(Struct, frozen=True, kw_only=True):
    """The result of one batch in this run. In a dry run: of the next pass."""

    batch: int
    chunks: int = 0
    """Number of chunks that were copied."""
    files: int = 0
    """Files that were copied."""
    size_bytes: int = 0
    """Bytes to copy of these files."""
    written_bytes: int = 0
    """Bytes that were written."""
    elapsed_s: float = 0.0
    """Duration, scans included."""
    chunks_by_kind: Mapping[ChunkKind, int] = {}
    """Number of chunks by kind."""
    vanished: int = 0
    """Files of the pass that were gone on the source."""
    bad: tuple[FileProblem, ...] = ()
    """Files of the pass that need attention."""
    trees_gone: tuple[bytes, ...] = ()
    """User trees that are gone from the source."""
    left: tuple[TreeWork, ...] = ()
    """Remaining work by tree; in a dry run, planned work."""
    guards: tuple[GuardFinding, ...] = ()
    """What each guard found."""
    nothing_to_do: bool = False
    """No pass was due."""
    stopped: Stopped | None = None
    """Why streams stopped."""
    skipped: str = ""
    """The hook that skipped the batch or its pass."""
    hooks: tuple[str, ...] = ()
    """Hooks that a dry run did not call."""
    deltas: tuple[DeltaSummary, ...] = ()
    """Delta passes of this run."""
    deltas_to_follow: int = 0
    """Delta passes that a real run makes at most."""
    left_alone: tuple[bytes, ...] = ()
    """User trees whose users work on the target, or are being cut over."""
    set_apart: tuple[TreeApart, ...] = ()
    """User trees that the last pass left unchanged: the scan could not read them everywhere, or they lost too much."""
    refusal: Refusal | None = None
    """Why the batch was refused although the run continued with others."""

    @property
    def refused(self) -> bool:
        """A guard refused this batch."""
        return self.refusal is not None or any(finding.problems for finding in self.guards)


class RunSummary(Struct, frozen=True, kw_only=True):
    """The result of `run`. A run that stopped prints an error instead."""

    run_id: int | None
    """Number of the run; None for a dry run."""
    directory: str | None
    """Directory of its log; None for a dry run."""
    dry_run: bool
    batches: tuple[BatchSummary, ...]
    """The result for each batch."""

    @property
    def nothing_to_do(self) -> bool:
        """Every batch was finished before."""
        return all(batch.nothing_to_do for batch in self.batches)

    @property
    def exit_code(self) -> ExitCode:
        if any(batch.stopped for batch in self.batches):
            return ExitCode.FAILED
        if any(batch.refused for batch in self.batches):
            return ExitCode.REFUSED
        if any(batch.bad or batch.set_apart for batch in self.batches):
            return ExitCode.ATTENTION
        return ExitCode.DONE


class RunStopped(MigratorError):
    """The pool of streams stopped for a reason that no chunk is to blame for. `summary` has the progress of the run."""

    def __init__(self, stopped: Stopped, summary: RunSummary) -> None:
        super().__init__(stopped.message, cause=stopped.cause, hint=stopped.hint)
        self.stopped = stopped
        self.summary = summary
