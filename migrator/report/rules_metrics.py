"""Every metric, and its value from a snapshot of the ledger. Labels are bounded: their number does not grow with users
or files. Pure.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Any

from msgspec import Struct

from migrator.bricks.add.model import AdditionSide, AdditionState
from migrator.bricks.drain.model import OUT_STATES
from migrator.core.probe import ProbeTimes
from migrator.cutover.model import CutoverState
from migrator.report.model import MetricFacts, RunLife, TreeState


class MetricKind(StrEnum):
    """The type of a metric. A counter never decreases, not even across restarts of the program."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricSample(Struct, frozen=True, kw_only=True):
    """One value."""

    name: str
    """The metric's name; a histogram appends `_bucket`, `_sum` or `_count`."""
    labels: Mapping[str, str]
    """Value of each label."""
    value: float
    """The value."""


class MetricFamily(Struct, frozen=True, kw_only=True):
    """One metric with all its values: `metrics`."""

    name: str
    """Its name."""
    kind: MetricKind
    """Its kind."""
    help: str
    """Its meaning."""
    samples: tuple[MetricSample, ...]
    """Its values; it may have none."""


_Rows = Callable[[MetricFacts], Iterable[tuple[Any, *tuple[object, ...]]]]
"""Things, or values, with their labels. Values of None are left out, because a missing value is not 0."""


class MetricSpec(Struct, frozen=True):
    """One metric: its exposed name, the names of its labels, its help text, and its rows in a snapshot; `value` is that
    of every row, or names the attribute of a thing that is its value.
    """

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    help: str
    rows: _Rows
    value: str | float = ""


def _gauge(name: str, labels: str, text: str, rows: _Rows, value: str | float = "") -> MetricSpec:
    return MetricSpec(f"migrator_{name}", MetricKind.GAUGE, tuple(labels.split()), text, rows, value)


def _counter(name: str, labels: str, text: str, rows: _Rows | None = None) -> MetricSpec:
    """A counter; without `rows` one that the ledger adds up under this name."""
    rows = rows or (lambda facts: facts.sums.get(name, ()))
    return MetricSpec(f"migrator_{name}", MetricKind.COUNTER, tuple(labels.split()), text, rows)


# --- Rows of things


def _each(place: str, *labels: str) -> _Rows:
    """The things at a place of the snapshot, with these attributes as labels; a tuple is joined by commas."""

    def rows(facts: MetricFacts) -> Iterable[tuple[Any, *tuple[object, ...]]]:
        found = attrgetter(place)(facts)
        for one in found if isinstance(found, tuple) else () if found is None else (found,):
            values = [attrgetter(label)(one) for label in labels]
            yield one, *(",".join(value) if isinstance(value, tuple) else value for value in values)

    return rows


_runs = _each("runs", "verb")
_batches = _each("status.batches", "number")
_probes = _each("status.probes", "side")
_sides = _each("capacity", "side")
_drains = _each("status.drains", "bricks")
_additions = _each("status.additions", "bricks", "side")
_scan = _each("status.scan")
_windows = _each("governing.windows", "when")


def _plan(facts: MetricFacts) -> Iterable[tuple[Any]]:
    return [] if facts.status.plan is None else [(facts.status,)]


def _predictions(facts: MetricFacts) -> Iterable[tuple[Any, int]]:
    return [(one.convergence.prediction, one.number) for one in facts.status.batches if one.convergence is not None]


def _governor(facts: MetricFacts) -> Iterable[tuple[Any]]:
    """The limits of the run at work; those of an ended run are out of date."""
    governing = facts.governing
    return [(governing.governor,)] if governing.at_work and governing.governor is not None else []


# --- Rows of values


_COPYING_VERBS = frozenset({"run", "cutover", "rollback"})
_OPERATIONS = tuple(name.removesuffix("_s") for name in ProbeTimes.__struct_fields__)
_Values = Iterable[tuple[float | None, *tuple[object, ...]]]


def _heartbeats(facts: MetricFacts) -> _Values:
    return [(facts.status.at_s - run.silent_s, run.verb) for run in facts.runs]


def _lives(facts: MetricFacts) -> _Values:
    return [(run.life is life, run.verb, life.value) for run in facts.runs for life in RunLife]


def _trees(facts: MetricFacts) -> _Values:
    counts = Counter(tree.state for tree in facts.status.trees)
    return [] if facts.status.plan is None else [(counts[state], state.value) for state in TreeState]


def _copy_left(facts: MetricFacts) -> _Values:
    status = facts.status
    if status.plan is not None and status.overall.left_files <= 0 and status.overall.left_bytes <= 0:
        return [(0.0,)]
    return [] if status.forecast is None else [(status.forecast.left_s,)]


def _dates(facts: MetricFacts) -> _Values:
    for one in facts.status.milestones:
        if not one.done:
            yield one.earliest_at_s, one.goal.value, "earliest"
            yield one.at_s, one.goal.value, "likely"
            yield one.latest_at_s, one.goal.value, "latest"


def _differences(facts: MetricFacts) -> _Values:
    verified = [(batch.verification, batch.number) for batch in facts.status.batches]
    return [(sum(one.differences.values()), number) for one, number in verified if one is not None]


def _streams(facts: MetricFacts) -> _Values:
    """None without a run: streams that a killed run left in the ledger are not running."""
    at_work = any(run.verb in _COPYING_VERBS and run.life is RunLife.AT_WORK for run in facts.runs)
    return facts.sums.get("streams", ()) if at_work else []


def _host_streams(facts: MetricFacts) -> _Values:
    return [(streams, host) for (governor,) in _governor(facts) for host, streams in governor.hosts]


def _loads(facts: MetricFacts) -> _Values:
    return [(one.load, one.host) for _ in _governor(facts) for one in facts.governing.loads]


def _operations(facts: MetricFacts) -> _Values:
    for probe in facts.status.probes:
        for operation in _OPERATIONS if probe.times is not None else ():
            yield getattr(probe.times, f"{operation}_s"), probe.side.value, operation


def _cutover_states(facts: MetricFacts) -> _Values:
    counts = Counter(one.state for one in facts.status.cutovers)
    return [(counts[state], state.value) for state in CutoverState]


def _purged(attribute: str) -> _Rows:
    def rows(facts: MetricFacts) -> _Values:
        freed = (one.purge for one in facts.status.cutovers if one.state is CutoverState.PURGED)
        return [(sum(getattr(one, attribute) for one in freed if one is not None),)]

    return rows


def _cleared(facts: MetricFacts) -> _Values:
    return [(sum(len(one.bricks) for one in facts.status.drains if one.state in OUT_STATES),)]


def _added(facts: MetricFacts) -> _Values:
    settled = [one for one in facts.status.additions if one.state is AdditionState.SETTLED]
    return [(sum(len(one.bricks) for one in settled if one.side is side), side.value) for side in AdditionSide]


# --- The metrics


CATALOGUE = (
    # The ledger.
    _gauge("build_info", "version", "Always 1; version of the program", lambda facts: [(1, facts.version)]),
    _gauge(
        "site_info",
        "site plan",
        "Always 1; site, and the plan that progress is counted by",
        lambda facts: [(1, facts.status.site or "", "" if facts.status.plan is None else facts.status.plan.name)],
    ),
    _gauge("ledger_read_timestamp_seconds", "", "Time of reading the ledger", _each("status.at_s")),
    # Runs.
    _gauge(
        "run_last_heartbeat_timestamp_seconds",
        "verb",
        "Last heartbeat of a verb's run at work, or else its newest",
        _heartbeats,
    ),
    _gauge(
        "run_state",
        "verb state",
        "1 for the state of a verb's run at work, or else its newest: at-work, silent (no heartbeat), killed, ended",
        _lives,
    ),
    _counter("runs_total", "verb exit_code", "Ended runs of a verb by exit code"),
    _gauge(
        "blocked_subjects",
        "",
        "Blocked subjects that need an operator; see status",
        lambda facts: [(len(facts.status.blocked),)],
    ),
    _counter("events_total", "kind severity", "Warnings and errors by kind"),
    # Progress.
    _gauge("planned_bytes", "batch", "Planned bytes of a batch", _batches, "tally.total_bytes"),
    _gauge("copied_bytes", "batch", "Those copied at least once", _batches, "tally.done_bytes"),
    _gauge("planned_files", "batch", "Planned files of a batch", _batches, "tally.total_files"),
    _gauge("copied_files", "batch", "Those copied at least once", _batches, "tally.done_files"),
    _gauge(
        "batch_state",
        "batch state",
        "1 for the state of a batch",
        _each("status.batches", "number", "state"),
        1,
    ),
    _gauge("trees", "state", "User trees of the migration by state", _trees),
    _gauge("total_bytes", "", "Bytes of the whole migration", _plan, "overall.total_bytes"),
    _gauge("total_copied_bytes", "", "Those copied at least once", _plan, "overall.done_bytes"),
    _gauge("verified_bytes", "", "Bytes of completely verified user trees", _plan, "verified.done_bytes"),
    _gauge("moved_bytes", "", "Bytes of user trees whose users work on the target", _plan, "moved.done_bytes"),
    _gauge("attention_files", "batch", "Files that need attention", _batches, "attention.bad"),
    _gauge("copy_left_seconds", "", "Time left for copying, as in status; 0 when done", _copy_left),
    _gauge(
        "expected_timestamp_seconds",
        "goal bound",
        "Expected date of a goal that is not reached: likely, and the range in which it is in 8 of 10 cases",
        _dates,
    ),
    _gauge(
        "batch_predicted_freeze_seconds", "batch", "Predicted freeze of a user of a batch", _predictions, "freeze_s"
    ),
    # Streams.
    _gauge("streams", "host from", "Running streams by host and source (brick or mount)", _streams),
    _counter("stream_bytes_total", "pass", "Bytes written by streams"),
    _counter("stream_files_total", "pass", "Files written by streams"),
    _counter("attempts_total", "host engine state", "Ended attempts at chunks"),
    _counter("attempt_bytes_total", "host engine", "Bytes written by these attempts"),
    _gauge("allowed_streams", "", "Streams allowed by the governor", _governor, "streams"),
    _gauge("allowed_streams_limit", "", "Streams allowed by the limits", _governor, "most"),
    _gauge("host_allowed_streams", "host", "Streams allowed per host", _host_streams),
    _gauge(
        "governor_bound",
        "bound",
        "1 for what bounds the number of streams",
        lambda facts: [(1, one.bound.value) for (one,) in _governor(facts)],
    ),
    _gauge("host_load", "host", "Load average (1 minute) of each host with streams", _loads),
    _gauge("host_load_limit", "", "Load limit, if any", _governor, "max_load"),
    _gauge("paused", "", "1 while paused", lambda facts: [(facts.governing.controls.hold is not None,)]),
    _gauge("window_holds", "window", "1 inside a window of [transfer], otherwise 0", _windows, "holds"),
    # Both file systems.
    _gauge("probe_latency_seconds", "side", "Slowest metadata operation of the newest probe", _probes, "latency_s"),
    _gauge("probe_latency_limit_seconds", "", "Latency limit, if any", _governor, "max_latency_s"),
    _gauge("probe_operation_seconds", "side operation", "Each operation of the newest probe", _operations),
    _gauge("probe_timestamp_seconds", "side", "Start of the newest probe", _probes, "at_s"),
    _gauge(
        "probe_success",
        "side",
        "1 if the newest probe was answered",
        lambda facts: [(one.times is not None, one.side) for one in facts.status.probes],
    ),
    _gauge(
        "filesystem_size_bytes", "side", "Size of the file system at the last check by a run", _sides, "total_bytes"
    ),
    _gauge("filesystem_free_bytes", "side", "Free bytes of it", _sides, "free_bytes"),
    _gauge("filesystem_inodes", "side", "Inodes of the file system, if reported", _sides, "total_inodes"),
    _gauge("filesystem_free_inodes", "side", "Free inodes of it", _sides, "free_inodes"),
    _gauge(
        "scan_whole",
        "",
        "1 if the newest ended scan is whole",
        lambda facts: [(one.whole,) for one, *_ in _scan(facts) if one.finished_at_s is not None],
    ),
    # Cutovers.
    _gauge("cutovers", "state", "User trees by state of their newest cutover", _cutover_states),
    _gauge("frozen_users", "", "Frozen users", lambda facts: [(len(facts.frozen_since_s),)]),
    _gauge(
        "freeze_oldest_start_timestamp_seconds",
        "",
        "Start of the longest freeze",
        lambda facts: [(min(facts.frozen_since_s, default=None),)],
    ),
    MetricSpec(
        "migrator_freeze_seconds",
        MetricKind.HISTOGRAM,
        (),
        "Duration of freezes",
        lambda facts: facts.sums["freeze_seconds"],
    ),
    _counter("purged_bytes_total", "", "Bytes freed on the source", _purged("size_bytes")),
    _counter("verification_read_bytes_total", "", "Bytes compared by verifications"),
    _gauge("verification_differences", "batch", "Differences in the newest verification of a batch", _differences),
    # Bricks.
    _gauge("cleared_bricks", "", "Bricks that drains have taken out of the source", _cleared),
    _gauge("added_bricks", "side", "Bricks that were added", _added),
    _gauge(
        "drain_state",
        "brick state",
        "1 for the state of the newest drain of a brick (set: joined by commas)",
        _each("status.drains", "bricks", "state"),
        1,
    ),
    _gauge("drain_left_bytes", "brick", "Bytes left", _drains, "left_bytes"),
    _gauge("drain_failures", "brick", "Failures in its last task", _drains, "failures"),
    _gauge("drain_skipped_files", "brick", "Files skipped by its last task", _drains, "skipped"),
    _gauge("drain_last_look_timestamp_seconds", "brick", "Last poll of Gluster", _drains, "looked_at_s"),
    _gauge(
        "addition_state",
        "brick side state",
        "1 for the state of the newest addition of a brick",
        _each("status.additions", "bricks", "side", "state"),
        1,
    ),
    _gauge("addition_failures", "brick side", "Failures in its last task", _additions, "failures"),
    _counter("gluster_moved_bytes_total", "task host", "Bytes moved by a host for drains or additions"),
)
"""Every metric, in the order in which they are exposed."""

FREEZE_BUCKETS_S = (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0)
"""Upper bounds of the histogram of freezes."""


def families(facts: MetricFacts) -> tuple[MetricFamily, ...]:
    """Every metric of CATALOGUE with its values, if it has any."""
    return tuple(
        MetricFamily(name=spec.name, kind=spec.kind, help=spec.help, samples=_samples(spec, facts))
        for spec in CATALOGUE
    )


def _samples(spec: MetricSpec, facts: MetricFacts) -> tuple[MetricSample, ...]:
    if spec.kind is MetricKind.HISTOGRAM:
        return tuple(_histogram(spec.name, [value for value, *_ in spec.rows(facts)]))
    # Of several rows with the same labels, such as windows with the same text, Prometheus accepts only one.
    values: dict[tuple[str, ...], float] = {}
    for thing, *labels in spec.rows(facts):
        value = spec.value or thing
        if isinstance(value, str):
            value = attrgetter(value)(thing)
        if value is not None:
            values[tuple(map(str, labels))] = float(value)
    return tuple(
        MetricSample(name=spec.name, labels=dict(zip(spec.labels, labels, strict=True)), value=value)
        for labels, value in values.items()
    )


def _histogram(name: str, values: Sequence[float]) -> Iterable[MetricSample]:
    for bound in (*FREEZE_BUCKETS_S, float("inf")):
        label = "+Inf" if bound == float("inf") else f"{bound}"
        count = float(sum(value <= bound for value in values))
        yield MetricSample(name=f"{name}_bucket", labels={"le": label}, value=count)
    yield MetricSample(name=f"{name}_count", labels={}, value=float(len(values)))
    yield MetricSample(name=f"{name}_sum", labels={}, value=float(sum(values)))
