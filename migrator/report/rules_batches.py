"""The cutovers of batches, and when their copying and their purges are expected. Pure."""

from collections.abc import Mapping, Sequence

from migrator.core.units import DAY_S
from migrator.cutover.model import ROLLBACK_STATES, CutoverRecord, CutoverState
from migrator.plan.model import Plan
from migrator.plan.schedule.model import BatchStep
from migrator.plan.schedule.rules import scheduled_outcome
from migrator.report import model

_UNDONE = {
    CutoverState.PLANNED,
    CutoverState.REVERTING,
    CutoverState.REVERTED,
    CutoverState.ROLLED_BACK,
    *ROLLBACK_STATES,
}


def scheduled_batches(plan: Plan | None) -> Mapping[int, BatchStep]:
    """The steps of the schedule by batch."""
    outcome = scheduled_outcome(plan)
    return {} if outcome is None else {step.batch: step for step in outcome.batches}


def moves(status: model.MigrationStatus) -> Sequence[CutoverRecord]:
    """The cutovers that were not undone, under any plan."""
    return [one for one in status.cutovers if one.state not in _UNDONE]


def moves_of(status: model.MigrationStatus, batch: model.BatchStatus) -> Sequence[CutoverRecord]:
    """The same of a batch of the counting plan."""
    plan = "" if status.plan is None else status.plan.name
    return [one for one in moves(status) if one.plan == plan and one.batch == batch.number]


def moved_at_s(status: model.MigrationStatus, batch: model.BatchStatus) -> float | None:
    """When the last user of a batch was moved; None if one is left."""
    thawed = [one.thawed_at_s for one in moves_of(status, batch)]
    known = [at_s for at_s in thawed if at_s is not None]
    return max(known) if known and len(known) == len(thawed) >= len(batch.users) else None


def expected_copying(status: model.MigrationStatus, plan: Plan | None) -> Mapping[int, tuple[float, float]]:
    """When each batch with bytes left is copied: one after the other until the forecast's end, in proportion to these bytes.
    Without a forecast the schedule has the dates, except of batches that should have begun and did not.
    """
    now_s, found = status.at_s, dict[int, tuple[float, float]]()
    left = [batch for batch in status.batches if batch.tally.left_bytes > 0]
    if status.forecast is not None:
        whole, so_far = sum(batch.tally.left_bytes for batch in left), 0
        for batch in left:
            begin = so_far / whole
            so_far += batch.tally.left_bytes
            found[batch.number] = (
                now_s + begin * status.forecast.left_s,
                now_s + so_far / whole * status.forecast.left_s,
            )
        return found
    steps = scheduled_batches(plan)
    for batch in left:
        if plan is not None and (step := steps.get(batch.number)) is not None:
            begin_s, end_s = (plan.created_at_s + day * DAY_S for day in (step.begins_day, step.moved_day))
            if end_s > now_s and (batch.passes or begin_s >= now_s):
                found[batch.number] = (max(begin_s, now_s), end_s)
    return found


def expected_purges(status: model.MigrationStatus, plan: Plan | None) -> Mapping[int, float]:
    """When the source of each batch is purged: as long after its move, or its expected copying, as in the schedule. Batches
    without a schedule, copied ones that are not moved, and purges that are due have no date.
    """
    copying, steps, found = expected_copying(status, plan), scheduled_batches(plan), dict[int, float]()
    for batch in status.batches:
        if (step := steps.get(batch.number)) is None or is_purged(status, batch):
            continue
        moved_s = moved_at_s(status, batch)
        if moved_s is None and batch.number in copying:
            moved_s = copying[batch.number][1]
        at_s = None if moved_s is None else moved_s + (step.freed_day - step.moved_day) * DAY_S
        if at_s is not None and at_s > status.at_s:
            found[batch.number] = at_s
    return found


def is_purged(status: model.MigrationStatus, batch: model.BatchStatus) -> bool:
    """Whether the source of every user of a batch is purged."""
    own = moves_of(status, batch)
    return len(own) >= len(batch.users) > 0 and all(one.state is CutoverState.PURGED for one in own)
