"""Every metric, and its value from a snapshot of the ledger. Labels are bounded: nothing grows with users or files. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from migrator.bricks.add.model import AdditionStanding
from migrator.bricks.drain.model import DrainStanding
from migrator.core.probe import Probe, ProbeTimes
from migrator.core.states import ChunkState
from migrator.core.units import HOUR_S
from migrator.cutover.model import CutoverState
from migrator.report.model import (
    BatchFacts,
    MetricFacts,
    MetricFamily,
    MetricKind,
    MetricSample,
    MetricSpec,
    RunLife,
    StatusFacts,
    TreeState,
)

_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM


def _spec(name: str, kind: MetricKind, labels: str, text: str) -> MetricSpec:
    return MetricSpec(name=f"migrator_{name}", kind=kind, labels=tuple(labels.split()), help=text)


_LEDGER = (
    _spec("build_info", _G, "version", "Always 1; version of the program"),
    _spec("site_info", _G, "site plan", "Always 1; site, and the plan that progress is counted by"),
    _spec("ledger_read_timestamp_seconds", _G, "", "Time of reading the ledger"),
    _spec("ledger_read_duration_seconds", _G, "", "Duration of reading it"),
)

_RUNS = (
    _spec("run_last_heartbeat_timestamp_seconds", _G, "verb", "Last heartbeat of the newest run of a verb"),
    _spec("run_start_timestamp_seconds", _G, "verb", "Start of the newest run of a verb"),
    _spec(
        "run_state",
        _G,
        "verb state",
        "1 for the state of the newest run of a verb: at-work, silent (no heartbeat), killed, ended",
    ),
    _spec("runs_total", _C, "verb exit_code", "Ended runs of a verb by exit code"),
    _spec("blocked_subjects", _G, "", "Blocked subjects that need an operator; see status"),
    _spec("events_total", _C, "kind severity", "Warnings and errors by kind"),
    _spec("hook_calls_total", _C, "stage outcome", "Ended calls of hooks"),
)

_PROGRESS = (
    _spec("planned_bytes", _G, "batch", "Planned bytes of a batch"),
    _spec("copied_bytes", _G, "batch", "Those copied at least once"),
    _spec("planned_files", _G, "batch", "Planned files of a batch"),
    _spec("copied_files", _G, "batch", "Those copied at least once"),
    _spec("batch_state", _G, "batch state", "1 for the state of a batch"),
    _spec("trees", _G, "state", "User trees of the plan by state"),
    _spec("verified_bytes", _G, "", "Bytes of completely verified user trees"),
    _spec("verified_content_bytes", _G, "", "Those with compared content"),
    _spec("chunks", _G, "batch state", "Chunks of the newest pass over a batch"),
    _spec("attention_files", _G, "batch", "Files that need attention"),
    _spec("vanished_files", _G, "batch", "Listed files that users removed before they were copied"),
    _spec("copy_left_seconds", _G, "", "Time left for copying, first estimate of status; 0 when done"),
    _spec("batch_predicted_freeze_seconds", _G, "batch", "Predicted freeze of a user of a batch"),
    _spec("batch_churn_bytes_per_second", _G, "batch", "Changes by users of a batch"),
)

_STREAMS = (
    _spec("streams", _G, "host from", "Running streams by host and source (brick or mount)"),
    _spec("stream_bytes_total", _C, "pass", "Bytes written by streams"),
    _spec("stream_files_total", _C, "pass", "Files written by streams"),
    _spec("stream_seconds_total", _C, "pass", "Stream seconds"),
    _spec("passes_total", _C, "pass", "Started passes"),
    _spec("attempts_total", _C, "host engine state", "Ended attempts at chunks"),
    _spec("attempt_bytes_total", _C, "host engine", "Bytes written by these attempts"),
    _spec("attempt_files_total", _C, "host engine", "Files written by these attempts"),
    _spec("allowed_streams", _G, "", "Streams allowed by the governor"),
    _spec("allowed_streams_limit", _G, "", "Streams allowed by the limits"),
    _spec("host_allowed_streams", _G, "host", "Streams allowed per host"),
    _spec("governor_bound", _G, "bound", "1 for what bounds the number of streams"),
    _spec("bandwidth_limit_bytes_per_second", _G, "", "Limit for all streams together, if any"),
    _spec("host_load", _G, "host", "Load average (1 minute) of each host with streams"),
    _spec("host_load_limit", _G, "", "Load limit, if any"),
    _spec("paused", _G, "", "1 while paused"),
    _spec("window_holds", _G, "window", "1 inside a window of [transfer], otherwise 0"),
    _spec("window_change_timestamp_seconds", _G, "window", "Next begin or end of a window"),
)

_SIDES = (
    _spec("probe_latency_seconds", _G, "side", "Slowest metadata operation of the newest probe"),
    _spec("probe_latency_limit_seconds", _G, "", "Latency limit, if any"),
    _spec("probe_operation_seconds", _G, "side operation", "Each operation of the newest probe"),
    _spec("probe_timestamp_seconds", _G, "side", "Start of the newest probe"),
    _spec("probe_success", _G, "side", "1 if the newest probe was answered"),
    _spec("filesystem_size_bytes", _G, "side", "Size of the file system at the last check by a run"),
    _spec("filesystem_free_bytes", _G, "side", "Free bytes of it"),
    _spec("filesystem_inodes", _G, "side", "Inodes of the file system, if reported"),
    _spec("filesystem_free_inodes", _G, "side", "Free inodes of it"),
    _spec("filesystem_timestamp_seconds", _G, "side", "Time of that check"),
    _spec("scan_whole", _G, "", "1 if the newest ended scan is whole"),
    _spec("scan_problems", _G, "", "Paths that the newest scan could not read"),
    _spec("scan_finished_timestamp_seconds", _G, "", "End of the newest scan"),
)

_CUTOVERS = (
    _spec("cutovers", _G, "state", "User trees by state of their newest cutover"),
    _spec("frozen_users", _G, "", "Frozen users"),
    _spec("freeze_oldest_start_timestamp_seconds", _G, "", "Start of the longest freeze"),
    _spec("freeze_seconds", _H, "", "Duration of freezes"),
    _spec("purged_bytes_total", _C, "", "Bytes freed on the source"),
    _spec("purged_inodes_total", _C, "", "Inodes freed on the source"),
    _spec("verifications_total", _C, "whole", "Ended verifications"),
    _spec("verification_read_bytes_total", _C, "", "Bytes compared by verifications"),
    _spec("verification_read_files_total", _C, "", "Files compared by verifications"),
    _spec("verification_differences", _G, "batch", "Differences in the newest verification of a batch"),
)

_BRICKS = (
    _spec("drain_state", _G, "brick state", "1 for the state of the newest drain of a brick (set: joined by commas)"),
    _spec("drain_moved_bytes", _G, "brick", "Bytes moved"),
    _spec("drain_moved_files", _G, "brick", "Files moved"),
    _spec("drain_left_bytes", _G, "brick", "Bytes left"),
    _spec("drain_left_files", _G, "brick", "Files left"),
    _spec("drain_left_seconds", _G, "brick", "Time left at the pace of the last half hour"),
    _spec("drain_failures", _G, "brick", "Failures in its last task"),
    _spec("drain_skipped_files", _G, "brick", "Files skipped by its last task"),
    _spec("drain_last_look_timestamp_seconds", _G, "brick", "Last poll of Gluster"),
    _spec("addition_state", _G, "brick side state", "1 for the state of the newest addition of a brick"),
    _spec("addition_moved_bytes", _G, "brick side", "Bytes moved by its rebalances"),
    _spec("addition_left_seconds", _G, "brick side", "Time left at the pace of the last half hour"),
    _spec("addition_failures", _G, "brick side", "Failures in its last task"),
    _spec("addition_last_look_timestamp_seconds", _G, "brick side", "Last poll of Gluster"),
    _spec("gluster_moved_bytes_total", _C, "task host", "Bytes moved by a host for drains or additions"),
    _spec("gluster_moved_files_total", _C, "task host", "Files moved by a host for drains or additions"),
    _spec("gluster_move_failures_total", _C, "task host", "Files that a host failed to move"),
    _spec("retirement_state", _G, "state", "1 for the state of the newest retirement of the volume"),
)

CATALOGUE = (*_LEDGER, *_RUNS, *_PROGRESS, *_STREAMS, *_SIDES, *_CUTOVERS, *_BRICKS)
"""Every metric, in the order in which they are exposed."""

FREEZE_BUCKETS_S = (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0)
"""Upper bounds of the histogram of freezes."""


_SPECS = {spec.name: spec for spec in CATALOGUE}


class Values:
    """Samples by metric. Unknown values (None) are left out, because a missing value is not 0."""

    def __init__(self) -> None:
        self._samples: dict[str, list[MetricSample]] = defaultdict(list)

    def add(self, name: str, value: float | None, **labels: object) -> None:
        """Add a value of a gauge or a counter. Raises KeyError for a name or labels that are not in CATALOGUE."""
        spec = _SPECS[f"migrator_{name}"]
        if spec.labels != tuple(label.rstrip("_") for label in labels):
            raise KeyError(f"{spec.name} has the labels {spec.labels}, not {tuple(labels)}")
        if value is not None:
            texts = {label.rstrip("_"): str(text) for label, text in labels.items()}
            self._samples[spec.name].append(MetricSample(name=spec.name, labels=texts, value=float(value)))

    def add_histogram(self, name: str, values: Sequence[float], bounds: Sequence[float]) -> None:
        """Add all values of a histogram with these upper bounds."""
        spec = _SPECS[f"migrator_{name}"]
        samples = self._samples[spec.name]
        for bound in (*bounds, float("inf")):
            label = "+Inf" if bound == float("inf") else f"{bound}"
            count = float(sum(value <= bound for value in values))
            samples.append(MetricSample(name=f"{spec.name}_bucket", labels={"le": label}, value=count))
        samples.append(MetricSample(name=f"{spec.name}_count", labels={}, value=float(len(values))))
        samples.append(MetricSample(name=f"{spec.name}_sum", labels={}, value=float(sum(values))))

    def families(self) -> tuple[MetricFamily, ...]:
        """Every metric of CATALOGUE, in its order, with or without values."""
        return tuple(
            MetricFamily(name=spec.name, kind=spec.kind, help=spec.help, samples=tuple(self._samples[spec.name]))
            for spec in CATALOGUE
        )


def _cutovers(values: Values, facts: MetricFacts) -> None:
    cutovers = facts.status.cutovers
    counts = Counter(one.state for one in cutovers)
    for state in CutoverState:
        values.add("cutovers", counts[state], state=state.value)
    values.add("frozen_users", len(facts.frozen_since_s))
    values.add("freeze_oldest_start_timestamp_seconds", min(facts.frozen_since_s, default=None))
    values.add_histogram("freeze_seconds", facts.sums.freezes_s, FREEZE_BUCKETS_S)
    freed = [one.purge for one in cutovers if one.state is CutoverState.PURGED and one.purge is not None]
    values.add("purged_bytes_total", sum(one.size_bytes for one in freed))
    values.add("purged_inodes_total", sum(one.inodes for one in freed))
    verified = facts.sums.verified
    values.add("verifications_total", verified.whole, whole="yes")
    values.add("verifications_total", verified.not_whole, whole="no")
    values.add("verification_read_bytes_total", verified.read_bytes)
    values.add("verification_read_files_total", verified.read_files)


def _bricks(values: Values, facts: MetricFacts) -> None:
    for drain in facts.status.drains:
        _drain(values, drain)
    for addition in facts.status.additions:
        _addition(values, addition)
    for moved in facts.sums.moved:
        values.add("gluster_moved_bytes_total", moved.size_bytes, task=moved.task, host=moved.host)
        values.add("gluster_moved_files_total", moved.files, task=moved.task, host=moved.host)
        values.add("gluster_move_failures_total", moved.failures, task=moved.task, host=moved.host)
    retirement = facts.status.retirement
    if retirement is not None:
        values.add("retirement_state", 1, state=retirement.state.value)


def _drain(values: Values, drain: DrainStanding) -> None:
    brick = ",".join(drain.bricks)
    values.add("drain_state", 1, brick=brick, state=drain.state.value)
    values.add("drain_moved_bytes", drain.moved_bytes, brick=brick)
    values.add("drain_moved_files", drain.moved_files, brick=brick)
    values.add("drain_left_bytes", drain.left_bytes, brick=brick)
    values.add("drain_left_files", drain.left_files, brick=brick)
    values.add("drain_left_seconds", drain.left_s, brick=brick)
    values.add("drain_failures", drain.failures, brick=brick)
    values.add("drain_skipped_files", drain.skipped, brick=brick)
    values.add("drain_last_look_timestamp_seconds", drain.looked_at_s, brick=brick)


def _addition(values: Values, addition: AdditionStanding) -> None:
    brick, side = ",".join(addition.bricks), addition.side.value
    values.add("addition_state", 1, brick=brick, side=side, state=addition.state.value)
    values.add("addition_moved_bytes", addition.moved_bytes, brick=brick, side=side)
    values.add("addition_left_seconds", addition.left_s, brick=brick, side=side)
    values.add("addition_failures", addition.failures, brick=brick, side=side)
    values.add("addition_last_look_timestamp_seconds", addition.looked_at_s, brick=brick, side=side)


_COPYING_VERBS = frozenset({"run", "cutover", "rollback"})
_OPERATIONS = tuple(name.removesuffix("_s") for name in ProbeTimes.__slots__)


def families(facts: MetricFacts) -> tuple[MetricFamily, ...]:
    """Every metric of CATALOGUE with its values."""
    values = Values()
    _ledger(values, facts)
    _runs(values, facts)
    _progress(values, facts.status)
    for batch in facts.status.batches:
        _batch(values, batch)
    _streams(values, facts)
    _governing(values, facts)
    for probe in facts.status.probes:
        _probe(values, probe)
    _rooms(values, facts)
    _cutovers(values, facts)
    _bricks(values, facts)
    return values.families()


def _ledger(values: Values, facts: MetricFacts) -> None:
    status = facts.status
    values.add("build_info", 1, version=facts.version)
    plan = "" if status.plan is None else status.plan.name
    values.add("site_info", 1, site=status.site or "", plan=plan)
    values.add("ledger_read_timestamp_seconds", status.at_s)
    values.add("ledger_read_duration_seconds", facts.read_s)


def _runs(values: Values, facts: MetricFacts) -> None:
    for run in facts.runs:
        values.add("run_last_heartbeat_timestamp_seconds", facts.status.at_s - run.silent_s, verb=run.verb)
        values.add("run_start_timestamp_seconds", run.started_at_s, verb=run.verb)
        for life in RunLife:
            values.add("run_state", run.life is life, verb=run.verb, state=life.value)
    for ended in facts.sums.runs:
        values.add("runs_total", ended.count, verb=ended.verb, exit_code=ended.exit_code)
    values.add("blocked_subjects", len(facts.status.blocked))
    for event in facts.sums.events:
        values.add("events_total", event.count, kind=event.kind.value, severity=event.severity.value)
    for hook in facts.sums.hooks:
        values.add("hook_calls_total", hook.count, stage=hook.stage, outcome=hook.outcome)


def _progress(values: Values, status: StatusFacts) -> None:
    if status.plan is not None:
        counts = Counter(tree.state for tree in status.trees)
        for state in TreeState:
            values.add("trees", counts[state], state=state.value)
        values.add("verified_bytes", status.verified.done_bytes)
        values.add("verified_content_bytes", status.verified_content_bytes)
    left_s = status.estimates[0].left_s if status.estimates else None
    if status.plan is not None and status.overall.left_files <= 0 and status.overall.left_bytes <= 0:
        left_s = 0.0
    values.add("copy_left_seconds", left_s)
    scan = status.scan
    if scan is not None:
        values.add("scan_problems", scan.problems)
        if scan.finished_at_s is not None:
            values.add("scan_whole", scan.whole)
            values.add("scan_finished_timestamp_seconds", scan.finished_at_s)


def _batch(values: Values, batch: BatchFacts) -> None:
    number, tally = batch.number, batch.tally
    values.add("planned_bytes", tally.total_bytes, batch=number)
    values.add("copied_bytes", tally.done_bytes, batch=number)
    values.add("planned_files", tally.total_files, batch=number)
    values.add("copied_files", tally.done_files, batch=number)
    values.add("batch_state", 1, batch=number, state=batch.state.value)
    for state in ChunkState:
        values.add("chunks", batch.chunks.get(state, 0), batch=number, state=state.value)
    values.add("attention_files", batch.attention.bad, batch=number)
    values.add("vanished_files", batch.attention.vanished, batch=number)
    if batch.convergence is not None:
        prediction = batch.convergence.prediction
        values.add("batch_predicted_freeze_seconds", prediction.freeze_s, batch=number)
        values.add("batch_churn_bytes_per_second", prediction.churn_bytes_per_h / HOUR_S, batch=number)
    if batch.verification is not None:
        values.add("verification_differences", sum(batch.verification.differences.values()), batch=number)


def _streams(values: Values, facts: MetricFacts) -> None:
    # Streams that a killed run left in the ledger are not running.
    if any(run.verb in _COPYING_VERBS and run.life is RunLife.AT_WORK for run in facts.runs):
        for stream in facts.sums.streams:
            values.add("streams", stream.streams, host=stream.host, from_="brick" if stream.from_brick else "mount")
    for one in facts.sums.passes:
        kind = {"pass": one.kind.value}
        values.add("passes_total", one.passes, **kind)
        values.add("stream_bytes_total", one.size_bytes, **kind)
        values.add("stream_files_total", one.files, **kind)
        values.add("stream_seconds_total", one.stream_s, **kind)
    written: dict[tuple[str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for ended in facts.sums.attempts:
        host, engine = ended.host, ended.engine
        values.add("attempts_total", ended.attempts, host=host, engine=engine, state=ended.state.value)
        files, size_bytes = written[host, engine]
        written[host, engine] = (files + ended.files, size_bytes + ended.size_bytes)
    for (host, engine), (files, size_bytes) in written.items():
        values.add("attempt_files_total", files, host=host, engine=engine)
        values.add("attempt_bytes_total", size_bytes, host=host, engine=engine)


def _governing(values: Values, facts: MetricFacts) -> None:
    governing = facts.governing
    values.add("paused", governing.controls.hold is not None)
    # One of several windows with the same text.
    for window in {one.when: one for one in governing.windows or ()}.values():
        values.add("window_holds", window.holds, window=window.when)
        values.add("window_change_timestamp_seconds", window.changes_at_s, window=window.when)
    governor = governing.governor
    # The limits of an ended run are out of date.
    if governor is not None and any(run.verb == "run" and run.life is RunLife.AT_WORK for run in facts.runs):
        values.add("allowed_streams", governor.streams)
        values.add("allowed_streams_limit", governor.most)
        values.add("governor_bound", 1, bound=governor.bound.value)
        values.add("bandwidth_limit_bytes_per_second", governor.bwlimit_bytes_per_s)
        values.add("probe_latency_limit_seconds", governor.max_latency_s)
        values.add("host_load_limit", governor.max_load)
        for host, streams in governor.hosts:
            values.add("host_allowed_streams", streams, host=host)
        for load in governing.loads:
            values.add("host_load", load.load, host=load.host)


def _probe(values: Values, probe: Probe) -> None:
    side = probe.side.value
    values.add("probe_timestamp_seconds", probe.at_s, side=side)
    values.add("probe_success", probe.times is not None, side=side)
    values.add("probe_latency_seconds", probe.latency_s, side=side)
    if probe.times is not None:
        for operation in _OPERATIONS:
            took_s = getattr(probe.times, f"{operation}_s")
            values.add("probe_operation_seconds", took_s, side=side, operation=operation)


def _rooms(values: Values, facts: MetricFacts) -> None:
    for sample in facts.capacity:
        side = sample.side.value
        values.add("filesystem_size_bytes", sample.total_bytes, side=side)
        values.add("filesystem_free_bytes", sample.free_bytes, side=side)
        values.add("filesystem_inodes", sample.total_inodes, side=side)
        values.add("filesystem_free_inodes", sample.free_inodes, side=side)
        values.add("filesystem_timestamp_seconds", sample.at_s, side=side)
