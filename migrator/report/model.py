"""What `status`, `report`, `metrics` and `--watch` say, as values. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from migrator.bench.model import BenchmarkResult
from migrator.bricks.add.model import AdditionStanding
from migrator.bricks.drain.model import DrainStanding
from migrator.bricks.retire.model import RetirementRecord
from migrator.core.entry import UserTree
from migrator.core.errors import ExitCode
from migrator.core.events import Event, EventKind, Severity
from migrator.core.probe import Probe
from migrator.core.states import AttemptState, BatchState, ChunkKind, ChunkState, PassKind, PassState
from migrator.core.units import DAY_S
from migrator.cutover.model import CutoverFacts, SpeedUpSum, UserSpeedUps
from migrator.delta.model import ChangeKind, ChangeTally
from migrator.fs.model import CapacityOutlook, CapacitySample
from migrator.plan.model import Plan
from migrator.transfer.model import ConvergenceRecord, FileProblem, GoverningFacts
from migrator.verify.model import VerificationRecord

# ---
# What a call of `report` has written and sent.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSent:
    """A report that hooks were called for. `sent` is False where one of them failed, or skipped it: `reason` says so."""

    directory: bytes
    sent: bool
    reason: str = ""

    @property
    def exit_code(self) -> ExitCode:
        """Failed where it was not sent."""
        return ExitCode.DONE if self.sent else ExitCode.FAILED


# ---
# When the copying of a plan will be done, with a range, and what that rests on. Times in seconds since the epoch.


RANGE_SHARE = 0.8
"""How often the true end shall lie in the range: as many ends are before it as after it."""

FARTHEST_S = 100 * 365 * DAY_S
"""No forecast goes further: what would take longer ends then in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSlot:
    """What was copied of a plan in one span of time, of which `seen_s` were lived through: the first one begins with the
    first stream, the last one ends now. Spans in which nothing was copied are slots too.
    """

    at_s: float
    seen_s: float
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConePoint:
    """Bytes that are left at one time: as likely as not, and the least and the most of the range."""

    at_s: float
    left_bytes: float
    least_bytes: float
    most_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyForecast:
    """When everything that is planned will have been copied once. `likely_at_s` is as likely too early as too late; with the
    probability `share` the end lies between `earliest_at_s` and `latest_at_s`. `by_day` says whether day and night were told
    apart, `by_weekday` whether weekends were. `history_s` is how long the history is. `basis` are sentences on how it was computed.
    """

    made_at_s: float
    likely_at_s: float
    earliest_at_s: float
    latest_at_s: float
    share: float
    history_s: float
    by_day: bool
    by_weekday: bool
    basis: tuple[str, ...]
    cone: tuple[ConePoint, ...]


# ---
# The parts of a report that the status does not have. Times in seconds since the epoch.


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierReport:
    """What an earlier report said; the forecast's parts are None, and `cone` is empty, where it had none."""

    at_s: float
    plan: str | None
    total_bytes: int
    done_bytes: int
    total_files: int
    done_files: int
    likely_at_s: float | None
    earliest_at_s: float | None
    latest_at_s: float | None
    cone: tuple[ConePoint, ...] = ()


class Standing(StrEnum):
    """How the expected end has moved since an earlier report."""

    AHEAD = "ahead"
    AS_EXPECTED = "as-expected"
    BEHIND = "behind"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinceReport:
    """What has come since an earlier report. `expected_bytes` is what that one let expect to be copied by now; `end_moved_s` is
    by how much the likely end is later than it said (below 0: earlier). `reasons` are sentences.
    """

    earlier: EarlierReport
    standing: Standing
    done_bytes: int
    done_files: int
    expected_bytes: float | None
    planned_more_bytes: int
    end_moved_s: float | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickOutlook:
    """One brick of the source: its state in words, what a drain has left to move (None: not known), and when it is free, by the
    drain's own pace or by the schedule; `basis` says which.
    """

    brick: str
    state: str
    left_files: int | None
    left_bytes: int | None
    free_at_s: float | None
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOutlook:
    """A server of the source: how many bricks it has or had, how many of them are free, and when all are (None: it is not
    known). `basis` is that of the brick that is free last.
    """

    server: str
    bricks: int
    free_bricks: int
    free_at_s: float | None
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapedFacts:
    """What a plan does not move as it is. `archived_` is what proven archives hold, in `archives` files of `archive_bytes`;
    `released` counts the skipped paths and globs that were given up for deletion.
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


# ---
# What the ledger sums up for `status` and `report`. Times in seconds since the epoch.


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """A batch as it was planned, and how far it is."""

    number: int
    state: BatchState
    size_bytes: int
    files: int
    directories: int
    chunks: int
    forecast_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTree:
    """A user tree as it was planned; `rank` counts from 1 in the plan's order of size. `reaped_bytes` and `reaped_files` are the
    part of it that is archived or skipped instead of being copied.
    """

    tree: UserTree
    batch: int
    rank: int
    size_bytes: int
    files: int
    directories: int
    reaped_bytes: int = 0
    reaped_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSum:
    """All chunks of one tree, kind and state in one pass."""

    tree: bytes
    kind: ChunkKind
    state: ChunkState
    chunks: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCount:
    """Files of one batch that did not arrive: `bad` ones need attention, `vanished` ones were deleted by their users."""

    bad: int
    vanished: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionFile:
    """A file that needs attention."""

    batch: int
    problem: FileProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """The plan that everything else is counted by."""

    name: str
    path: str
    checksum: str
    created_at_s: float
    catalog: str
    forecast_s: float
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputPoint:
    """All streams together over one span of time that ends at `at_s`; `streams` is the mean over the busy part.

    `busy_s` is how much of the span there were streams at work.
    """

    at_s: float
    span_s: float
    busy_s: float
    streams: float
    files: int
    size_bytes: int

    @property
    def rate_bytes_per_s(self) -> float:
        """Bytes per second while streams were at work."""
        return self.size_bytes / self.busy_s if self.busy_s > 0 else 0.0

    @property
    def rate_files_per_s(self) -> float:
        """Files per second while streams were at work."""
        return self.files / self.busy_s if self.busy_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DonePoint:
    """How much was done, all in all, at one time."""

    at_s: float
    done_files: int
    done_bytes: int


# ---
# What streams brought, by where they ran, what they read, with what, and how large the files were.


KIB, MIB = 1024, 1024**2


class SizeClass(StrEnum):
    """The mean size of the files of a chunk; `ranges` are parts of big files."""

    TINY = "below 16 KiB"
    SMALL = "16 KiB to 1 MiB"
    MEDIUM = "1 MiB to 64 MiB"
    LARGE = "64 MiB and more"
    RANGES = "ranges of big files"


UPPER_BYTES = ((SizeClass.TINY, 16 * KIB), (SizeClass.SMALL, MIB), (SizeClass.MEDIUM, 64 * MIB))
"""Below which mean size a class ends; what is larger is `large`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSum:
    """Attempts that succeeded, together. `brick` is None where the mount was read; `stream_s` are seconds of streams, so that
    two streams for one second are two.
    """

    host: str
    brick: str | None
    engine: str
    size_class: SizeClass
    attempts: int
    files: int
    size_bytes: int
    stream_s: float

    @property
    def bytes_per_s(self) -> float:
        """Of one stream."""
        return self.size_bytes / self.stream_s if self.stream_s > 0 else 0.0

    @property
    def files_per_s(self) -> float:
        """Of one stream."""
        return self.files / self.stream_s if self.stream_s > 0 else 0.0


# ---
# What went wrong, put together from events, and what became of it. Times in seconds since the epoch.


@dataclass(frozen=True, slots=True, kw_only=True)
class EventGroup:
    """All events of one kind about one subject; `message` is that of the last one."""

    kind: EventKind
    severity: Severity
    subject: str
    count: int
    first_at_s: float
    last_at_s: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """What went wrong with one subject, once or again and again. `resolved_at_s` is None where nothing says that it is over;
    `resolution` says by what it is, in words.
    """

    kind: EventKind
    severity: Severity
    subject: str
    count: int
    first_at_s: float
    last_at_s: float
    message: str
    resolved_at_s: float | None
    resolution: str


# ---
# What `status` and `report` say: facts, rendered in several ways. Times in seconds since the epoch.


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How much of something is done. A user is done when all that is planned of him is copied."""

    total_bytes: int = 0
    done_bytes: int = 0
    total_files: int = 0
    done_files: int = 0
    total_users: int = 0
    done_users: int = 0

    @property
    def left_bytes(self) -> int:
        """Bytes that are not copied yet."""
        return self.total_bytes - self.done_bytes

    @property
    def left_files(self) -> int:
        """Files that are not copied yet."""
        return self.total_files - self.done_files

    @property
    def left_users(self) -> int:
        """Users that are not done yet."""
        return self.total_users - self.done_users

    @property
    def percent_bytes(self) -> float | None:
        """Percent of the bytes that are done, as `percent_of`; None where there are none."""
        return percent_of(self.done_bytes, self.total_bytes)

    @property
    def percent_files(self) -> float | None:
        """Percent of the files that are done, as `percent_of`; None where there are none."""
        return percent_of(self.done_files, self.total_files)

    @property
    def percent_users(self) -> float | None:
        """Percent of the users that are done, as `percent_of`; None where there are none."""
        return percent_of(self.done_users, self.total_users)


def percent_of(part: int, whole: int) -> float | None:
    """The share in percent, to one digit; None of nothing. Rounded down: 100 % is said of all, and of nothing else."""
    return part * 1000 // whole / 10 if whole > 0 else None


class TreeState(StrEnum):
    """How far one user tree is. One that needs attention is copied but for what failed each time."""

    PLANNED = "planned"
    COPYING = "copying"
    COPIED = "copied"
    ATTENTION = "needs-attention"
    VERIFIED = "verified"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFacts:
    """How far one user tree is."""

    tree: UserTree
    batch: int
    rank: int
    state: TreeState
    tally: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class PassFacts:
    """One pass over a batch; `number` is 0 for the seed, deltas and finals count from 1. `changes` is what a pass after
    the seed was made for, by kind, over all trees; None where nothing was recorded.
    """

    id: int
    batch: int
    kind: PassKind
    number: int
    state: PassState
    started_at_s: float
    finished_at_s: float | None
    catalog: str
    base_catalog: str | None = None
    scan_s: float | None = None
    moved_at_s: float | None = None
    total_files: int = 0
    total_bytes: int = 0
    changes: Mapping[ChangeKind, ChangeTally] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """How far one batch is. `chunks` counts every kind, in the newest pass; `verification` is the newest finished one,
    `convergence` what was predicted after the last delta pass.
    """

    number: int
    state: BatchState
    tally: Tally
    users: tuple[str, ...]
    chunks: Mapping[ChunkState, int]
    passes: tuple[PassFacts, ...]
    forecast_s: float
    attention: AttentionCount
    verification: VerificationRecord | None
    convergence: ConvergenceRecord | None = None


class RunLife(StrEnum):
    """Whether a run lives: `silent` ones have neither ended nor given a sign of life for a while, `killed` ones have
    not ended either, and their process is gone.
    """

    AT_WORK = "at-work"
    SILENT = "silent"
    KILLED = "killed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One invocation of a verb that writes. `silent_s` is the age of its last sign of life."""

    id: int
    verb: str
    pid: int
    life: RunLife
    started_at_s: float
    silent_s: float
    finished_at_s: float | None
    exit_code: int | None
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFacts:
    """The newest scan, without its lists."""

    name: str
    via: str
    started_at_s: float
    finished_at_s: float | None
    whole: bool
    reasons: tuple[str, ...]
    rows: int
    files: int
    directories: int
    size_bytes: int
    problems: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """When the copying will be done, and on what basis that is said."""

    left_s: float
    finish_at_s: float
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """What cannot go on, what it waits for, and what to do about it."""

    subject: str
    on: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFacts:
    """Now. Everything but `at_s` may be missing: a site begins with nothing. `site` is None before `init`.

    `attention` is cut; `attention_total` is not. `rate` is the last minutes' throughput, None while nothing is copied;
    `last_rate` that of the last minutes in which something was. `verified_content_bytes` are those of the verified
    bytes whose content was compared, not only their attributes. `cutovers` has the newest attempt of every tree, by
    whatever plan: a later plan leaves those out who work on the target. `probes` has the newest of each side. `drains` has the newest attempt of all bricks that
    were drained, `additions` that of all that were added, and `retirement` is that at the source volume. `governing` is
    what people have set, and how many streams the newest run may have.
    """

    at_s: float
    site: str | None
    scan: ScanFacts | None = None
    plan: PlanFacts | None = None
    overall: Tally = field(default_factory=Tally)
    verified: Tally = field(default_factory=Tally)
    verified_content_bytes: int = 0
    batches: tuple[BatchFacts, ...] = ()
    trees: tuple[TreeFacts, ...] = ()
    estimates: tuple[Estimate, ...] = ()
    rate: ThroughputPoint | None = None
    last_rate: ThroughputPoint | None = None
    attention: tuple[AttentionFile, ...] = ()
    attention_total: int = 0
    vanished_total: int = 0
    runs: tuple[RunFacts, ...] = ()
    events: tuple[Event, ...] = ()
    blocked: tuple[Blocker, ...] = ()
    probes: tuple[Probe, ...] = ()
    cutovers: tuple[CutoverFacts, ...] = ()
    drains: tuple[DrainStanding, ...] = ()
    additions: tuple[AdditionStanding, ...] = ()
    retirement: RetirementRecord | None = None
    governing: GoverningFacts = field(default_factory=GoverningFacts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFacts:
    """For management: the status, how it came to be, and what was proven. `plan` is None where there is none, or where
    its document cannot be read (`plan_problem` says why).

    `forecast` is None where nothing is left or too little was copied; `since` where there is no earlier report to compare
    with. `days` is the throughput by day, or by hour as long as there are few days (`span_s` says which). `outlook` is how full the target will be.
    `incidents` are warnings and errors by kind and subject, those that nothing has ended first. `speed_ups` are those of users who
    work on the target, the newest first, and `speed_up_sums` each test over all of them. `streams` is what streams
    brought, by where they ran, what they read and with what.
    """

    status: StatusFacts
    throughput: tuple[ThroughputPoint, ...]
    done: tuple[DonePoint, ...]
    verifications: tuple[VerificationRecord, ...]
    plan: Plan | None
    plan_problem: str
    forecast: CopyForecast | None = None
    since: SinceReport | None = None
    days: tuple[ThroughputPoint, ...] = ()
    capacity: tuple[CapacitySample, ...] = ()
    outlook: CapacityOutlook | None = None
    bricks: tuple[BrickOutlook, ...] = ()
    servers: tuple[ServerOutlook, ...] = ()
    reaped: ReapedFacts | None = None
    incidents: tuple[Incident, ...] = ()
    benchmarks: tuple[BenchmarkResult, ...] = ()
    speed_ups: tuple[UserSpeedUps, ...] = ()
    speed_up_sums: tuple[SpeedUpSum, ...] = ()
    streams: tuple[StreamSum, ...] = ()


# ---
# Metrics for Prometheus: what each is called, and the sums of the ledger that they are made of. Base units: seconds, bytes.


class MetricKind(StrEnum):
    """How a metric behaves: a counter never goes down, not even when the program is started again."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One metric: its name as it is exposed, the names of its labels, and what it says."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSample:
    """One value. `name` is the metric's, with `_bucket`, `_sum` or `_count` behind it where it is a histogram."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFamily:
    """One metric with all its values; it may have none."""

    name: str
    kind: MetricKind
    help: str
    samples: tuple[MetricSample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassKindSum:
    """What streams have written in all passes of one kind, by their samples; `stream_s` is how long they were at work, each by itself."""

    kind: PassKind
    passes: int
    files: int
    size_bytes: int
    stream_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSum:
    """All attempts of one host and engine that ended in one way."""

    host: str
    engine: str
    state: AttemptState
    attempts: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCount:
    """How many attempts of one host have not ended; `from_brick`: whether they read a brick, and not the mount."""

    host: str
    from_brick: bool
    streams: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCount:
    """How often a warning or an error of one kind was written down."""

    kind: EventKind
    severity: Severity
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCount:
    """How many invocations of a verb ended with an exit code."""

    verb: str
    exit_code: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCount:
    """How many calls of hooks of one stage ended in one way."""

    stage: str
    outcome: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedSum:
    """What one host of Gluster has moved in all tasks of drains (`drain`) or of additions (`addition`)."""

    task: str
    host: str
    files: int
    size_bytes: int
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySum:
    """All verifications that have ended, and what they have read to compare content."""

    whole: int
    not_whole: int
    read_files: int
    read_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSums:
    """Sums over the whole ledger, over all plans. `freezes_s` is how long each user was frozen who was thawed."""

    passes: tuple[PassKindSum, ...] = ()
    attempts: tuple[AttemptSum, ...] = ()
    streams: tuple[StreamCount, ...] = ()
    events: tuple[EventCount, ...] = ()
    runs: tuple[RunCount, ...] = ()
    hooks: tuple[HookCount, ...] = ()
    moved: tuple[MovedSum, ...] = ()
    verified: VerifySum = field(default_factory=lambda: VerifySum(whole=0, not_whole=0, read_files=0, read_bytes=0))
    freezes_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFacts:
    """Everything that the metrics are made of, by one look. `runs` has the newest run of every verb; `capacity` the newest
    sample of each side; `frozen_since_s` when each user became unable to work who is so now, on either way; `read_s` is how long the
    look took.
    """

    status: StatusFacts
    sums: MetricSums
    runs: tuple[RunFacts, ...]
    capacity: tuple[CapacitySample, ...]
    governing: GoverningFacts
    frozen_since_s: tuple[float, ...]
    version: str
    read_s: float


# ---
# What `status --watch` shows beside the status: the streams at work, and what has just happened.


_NOT_SAMPLED_YET_S = 1.0
"""An attempt is in the ledger before its process lives: a sample in between does not have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAtWork:
    """One attempt that has not ended by the ledger. `files` and `size_bytes` are its chunk's; `done_files` and `done_bytes`
    what it has done by its samples, of which those of the last seconds (`recent_files`, `recent_bytes`) were taken over
    `recent_s`. `sampled_at_s` is its newest sample, `pass_sampled_at_s` the newest of its pass. `brick` is None where the
    mount is read.
    """

    attempt_id: int
    host: str
    batch: int
    pass_kind: PassKind
    pass_number: int
    chunk: int
    kind: ChunkKind
    tree: bytes
    brick: str | None
    files: int
    size_bytes: int
    started_at_s: float
    done_files: int = 0
    done_bytes: int = 0
    recent_files: int = 0
    recent_bytes: int = 0
    recent_s: float = 0.0
    sampled_at_s: float | None = None
    pass_sampled_at_s: float | None = None

    @property
    def rate_bytes_per_s(self) -> float | None:
        """Bytes per second of late; None before the first sample."""
        return self.recent_bytes / self.recent_s if self.recent_s > 0 else None

    @property
    def confirming(self) -> bool:
        """Whether the stream itself has ended, and only its confirmation is waited for: its pass was sampled without it."""
        if self.pass_sampled_at_s is None:
            return False
        last_s = self.started_at_s if self.sampled_at_s is None else self.sampled_at_s
        return last_s + _NOT_SAMPLED_YET_S < self.pass_sampled_at_s


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFacts:
    """Now. `rates` is the throughput in bytes per second of spans of `rates_span_s`, oldest first, 0 where nothing was
    copied; they end now, or where the last copying did. `news` are the events since the look before, oldest first, and
    `last_event` is the newest one's number.
    """

    status: StatusFacts
    streams: tuple[StreamAtWork, ...] = ()
    rates: tuple[float, ...] = ()
    rates_span_s: float = 0.0
    news: tuple[Event, ...] = ()
    last_event: int = 0


SILENT_AFTER_S = 30.0

"""A run renews its sign of life every few seconds; one that has been silent for longer was killed, or hangs."""


def run_life(*, silent_s: float, finished: bool, process_gone: bool = False) -> RunLife:
    """Whether a run lives. `process_gone`: its process is known not to be there any more."""
    if finished:
        return RunLife.ENDED
    if process_gone:
        return RunLife.KILLED
    return RunLife.SILENT if silent_s > SILENT_AFTER_S else RunLife.AT_WORK
