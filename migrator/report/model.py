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
from migrator.cutover.rules_freezes import FreezeSpent, FrozenUser
from migrator.cutover.rules_speed import SpeedUpSum, UserSpeedUps
from migrator.fs.model import CapacityOutlook, CapacitySample
from migrator.ledger.model import Holder, RunRecord
from migrator.plan.model import Plan, ThroughputPoint, UsageDifference, UsageRanking
from migrator.purge.model import SecondCopy
from migrator.transfer.delta.model import ChangeKind, ChangeTally
from migrator.transfer.model import FileProblem, PassRecord, SizeClass, StreamSum
from migrator.transfer.model_convergence import ConvergenceRecord
from migrator.transfer.model_governor import GoverningFacts

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
    """Bytes left at one time."""

    at_s: float
    """The time."""
    left_bytes: float
    """Median of the bytes left then."""
    least_bytes: float
    """Lower end of the range."""
    most_bytes: float
    """Upper end of the range."""


class CopyForecast(Struct, frozen=True, kw_only=True):
    """The expected time when all files of the plan are copied once."""

    made_at_s: float
    """When the forecast was made."""
    likely_at_s: float
    """The median."""
    earliest_at_s: float
    """Begin of the range."""
    latest_at_s: float
    """End of the range."""
    share: float
    """Probability that the end lies in the range."""
    history_s: float
    """Length of the history that it rests on."""
    basis: tuple[str, ...]
    """The computation, in sentences."""
    cone: tuple[ConePoint, ...]
    """Bytes left over time."""

    @property
    def left_s(self) -> float:
        """Time until `likely_at_s`."""
        return self.likely_at_s - self.made_at_s


# --- Parts of a report that the status does not have


class KeptReport(Struct, frozen=True, kw_only=True):
    """A report of the past in the state directory. `sent`: its hooks took it. `baseline`: `report --baseline` made it."""

    name: str
    at_s: float
    sent: bool
    baseline: bool


class EarlierReport(Struct, frozen=True, kw_only=True):
    """Figures of an earlier report."""

    at_s: float
    """When it was made."""
    plan: str | None
    total_bytes: int
    """Planned bytes."""
    done_bytes: int
    """Copied bytes."""
    total_files: int
    """Planned paths."""
    done_files: int
    """Copied paths."""
    likely_at_s: float | None
    """Expected end of the copying; None if it had no forecast."""
    moved_at_s: float | None = None
    """When it expected the last user on the target."""
    cleared_at_s: float | None = None
    """When it expected the last brick out of the source."""


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
    """Progress since an earlier report."""

    earlier: EarlierReport
    """That report."""
    standing: Punctuality
    """The verdict."""
    done_bytes: int
    """Bytes copied since."""
    done_files: int
    """Paths copied since."""
    expected_bytes: float | None
    """Bytes that its forecast expected to be copied since."""
    planned_more_bytes: int
    """Growth of the plan since."""
    end_moved_s: float | None
    """Shift of the expected end; positive: to a later time."""
    reasons: tuple[str, ...]
    """Causes, in sentences."""


class Promise(Struct, frozen=True, kw_only=True):
    """The dates that all reports compare with."""

    at_s: float
    """When they were given."""
    plan: str
    baseline: bool
    """True: by `report --baseline`. False: by the first active plan."""
    total_bytes: int
    """Planned bytes."""
    left_bytes: int
    """Bytes that were left to copy."""
    left_files: int
    """Paths that were left to copy."""
    busy_s: float
    """Promised time of work."""
    copied_at_s: float
    """Promised end of the copying."""
    moved_at_s: float | None = None
    """When the last user was to work on the target, by the plan's schedule; None without one."""
    cleared_at_s: float | None = None
    """When the last brick was to be out of the source, by the same."""


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
    """A date of the whole migration."""

    goal: Goal
    """What is reached."""
    done: bool = False
    """It was reached."""
    at_s: float | None = None
    """When it was reached, or is expected."""
    earliest_at_s: float | None = None
    """Begin of the range; None if nothing gives one."""
    latest_at_s: float | None = None
    """End of the range."""
    promised_at_s: float | None = None
    """The promised date; None in the status."""
    unknown: str = ""
    """Why there is no date."""
    basis: str = ""
    """Source of the date."""


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
    """The next open date against the promised one."""

    standing: Punctuality
    """The verdict."""
    late_s: float | None
    """How late it is; negative: early."""
    at_least: bool
    """It may get later."""
    reasons: tuple[str, ...]
    sentence: str
    """All of it in words."""


class WeekFacts(Struct, frozen=True, kw_only=True):
    """Seven days."""

    from_s: float
    """Begin."""
    to_s: float
    """End."""
    users_moved: int
    """Users who were moved."""
    files: int
    """Files that streams copied, later changes included."""
    size_bytes: int
    """Bytes that streams copied."""
    busy_s: float
    """Time in which streams were at work."""
    bricks_cleared: int
    """Bricks that left the source."""
    bricks_added: int
    """Bricks that became part of the target."""
    incidents: int
    """Warnings and errors, each kind once for a subject."""
    freezes: int
    """Freezes that ended."""
    longest_freeze_s: float | None
    """The longest of them."""

    @property
    def busy_share(self) -> float:
        """Share of the time in which streams were at work."""
        return min(self.busy_s / (self.to_s - self.from_s), 1.0)

    @property
    def rate_bytes_per_s(self) -> float:
        """Rate in that time."""
        return self.size_bytes / self.busy_s if self.busy_s > 0 else 0.0


class BrickOutlook(Struct, frozen=True, kw_only=True):
    """One brick of the source."""

    brick: str
    state: str
    """Its state, as text."""
    left_files: int | None
    """Files that its drain has left to move."""
    left_bytes: int | None
    """Bytes that its drain has left to move."""
    free_at_s: float | None
    """When it is free."""
    earliest_at_s: float | None = None
    """Begin of the range of that time, of bricks that wait for their drain."""
    latest_at_s: float | None = None
    """End of that range."""
    basis: str
    """Source of that time: the pace of the drain, or the schedule."""


class ServerOutlook(Struct, frozen=True, kw_only=True):
    """A server of the source."""

    server: str
    """Its name."""
    bricks: int
    """Number of its bricks."""
    free_bricks: int
    """Number of those that are free."""
    free_at_s: float | None
    """When all are free."""
    basis: str
    """Source of that time, for the last brick to become free."""


class ReapedFacts(Struct, frozen=True, kw_only=True):
    """The files that a plan archives or skips instead of copying."""

    to_archive_bytes: int
    """Bytes that the plan archives."""
    to_archive_inodes: int
    """Inodes that the plan archives."""
    skipped_bytes: int
    """Bytes that the plan skips."""
    skipped_inodes: int
    """Inodes that the plan skips."""
    archives: int
    """Proven archives."""
    archived_files: int
    """Files in them."""
    archived_bytes: int
    """Content in them."""
    archive_bytes: int
    """Their size."""
    released: int
    """Skipped paths and globs that were released for deletion."""


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
    """Files of one batch that did not arrive."""

    bad: int
    """Files that need attention."""
    vanished: int
    """Files that their users deleted."""


class AttentionFile(Struct, frozen=True, kw_only=True):
    """A file that needs attention."""

    batch: int
    problem: FileProblem
    """The file, and what is wrong with it."""


class PlanFacts(Struct, frozen=True, kw_only=True):
    """The plan whose batches are shown."""

    name: str
    """Its name."""
    path: str
    """Path of its document."""
    checksum: str
    """Checksum of its document."""
    created_at_s: float
    """When it was made."""
    catalog: str
    """The catalog that it was made from."""
    forecast_s: float
    """Predicted duration of all copying."""
    basis: str
    """Source of that prediction."""


class DonePoint(Struct, frozen=True, kw_only=True):
    """The total done at one time."""

    at_s: float
    """The time."""
    done_files: int
    """Paths that were copied by then."""
    done_bytes: int
    """Bytes that were copied by then."""


# --- Throughput of streams by host, brick, engine and file size


UPPER_BYTES = ((SizeClass.TINY, 16 * KIB), (SizeClass.SMALL, MIB), (SizeClass.MEDIUM, 64 * MIB))
"""Upper bounds of the classes (exclusive); larger means are LARGE."""


# --- Incidents, made of events


class Incident(Struct, frozen=True, kw_only=True):
    """All events of one kind about one subject."""

    kind: EventKind
    """The kind."""
    severity: Severity
    """How much it matters."""
    subject: str
    """What it is about."""
    count: int
    """Number of events."""
    first_at_s: float
    """The first event."""
    last_at_s: float
    """The last event."""
    message: str
    """Message of the last event."""
    resolved_at_s: float | None = None
    """When another event ended them; None as long as none does."""
    resolution: str = ""
    """That event."""


class RecordedEvent(Event, frozen=True, kw_only=True):
    """A warning or error, and the event that ended it."""

    resolved_at_s: float | None = None
    """When another event ended it; None as long as none does."""
    resolution: str = ""
    """That event."""


# --- Status and report


class ProgressCounts(Struct, frozen=True, kw_only=True):
    """Progress of one part of the work. Percentages are rounded down."""

    total_bytes: int = 0
    """Planned bytes."""
    done_bytes: int = 0
    """Bytes that are done."""
    total_files: int = 0
    """Planned paths."""
    done_files: int = 0
    """Paths that are done."""
    total_users: int = 0
    """Planned users."""
    done_users: int = 0
    """Users whose trees are all done."""

    @property
    def left_bytes(self) -> int:
        """Bytes that are left."""
        return self.total_bytes - self.done_bytes

    @property
    def left_files(self) -> int:
        """Paths that are left."""
        return self.total_files - self.done_files

    @property
    def left_users(self) -> int:
        """Users that are left."""
        return self.total_users - self.done_users

    @property
    def percent_bytes(self) -> float | None:
        """Percentage of the bytes."""
        return percent_of(self.done_bytes, self.total_bytes)

    @property
    def percent_files(self) -> float | None:
        """Percentage of the paths."""
        return percent_of(self.done_files, self.total_files)

    @property
    def percent_users(self) -> float | None:
        """Percentage of the users."""
        return percent_of(self.done_users, self.total_users)


class TreeState(StrEnum):
    """State of one user tree in the whole migration. `needs-attention`: it is copied except for files that failed at every
    attempt. `moved`: its user works on the target; `purged`: its source is freed, too. `excluded`: an earlier plan had
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
    """That plan."""
    batch: int
    """Its batch in that plan."""
    rank: int
    """Its place by weight."""
    state: TreeState
    """Its state."""
    tally: ProgressCounts
    """Its progress."""


class PassStatus(PassRecord, frozen=True, kw_only=True):
    """One pass over a batch."""

    changes: Mapping[ChangeKind, ChangeTally] | None = None
    """The changes that a later pass carries, by kind, over all trees; None if none were recorded."""


class BatchStatus(Struct, frozen=True, kw_only=True):
    """Progress of one batch."""

    number: int
    """Its number."""
    state: BatchState
    """Its state."""
    tally: ProgressCounts
    """Its progress."""
    users: tuple[str, ...]
    """Names of its users."""
    chunks: Mapping[ChunkState, int]
    """Number of chunks by state, in the newest pass."""
    passes: tuple[PassStatus, ...]
    """Its passes."""
    forecast_s: float
    """Duration by the plan."""
    attention: AttentionCount
    """Files that did not arrive."""
    verification: VerificationRecord | None
    """The newest finished verification of the whole batch."""
    convergence: ConvergenceRecord | None = None
    """The prediction after the last delta pass."""


class RunLife(StrEnum):
    """Liveness of a run. `silent`: its process lives, and its heartbeat is old. `killed`: it recorded no end, and its
    process has ended.
    """

    AT_WORK = "at-work"
    SILENT = "silent"
    KILLED = "killed"
    ENDED = "ended"


ALIVE = (RunLife.AT_WORK, RunLife.SILENT)


class RunStatus(RunRecord, frozen=True, kw_only=True):
    """One invocation of a verb that writes."""

    life: RunLife
    """Whether it lives."""
    silent_s: float
    """Age of its last heartbeat."""


class NextStep(Struct, frozen=True, kw_only=True):
    """An ordinary next step of an operator: nothing is wrong."""

    subject: str
    """The subject that waits."""
    state: str
    """Its state."""
    hint: str
    """The command."""


class MigrationStatus(Struct, frozen=True, kw_only=True):
    """The state of the migration: `status`. Everything except `at_s` may be missing."""

    at_s: float
    """When it was read."""
    site: str | None
    """Name of the site; None before `init`."""
    frozen: tuple[FrozenUser, ...] = ()
    """Users who cannot work now, under any plan; first those whom no command thaws."""
    scan: CatalogRecord | None = None
    """The newest scan."""
    plan: PlanFacts | None = None
    """The active plan, or the named one."""
    overall: ProgressCounts = ProgressCounts()
    """Copied data, over all plans that were active."""
    verified: ProgressCounts = ProgressCounts()
    """Verified data, over all plans; moved users are included, because a cutover verifies."""
    moved: ProgressCounts = ProgressCounts()
    """Data of users who work on the target, over all plans."""
    verified_content_bytes: int = 0
    """Verified bytes whose content was compared, not only their attributes."""
    batches: tuple[BatchStatus, ...] = ()
    """The batches of `plan`."""
    trees: tuple[TreeStatus, ...] = ()
    """All user trees, over all plans, by rank."""
    forecast: CopyForecast | None = None
    """The end of the copying; None if nothing is left, or too little was copied."""
    milestones: tuple[Milestone, ...] = ()
    """Expected dates of the whole migration; empty without a plan."""
    rate: ThroughputPoint | None = None
    """Throughput of the last minutes; None while nothing is copied."""
    last_rate: ThroughputPoint | None = None
    """Throughput of the last 5 minutes in which something was copied."""
    attention: tuple[AttentionFile, ...] = ()
    """The first files that need attention."""
    attention_total: int = 0
    """Number of all of them."""
    vanished_total: int = 0
    """Files that their users deleted before they were copied."""
    runs: tuple[RunStatus, ...] = ()
    """Runs, newest first."""
    events: tuple[RecordedEvent, ...] = ()
    """Warnings and errors, newest first."""
    blocked: tuple[Blocker, ...] = ()
    """What failed or was interrupted."""
    next_steps: tuple[NextStep, ...] = ()
    """The steps that wait for an operator."""
    probes: tuple[Probe, ...] = ()
    """The newest probe of each side."""
    cutovers: tuple[CutoverRecord, ...] = ()
    """The newest attempt for every tree, under any plan: a later plan omits users who work on the target."""
    drains: tuple[DrainStanding, ...] = ()
    """The newest attempt for each set of bricks."""
    additions: tuple[AdditionStanding, ...] = ()
    """The newest attempt for each set of bricks."""
    retirement: Retirement | None = None
    """The newest attempt."""
    governing: GoverningFacts = GoverningFacts()
    """The operators' limits, and the streams that the newest run may have."""
    at_work: tuple[Holder, ...] = ()
    """Processes at work on this machine, with what they hold."""
    storage: tuple[StorageSample, ...] = ()
    """The first and the newest sample of BeeGFS's targets."""
    archives: tuple[SecondCopy, ...] = ()
    """Archives of the site that hold the tree of a newest cutover, as its verification has it."""
    require_archive: int = 0
    """Number of archives that each tree needs before its source is purged."""


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
    """The report for management: `report`."""

    status: MigrationStatus
    """The state of the migration."""
    done: tuple[DonePoint, ...]
    """What was copied, over time."""
    verifications: tuple[VerificationRecord, ...]
    """The verifications."""
    plan: Plan | None
    """The plan's document; None without a plan, or if it cannot be read."""
    plan_problem: str
    """Why it cannot be read."""
    promise: Promise | None = None
    """The promised dates; None without a plan."""
    verdict: PromiseVerdict | None = None
    """The expected dates against the promised ones."""
    milestones: tuple[Milestone, ...] = ()
    """Those of the status, with promised dates."""
    weeks: tuple[WeekFacts, ...] = ()
    """The last seven days, and the seven before if the migration is older."""
    since: SinceReport | None = None
    """Progress since the last report; None without one."""
    days: tuple[ThroughputPoint, ...] = ()
    """Throughput by day; by hour in the first three days."""
    capacity: tuple[CapacitySample, ...] = ()
    """Usage of both sides over time."""
    outlook: CapacityOutlook | None = None
    """Expected usage of the target."""
    bricks: tuple[BrickOutlook, ...] = ()
    """When each brick is free."""
    servers: tuple[ServerOutlook, ...] = ()
    """When each server is free."""
    reaped: ReapedFacts | None = None
    """Files that are not copied."""
    incidents: tuple[Incident, ...] = ()
    """Warnings and errors, unresolved ones first."""
    benchmarks: tuple[BenchmarkResult, ...] = ()
    """Recorded benchmarks."""
    freezes: tuple[FreezeSpent, ...] = ()
    """Freezes that have ended, under any plan, newest first."""
    speed_ups: tuple[UserSpeedUps, ...] = ()
    """Users who work on the target, newest first."""
    speed_up_sums: tuple[SpeedUpSum, ...] = ()
    """Each test over all of them."""
    streams: tuple[StreamSum, ...] = ()
    """Copying by host, brick, engine and file size."""
    usage: UsageRanking | None = None
    """The ranking of `plan --usage`."""
    usage_differences: tuple[UsageDifference, ...] = ()
    """That ranking against the plan's scan."""


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
