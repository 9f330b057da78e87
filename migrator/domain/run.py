"""What a run is asked, what it finds before it starts, and what it came to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from migrator.domain.changes import Changes
from migrator.domain.convergence import Outcome
from migrator.domain.errors import ExitCode, MigratorError
from migrator.domain.states import ChunkKind
from migrator.domain.storage_targets import StripeSettings
from migrator.domain.transfer import FileProblem, StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a chunk is tried, and how long it waits in between: twice as long each time, up to a longest time.

    `interruptions` bounds how often a stream of one chunk may be ended by somebody else before that counts as failing.
    """

    tries: int = 3
    first_delay_s: float = 1.0
    longest_delay_s: float = 60.0
    interruptions: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What `run` is asked. `bwlimit_bytes_per_s` is for all streams together; None: no limit.

    `trees`: only passes over these user trees; None: over all of the batches.

    `recopy`: send every file, also where size and times on the target are right already.

    `engine` as in `--engine`. `only_bricks`: never read through the mount what lies on a brick ([source] via is
    `bricks`). A host that was lost has ended its streams by itself after `lease_s`.

    `stall_timeout_s` bounds how long a stream may do nothing, `end_timeout_s` how long ending it may take.

    `stripe` is given to the trees that are made on the target; None: they have what is above them.
    """

    plan: str
    batches: tuple[int, ...]
    jobs: int
    pid: int
    dry_run: bool = False
    trees: frozenset[bytes] | None = None
    recopy: bool = False
    engine: str = "auto"
    only_bricks: bool = False
    lease_s: float = 30.0
    bwlimit_bytes_per_s: int | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    stall_timeout_s: float = 600.0
    end_timeout_s: float = 60.0
    sample_interval_s: float = 5.0
    progress_interval_s: float = 0.5
    heartbeat_interval_s: float = 5.0
    reserve_bytes: int = 1024**3
    inodes_free: int | None = None
    stripe: StripeSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFinding:
    """One guard, and what speaks against starting (empty: nothing)."""

    guard: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeWork:
    """What is left to do of one user tree, or of a whole batch."""

    tree: bytes
    chunks: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Why the pool of streams stopped, in words for people. `unended` names processes that could not be ended."""

    reason: StopReason
    message: str
    cause: str
    hint: str
    unended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a batch was not copied, and what to do about it."""

    message: str
    cause: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSummary:
    """One delta pass of this run: what it sent in `elapsed_s` after `scan_s` of scanning and comparing, what had changed,
    and what was decided after it (`outcome` None: it stopped, or went over some of the batch's trees alone). `freeze_s` is
    what a freeze would take now.
    """

    number: int
    files: int
    size_bytes: int
    elapsed_s: float
    scan_s: float
    changes: Changes | None
    outcome: Outcome | None
    freeze_s: float | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSummary:
    """What became of one batch in this run. Files and bytes are those that this run brought over, by its chunks.

    `left` is what is still to do, tree by tree (of a dry run: what would be done); `guards` what the guards said.
    `bad` lists the files of the whole pass that need attention, `vanished` counts those that were gone on the source.
    `skipped` says which hook skipped the batch, or its pass; `hooks` names those that a dry run did not call.
    `deltas` are the delta passes of this run; of a dry run, `deltas_to_follow` is how many would follow at most, which it
    does not look into.
    `left_alone` are the trees of the batch whose users work on the target, or are being brought there. `refusal` is why the
    batch was refused, where the run went on with others.
    """

    batch: int
    chunks: int = 0
    files: int = 0
    size_bytes: int = 0
    written_bytes: int = 0
    elapsed_s: float = 0.0
    chunks_by_kind: Mapping[ChunkKind, int] = field(default_factory=dict)
    vanished: int = 0
    bad: tuple[FileProblem, ...] = ()
    trees_gone: tuple[bytes, ...] = ()
    left: tuple[TreeWork, ...] = ()
    guards: tuple[GuardFinding, ...] = ()
    nothing_to_do: bool = False
    stopped: Stopped | None = None
    skipped: str = ""
    hooks: tuple[str, ...] = ()
    deltas: tuple[DeltaSummary, ...] = ()
    deltas_to_follow: int = 0
    left_alone: tuple[bytes, ...] = ()
    refusal: Refusal | None = None

    @property
    def refused(self) -> bool:
        """Whether a guard speaks against this batch."""
        return self.refusal is not None or any(finding.problems for finding in self.guards)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What a run came to; `run_id` and `directory` are None for a dry run."""

    run_id: int | None
    directory: str | None
    dry_run: bool
    batches: tuple[BatchSummary, ...]

    @property
    def nothing_to_do(self) -> bool:
        """Whether every batch had been finished before."""
        return all(batch.nothing_to_do for batch in self.batches)

    @property
    def exit_code(self) -> ExitCode:
        """As the shell gets it."""
        if any(batch.stopped for batch in self.batches):
            return ExitCode.FAILED
        if any(batch.refused for batch in self.batches):
            return ExitCode.REFUSED
        if any(batch.bad for batch in self.batches):
            return ExitCode.ATTENTION
        return ExitCode.DONE


class RunStopped(MigratorError):
    """The pool of streams stopped for a reason that no chunk is to blame for. `summary` says how far the run came."""

    def __init__(self, stopped: Stopped, summary: RunSummary) -> None:
        super().__init__(stopped.message, cause=stopped.cause, hint=stopped.hint)
        self.stopped = stopped
        self.summary = summary
