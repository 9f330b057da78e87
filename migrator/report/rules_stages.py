"""The expected end of each stage after the copying, and of the whole migration, with ranges. Pure.

Stages wait for each other: a user is verified after the copying, moved after that, and so on. A stage ends when both are
over: the wait of its last unit after the stage before, and the work left at the pace of the stage. Wait and pace are
measured: a wait from the time when a unit was ready until it was done, the pace only while units were waiting. So pauses,
freezes and days without cutovers are in both, and a stage that keeps up with the one before does not look slow. The
constants are fitted to simulated migrations (tests/support/migrations.py, `python -m bench forecast`), so that 8 of 10
true ends lie in the ranges.
"""

import math
import statistics
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.units import DAY_S, HOUR_S, format_duration
from migrator.core.windows import ALWAYS, OpenTimes
from migrator.report.model import AssumedWait, BrickCourse, Goal, Milestone, Stage, StageUnit, TreeCourse
from migrator.report.rules_forecast import Ends, PaceSlot, slot_width_s, time_left_s

# --- The stages


_BEFORE = {Goal.VERIFIED: Goal.COPIED, Goal.MOVED: Goal.VERIFIED, Goal.PURGED: Goal.MOVED}


def verifying(trees: Sequence[TreeCourse], *, scheduled_at_s: float | None = None) -> Stage:
    """The work is in user trees. Trees of a batch that are verified at once are one unit, so that they are no queue."""
    found: dict[tuple[str, float | None, float | None, bool], float] = {}
    for tree in trees:
        unit = _unit(tree, Goal.VERIFIED)
        key = (tree.batch, unit.ready_at_s, unit.done_at_s, unit.done)
        found[key] = found.get(key, 0.0) + 1.0
    units = tuple(
        StageUnit(work=work, ready_at_s=ready_at_s, done=done, done_at_s=done_at_s)
        for (_, ready_at_s, done_at_s, done), work in found.items()
    )
    return Stage(goal=Goal.VERIFIED, units=units, scheduled_at_s=scheduled_at_s)


def moving(trees: Sequence[TreeCourse], *, scheduled_at_s: float | None = None, times: OpenTimes = ALWAYS) -> Stage:
    """The work is in user trees, because cutovers have appointments. `times`: when they may begin."""
    units = tuple(_unit(tree, Goal.MOVED) for tree in trees)
    return Stage(goal=Goal.MOVED, units=units, scheduled_at_s=scheduled_at_s, times=times)


def purging(trees: Sequence[TreeCourse], *, retain_s: float) -> Stage:
    """The work is in user trees."""
    units = tuple(_unit(tree, Goal.PURGED, keep_s=retain_s) for tree in trees)
    return Stage(goal=Goal.PURGED, units=units, keep_s=retain_s, assumed=_BY_HAND)


def clearing(bricks: Sequence[BrickCourse], *, drains_s: float, running_s: float = 0.0, after_s: float = 0.0) -> Stage:
    """The work is in bytes. Drains need no more than room on the other bricks; the volume is stopped after the last purge.
    By the plan the drains that have not begun take `drains_s`, and the last of them end `after_s` after the last purge.
    """
    units = tuple(
        StageUnit(
            work=float(brick.size_bytes),
            ready_at_s=brick.began_at_s,
            done=Goal.CLEARED in brick.reached,
            done_at_s=brick.reached.get(Goal.CLEARED),
        )
        for brick in bricks
    )
    assumed = replace(
        _BY_HAND,
        earliest_s=_BY_HAND.earliest_s + after_s / 2,
        likely_s=_BY_HAND.likely_s + after_s,
        latest_s=_BY_HAND.latest_s + 2 * after_s,
        basis="after the last purge, by the schedule" if after_s else _BY_HAND.basis,
    )
    return Stage(goal=Goal.CLEARED, units=units, follows=False, assumed=assumed, drains_s=drains_s, running_s=running_s)


def adding(bricks: Sequence[BrickCourse], cleared: Stage) -> Stage:
    """The work is in sets of drained bricks. It follows the drains of the stage `cleared`."""
    units = tuple(
        StageUnit(
            ready_at_s=brick.reached.get(Goal.CLEARED),
            done=Goal.ADDED in brick.reached,
            done_at_s=brick.reached.get(Goal.ADDED),
        )
        for brick in bricks
        if brick.is_drained
    )
    return Stage(goal=Goal.ADDED, units=units, assumed=_BY_HAND, after=cleared)


def _unit(tree: TreeCourse, goal: Goal, *, keep_s: float = 0.0) -> StageUnit:
    ready_at_s = tree.reached.get(_BEFORE[goal])
    return StageUnit(
        ready_at_s=None if ready_at_s is None else ready_at_s + keep_s,
        done=goal in tree.reached,
        done_at_s=tree.reached.get(goal),
    )


_BY_HAND = AssumedWait(
    earliest_s=0.5 * DAY_S,
    likely_s=2.0 * DAY_S,
    latest_s=6.0 * DAY_S,
    basis="a step of an operator, assumed to take 2 days",
)
"""The wait of stages that begin with a command of an operator, or with the exchange of a disk."""


# --- The chain of stages


def chain(copied: Milestone, stages: Sequence[Stage], *, now_s: float) -> tuple[Milestone, ...]:
    """The milestones of the copying, of the stages in their order, and of the whole. None is expected before one that it
    waits for.
    """
    found = [copied]
    for stage in stages:
        before = found if stage.after is None else [*found, _drained(stage.after, found[-1], now_s)]
        found.append(_milestone(stage, before, now_s))
    return (*found, _whole(found))


def _drained(stage: Stage, cleared: Milestone, now_s: float) -> Milestone:
    """The last drain: at the earliest when the drains need no room of later purges, at the latest with the last brick,
    which stays until the last purge.
    """
    left = _left(stage, now_s)
    if left is None or cleared.done or cleared.at_s is None:
        return cleared
    alone_s, ranged = min(now_s + left[1], cleared.at_s), cleared.latest_at_s is not None
    return Milestone(
        goal=stage.goal,
        at_s=(alone_s + cleared.at_s) / 2,
        earliest_at_s=alone_s if ranged else None,
        latest_at_s=cleared.at_s if ranged else None,
    )


_ENDLESS = "at the pace so far it does not end"


def _milestone(stage: Stage, before: Sequence[Milestone], now_s: float) -> Milestone:
    if stage.unknown:
        return Milestone(goal=stage.goal, unknown=stage.unknown)
    if all(unit.done for unit in stage.units):
        times = [unit.done_at_s for unit in stage.units if unit.done_at_s is not None]
        return Milestone(goal=stage.goal, done=True, at_s=max(times, default=None))
    wait = _wait(stage)
    waits_for = next((one for one in reversed(before) if not one.done), before[-1])
    if wait is None or not (waits_for.done or waits_for.at_s is not None):
        return _opened(_scheduled(stage, before, now_s), stage.times)
    return _opened(_expected(stage, waits_for, wait, now_s), stage.times)


def _opened(one: Milestone, times: OpenTimes) -> Milestone:
    """With each end at a time that is open."""
    ends = {name: getattr(one, name) for name in ("at_s", "earliest_at_s", "latest_at_s")}
    return replace(one, **{name: at_s if at_s is None else times.from_(at_s) for name, at_s in ends.items()})


def _scheduled(stage: Stage, before: Sequence[Milestone], now_s: float) -> Milestone:
    """The date of the plan, as long as nothing was measured, and not before what it waits for."""
    known = [one.at_s for one in before if one.at_s is not None and not one.done]
    if stage.scheduled_at_s is None or (stage.scheduled_at_s < now_s and not known):
        unknown = before[-1].unknown if _wait(stage) is not None else _UNMEASURED[stage.goal]
        return Milestone(goal=stage.goal, unknown=unknown or _UNMEASURED[stage.goal])
    return Milestone(goal=stage.goal, at_s=max((stage.scheduled_at_s, *known)), basis="by the schedule of the plan")


def _expected(stage: Stage, before: Milestone, wait: "_Wait", now_s: float) -> Milestone:
    left = _left(stage, now_s)
    if left is None:
        return Milestone(goal=stage.goal, unknown=_ENDLESS)
    usual_s = now_s if before.at_s is None else before.at_s
    from_s = (before.earliest_at_s or usual_s, usual_s, before.latest_at_s or usual_s)
    waited = _sum(from_s, wait.ends)
    earliest, likely, latest = (
        max(waited_s + stage.keep_s, now_s + left_s) for waited_s, left_s in zip(waited, left, strict=True)
    )
    is_queue = now_s + left[1] > waited[1] + stage.keep_s
    # A stage cannot end in the past, nor before the one that it waits for.
    ranged = before.done or before.earliest_at_s is not None
    return Milestone(
        goal=stage.goal,
        at_s=max(likely, now_s),
        earliest_at_s=max(earliest, now_s) if ranged else None,
        latest_at_s=max(latest, now_s) if ranged else None,
        basis=_PACE if is_queue and stage.follows else _DRAINS if is_queue else wait.basis,
    )


_PACE = "at the pace of this step so far"
_DRAINS = "at the pace of the drains so far, or else of the schedule"


def _sum(some: Ends, others: Ends) -> Ends:
    """The ends of a sum: both are seldom early, or late, at once."""
    early = math.hypot(some[1] - some[0], others[1] - others[0])
    late = math.hypot(some[2] - some[1], others[2] - others[1])
    likely = some[1] + others[1]
    return likely - early, likely, likely + late


_UNMEASURED = {
    Goal.COPIED: "",
    Goal.VERIFIED: "no batch was verified yet",
    Goal.MOVED: "no user was moved yet",
    Goal.PURGED: "no source was purged yet",
    Goal.CLEARED: "no brick was cleared yet",
    Goal.ADDED: "no brick was added yet",
    Goal.COMPLETE: "",
}


def _whole(found: Sequence[Milestone]) -> Milestone:
    """All milestones are reached or expected, or the first unknown one is the reason why not."""
    goal, unknown = Goal.COMPLETE, next((one for one in found if one.at_s is None and not one.done), None)
    if unknown is not None:
        return Milestone(goal=goal, unknown=unknown.unknown)
    times = [one.at_s for one in found if one.at_s is not None]
    left = [one for one in found if not one.done]
    if not left:
        return Milestone(goal=goal, done=True, at_s=max(times, default=None))
    last = max(left, key=lambda one: one.at_s or 0.0)
    early = [one.earliest_at_s for one in left]
    late = [one.latest_at_s for one in left]
    ranged = last.earliest_at_s is not None
    return Milestone(
        goal=goal,
        at_s=last.at_s,
        earliest_at_s=max(at_s for at_s in early if at_s is not None) if ranged else None,
        latest_at_s=max(at_s for at_s in late if at_s is not None) if ranged else None,
        basis=last.basis,
    )


# --- The wait of a unit


class _Wait(Struct, frozen=True, kw_only=True):
    ends: Ends
    basis: str


_SHORTER = 0.5
"""The earliest end takes this share of the shortest wait: heavy users come first, and the last ones wait less. Fitted."""

_NEWEST = 20
"""The number of waits that count: habits change."""


def _wait(stage: Stage) -> _Wait | None:
    """The range of the waits measured, or the assumed one."""
    measured = sorted(
        (unit.done_at_s, unit.done_at_s - unit.ready_at_s)
        for unit in stage.units
        if unit.done_at_s is not None and unit.ready_at_s is not None
    )
    waits = sorted(max(wait_s, 0.0) for _, wait_s in measured[-_NEWEST:])
    if waits and stage.follows:
        ends = (waits[0] * _SHORTER, statistics.median(waits), waits[-1])
        usual = f", after the usual wait of {format_duration(ends[1])}" if ends[1] >= HOUR_S else ""
        return _Wait(ends=ends, basis=f"at the pace so far{usual}")
    assumed = stage.assumed
    if assumed is None:
        return None
    return _Wait(ends=(assumed.earliest_s, assumed.likely_s, assumed.latest_s), basis=assumed.basis)


# --- The work left, at the pace of the stage


_QUEUES = (10, 5, 3)
"""The pace counts while so many units are waiting: for the earliest, the likely and the latest end. Fewer are no queue,
because then the stage waits for the one before. Fitted.
"""

_SPREAD = 0.75
"""The share of the spread of each pace that counts: not all stages are fast, or slow, at once. Fitted."""


def _left(stage: Stage, now_s: float) -> Ends | None:
    """Seconds that the work left takes. None: it never ends."""
    left = sum(unit.work for unit in stage.units if not unit.done)
    if not stage.follows:
        return _drains_left_s(stage, left, now_s)
    waits = _waiting(stage.units, now_s)
    changes = sorted([*((from_s, _BEGINS) for from_s, _, _ in waits), *((to_s, _ENDS) for _, to_s, _ in waits)])
    found = []
    for place, queue in enumerate(_QUEUES):
        slots = _slots(waits, list(_busy(changes, queue)), now_s)
        ends = time_left_s(slots, left, now_s=now_s) if sum(slot.work for slot in slots) > 0 else (0.0, 0.0, 0.0)
        if ends is None:
            return None
        found.append(ends[1] + (ends[place] - ends[1]) * _SPREAD)
    early, likely, late = found
    return min(early, likely), likely, max(late, likely)


def _drains_left_s(stage: Stage, left: float, now_s: float) -> Ends | None:
    slots = [slot for slot in _drain_slots(stage.units) if slot.work > 0]
    planned_s = stage.running_s + stage.drains_s
    ends = time_left_s(slots, left, now_s=now_s) if slots else (planned_s / 2, planned_s, planned_s * 2)
    if ends is None:
        return None
    early, likely, late = (max(left_s, stage.running_s) for left_s in ends)
    return early, likely, late


def _drain_slots(units: Sequence[StageUnit]) -> Sequence[PaceSlot]:
    """A slot for each drain that has ended: it was at work all the time."""
    return [
        PaceSlot(at_s=unit.ready_at_s, seen_s=unit.done_at_s - unit.ready_at_s, work=unit.work)
        for unit in units
        if unit.ready_at_s is not None and unit.done_at_s is not None and unit.done_at_s > unit.ready_at_s
    ]


_Waiting = tuple[float, float, StageUnit]
"""From when until when a unit waited, or waits."""


def _waiting(units: Sequence[StageUnit], now_s: float) -> Sequence[_Waiting]:
    found = [
        (unit.ready_at_s, now_s if unit.done_at_s is None else unit.done_at_s, unit)
        for unit in units
        if unit.ready_at_s is not None and unit.ready_at_s < now_s and (unit.done_at_s is not None or not unit.done)
    ]
    # A clock that was set back makes some end before they begin.
    return [one for one in found if one[0] < one[1]]


_BEGINS, _ENDS = 0, 1
"""In this order: a unit that begins to wait when another ends keeps the queue."""


def _busy(changes: Sequence[tuple[float, int]], queue: int) -> Iterator[tuple[float, float]]:
    """The times in which so many units were waiting, in order. `changes` are the ends of all waits, in order."""
    waiting, since_s = 0, 0.0
    for at_s, change in changes:
        before = waiting
        waiting += 1 if change == _BEGINS else -1
        if before < queue <= waiting:
            since_s = at_s
        elif waiting < queue <= before and at_s > since_s:
            yield since_s, at_s


def _slots(waits: Sequence[_Waiting], busy: Sequence[tuple[float, float]], now_s: float) -> Sequence[PaceSlot]:
    """The work done in busy times, by slots."""
    if not busy:
        return ()
    width_s = slot_width_s(now_s - busy[0][0])
    found: dict[int, list[float]] = {}
    for from_s, to_s in busy:
        for number in range(math.floor(from_s / width_s), math.ceil(to_s / width_s)):
            seen_s = min((number + 1) * width_s, to_s) - max(number * width_s, from_s)
            found.setdefault(number, [0.0, 0.0])[0] += seen_s
    begins = [from_s for from_s, _ in busy]
    for _, to_s, unit in waits:
        place = bisect_right(begins, to_s) - 1
        if unit.done and place >= 0 and to_s <= busy[place][1]:
            found[max(math.ceil(to_s / width_s) - 1, math.floor(busy[place][0] / width_s))][1] += unit.work
    return [
        PaceSlot(at_s=number * width_s, seen_s=seen_s, work=work) for number, (seen_s, work) in sorted(found.items())
    ]
