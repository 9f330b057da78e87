"""What `status` and `report` say: facts, rendered in several ways. Times in seconds since the epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from migrator.domain.addition_standing import AdditionStanding
from migrator.domain.benchmark import BenchmarkResult
from migrator.domain.capacity import CapacityOutlook, CapacitySample
from migrator.domain.changes import ChangeKind, ChangeTally
from migrator.domain.convergence import ConvergenceRecord
from migrator.domain.cutover import CutoverState, PurgeSum
from migrator.domain.drain_standing import DrainStanding
from migrator.domain.events import Event
from migrator.domain.forecast import CopyForecast
from migrator.domain.governing import GoverningFacts
from migrator.domain.incidents import Incident
from migrator.domain.ledger_sums import AttentionCount, AttentionFile, DonePoint, PlanFacts, ThroughputPoint
from migrator.domain.plan import Plan
from migrator.domain.probe import Probe
from migrator.domain.report_parts import BrickOutlook, ReapedFacts, ServerOutlook, SinceReport
from migrator.domain.retirement import RetirementRecord
from migrator.domain.speed_up import SpeedUpSum, UserSpeedUps
from migrator.domain.states import BatchState, ChunkState, PassKind, PassState
from migrator.domain.stream_sums import StreamSum
from migrator.domain.tree import UserTree
from migrator.domain.verification import VerificationRecord


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverFacts:
    """The newest attempt to cut one user tree over, by whatever plan. `since_s` is when it came to its state, `freeze_s` how long the user was
    frozen (None before he was thawed), `frozen_since_s` since when he cannot work now, on the way there or back (None where he can),
    `failure` the reason of the last failure. `purge` is what the purge of the source was
    to free when it began, and has freed in the state `purged`.
    """

    tree: UserTree
    plan: str
    batch: int
    attempt: int
    state: CutoverState
    since_s: float
    predicted_freeze_s: float | None
    frozen_at_s: float | None
    thawed_at_s: float | None
    freeze_s: float | None
    failure: str
    purge: PurgeSum | None = None
    frozen_since_s: float | None = None


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
