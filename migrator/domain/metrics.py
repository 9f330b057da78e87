"""Metrics for Prometheus: what each is called, and the sums of the ledger that they are made of. Base units: seconds, bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from migrator.domain.capacity import CapacitySample
from migrator.domain.events import EventKind, Severity
from migrator.domain.governing import GoverningFacts
from migrator.domain.report import RunFacts, StatusFacts
from migrator.domain.states import AttemptState, PassKind


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
