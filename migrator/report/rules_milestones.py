"""The expected dates of the migration, from what the ledger and the plan know. Pure; rules_stages computes them."""

from collections.abc import Collection, Mapping, Sequence

from migrator.bricks.add.model import AdditionSide, AdditionStanding, AdditionState
from migrator.bricks.drain.model import OUT_STATES, UNDER_WAY_STATES, DrainRecord, DrainStanding, DrainState
from migrator.bricks.retire.model import Retirement, RetirementState
from migrator.core.units import DAY_S
from migrator.core.windows import ALWAYS, OpenTimes
from migrator.cutover.model import CutoverRecord, CutoverState
from migrator.plan.model import Plan
from migrator.plan.schedule.model import ScheduleOutcome, SubvolumeStep
from migrator.plan.schedule.rules import scheduled_outcome
from migrator.report import model, rules_stages
from migrator.report.model import Goal
from migrator.report.rules import MOVED, PROVEN, left_to_people

# --- All dates


def milestones(
    *,
    now_s: float,
    overall: model.ProgressCounts,
    trees: Sequence[model.TreeStatus],
    forecast: model.CopyForecast | None,
    copied_at_s: float | None,
    courses: Sequence[model.TreeCourse],
    plan: Plan | None,
    drains: Sequence[DrainRecord],
    standings: Sequence[DrainStanding],
    additions: Sequence[AdditionStanding],
    retirement: Retirement | None,
    retain_s: float,
    cutover_times: OpenTimes = ALWAYS,
) -> tuple[model.Milestone, ...]:
    """The dates of a migration with a plan, in the order of `Goal`: bricks only if the source has some, additions only if
    cleared bricks were added to the target. Everything was copied at `copied_at_s`. `drains` and `standings` have the newest drain of each set of bricks.
    """
    outcome = finished_schedule(plan)
    begins_at_s = 0.0 if plan is None else plan.created_at_s
    moved_day = None if outcome is None else max((step.moved_day for step in outcome.batches), default=None)
    scheduled_at_s = None if moved_day is None else begins_at_s + moved_day * DAY_S
    stages = [
        _verifying(trees, courses, scheduled_at_s),
        rules_stages.moving(courses, scheduled_at_s=scheduled_at_s, times=cutover_times),
        rules_stages.purging(courses, retain_s=retain_s),
    ]
    if drains or (plan is not None and plan.schedule is not None):
        bricks = brick_courses(outcome, drains, standings, additions, retirement)
        is_retired = retirement is not None and retirement.state is RetirementState.RETIRED
        # Without a schedule the other bricks are unknown.
        unknown = no_schedule(plan) if outcome is None and not is_retired else _failed(standings)
        stages.append(_clearing(bricks, outcome, drains, standings, unknown=unknown))
        if _is_adding(additions):
            stages.append(rules_stages.adding(bricks, stages[-1]))
    return rules_stages.chain(_copied(overall, trees, forecast, copied_at_s), stages, now_s=now_s)


def is_copied(overall: model.ProgressCounts, trees: Sequence[model.TreeStatus]) -> bool:
    """True if nothing is left to copy, or only files that an operator has to look at."""
    return (overall.left_files <= 0 and overall.left_bytes <= 0) or left_to_people(trees)


def _copied(
    overall: model.ProgressCounts,
    trees: Sequence[model.TreeStatus],
    forecast: model.CopyForecast | None,
    copied_at_s: float | None,
) -> model.Milestone:
    if is_copied(overall, trees):
        return model.Milestone(goal=Goal.COPIED, done=True, at_s=copied_at_s)
    if forecast is None:
        why = "too little was copied for a forecast" if overall.done_files else "no files were copied yet"
        return model.Milestone(goal=Goal.COPIED, unknown=why)
    return model.Milestone(
        goal=Goal.COPIED,
        at_s=forecast.likely_at_s,
        earliest_at_s=forecast.earliest_at_s,
        latest_at_s=forecast.latest_at_s,
        basis="at the pace so far",
    )


def _verifying(
    trees: Sequence[model.TreeStatus], courses: Sequence[model.TreeCourse], scheduled_at_s: float | None
) -> model.Stage:
    stage = rules_stages.verifying(courses, scheduled_at_s=scheduled_at_s)
    left = [tree for tree in trees if tree.state not in PROVEN and tree.state is not model.TreeState.EXCLUDED]
    if left and all(tree.state is model.TreeState.ATTENTION for tree in left):
        return model.Stage(goal=stage.goal, units=stage.units, unknown="files of the last users need attention")
    return stage


# --- Users


_COPIED = PROVEN | {model.TreeState.COPIED}


def tree_courses(
    trees: Sequence[model.TreeStatus],
    *,
    copied: Mapping[bytes, float],
    verified: Mapping[bytes, float],
    cutovers: Sequence[CutoverRecord],
) -> tuple[model.TreeCourse, ...]:
    """The course of every tree that counts. `copied` and `verified` have the times when it was first, `cutovers` the newest
    attempt of each.
    """
    newest = {one.tree.path: one for one in cutovers}
    found = []
    for tree in trees:
        if tree.state is model.TreeState.EXCLUDED:
            continue
        path, cutover, reached = tree.tree.path, newest.get(tree.tree.path), dict[Goal, float | None]()
        moved_at_s = None if cutover is None else cutover.let_in_s
        if tree.state in _COPIED:
            reached[Goal.COPIED] = copied.get(path)
        if tree.state in PROVEN:
            reached[Goal.VERIFIED] = verified.get(path, moved_at_s)
        if tree.state in MOVED:
            reached[Goal.MOVED] = moved_at_s
        if tree.state is model.TreeState.PURGED:
            reached[Goal.PURGED] = None if cutover is None else cutover.times.get(CutoverState.PURGED)
        found.append(model.TreeCourse(batch=f"{tree.plan}/{tree.batch}", reached=reached))
    return tuple(found)


# --- Bricks


def finished_schedule(plan: Plan | None) -> ScheduleOutcome | None:
    """The outcome of the plan's schedule; None without a schedule that ends."""
    outcome = scheduled_outcome(plan)
    return None if outcome is None or outcome.obstacle is not None or outcome.done_day is None else outcome


def no_schedule(plan: Plan | None) -> str:
    """Why the plan has no date for the last user and the last brick."""
    if plan is None or plan.schedule is None:
        return "the plan has no schedule of users and bricks"
    if plan.schedule.outcome is None:
        return f"the plan has no schedule: {plan.schedule.problem}"
    obstacle = plan.schedule.outcome.obstacle
    return "the schedule of the plan ends before" + (f": {obstacle.kind.value}" if obstacle is not None else "")


def brick_courses(
    outcome: ScheduleOutcome | None,
    drains: Sequence[DrainRecord],
    standings: Sequence[DrainStanding],
    additions: Sequence[AdditionStanding],
    retirement: Retirement | None,
) -> tuple[model.BrickCourse, ...]:
    """The course of each set of bricks: those of the schedule, and others that were drained."""
    left = {frozenset(one.bricks): one.left_bytes for one in standings}
    by_bricks = {frozenset(one.bricks): one for one in drains if one.state is not DrainState.STOPPED}
    added = _added(additions)
    found = []
    for step in () if outcome is None else outcome.subvolumes:
        bricks = frozenset(step.bricks)
        found.append(_course(step, by_bricks.pop(bricks, None), left.get(bricks), added, retirement))
    for bricks, drain in by_bricks.items():
        found.append(_course(None, drain, left.get(bricks), added, retirement))
    return tuple(found)


def _course(
    step: SubvolumeStep | None,
    drain: DrainRecord | None,
    left_bytes: int | None,
    added: Mapping[str, float],
    retirement: Retirement | None,
) -> model.BrickCourse:
    bricks: Collection[str] = drain.bricks if drain is not None else () if step is None else step.bricks
    planned_bytes = 0 if step is None else step.moved_bytes
    size_bytes, began_at_s, reached = planned_bytes, None, dict[Goal, float | None]()
    if drain is not None:
        size_bytes = planned_bytes if drain.notes.size_bytes is None else drain.notes.size_bytes
        if drain.state in UNDER_WAY_STATES | OUT_STATES:
            began_at_s = drain.times.get(DrainState.STARTING)
        if drain.state in OUT_STATES:
            reached[Goal.CLEARED] = drain.times.get(DrainState.COMMITTED)
        elif left_bytes is not None:
            size_bytes = left_bytes
    # The schedule may have others stay until the end than an operator has.
    is_drained = drain is not None or step is None or not step.retired
    if retirement is not None and retirement.state is RetirementState.RETIRED:
        is_drained = drain is not None
        reached.setdefault(Goal.CLEARED, retirement.since_s)
    if bricks and all(brick in added for brick in bricks):
        reached[Goal.ADDED] = max(added[brick] for brick in bricks)
    return model.BrickCourse(is_drained=is_drained, size_bytes=size_bytes, began_at_s=began_at_s, reached=reached)


def _added(additions: Sequence[AdditionStanding]) -> Mapping[str, float]:
    """The bricks that are part of the target, and since when."""
    settled = (one for one in additions if one.side is AdditionSide.TARGET and one.state is AdditionState.SETTLED)
    return {brick: one.since_s for one in settled for brick in one.bricks}


def _is_adding(additions: Sequence[AdditionStanding]) -> bool:
    return any(one.side is AdditionSide.TARGET and one.state is not AdditionState.FORGOTTEN for one in additions)


def _failed(standings: Sequence[DrainStanding]) -> str:
    failed = [one for one in standings if one.state is DrainState.FAILED]
    return f"the drain of {', '.join(failed[0].bricks)} has failed" if failed else ""


def _clearing(
    bricks: Sequence[model.BrickCourse],
    outcome: ScheduleOutcome | None,
    drains: Sequence[DrainRecord],
    standings: Sequence[DrainStanding],
    *,
    unknown: str,
) -> model.Stage:
    if unknown:
        return model.Stage(goal=Goal.CLEARED, units=(), unknown=unknown)
    freed_day = max((step.freed_day for step in outcome.batches), default=0.0) if outcome is not None else 0.0
    done_day = 0.0 if outcome is None or outcome.done_day is None else outcome.done_day
    begun = {frozenset(one.bricks) for one in drains if one.state in UNDER_WAY_STATES | OUT_STATES}
    steps = [] if outcome is None else [one for one in outcome.subvolumes if frozenset(one.bricks) not in begun]
    planned_s = sum(
        (one.cleared_day - one.drain_begins_day) * DAY_S
        for one in steps
        if one.cleared_day is not None and one.drain_begins_day is not None
    )
    running = [one.left_s for one in standings if one.left_s is not None and one.state in UNDER_WAY_STATES]
    return rules_stages.clearing(
        bricks,
        drains_s=planned_s,
        running_s=max(running, default=0.0),
        after_s=max(done_day - freed_day, 0.0) * DAY_S,
    )
