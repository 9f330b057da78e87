"""The expected dates: whether their ranges hold what they promise, and what they make of a history."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from migrator.core.units import DAY_S, HOUR_S
from migrator.plan.model import TransferCost
from migrator.report.model import CopyForecast, Goal, Milestone, ProgressCounts, WorkSlot
from migrator.report.rules_forecast import forecast_copy, slots_of
from tests.support.migrations import MONDAY_S, Look, by_migration, errors, held, late, replay

COST = TransferCost(s_per_file=0.001, s_per_byte=1e-8, streams=4, basis="measured here")


def left_of(files: int, size_bytes: int) -> ProgressCounts:
    return ProgressCounts(total_files=files, total_bytes=size_bytes)


# --- Simulated migrations


SEEDS, EVERY_DAYS = range(1000, 1080), 5.0
"""Not those to which the constants were fitted."""

BOTH = (Goal.COPIED, Goal.COMPLETE)


@pytest.fixture(scope="module")
def looks() -> Sequence[Look]:
    return [look for seed in SEEDS for look in replay(seed, every_days=EVERY_DAYS)]


@pytest.mark.parametrize("goal", BOTH)
def test_eight_of_ten_ends_lie_in_the_range(looks: Sequence[Look], goal: Goal) -> None:
    assert len(by_migration(looks, goal)) == len(SEEDS)
    assert 0.7 <= held(looks, goal) <= 0.9
    assert 0.35 <= late(looks, goal) <= 0.65, "the likely end is neither early nor late as a rule"


@pytest.mark.parametrize("goal", BOTH)
def test_the_likely_end_is_better_than_the_bytes_per_second(looks: Sequence[Look], goal: Goal) -> None:
    likely = errors(looks, goal, lambda look: look.likely_s)
    naive = errors(looks, goal, lambda look: look.naive_s)
    assert all(error < 0.8 * other for error, other in zip(likely, naive, strict=True))


def test_no_goal_is_expected_before_one_that_it_waits_for(looks: Sequence[Look]) -> None:
    order = (Goal.COPIED, Goal.VERIFIED, Goal.MOVED, Goal.PURGED, Goal.CLEARED, Goal.COMPLETE)
    by_time: dict[tuple[int, float], dict[Goal, Milestone]] = {}
    for look in looks:
        by_time.setdefault((look.seed, look.true_s - look.left_s), {})[look.goal] = look.expected
    for dates in by_time.values():
        known = [dates[goal] for goal in order if goal in dates and dates[goal].at_s is not None]
        for before, after in pairwise(known):
            assert before.at_s is not None
            assert after.at_s is not None
            assert before.at_s <= after.at_s
            if after.latest_at_s is not None and before.latest_at_s is not None:
                assert before.latest_at_s <= after.latest_at_s
            if after.earliest_at_s is not None and before.earliest_at_s is not None:
                assert before.earliest_at_s <= after.earliest_at_s <= after.at_s


@pytest.mark.exhaustive
def test_ranges_hold_early_and_late_and_for_every_goal() -> None:
    looks = [look for seed in range(2000, 2300) for look in replay(seed, every_days=4.0)]
    for goal in Goal:
        assert 0.65 <= held(looks, goal) <= 0.9
    for from_way, to_way in ((0.0, 0.4), (0.4, 0.7), (0.7, 1.0)):
        some = [look for look in looks if from_way <= look.way < to_way]
        for goal in BOTH:
            assert 0.65 <= held(some, goal) <= 0.95


# --- The copying


def steady(days: float) -> Sequence[WorkSlot]:
    """A site that copies 1,000 files an hour."""
    hours = [(MONDAY_S + (hour + 1) * HOUR_S, 1000, 0) for hour in range(round(days * 24))]
    return slots_of(hours, from_s=MONDAY_S, now_s=MONDAY_S + days * DAY_S)


def end_of(slots: Sequence[WorkSlot], days: float, left: ProgressCounts) -> CopyForecast:
    made = forecast_copy(now_s=MONDAY_S + days * DAY_S, slots=slots, left=left, cost=COST, cost_groups=())
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("days", "left", "expected"),
    [
        (28, left_of(7 * 24 * 1000, 0), 7),
        # A thousand files take a second, and so do 100 MB: what is left is as much work as a week has brought.
        (14, left_of(0, 7 * 24 * 10**8), 7),
        (1000, left_of(2500 * 24 * 1000, 0), 2500),
    ],
)
def test_a_steady_site_stays_so(days: float, left: ProgressCounts, expected: float) -> None:
    made = end_of(steady(days), days, left)
    ends = (made.earliest_at_s, made.likely_at_s, made.latest_at_s)
    earliest, likely, latest = ((at_s - made.made_at_s) / DAY_S for at_s in ends)
    assert earliest < likely < latest < 1.8 * expected
    assert likely == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("growth", "expected"), [(0.0, 7.0), (0.05, 8.62), (0.1, 12.04), (0.15, None)])
def test_growth_adds_to_the_work_left(growth: float, expected: float | None) -> None:
    """A share of what is left comes each day; from a seventh on, copying never ends."""
    made = forecast_copy(
        now_s=MONDAY_S + 28 * DAY_S,
        slots=steady(28),
        left=left_of(7 * 24 * 1000, 0),
        cost=COST,
        cost_groups=(),
        growth_per_day=growth,
    )
    if expected is None:
        assert made is None
    else:
        assert made is not None
        assert made.left_s / DAY_S == pytest.approx(expected, abs=0.01)
        assert made.earliest_at_s < made.likely_at_s < made.latest_at_s


def test_the_cone_begins_with_what_is_left_and_narrows_to_nothing() -> None:
    made = end_of(steady(10), 10, left_of(20_000, 5 * 10**9))
    first, last = made.cone[0], made.cone[-1]
    assert first.least_bytes == first.left_bytes == first.most_bytes == 5 * 10**9
    assert (last.left_bytes, last.at_s) == (0.0, made.latest_at_s)
    for before, after in pairwise(made.cone):
        assert before.left_bytes >= after.left_bytes
        assert after.least_bytes <= after.left_bytes <= after.most_bytes


def test_a_pause_until_now_counts_and_is_mentioned() -> None:
    hours = [(MONDAY_S + (hour + 1) * HOUR_S, 1000, 0) for hour in range(5 * 24)]
    made = end_of(slots_of(hours, from_s=MONDAY_S, now_s=MONDAY_S + 10 * DAY_S), 10, left_of(24_000, 0))
    assert made.likely_at_s - made.made_at_s > 1.5 * DAY_S
    assert "in the newest 1 d the pace was 0 % of that" in made.basis


def test_slots_lose_nothing() -> None:
    copied = [(100.0 + 7 * turn, turn, 2 * turn) for turn in range(200)]
    slots = slots_of(copied, from_s=95.0, now_s=1600.0)
    assert sum(slot.files for slot in slots) == sum(files for _, files, _ in copied)
    assert sum(slot.seen_s for slot in slots) == pytest.approx(1505.0)
