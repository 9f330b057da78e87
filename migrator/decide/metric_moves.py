"""Metrics of cutovers and of bricks. Pure."""

from collections import Counter

from migrator.decide.metric_values import Values
from migrator.domain.addition_standing import AdditionStanding
from migrator.domain.cutover import ROLLBACK_STATES, CutoverRecord, CutoverState
from migrator.domain.drain_standing import DrainStanding
from migrator.domain.metric_catalogue import FREEZE_BUCKETS_S
from migrator.domain.metrics import MetricFacts


def add_cutovers(values: Values, facts: MetricFacts) -> None:
    """Users on their way, freezes, what was freed on the source, and verifications."""
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


def frozen_since_s(record: CutoverRecord) -> float | None:
    """Since when the user of a tree cannot work, on the way there or back; None where he can."""
    if record.state in ROLLBACK_STATES:
        # One who was not let in on the target yet has been frozen since before.
        begun = record.frozen_at_s if record.thawed_at_s is None else None
        return begun if begun is not None else record.times.get(CutoverState.ROLLBACK_FREEZING, record.since_s)
    return record.frozen_at_s if record.under_way and record.thawed_at_s is None else None


def add_bricks(values: Values, facts: MetricFacts) -> None:
    """Drains, additions, what Gluster has moved for them, and the end of the source volume."""
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
