"""The forecast of the copying: whether its range holds what it promises, and what it makes of a history."""

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from migrator.core.units import DAY_S, HOUR_S
from migrator.plan.model import CostSums, TransferCost, fit_cost, sum_of
from migrator.report.model import CopyForecast, WorkSlot
from migrator.report.rules_forecast import Left, find_rhythm, forecast_copy, is_weekend, slots_of
from tests.report.simulated_migrations import MONDAY_S, Attempt, Simulated, simulate

COST = TransferCost(s_per_file=0.001, s_per_byte=1e-8, streams=4, basis="measured here")
MIGRATIONS = 1000


def sums_of(attempts: Sequence[Attempt]) -> CostSums:
    return CostSums(
        attempts=len(attempts),
        files=sum(one.files for one in attempts),
        size_bytes=sum(one.size_bytes for one in attempts),
        seconds=sum(one.seconds for one in attempts),
        files_files=sum(one.files**2 for one in attempts),
        files_bytes=sum(one.files * one.size_bytes for one in attempts),
        bytes_bytes=sum(one.size_bytes**2 for one in attempts),
        files_seconds=sum(one.files * one.seconds for one in attempts),
        bytes_seconds=sum(one.size_bytes * one.seconds for one in attempts),
    )


def forecast(past: Simulated, seed: int) -> CopyForecast:
    groups = [sums_of(past.attempts[turn::20]) for turn in range(20)]
    cost = fit_cost(sum_of(groups), streams=1)
    assert cost is not None
    slots, slot_s = slots_of(
        [(one.ended_s, one.files, one.size_bytes) for one in past.seen], from_s=past.began_s, now_s=past.now_s
    )
    made = forecast_copy(
        now_s=past.now_s,
        slots=slots,
        slot_s=slot_s,
        left=Left(files=past.left_files, size_bytes=past.left_bytes),
        cost=cost,
        cost_groups=groups,
        chance=random.Random(seed).random,
        paths=100,
    )
    assert made is not None
    return made


def held(some: Sequence[tuple[Simulated, CopyForecast]]) -> float:
    return sum(made.earliest_at_s <= past.end_s <= made.latest_at_s for past, made in some) / len(some)


@pytest.mark.exhaustive
def test_eight_of_ten_ends_lie_in_the_range() -> None:
    guesses = [(past, forecast(past, seed)) for seed in range(MIGRATIONS) for past in [simulate(seed)]]
    assert 0.75 <= held(guesses) <= 0.85
    # So it is early and late in a migration.
    guesses.sort(key=lambda one: (one[0].now_s - one[0].began_s) / (one[0].end_s - one[0].began_s))
    third = MIGRATIONS // 3
    for part in (guesses[:third], guesses[third : 2 * third], guesses[2 * third :]):
        assert 0.7 <= held(part) <= 0.9
    # What is likely is neither early nor late as a rule, and the range is narrow enough to be worth something.
    assert 0.42 <= sum(past.end_s > made.likely_at_s for past, made in guesses) / MIGRATIONS <= 0.58
    widths = sorted((made.latest_at_s - made.earliest_at_s) / (past.end_s - past.now_s) for past, made in guesses)
    assert widths[MIGRATIONS // 2] < 0.6


@pytest.mark.exhaustive
@pytest.mark.parametrize("hours", [1, 24])
def test_so_they_do_when_hardly_anything_was_seen_yet(hours: int) -> None:
    guesses = []
    for seed in range(150):
        past = simulate(seed, after_s=hours * HOUR_S)
        guesses.append((past, forecast(past, seed)))
    assert 0.7 <= held(guesses) <= 0.9
    off = sorted((made.likely_at_s - past.now_s) / (past.end_s - past.now_s) for past, made in guesses)
    assert 0.85 <= off[75] <= 1.15
    # Chunks of the one user who was copied so far cannot tell what a file costs from what a byte does.
    assert off[135] < 2.5


def steady(days: float, *, by_night: float = 1.0, on_weekends: float = 1.0) -> tuple[Sequence[WorkSlot], float]:
    """A site that copies 1,000 files an hour, and at night and at weekends so many times as much."""
    hours = []
    for hour in range(round(days * 24)):
        at_s = MONDAY_S + hour * HOUR_S
        times = (by_night if hour % 24 < 6 else 1.0) * (on_weekends if is_weekend(at_s) else 1.0)
        hours.append((at_s + HOUR_S, round(1000 * times), 0))
    return slots_of(hours, from_s=MONDAY_S, now_s=MONDAY_S + days * DAY_S)


def end_of(
    slots: Sequence[WorkSlot], slot_s: float, days: float, left: Left, cost: TransferCost = COST
) -> CopyForecast | None:
    return forecast_copy(
        now_s=MONDAY_S + days * DAY_S,
        slots=slots,
        slot_s=slot_s,
        left=left,
        cost=cost,
        cost_groups=(),
        chance=random.Random(1).random,
    )


def left_days(days: float, left: Left, **rhythm: float) -> tuple[float, float, float]:
    """Days until the earliest, the likely and the latest end."""
    made = end_of(*steady(days, **rhythm), days, left)
    assert made is not None
    assert (made.by_day, made.by_weekday, made.history_s) == (days >= 4, days >= 9, days * DAY_S)
    earliest, likely, latest = (
        (at_s - made.made_at_s) / DAY_S for at_s in (made.earliest_at_s, made.likely_at_s, made.latest_at_s)
    )
    assert earliest < likely < latest
    return earliest, likely, latest


def test_a_steady_site_stays_so() -> None:
    assert left_days(28, Left(files=7 * 24 * 1000, size_bytes=0))[1] == pytest.approx(7, rel=0.03)
    # A thousand files take a second, and so do 100 MB: what is left is as much work as a week has brought.
    assert left_days(14, Left(files=0, size_bytes=7 * 24 * 10**8))[1] == pytest.approx(7, rel=0.05)
    _, likely, latest = left_days(1000, Left(files=2500 * 24 * 1000, size_bytes=0))
    assert likely == pytest.approx(2500, rel=0.1)
    assert latest < 1.8 * 2500


def test_weekends_that_lie_ahead_are_expected() -> None:
    # It is Friday: the two days ahead bring what eight others do.
    assert left_days(25, Left(files=16 * 24 * 1000 // 4, size_bytes=0), on_weekends=4.0)[1] < 2.6


def test_nights_are_distinguished_and_weekends_not_too_early() -> None:
    slots, slot_s = steady(28, by_night=5.0)
    rhythm = find_rhythm(slots, [slot.files / slot.seen_s for slot in slots], slot_s)
    assert rhythm is not None
    assert rhythm.phases[0] / rhythm.phases[2] == pytest.approx(5.0, rel=0.2)
    slots, slot_s = steady(8, on_weekends=3.0)
    rhythm = find_rhythm(slots, [slot.files / slot.seen_s for slot in slots], slot_s)
    assert rhythm is not None
    assert (rhythm.weekday, rhythm.weekend, rhythm.by_weekday) == (1.0, 1.0, False)


def test_the_cone_begins_with_what_is_left_and_narrows_to_nothing() -> None:
    made = end_of(*steady(10), 10, Left(files=20_000, size_bytes=5 * 10**9))
    assert made is not None
    first, last = made.cone[0], made.cone[-1]
    assert first.least_bytes == first.left_bytes == first.most_bytes == 5 * 10**9
    assert (last.left_bytes, last.at_s) == (0.0, made.latest_at_s)
    for before, after in pairwise(made.cone):
        assert before.left_bytes >= after.left_bytes
        assert after.least_bytes <= after.left_bytes <= after.most_bytes


@pytest.mark.parametrize(
    ("cost", "left"),
    [
        (TransferCost(s_per_file=0.0, s_per_byte=1e-8, streams=4, basis="b"), Left(files=10**6, size_bytes=0)),
        (TransferCost(s_per_file=0.001, s_per_byte=0.0, streams=4, basis="b"), Left(files=0, size_bytes=10**15)),
    ],
)
def test_what_is_said_to_cost_nothing_takes_its_time_all_the_same(cost: TransferCost, left: Left) -> None:
    # All that was copied were large files, or empty ones; what is left is of the other kind.
    copied = [(MONDAY_S + HOUR_S * turn, 100, 10**12) for turn in range(1, 49)]
    made = end_of(*slots_of(copied, from_s=MONDAY_S, now_s=MONDAY_S + 2 * DAY_S), 2, left, cost)
    assert made is not None
    assert made.made_at_s < made.earliest_at_s <= made.likely_at_s <= made.latest_at_s


def test_there_is_no_forecast_of_nothing_or_from_nothing() -> None:
    assert end_of(*steady(5), 5, Left(files=0, size_bytes=0)) is None
    empty = slots_of((), from_s=MONDAY_S, now_s=MONDAY_S + DAY_S)
    assert end_of(*empty, 1, Left(files=1, size_bytes=1)) is None


def test_a_pause_until_now_counts() -> None:
    hours = [(MONDAY_S + (hour + 1) * HOUR_S, 1000, 0) for hour in range(5 * 24)]
    slots, slot_s = slots_of(hours, from_s=MONDAY_S, now_s=MONDAY_S + 10 * DAY_S)
    made = end_of(slots, slot_s, 10, Left(files=24_000, size_bytes=0))
    assert made is not None
    assert made.likely_at_s - made.made_at_s > 1.5 * DAY_S


@pytest.mark.parametrize(
    ("last", "days", "said"),
    [
        ([], 10, ""),
        ([700] * 24, 10, ""),
        ([2500] * 24, 10, "in the last 1 d the pace was 2"),
        ([100] * 24, 10, "of the pace assumed here"),
        ([0] * 60, 10, "for the last 2 d 12 h nothing was copied"),
        # A short history has no last day.
        ([3000] * 24, 2, ""),
    ],
)
def test_a_last_day_that_differs_a_lot_is_mentioned(last: list[int], days: int, said: str) -> None:
    hours = [1000] * (days * 24 - len(last)) + last
    copied = [(MONDAY_S + (hour + 1) * HOUR_S, files, 0) for hour, files in enumerate(hours)]
    slots = slots_of(copied, from_s=MONDAY_S, now_s=MONDAY_S + days * DAY_S)
    made = end_of(*slots, days, Left(files=10 * 24_000, size_bytes=0))
    assert made is not None
    words = "; ".join(made.basis[3:])
    assert (said in words) if said else not words
    if last == [2500] * 24:
        left, instead = words.split("if this continues, ")[1].split(" are left instead of ")
        assert left.startswith("4 d")
        assert instead.startswith(("8 d", "9 d"))


def test_slots_lose_nothing() -> None:
    copied = [(100.0 + 7 * turn, turn, 2 * turn) for turn in range(200)]
    slots, slot_s = slots_of(copied, from_s=95.0, now_s=1600.0)
    assert sum(slot.files for slot in slots) == sum(files for _, files, _ in copied)
    assert sum(slot.seen_s for slot in slots) == pytest.approx(1505.0)
    assert all(slot.at_s % slot_s == 0 for slot in slots)
