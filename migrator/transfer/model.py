"""Values of runs: passes, chunks, attempts, problems of files, predictions, limits; and the choice of an engine."""

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from migrator.beegfs.model import LayoutRule
from migrator.core.errors import ExitCode, MigratorError
from migrator.core.states import AttemptState, ChunkKind, ChunkState, PassKind, PassState
from migrator.core.windows import WindowStanding
from migrator.hosts.model import ProcessIdentity
from migrator.site.model import DIRECT, RSYNC, needs_rsync
from migrator.transfer.delta.model import Changes, TreeChanges

# Passes, attempts, and the result of every file of a chunk.


class FileProblemKind(StrEnum):
    """Why a listed file did not arrive, or not as listed. `vanished` is confirmed by a look-up, and normal; `bad` needs
    attention. `moved`: the file is no longer on its brick, or a link-to file is in its place; the mount is read
    instead. `changed`: the file arrived while a user wrote to it, or its name was in use again when it was to be removed
    from the target; the next pass sends or removes it.
    """

    VANISHED = "vanished"
    BAD = "bad"
    MOVED = "moved"
    CHANGED = "changed"


class FileProblem(Struct, frozen=True, kw_only=True):
    """One file that did not arrive complete."""

    path: bytes
    kind: FileProblemKind
    """What is wrong."""
    errno: int | None
    """Number of the system's error."""
    reason: str


class StopReason(StrEnum):
    """Why the whole pool of streams stops: no chunk is to blame, and splitting would not help."""

    TARGET_FULL = "target-full"
    TARGET_QUOTA = "target-quota"
    TARGET_READ_ONLY = "target-read-only"
    IO_ERROR = "io-error"
    DISCONNECTED = "disconnected"
    TARGET_STUCK = "target-stuck"
    TARGET_MOVES = "target-moves"
    SOURCE_UNHEALTHY = "source-unhealthy"
    MOUNT_CHANGED = "mount-changed"
    TOOL_MISSING = "tool-missing"


class AttemptVerdict(StrEnum):
    """The action after one attempt."""

    DONE = "done"
    RETRY = "retry"
    STOP = "stop"
    INTERRUPTED = "interrupted"


class StreamCounters(Struct, frozen=True, kw_only=True):
    """The progress of one stream: files and bytes written to the target."""

    files: int = 0
    size_bytes: int = 0

    def __add__(self, other: "StreamCounters") -> "StreamCounters":
        return StreamCounters(files=self.files + other.files, size_bytes=self.size_bytes + other.size_bytes)


class StreamOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of one attempt. According to the engine, `suspects` did not arrive; a look-up has to confirm that."""

    verdict: AttemptVerdict
    counters: StreamCounters
    suspects: tuple[FileProblem, ...] = ()
    stop: StopReason | None = None
    message: str = ""


class StreamView(Struct, frozen=True, kw_only=True):
    """The locations of the tree as a stream sees it: absolute paths of the tree itself on both sides, inside the
    confinement.
    """

    source_tree: bytes
    target_tree: bytes


class ChunkRecord(Struct, frozen=True, kw_only=True):
    """A chunk in the ledger. `list_path` and `parent_id` are set for the halves of a split chunk."""

    id: int
    pass_id: int
    number: int
    kind: ChunkKind
    tree: bytes
    files: int
    size_bytes: int
    state: ChunkState
    list_path: str | None = None
    brick: str | None = None
    parent_id: int | None = None


class CopiedChunk(Struct, frozen=True, kw_only=True):
    """A chunk with the token of the attempt that copied it. None: no attempt has."""

    chunk: ChunkRecord
    token: str | None


class ListedChunk(Struct, frozen=True, kw_only=True):
    """The location of a chunk's path list."""

    chunk_list: str
    number: int


class NotArrived(Struct, frozen=True, kw_only=True):
    """The parts of a batch that are not known to have arrived, under their listed names. In order, without duplicates.

    `paths` were bad, changed during their copy, or were listed and not found. (A look-up proves that, but a path that
    was renamed and renamed back looks unchanged and has to be sent.) `chunks` failed or were never done: all of their
    paths count. Nothing is known of `trees`: their pass is unfinished, or the whole tree was not found; `chunks` omits
    the chunks of such a pass.
    """

    paths: tuple[bytes, ...] = ()
    chunks: tuple[ListedChunk, ...] = ()
    trees: tuple[bytes, ...] = ()


class AttemptRecord(Struct, frozen=True, kw_only=True):
    """An attempt in the ledger. `token` is in the environment of every process of the attempt."""

    id: int
    chunk_id: int
    number: int
    token: str
    host: str
    engine: str
    state: AttemptState
    process: ProcessIdentity | None
    argv: tuple[str, ...]
    started_at_s: float
    finished_at_s: float | None
    exit_code: int | None
    counters: StreamCounters
    stderr_tail: bytes


class Sample(Struct, frozen=True, kw_only=True):
    """Throughput over one interval; `attempt_id` is None for all streams together."""

    at_s: float
    interval_s: float
    attempt_id: int | None
    streams: int
    files: int
    size_bytes: int


# Past delta passes, the prediction of the next one and of the freeze, and the decision about another one.
#
# Times in seconds since the epoch, durations in seconds, rates per hour.


class FinishedPass(Struct, frozen=True, kw_only=True):
    """Facts of one finished pass, for predictions.

    `scanned_at_s` is the start of the scan that its list was made from, `scan_s` its duration; for a seed pass, the
    scan of the plan. The pass itself ran from `started_at_s` to `finished_at_s`.

    `number` is 0 for the seed; deltas and finals of a batch count from 1. Its streams copied `sent_files` and
    `sent_bytes`; `trees` are the changes. `renames` were made on the target, and `gone` paths moved to its trash, a
    directory counted once.
    """

    kind: PassKind
    number: int
    scanned_at_s: float
    scan_s: float
    started_at_s: float
    finished_at_s: float
    sent_files: int
    sent_bytes: int
    renames: int = 0
    gone: int = 0
    trees: tuple[TreeChanges, ...] = ()

    @property
    def elapsed_s(self) -> float:
        """Without the scan."""
        return max(self.finished_at_s - self.started_at_s, 0.0)

    @property
    def nothing_changed(self) -> bool:
        tallies = (tally for tree in self.trees for tally in tree.by_kind.values())
        return not (self.renames or self.gone or any(tally.paths for tally in tallies))


class FreezeCheck(Struct, frozen=True, kw_only=True):
    """The cost of verifying in the freeze, with all workers: `fixed_s`, and a cost per file and per byte.

    `files` and `size_bytes` have to be verified in any case; the paths that the final pass copies are extra.
    """

    s_per_file: float = 0.0
    s_per_byte: float = 0.0
    files: int = 0
    size_bytes: int = 0
    fixed_s: float = 0.0


class PassLimits(Struct, frozen=True, kw_only=True):
    """The limits of delta passes: they end if the freeze is short enough, or one run has made its maximum of passes."""

    max_freeze_s: float
    max_delta_passes: int


class TreeChurn(Struct, frozen=True, kw_only=True):
    """The rate at which one tree changes."""

    tree: bytes
    files_per_h: float
    """Files that change."""
    bytes_per_h: float
    """Bytes that change."""


class Prediction(Struct, frozen=True, kw_only=True):
    """A prediction from the passes so far."""

    next_pass_s: float
    """From the start of the next scan to the end of its pass."""
    freeze_s: float
    """From the freeze to the end of the verification, if users were frozen now."""
    least_freeze_s: float
    """The same without any changes: further passes cannot shorten it."""
    churn_files_per_h: float
    """Files that users change."""
    churn_bytes_per_h: float
    """Bytes that users change."""
    trees: tuple[TreeChurn, ...] = ()
    """What changes in each tree, most bytes first."""


class ConvergenceOutcome(StrEnum):
    """Whether another delta pass follows, and why not."""

    GO_ON = "go-on"
    CONVERGED = "converged"
    NO_LONGER_SHRINKS = "no-longer-shrinks"
    LIMIT_OF_PASSES = "limit-of-passes"
    NOTHING_CHANGED = "nothing-changed"


class Decision(Struct, frozen=True, kw_only=True):
    """Whether another delta pass follows. `prediction` is None before the first delta pass. `sentence` is for
    display.
    """

    outcome: ConvergenceOutcome
    prediction: Prediction | None
    sentence: str

    @property
    def go_on(self) -> bool:
        return self.outcome is ConvergenceOutcome.GO_ON


class ConvergenceRecord(Struct, frozen=True, kw_only=True):
    """Prediction and decision after one pass."""

    pass_id: int
    """Number of the pass in the ledger."""
    at_s: float
    """When it was made."""
    batch: int
    outcome: ConvergenceOutcome
    """The decision."""
    max_freeze_s: float
    """The limit of the freeze at that time."""
    prediction: Prediction
    """The prediction."""


# A run: its request, its findings before the start, and its summary.


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


# The number of streams: the operators' settings, and the governor's decision.


class StreamsBy(StrEnum):
    """How the number of streams within the limits is chosen: by measured throughput, or always the maximum."""

    MEASURED = "measured"
    FIXED = "fixed"


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of a migration. None: not given."""

    NO_KEYS: ClassVar = frozenset({"nothing"})

    jobs: int | None = None
    """Streams of each host."""
    bwlimit_bytes_per_s: int | None = None
    """Rate of all streams together."""
    max_latency_s: float | None = None
    """Latency of metadata operations above which streams are reduced."""
    max_load: float | None = None
    """Load average of a host above which its streams are reduced."""

    @property
    def nothing(self) -> bool:
        """No limit is given."""
        return self == Limits()


class Tuned(Struct, frozen=True, kw_only=True):
    """Limits set by `tune`; each overrides the one of site.toml and of the command line."""

    limits: Limits
    """The limits."""
    since_s: float
    """Since when."""
    by: str
    """Who set them."""


class Hold(Struct, frozen=True, kw_only=True):
    """A pause: no chunk starts until the migration is resumed."""

    since_s: float
    """Since when."""
    by: str
    """Who paused it."""
    reason: str = ""


class Controls(Struct, frozen=True, kw_only=True):
    """The operators' settings."""

    hold: Hold | None = None
    """The pause; None: not paused."""
    tuned: Tuned | None = None
    """Limits of `tune`; None: none."""


NO_CONTROLS = Controls()


class Gate(StrEnum):
    """Whether chunks may start."""

    OPEN = "open"
    OUTSIDE_WINDOWS = "outside-windows"
    PAUSED = "paused"


class Bound(StrEnum):
    """The factor that determines the number of streams."""

    JOBS = "jobs"
    THROUGHPUT = "throughput"
    TRYING = "trying"
    LATENCY = "latency"
    LOAD = "load"
    WINDOWS = "windows"
    PAUSE = "pause"


class GovernorRecord(Struct, frozen=True, kw_only=True):
    """The streams that the governor allows."""

    at_s: float
    """Since when."""
    run_id: int
    """Number of the run."""
    gate: Gate
    """Whether chunks may start."""
    bound: Bound
    """What limits the number of streams."""
    streams: int
    """Streams that are allowed, in all."""
    most: int
    """Streams that the limits would allow."""
    hosts: tuple[tuple[str, int], ...]
    """Pairs of a host and its allowed streams."""
    bwlimit_bytes_per_s: int | None
    """Limit for all streams together."""
    reason: str
    until_s: float | None = None
    """Begin of the next window."""
    max_latency_s: float | None = None
    """Limit of the brake by latency; None: none."""
    max_load: float | None = None
    """Limit of the brake by load; None: none."""

    def same(self, other: "GovernorRecord") -> bool:
        """Whether it allows the same for the same kind of reason; figures in the text of the reason may differ."""
        return replace(self, at_s=other.at_s, reason=other.reason) == other


class HostLoad(Struct, frozen=True, kw_only=True):
    """The last reading of the load of a host with streams."""

    host: str
    at_s: float
    """When it was read."""
    load: float
    """One-minute load average."""


class GoverningFacts(Struct, frozen=True, kw_only=True):
    """The operators' settings, and the allowance of the governor: `tune`, `pause`, `resume`."""

    controls: Controls = NO_CONTROLS
    """The operators' settings."""
    governor: GovernorRecord | None = None
    """The newest allowance, of a run at work if there is one; None: no run yet."""
    at_work: bool = False
    """That run is at work."""
    given: Limits | None = None
    """Limits of site.toml; None in `status`."""
    windows: tuple[WindowStanding, ...] | None = None
    """Windows of [transfer]; None in `status`."""
    loads: tuple[HostLoad, ...] = ()
    """The last load averages of that run's hosts."""


# The choice of the engine for a chunk.


def choose_engine(requested: str, kind: ChunkKind, *, from_brick: bool, beyond_rsync: bool) -> str | None:
    """The engine for a chunk. None: no stream, because another chunk copies the content. (rsync copies no ranges: it
    copies such a file whole.)

    `direct` always reads a brick: the others do not handle link-to files, nor the times that the volume shows. It also
    copies the chunks that are `beyond_rsync`: rsync failed at them, or they have paths that are too long for it.
    """
    if from_brick or not needs_rsync(requested):
        return DIRECT
    if kind is ChunkKind.RANGES:
        return None
    return DIRECT if beyond_rsync or kind is ChunkKind.LINKS else RSYNC


class SizeClass(StrEnum):
    """The mean file size of a chunk. Ranges are parts of big files."""

    TINY = "below 16 KiB"
    SMALL = "16 KiB to 1 MiB"
    MEDIUM = "1 MiB to 64 MiB"
    LARGE = "64 MiB and more"
    RANGES = "ranges of big files"


class StreamSum(Struct, frozen=True, kw_only=True):
    """Successful attempts of one kind."""

    host: str
    brick: str | None
    """The brick that they read; None: the mount."""
    engine: str
    """The engine."""
    size_class: SizeClass
    """Mean file size of the chunks."""
    attempts: int
    """Number of attempts."""
    files: int
    """Files that they copied."""
    size_bytes: int
    """Bytes that they copied."""
    stream_s: float
    """Time of all streams, added up."""

    @property
    def bytes_per_s(self) -> float:
        """Rate of one stream."""
        return self.size_bytes / self.stream_s if self.stream_s > 0 else 0.0

    @property
    def files_per_s(self) -> float:
        """Rate of one stream."""
        return self.files / self.stream_s if self.stream_s > 0 else 0.0


# Passes in the ledger.


class PassTotals(Struct, frozen=True, kw_only=True):
    """Sums over the chunks of a pass. A split chunk does not count; its halves do."""

    chunks: Mapping[ChunkState, int]
    done_files: int
    done_bytes: int
    files: int
    size_bytes: int


class PassRecord(Struct, frozen=True, kw_only=True):
    """One pass over a batch."""

    id: int
    plan: str
    batch: int
    kind: PassKind
    """Its kind."""
    number: int
    """0 for the seed pass; delta and final passes count from 1."""
    state: PassState
    """Its state."""
    catalog: str
    """The catalog that its list was made from."""
    base_catalog: str | None
    """The earlier catalog that this was compared with, in a pass that sends only changes."""
    chunk_list: str
    """The file with its chunks."""
    move_list: str | None
    """The file with its renames and deletions."""
    move_list_digest: str | None
    """Digest of that file."""
    moved_at_s: float | None
    """When its renames and deletions had reached the target's disks."""
    scan_s: float | None
    """Duration of scan and comparison."""
    started_at_s: float
    finished_at_s: float | None
    total_files: int
    """Files of its list."""
    total_bytes: int
    """Bytes of its list."""
