"""The chain of stages: waits, queues, the plan's dates as long as nothing is measured, and what is unknown."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.core.units import DAY_S
from migrator.core.windows import OpenTimes, Window
from migrator.report import rules_stages
from migrator.report.model import BrickCourse, Goal, Milestone, Stage, TreeCourse

NOW_DAY = 100.0
COPIED = Milestone(
    goal=Goal.COPIED, at_s=120 * DAY_S, earliest_at_s=115 * DAY_S, latest_at_s=130 * DAY_S, basis="at the pace so far"
)
ORDER = (Goal.COPIED, Goal.VERIFIED, Goal.MOVED, Goal.PURGED)


def tree(*days: float | None) -> TreeCourse:
    """A tree that reached so many goals on these days."""
    reached = {goal: None if day is None else day * DAY_S for goal, day in zip(ORDER, days, strict=False)}
    return TreeCourse(batch=f"{days}", reached=reached)


def bricks(size_bytes: int, *days: float, is_drained: bool = True) -> BrickCourse:
    """A set of bricks whose drain began, that was cleared and added on these days."""
    times = [day * DAY_S for day in days]
    reached: dict[Goal, float | None] = dict(zip((Goal.CLEARED, Goal.ADDED), times[1:], strict=False))
    return BrickCourse(
        is_drained=is_drained, size_bytes=size_bytes, began_at_s=times[0] if times else None, reached=reached
    )


def chain(*stages: Stage, copied: Milestone = COPIED) -> dict[Goal, Milestone]:
    found = rules_stages.chain(copied, stages, now_s=NOW_DAY * DAY_S)
    for before, after in pairwise(one.at_s for one in found if one.at_s is not None and not one.done):
        assert before <= after
    return {one.goal: one for one in found}


def days(one: Milestone) -> list[float]:
    assert one.earliest_at_s is not None
    assert one.at_s is not None
    assert one.latest_at_s is not None
    assert one.earliest_at_s <= one.at_s <= one.latest_at_s
    return [round(at_s / DAY_S, 2) for at_s in (one.earliest_at_s, one.at_s, one.latest_at_s)]


def users(trees: Sequence[TreeCourse], retain_days: float = 30.0) -> tuple[Stage, Stage, Stage]:
    return (
        rules_stages.verifying(trees),
        rules_stages.moving(trees),
        rules_stages.purging(trees, retain_s=retain_days * DAY_S),
    )


def test_a_stage_that_keeps_up_ends_its_usual_wait_after_the_stage_before() -> None:
    """However few it has done: it waited for the stage before."""
    trees = [tree(10, 12, 15), tree(40, 42, 45), tree(80, 82, 85), *([tree()] * 50)]
    found = chain(*users(trees))
    assert days(found[Goal.VERIFIED])[1] == 122
    assert days(found[Goal.MOVED])[1] == 125
    # Freed 30 days later, and an operator takes some days.
    assert days(found[Goal.PURGED])[1] == 157
    assert found[Goal.COMPLETE] == replace(found[Goal.PURGED], goal=Goal.COMPLETE)


def test_the_last_user_moves_while_freezes_may_begin() -> None:
    """On the first day of each week; purges wait for that."""
    first = OpenTimes(
        windows=(Window(days=(0,), start_minute=0, end_minute=24 * 60),),
        local_time=lambda at_s: (int(at_s // DAY_S) % 7, int(at_s % DAY_S // 60)),
    )
    trees = [tree(10, 12, 15), tree(40, 42, 45), tree(80, 82, 85), *([tree()] * 50)]
    any_time = chain(*users(trees))
    verified, _, purged = users(trees)
    found = chain(verified, rules_stages.moving(trees, times=first), purged)
    assert [day % 7 < 1 for day in days(found[Goal.MOVED])] == [True] * 3
    for before, after in zip(days(any_time[Goal.MOVED]), days(found[Goal.MOVED]), strict=True):
        assert before <= after < before + 7
    assert days(found[Goal.PURGED])[1] - days(found[Goal.MOVED])[1] == 32
    scheduled = rules_stages.moving([tree(10, 12), tree()], scheduled_at_s=150 * DAY_S, times=first)
    assert chain(verified, scheduled)[Goal.MOVED].at_s == 154 * DAY_S


def test_a_queue_goes_on_at_its_own_pace() -> None:
    """Half of those who were ready long ago have moved, one a day: 50 days are left."""
    moved = [tree(40, 50, 50 + turn + 1) for turn in range(50)]
    waiting = [tree(40, 50) for _ in range(50)]
    found = chain(*users([*moved, *waiting]), copied=Milestone(goal=Goal.COPIED, done=True, at_s=40 * DAY_S))
    assert found[Goal.VERIFIED] == Milestone(goal=Goal.VERIFIED, done=True, at_s=50 * DAY_S)
    assert days(found[Goal.MOVED])[1] == pytest.approx(NOW_DAY + 50, abs=3)
    pause = [tree(40, 50, 50 + turn / 2 + 0.5) for turn in range(50)]
    paused = chain(*users([*pause, *waiting]), copied=Milestone(goal=Goal.COPIED, done=True, at_s=40 * DAY_S))
    assert days(paused[Goal.MOVED])[1] > NOW_DAY + 40, "25 days without a cutover count"


def test_users_of_a_batch_that_is_verified_at_once_are_no_queue() -> None:
    trees = [replace(tree(day, day + 5), batch=f"{day}") for day in (10, 50, 90) for _ in range(20)]
    left = [replace(tree(), batch=f"{number // 20}") for number in range(100)]
    assert days(chain(*users([*trees, *left]))[Goal.VERIFIED])[1] == 125


def test_without_a_measurement_the_plan_has_the_date_without_a_range() -> None:
    trees = [tree(10), tree()]
    verifying, moving, purging = users(trees)
    unknown = chain(verifying, moving, purging)
    assert {one.unknown for goal, one in unknown.items() if goal is not Goal.COPIED} == {
        "no batch was verified yet",
        "no user was moved yet",
    }
    for scheduled_day, day in ((140.0, 140.0), (110.0, 120.0)):
        found = chain(verifying, replace(moving, scheduled_at_s=scheduled_day * DAY_S), purging)
        moved, purged = found[Goal.MOVED], found[Goal.PURGED]
        assert (moved.at_s, moved.latest_at_s) == (day * DAY_S, None)
        assert (purged.at_s, purged.latest_at_s) == ((day + 32) * DAY_S, None)
    young = Milestone(goal=Goal.COPIED, unknown="no files were copied yet")
    assert chain(verifying, replace(moving, scheduled_at_s=140 * DAY_S), copied=young)[Goal.MOVED].at_s == 140 * DAY_S
    passed = chain(verifying, replace(moving, scheduled_at_s=90 * DAY_S), copied=young)
    assert passed[Goal.MOVED].at_s is None


def test_the_last_brick_follows_the_last_purge_or_the_drains_left() -> None:
    trees = [tree(10, 12, 15, 45), tree()]
    last = bricks(0, is_drained=False)
    few = rules_stages.clearing([bricks(100, 50, 60), bricks(10), last], drains_s=0.0)
    found = chain(*users(trees), few)
    purged = days(found[Goal.PURGED])[1]
    assert purged < days(found[Goal.CLEARED])[1] <= purged + 7
    # 100 bytes took ten days.
    many = rules_stages.clearing([bricks(100, 50, 60), bricks(1000), last], drains_s=DAY_S)
    assert days(chain(*users(trees), many)[Goal.CLEARED])[1] == pytest.approx(NOW_DAY + 100)
    unmeasured = rules_stages.clearing([bricks(1000), last], drains_s=200 * DAY_S)
    assert days(chain(*users(trees), unmeasured)[Goal.CLEARED])[1] == NOW_DAY + 200


def test_all_drained_bricks_are_added_and_the_last_ones_need_not_be() -> None:
    last = BrickCourse(is_drained=False, size_bytes=0, began_at_s=None, reached={Goal.CLEARED: 99 * DAY_S})
    for drained, done in ((bricks(9, 50, 60, 64), True), (bricks(9, 50, 60), False)):
        clearing = rules_stages.clearing([drained, last], drains_s=0.0)
        found = chain(
            *users([tree(1, 2, 3, 40)]), clearing, rules_stages.adding([drained, last], clearing), copied=DONE
        )
        assert found[Goal.CLEARED].done
        assert (found[Goal.ADDED].done, found[Goal.COMPLETE].done) == (done, done)


DONE = Milestone(goal=Goal.COPIED, done=True, at_s=DAY_S)


def test_a_finished_migration() -> None:
    found = chain(*users([tree(1, 2, 3, 40), tree(2, 3, None, 50)]), copied=DONE)
    assert all(one.done for one in found.values())
    assert found[Goal.COMPLETE].at_s == 50 * DAY_S


def test_a_stage_that_never_ends_has_no_date() -> None:
    """One of a hundred thousand a month."""
    trees = [tree(1, 2, 30.0), *([tree(1, 2)] * 100_000)]
    assert chain(*users(trees), copied=DONE)[Goal.MOVED].unknown


_DAYS = st.lists(st.integers(0, 99), max_size=4).map(sorted)
_TREES = st.lists(st.builds(lambda found: tree(*found), _DAYS), min_size=1, max_size=30)


@given(trees=_TREES, sets=st.lists(st.lists(st.integers(0, 99), max_size=3).map(sorted), min_size=1, max_size=5))
def test_no_date_is_before_one_that_it_waits_for(trees: list[TreeCourse], sets: list[list[int]]) -> None:
    courses = [*(bricks(100, *found) for found in sets), bricks(0, is_drained=False)]
    found = chain(*users(trees), rules_stages.clearing(courses, drains_s=5 * DAY_S))
    open_dates = [one for one in found.values() if not one.done and one.at_s is not None]
    for one in open_dates:
        assert one.at_s is not None
        assert one.at_s >= NOW_DAY * DAY_S
        if one.latest_at_s is not None:
            days(one)
    for before, after in pairwise(open_dates):
        if before.latest_at_s is not None and after.latest_at_s is not None:
            assert before.latest_at_s <= after.latest_at_s
            assert before.earliest_at_s is not None
            assert after.earliest_at_s is not None
            assert before.earliest_at_s <= after.earliest_at_s + 1.0
