"""The forecast of the copying: whether its range holds what it promises, and what it makes of a history."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest

from migrator.core.units import DAY_S, HOUR_S
from migrator.plan.model import TransferCost, fit_cost, sum_of
from migrator.report.model import CopyForecast, Tally, WorkSlot
from migrator.report.rules_forecast import forecast_copy, slots_of
from tests.plan.test_transfer_cost import Attempt, sums

MONDAY_S = 1_763_337_600.0
"""Monday, 2025-11-17, 00:00 UTC."""


@dataclass(frozen=True)
class Simulated:
    """What the ledger knows at `now_s`: `seen` are ends, files and bytes. `end_s` is when it ended in truth."""

    began_s: float
    now_s: float
    seen: list[tuple[float, int, int]]
    attempts: list[Attempt]
    left_files: int
    left_bytes: int
    end_s: float


def simulate(seed: int) -> Simulated:
    """One migration, looked at somewhere on its way, after a day and a half or later."""
    dice = random.Random(seed)
    per_byte, per_file = dice.uniform(0.5, 2.0) / 2**27, dice.uniform(0.0005, 0.006)
    trees = _trees(dice)
    whole = sum(size * per_byte + files * per_file for files, size in trees)
    usual_s = dice.uniform(4, 55) * 24 * HOUR_S
    pace = _pace(dice, whole / usual_s)
    stop_at = dice.uniform(0.12, 0.8) * whole
    began_s = MONDAY_S + dice.randrange(7 * 24) * HOUR_S
    at_s, done, now_s = began_s, 0.0, 0.0
    seen: list[tuple[float, int, int]] = []
    attempts: list[Attempt] = []
    left = [[float(files), float(size)] for files, size in trees]
    left_files = left_bytes = 0
    hour, of_hour = -1, 0.0
    while True:
        if (now_hour := round(at_s * 1000) // round(HOUR_S * 1000)) != hour:
            hour, of_hour = now_hour, pace(at_s)
        # To the end of the hour, as the pace of the next one is another.
        step_s = (hour + 1) * HOUR_S - at_s
        rest, files, size = of_hour * step_s, 0.0, 0.0
        can = rest
        while rest > 0 and left:
            tree = left[0]
            costs = tree[0] * per_file + tree[1] * per_byte
            share = min(rest / costs, 1.0) if costs > 0 else 1.0
            took = (tree[0] * share, tree[1] * share)
            files, size, rest = files + took[0], size + took[1], rest - costs * share
            tree[0], tree[1] = tree[0] - took[0], tree[1] - took[1]
            if share >= 1.0:
                left.pop(0)
            else:
                rest = 0.0
            if not now_s and took[0] + took[1] > 0:
                seconds = (took[0] * per_file + took[1] * per_byte) * math.exp(dice.gauss(0, 0.3))
                attempts.append((round(took[0]), round(took[1]), seconds))
        if not left:
            end_s = at_s + step_s * (1 - rest / can if can else 1)
            return Simulated(began_s, now_s, seen, attempts, left_files, left_bytes, end_s)
        at_s += step_s
        done += can
        if not now_s:
            seen.append((at_s, round(files), round(size)))
            if done >= stop_at and at_s - began_s >= 36 * HOUR_S:
                now_s = at_s
                left_files, left_bytes = round(sum(tree[0] for tree in left)), round(sum(tree[1] for tree in left))
        assert at_s < began_s + 3000 * 24 * HOUR_S


def _trees(dice: random.Random) -> list[tuple[int, int]]:
    """Users, the heaviest first; some have tiny files, some huge ones."""
    trees = []
    for _ in range(dice.randrange(15, 80)):
        size = math.exp(dice.gauss(math.log(2**40), 1.3))
        of_a_file = math.exp(dice.gauss(math.log(2**22), 1.5))
        trees.append((max(round(size / of_a_file), 1), round(size)))
    trees.sort(key=lambda tree: -tree[1])
    return trees


def _pace(dice: random.Random, usual: float) -> Callable[[float], float]:
    depth, darkest = dice.uniform(0.0, 0.6), dice.uniform(8, 18)
    on_weekends = dice.uniform(0.8, 1.8)
    only_nights = dice.random() < 0.12
    hourly, daily = dice.uniform(0.02, 0.25), dice.uniform(0.05, 0.4)
    memory = dice.uniform(0.0, 0.6)
    drifts = dice.uniform(0.0, 0.03)
    breaks_per_h = dice.uniform(0.0, 1.2) / (7 * 24)
    state = {"day": 0.0, "trend": 0.0, "down_until": 0.0, "date": -1.0}

    def pace(at_s: float) -> float:
        hour, day = at_s / HOUR_S % 24, at_s // (24 * HOUR_S)
        if day != state["date"]:
            state["date"] = day
            state["day"] = memory * state["day"] + math.sqrt(1 - memory**2) * dice.gauss(0, daily)
            state["trend"] += dice.gauss(0, drifts)
        if dice.random() < breaks_per_h:
            state["down_until"] = at_s + math.exp(dice.gauss(math.log(6), 0.9)) * HOUR_S
        if at_s < state["down_until"] or (only_nights and 7 <= hour < 19):
            return 0.0
        light = 1 - depth * (1 + math.cos((hour - darkest) / 24 * 2 * math.pi)) / 2
        weekend = on_weekends if (day + 3) % 7 >= 5 else 1.0
        return usual * light * weekend * math.exp(state["day"] + state["trend"] + dice.gauss(0, hourly))

    return pace


COST = TransferCost(s_per_file=0.001, s_per_byte=1e-8, streams=4, basis="measured here")
MIGRATIONS = 1000


def left_of(files: int, size_bytes: int) -> Tally:
    return Tally(total_files=files, total_bytes=size_bytes)


def forecast(past: Simulated) -> CopyForecast:
    groups = [sums(past.attempts[turn::20]) for turn in range(20)]
    cost = fit_cost(sum_of(groups), streams=1)
    assert cost is not None
    slots = slots_of(past.seen, from_s=past.began_s, now_s=past.now_s)
    made = forecast_copy(
        now_s=past.now_s, slots=slots, left=left_of(past.left_files, past.left_bytes), cost=cost, cost_groups=groups
    )
    assert made is not None
    return made


def held(some: Sequence[tuple[Simulated, CopyForecast]]) -> float:
    return sum(made.earliest_at_s <= past.end_s <= made.latest_at_s for past, made in some) / len(some)


@pytest.mark.exhaustive
def test_eight_of_ten_ends_lie_in_the_range() -> None:
    guesses = [(past, forecast(past)) for seed in range(MIGRATIONS) for past in [simulate(seed)]]
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


def steady(days: float) -> Sequence[WorkSlot]:
    """A site that copies 1,000 files an hour."""
    hours = [(MONDAY_S + (hour + 1) * HOUR_S, 1000, 0) for hour in range(round(days * 24))]
    return slots_of(hours, from_s=MONDAY_S, now_s=MONDAY_S + days * DAY_S)


def end_of(slots: Sequence[WorkSlot], days: float, left: Tally) -> CopyForecast:
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
def test_a_steady_site_stays_so(days: float, left: Tally, expected: float) -> None:
    made = end_of(steady(days), days, left)
    ends = (made.earliest_at_s, made.likely_at_s, made.latest_at_s)
    earliest, likely, latest = ((at_s - made.made_at_s) / DAY_S for at_s in ends)
    assert earliest < likely < latest < 1.8 * expected
    assert likely == pytest.approx(expected, rel=0.03)


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
