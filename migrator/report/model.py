"""Values behind `status`, `report`, `metrics` and `status --watch`. Times are seconds since the epoch, durations seconds. Pure."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from migrator.beegfs.model import StorageSample
from migrator.bench.model import BenchmarkResult
from migrator.bricks.add.model import AdditionStanding
from migrator.bricks.drain.model import DrainStanding
from migrator.bricks.retire.model import Retirement
from migrator.catalog.model import CatalogRecord, VerificationRecord
from migrator.core.blocker import Blocker
from migrator.core.entry import UserTree
from migrator.core.events import Event, EventKind, Severity
from migrator.core.probe import Probe
from migrator.core.states import BatchState, ChunkKind, ChunkState, PassKind
from migrator.core.units import DAY_S, KIB, MIB, percent_of
from migrator.core.windows import ALWAYS, OpenTimes
from migrator.cutover.model import CutoverRecord
from migrator.cutover.model_freezes import FreezeSpent, FrozenUser
from migrator.cutover.model_speed import SpeedUpSum, UserSpeedUps
from migrator.fs.model import CapacityOutlook, CapacitySample
from migrator.ledger.model import Holder, RunRecord
from migrator.plan.model import Plan, ThroughputPoint, UsageDifference, UsageRanking
from migrator.purge.model import SecondCopy
from migrator.transfer.delta.model import ChangeKind, ChangeTally
from migrator.transfer.model import ConvergenceRecord, FileProblem, GoverningFacts, PassRecord, SizeClass, StreamSum

# --- Forecast of the copying


RANGE_SHARE = 0.8
"""Probability that the true end lies in the range. The rest is split evenly between before and after it."""

FARTHEST_S = 100 * 365 * DAY_S
"""The longest forecast. Later ends are cut to it."""


class WorkSlot(Struct, frozen=True, kw_only=True):
    """Files and bytes copied in one time slot, including empty slots. `seen_s` is the observed part of the slot: the
    first slot counts from the first stream, the last one until now.
    """

    at_s: float
    seen_s: float
    files: int
    size_bytes: int


class ConePoint(Struct, frozen=True, kw_only=True):
    """Bytes left at one time: the median, and both ends of the range."""

    at_s: float
    left_bytes: float
    least_bytes: float
    most_bytes: float


class CopyForecast(Struct, frozen=True, kw_only=True):
    """The expected time when all files of the plan are copied once. `likely_at_s` is the median; the end lies between
    `earliest_at_s` and `latest_at_s` with probability `share`. `basis` explains the computation in sentences.
    """

    made_at_s: float
    likely_at_s: float
    earliest_at_s: float
    latest_at_s: float
    share: float
    history_s: float
    basis: tuple[str, ...]
    cone: tuple[ConePoint, ...]

    @property
    def left_s(self) -> float:
        return self.likely_at_s - self.made_at_s


# --- Parts of a report that the status does not have


class KeptReport(Struct, frozen=True, kw_only=True):
    """A report of the past in the state directory. `sent`: its hooks took it. `baseline`: `report --baseline` made it."""

    name: str
    at_s: float
    sent: bool
    baseline: bool


class EarlierReport(Struct, frozen=True, kw_only=True):
    """Figures of an earlier report; `likely_at_s` is None if it had no forecast."""

    at_s: float
    plan: str | None
    total_bytes: int
    done_bytes: int
    total_files: int
    done_files: int
    likely_at_s: float | None
    moved_at_s: float | None = None
    cleared_at_s: float | None = None


class EarlierReports(Struct, frozen=True, kw_only=True):
    """The earlier reports that a report compares with: the last one, and the one that `report --baseline` marked."""

    earlier: EarlierReport | None = None
    baseline: EarlierReport | None = None


class Punctuality(StrEnum):
    """An expected end against a promised one, or against that of an earlier report."""

    AHEAD = "ahead"
    AS_EXPECTED = "as-expected"
    BEHIND = "behind"
    UNKNOWN = "unknown"


class SinceReport(Struct, frozen=True, kw_only=True):
    """Progress since an earlier report. `expected_bytes` is the amount that its forecast expected to be copied since
    then; `end_moved_s` is positive if the likely end moved to a later time. `reasons` are sentences.
    """

    earlier: EarlierReport
    standing: Punctuality
    done_bytes: int
    done_files: int
    expected_bytes: float | None
    planned_more_bytes: int
    end_moved_s: float | None
    reasons: tuple[str, ...]


class Promise(Struct, frozen=True, kw_only=True):
    """The dates that all reports compare with: those of the first active plan (`baseline` False), or of the report that was
    marked as the baseline. They were given at `at_s`, with `left_*` to copy until `copied_at_s`, in `busy_s` of work. The
    schedule of the plan has the other two dates; None without one.
    """

    at_s: float
    plan: str
    baseline: bool
    total_bytes: int
    left_bytes: int
    left_files: int
    busy_s: float
    copied_at_s: float
    moved_at_s: float | None = None
    cleared_at_s: float | None = None


class Goal(StrEnum):
    """A date of the whole migration, in the order of the work."""

    COPIED = "copied"
    """Everything is copied once."""
    VERIFIED = "verified"
    """The last user tree is verified."""
    MOVED = "moved"
    """The last user works on the target."""
    PURGED = "purged"
    """The source of the last user is freed."""
    CLEARED = "cleared"
    """The last brick is out of the source."""
    ADDED = "added"
    """The last drained brick is part of the target."""
    COMPLETE = "complete"
    """All of these."""


class Milestone(Struct, frozen=True, kw_only=True):
    """When a goal is expected, or was reached (`done`). The range is None if nothing gives one. `unknown` is the reason why
    there is no date, `basis` the source of the date.
    """

    goal: Goal
    done: bool = False
    at_s: float | None = None
    earliest_at_s: float | None = None
    latest_at_s: float | None = None
    promised_at_s: float | None = None
    unknown: str = ""
    basis: str = ""


class TreeCourse(Struct, frozen=True, kw_only=True):
    """How far a user tree is. `batch` names the trees that are copied and verified together. `reached` has the time of each
    goal that it has reached; None: unknown.
    """

    batch: str
    reached: Mapping[Goal, float | None]


class BrickCourse(Struct, frozen=True, kw_only=True):
    """How far the bricks of one subvolume are. Its drain began at `began_at_s`, and moves `size_bytes`. Bricks that are not
    drained stay until the volume is stopped. `reached` as in `TreeCourse`.
    """

    is_drained: bool = True
    size_bytes: int
    began_at_s: float | None
    reached: Mapping[Goal, float | None]


class StageUnit(Struct, frozen=True, kw_only=True):
    """A part of the work of one stage, which is done at once. `work` has any one unit. Since `ready_at_s` it waited for this
    stage, or was in it (None: it is not ready, or the time is unknown); `done_at_s` may be unknown too.
    """

    work: float = 1.0
    ready_at_s: float | None = None
    done: bool = False
    done_at_s: float | None = None


class AssumedWait(Struct, frozen=True, kw_only=True):
    """How long a unit of a stage waits if nothing was measured yet, and the source of that."""

    earliest_s: float
    likely_s: float
    latest_s: float
    basis: str


class Stage(Struct, frozen=True, kw_only=True):
    """One stage of the migration: all its units, done or not. Those of the stage before are ready `keep_s` later; if it
    does not `follow`, only the last one waits for the stage before; one `after` drains waits for those alone. Nothing is expected for the reason `unknown`. As long
    as no unit was measured, each takes the `assumed` wait, and all drains that have not begun `drains_s`; otherwise the
    stage ends at `scheduled_at_s` by the plan (None: unknown), and never while `times` are closed. By their own pace the drains in
    progress end in `running_s`.
    """

    goal: Goal
    units: tuple[StageUnit, ...]
    follows: bool = True
    keep_s: float = 0.0
    unknown: str = ""
    assumed: AssumedWait | None = None
    drains_s: float = 0.0
    running_s: float = 0.0
    scheduled_at_s: float | None = None
    times: OpenTimes = ALWAYS
    after: "Stage | None" = None


class PromiseVerdict(Struct, frozen=True, kw_only=True):
    """The next open date against the promised one. `late_s` is negative if it is early, None if it is unknown; with
    `at_least` it may get more. `sentence` has all of it.
    """

    standing: Punctuality
    late_s: float | None
    at_least: bool
    reasons: tuple[str, ...]
    sentence: str


class WeekFacts(Struct, frozen=True, kw_only=True):
    """Seven days. Streams copied `files` and `size_bytes`, later changes included, in `busy_s`. Incidents are kinds of
    warnings and errors by subject, freezes those that ended.
    """

    from_s: float
    to_s: float
    users_moved: int
    files: int
    size_bytes: int
    busy_s: float
    bricks_cleared: int
    bricks_added: int
    incidents: int
    freezes: int
    longest_freeze_s: float | None

    @property
    def busy_share(self) -> float:
        return min(self.busy_s / (self.to_s - self.from_s), 1.0)

    @property
    def rate_bytes_per_s(self) -> float:
        return self.size_bytes / self.busy_s if self.busy_s > 0 else 0.0


class BrickOutlook(Struct, frozen=True, kw_only=True):
    """One brick of the source: its state as text, the files that its drain has left to move (None: unknown), and the
    time when it is free, with a range for bricks that wait for their drain. `basis` is the source of that time: the pace
    of the drain or the schedule.
    """

    brick: str
    state: str
    left_files: int | None
    left_bytes: int | None
    free_at_s: float | None
    earliest_at_s: float | None = None
    latest_at_s: float | None = None
    basis: str


class ServerOutlook(Struct, frozen=True, kw_only=True):
    """A server of the source: its bricks, how many of them are free, and the time when all are (None: unknown).
    `basis` is that of the last brick to become free.
    """

    server: str
    bricks: int
    free_bricks: int
    free_at_s: float | None
    basis: str


class ReapedFacts(Struct, frozen=True, kw_only=True):
    """The files that a plan archives or skips instead of copying. `archived_*` counts the content of proven archives,
    which are `archives` files of `archive_bytes`; `released` counts the skipped paths and globs released for deletion.
    """

    to_archive_bytes: int
    to_archive_inodes: int
    skipped_bytes: int
    skipped_inodes: int
    archives: int
    archived_files: int
    archived_bytes: int
    archive_bytes: int
    released: int


# --- Sums of the ledger for `status` and `report`


class PlannedBatch(Struct, frozen=True, kw_only=True):
    """A batch as planned, with its state."""

    number: int
    state: BatchState
    chunks: int
    forecast_s: float


class ChunkSum(Struct, frozen=True, kw_only=True):
    """All chunks of one tree, kind and state in one pass."""

    tree: bytes
    kind: ChunkKind
    state: ChunkState
    chunks: int
    files: int
    size_bytes: int


class AttentionCount(Struct, frozen=True, kw_only=True):
    """Files of one batch that did not arrive: `bad` files need attention, `vanished` files were deleted by their users."""

    bad: int
    vanished: int


class AttentionFile(Struct, frozen=True, kw_only=True):
    """A file that needs attention."""

    batch: int
    problem: FileProblem


class PlanFacts(Struct, frozen=True, kw_only=True):
    """The plan whose batches are shown."""

    name: str
    path: str
    checksum: str
    created_at_s: float
    catalog: str
    forecast_s: float
    basis: str


class DonePoint(Struct, frozen=True, kw_only=True):
    """The total done at one time."""

    at_s: float
    done_files: int
    done_bytes: int


# --- Throughput of streams by host, brick, engine and file size


UPPER_BYTES = ((SizeClass.TINY, 16 * KIB), (SizeClass.SMALL, MIB), (SizeClass.MEDIUM, 64 * MIB))
"""Upper bounds of the classes (exclusive); larger means are LARGE."""


# --- Incidents, made of events


class Incident(Struct, frozen=True, kw_only=True):
    """All events of one kind about one subject, with the message of the last one. `resolved_at_s` is None as long as no
    event ends them; `resolution` names that event.
    """

    kind: EventKind
    severity: Severity
    subject: str
    count: int
    first_at_s: float
    last_at_s: float
    message: str
    resolved_at_s: float | None = None
    resolution: str = ""


class RecordedEvent(Event, frozen=True, kw_only=True):
    """A warning or error, and the event that ended it, as in `Incident`."""

    resolved_at_s: float | None = None
    resolution: str = ""


# --- Status and report


class ProgressCounts(Struct, frozen=True, kw_only=True):
    """Progress of one part of the work. A user is done when all planned files of their trees are copied."""

    total_bytes: int = 0
    done_bytes: int = 0
    total_files: int = 0
    done_files: int = 0
    total_users: int = 0
    done_users: int = 0

    @property
    def left_bytes(self) -> int:
        return self.total_bytes - self.done_bytes

    @property
    def left_files(self) -> int:
        return self.total_files - self.done_files

    @property
    def left_users(self) -> int:
        return self.total_users - self.done_users

    @property
    def percent_bytes(self) -> float | None:
        return percent_of(self.done_bytes, self.total_bytes)

    @property
    def percent_files(self) -> float | None:
        return percent_of(self.done_files, self.total_files)

    @property
    def percent_users(self) -> float | None:
        return percent_of(self.done_users, self.total_users)


class TreeState(StrEnum):
    """State of one user tree in the whole migration. `ATTENTION`: it is copied except for files that failed at every
    attempt. `MOVED`: its user works on the target; `PURGED`: its source is freed, too. `EXCLUDED`: an earlier plan had
    it, the active one leaves it out, and its user works on the source; it is not counted.
    """

    PLANNED = "planned"
    COPYING = "copying"
    COPIED = "copied"
    ATTENTION = "needs-attention"
    VERIFIED = "verified"
    MOVED = "moved"
    PURGED = "purged"
    EXCLUDED = "excluded"


class TreeStatus(Struct, frozen=True, kw_only=True):
    """Progress of one user tree, by the plan that has done the most recent work on it."""

    tree: UserTree
    plan: str
    batch: int
    rank: int
    state: TreeState
    tally: ProgressCounts


class PassStatus(PassRecord, frozen=True, kw_only=True):
    """One pass over a batch. `changes` counts the changes that a later pass carries, by kind, over all trees; None if
    none were recorded.
    """

    changes: Mapping[ChangeKind, ChangeTally] | None = None


class BatchStatus(Struct, frozen=True, kw_only=True):
    """Progress of one batch. `chunks` counts all kinds of chunks in the newest pass; `verification` is the newest
    finished one, `convergence` the prediction after the last delta pass.
    """

    number: int
    state: BatchState
    tally: ProgressCounts
    users: tuple[str, ...]
    chunks: Mapping[ChunkState, int]
    passes: tuple[PassStatus, ...]
    forecast_s: float
    attention: AttentionCount
    verification: VerificationRecord | None
    convergence: ConvergenceRecord | None = None


class RunLife(StrEnum):
    """Liveness of a run. `SILENT`: its process lives, and its heartbeat is old. `KILLED`: it recorded no end, and its
    process has ended.
    """

    AT_WORK = "at-work"
    SILENT = "silent"
    KILLED = "killed"
    ENDED = "ended"


ALIVE = (RunLife.AT_WORK, RunLife.SILENT)


class RunStatus(RunRecord, frozen=True, kw_only=True):
    """One invocation of a verb that writes. `silent_s` is the age of its last heartbeat."""

    life: RunLife
    silent_s: float


class NextStep(Struct, frozen=True, kw_only=True):
    """An ordinary next step of an operator: nothing is wrong with the subject, which waits in this state."""

    subject: str
    state: str
    hint: str


class MigrationStatus(Struct, frozen=True, kw_only=True):
    """The current state. Everything except `at_s` may be missing; `site` is None before `init`.

    - `overall`, `verified`, `moved` and `trees` cover the whole migration: all plans that were active, up to the
      counting plan (`plan`). `batches` are those of the counting plan.
    - `verified` includes moved users: a cutover verifies.
    - `attention` may be cut, `attention_total` is not.
    - `forecast` is None if nothing is left or too little was copied.
    - `milestones` are the expected dates of the whole migration; empty without a plan.
    - `rate` is the throughput of the last minutes, None while nothing is copied; `last_rate` is that of the last minutes in
      which something was copied.
    - `verified_content_bytes` are the verified bytes whose content was compared, not only their attributes.
    - `frozen` are the users who cannot work now, under any plan.
    - `cutovers` has the newest attempt for every tree under any plan: a later plan omits users who work on the target.
    - `probes` has the newest probe of each side; `drains`, `additions` and `retirement` have the newest attempts.
    - `governing` has the limits that operators set, and the number of streams that the newest run may have.
    - `at_work` are the processes at work on this machine now, with what they hold.
    - `archives` are those of the site that hold the tree of a newest cutover as its verification has it. Each tree needs
      `require_archive` of them before its source is purged (0 also if the caller does not pass it).
    - `storage` has the first and the newest sample of the storage and metadata targets of a BeeGFS target.
    """

    at_s: float
    site: str | None
    frozen: tuple[FrozenUser, ...] = ()
    scan: CatalogRecord | None = None
    plan: PlanFacts | None = None
    overall: ProgressCounts = ProgressCounts()
    verified: ProgressCounts = ProgressCounts()
    moved: ProgressCounts = ProgressCounts()
    verified_content_bytes: int = 0
    batches: tuple[BatchStatus, ...] = ()
    trees: tuple[TreeStatus, ...] = ()
    forecast: CopyForecast | None = None
    milestones: tuple[Milestone, ...] = ()
    rate: ThroughputPoint | None = None
    last_rate: ThroughputPoint | None = None
    attention: tuple[AttentionFile, ...] = ()
    attention_total: int = 0
    vanished_total: int = 0
    runs: tuple[RunStatus, ...] = ()
    events: tuple[RecordedEvent, ...] = ()
    blocked: tuple[Blocker, ...] = ()
    next_steps: tuple[NextStep, ...] = ()
    probes: tuple[Probe, ...] = ()
    cutovers: tuple[CutoverRecord, ...] = ()
    drains: tuple[DrainStanding, ...] = ()
    additions: tuple[AdditionStanding, ...] = ()
    retirement: Retirement | None = None
    governing: GoverningFacts = GoverningFacts()
    at_work: tuple[Holder, ...] = ()
    storage: tuple[StorageSample, ...] = ()
    archives: tuple[SecondCopy, ...] = ()
    require_archive: int = 0


class ForecastSettings(Struct, frozen=True, kw_only=True):
    """The settings of site.toml that the expected dates depend on: how long sources are kept, growth until it is measured,
    and when freezes may begin.
    """

    retain_s: float = 0.0
    growth_bytes_per_day: int = 0
    cutovers: OpenTimes = ALWAYS


DEFAULT_SETTINGS = ForecastSettings()
ReadPlan = Callable[[str], tuple[Plan, str]]
"""Reads the document of a plan, with its checksum. Raises MigratorError."""


class ReportFacts(Struct, frozen=True, kw_only=True):
    """The report for management: status, history, forecast and proofs.

    - `plan` is None without a plan, or if its document cannot be read (`plan_problem` is the reason).
    - `promise` is None without a plan; `verdict` compares `milestones` with it: those of the status, with promised dates.
    - `since` is None without an earlier report.
    - `weeks` are the last seven days, and the seven before if the migration is older.
    - `days` is the throughput by day, or by hour while the history is short (see `span_s`).
    - `outlook` is the expected usage of the target.
    - `incidents` lists unresolved ones first.
    - `freezes` are those that have ended, under any plan, newest first.
    - `speed_ups` are those of users who work on the target, newest first; `speed_up_sums` has each test over all of them.
    """

    status: MigrationStatus
    done: tuple[DonePoint, ...]
    verifications: tuple[VerificationRecord, ...]
    plan: Plan | None
    plan_problem: str
    promise: Promise | None = None
    verdict: PromiseVerdict | None = None
    milestones: tuple[Milestone, ...] = ()
    weeks: tuple[WeekFacts, ...] = ()
    since: SinceReport | None = None
    days: tuple[ThroughputPoint, ...] = ()
    capacity: tuple[CapacitySample, ...] = ()
    outlook: CapacityOutlook | None = None
    bricks: tuple[BrickOutlook, ...] = ()
    servers: tuple[ServerOutlook, ...] = ()
    reaped: ReapedFacts | None = None
    incidents: tuple[Incident, ...] = ()
    benchmarks: tuple[BenchmarkResult, ...] = ()
    freezes: tuple[FreezeSpent, ...] = ()
    speed_ups: tuple[UserSpeedUps, ...] = ()
    speed_up_sums: tuple[SpeedUpSum, ...] = ()
    streams: tuple[StreamSum, ...] = ()
    usage: UsageRanking | None = None
    usage_differences: tuple[UsageDifference, ...] = ()


# --- Metrics for Prometheus. Base units: seconds, bytes


Counts = Sequence[tuple[float, *tuple[str, ...]]]
"""Values of one metric, each with its labels."""


class MetricFacts(Struct, frozen=True, kw_only=True):
    """One snapshot of everything behind the metrics. `runs` has the newest run of every verb, `capacity` the newest
    sample of each side, `frozen_since_s` the start of each current freeze, for a cutover or a rollback.

    `sums` are those over the whole ledger and all plans, by the name of the metric without `migrator_`. Counts of
    running streams include those that a killed run left; `freeze_seconds` has the duration of each ended freeze.
    """

    status: MigrationStatus
    sums: Mapping[str, Counts]
    runs: tuple[RunStatus, ...]
    capacity: tuple[CapacitySample, ...]
    governing: GoverningFacts
    frozen_since_s: tuple[float, ...]
    version: str


# --- `status --watch`


class StreamAtWork(Struct, frozen=True, kw_only=True):
    """One attempt that has not ended in the ledger. `files` and `size_bytes` are those of its chunk; `done_*` is its
    progress by its samples, and `recent_*` the part of the last `recent_s` seconds. `brick` is None if it reads the
    mount.
    """

    attempt_id: int
    host: str
    batch: int
    pass_kind: PassKind
    pass_number: int
    chunk: int
    tree: bytes
    brick: str | None
    files: int
    size_bytes: int
    done_files: int = 0
    done_bytes: int = 0
    recent_bytes: int = 0
    recent_s: float = 0.0

    @property
    def rate_bytes_per_s(self) -> float | None:
        """The recent rate; None before the first sample."""
        return self.recent_bytes / self.recent_s if self.recent_s > 0 else None


class WatchFacts(Struct, frozen=True, kw_only=True):
    """A snapshot for the live view. `rates` is the throughput in bytes per second over equal spans, oldest first, until
    now or the end of the last copying. `news` are the events since the previous snapshot, oldest first; `last_event` is
    the number of the newest event.
    """

    status: MigrationStatus
    streams: tuple[StreamAtWork, ...] = ()
    rates: tuple[float, ...] = ()
    news: tuple[Event, ...] = ()
    last_event: int = 0
