"""From one look at the ledger to every metric: progress, streams, runs. Cutovers and bricks are beside it. Pure."""

from collections import Counter, defaultdict

from migrator.decide.metric_moves import add_bricks, add_cutovers
from migrator.decide.metric_values import Values
from migrator.domain.metrics import MetricFacts, MetricFamily
from migrator.domain.probe import Probe, ProbeTimes
from migrator.domain.report import BatchFacts, RunLife, StatusFacts, TreeState
from migrator.domain.states import ChunkState
from migrator.domain.units import HOUR_S

_COPYING_VERBS = frozenset({"run", "cutover", "rollback"})
_OPERATIONS = tuple(name.removesuffix("_s") for name in ProbeTimes.__slots__)


def families(facts: MetricFacts) -> tuple[MetricFamily, ...]:
    """Every metric of the catalogue."""
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
    add_cutovers(values, facts)
    add_bricks(values, facts)
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
    # What a killed run left in the ledger is not at work.
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
    # By their words: of two that are written the same way one says it all.
    for window in {one.when: one for one in governing.windows or ()}.values():
        values.add("window_holds", window.holds, window=window.when)
        values.add("window_change_timestamp_seconds", window.changes_at_s, window=window.when)
    governor = governing.governor
    # What the last run was allowed is nothing to go by once it has ended.
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
