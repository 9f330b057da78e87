"""The conversion schedule of a plan: several orders side by side, what depends on what, and how to make it possible. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from migrator.decide.schedule_orders import EVERY_ORDER_UP_TO, best_outcome, heaviest_first, soonest
from migrator.decide.schedule_remedies import remedies
from migrator.domain.schedule import (
    BatchStep,
    Change,
    HostStep,
    Obstacle,
    OrderSchedule,
    Outcome,
    Schedule,
    ScheduleOrder,
    SubvolumeStep,
    WhatIf,
)
from migrator.domain.schedule_facts import BatchFacts, ScheduleFacts

_DIGITS = 3
"""Of a day: a minute and a half."""


def make_schedule(facts: ScheduleFacts, *, assumptions: Sequence[str] = ()) -> Schedule:
    """The schedule of the batches as they are planned, beside the heaviest first and the order that frees bricks soonest.

    Same facts, same schedule. Without a subvolume or a batch there is nothing to schedule: raises ValueError.
    """
    if not facts.subvolumes or not facts.batches:
        raise ValueError("a schedule needs bricks and batches")
    planned = tuple(range(len(facts.batches)))
    outcome = best_outcome(facts, planned)
    heaviest = heaviest_first(facts.batches)
    orders = [
        (ScheduleOrder.PLANNED, outcome),
        (ScheduleOrder.HEAVIEST, outcome if heaviest == planned else best_outcome(facts, heaviest)),
        (ScheduleOrder.SOONEST, soonest(facts)),
    ]
    return Schedule(
        problem=None,
        assumptions=tuple(assumptions),
        max_fill=facts.max_fill,
        growth_bytes_per_day=ceil(facts.growth_bytes_per_day),
        every_drain_order=len(facts.subvolumes) <= EVERY_ORDER_UP_TO,
        orders=tuple(OrderSchedule(order=order, outcome=_rounded(found)) for order, found in orders),
        what_if=tuple(_what_if(change, facts, planned) for change in Change),
        remedies=None if outcome.obstacle is None else remedies(facts, planned),
    )


def changed(facts: ScheduleFacts, change: Change) -> ScheduleFacts:
    """The facts under other circumstances."""
    match change:
        case Change.COPY_HALVED:
            return replace(facts, batches=tuple(map(_copied_in_twice_the_time, facts.batches)))
        case Change.DRAIN_HALVED:
            return replace(
                facts,
                drain_days_per_byte=2 * facts.drain_days_per_byte,
                drain_days_per_file=2 * facts.drain_days_per_file,
            )
        case Change.GROWTH_DOUBLED:
            return replace(facts, growth_bytes_per_day=2 * facts.growth_bytes_per_day)
        case Change.BRICKS_NOT_JOINED:
            return replace(facts, bricks_join=False)


def _copied_in_twice_the_time(batch: BatchFacts) -> BatchFacts:
    in_drain = batch.copy_days_in_drain
    return replace(batch, copy_days=2 * batch.copy_days, copy_days_in_drain=None if in_drain is None else 2 * in_drain)


def _what_if(change: Change, facts: ScheduleFacts, planned: Sequence[int]) -> WhatIf:
    outcome = _rounded(best_outcome(changed(facts, change), planned))
    cleared = [step.cleared_day for step in outcome.subvolumes if step.cleared_day is not None]
    return WhatIf(
        change=change,
        done_day=outcome.done_day,
        first_cleared_day=min(cleared, default=None),
        hosts=outcome.hosts,
        obstacle=outcome.obstacle,
    )


def _rounded(outcome: Outcome) -> Outcome:
    return Outcome(
        done_day=_day_or_none(outcome.done_day),
        obstacle=None if outcome.obstacle is None else _rounded_obstacle(outcome.obstacle),
        batches=tuple(map(_rounded_batch, outcome.batches)),
        subvolumes=tuple(map(_rounded_subvolume, outcome.subvolumes)),
        hosts=tuple(HostStep(host=one.host, free_day=_day_or_none(one.free_day)) for one in outcome.hosts),
    )


def _rounded_obstacle(obstacle: Obstacle) -> Obstacle:
    return replace(obstacle, day=round(obstacle.day, _DIGITS))


def _rounded_batch(step: BatchStep) -> BatchStep:
    return BatchStep(
        batch=step.batch,
        begins_day=round(step.begins_day, _DIGITS),
        moved_day=round(step.moved_day, _DIGITS),
        freed_day=round(step.freed_day, _DIGITS),
        waited_days=round(step.waited_days, _DIGITS),
    )


def _rounded_subvolume(step: SubvolumeStep) -> SubvolumeStep:
    return replace(
        step, drain_begins_day=_day_or_none(step.drain_begins_day), cleared_day=_day_or_none(step.cleared_day)
    )


def _day_or_none(day: float | None) -> float | None:
    return None if day is None else round(day, _DIGITS)
