"""Migrations that never were: a site with its rhythm, its bad days and its users, hour by hour to the end. Shares no code
with the forecaster; it knows the truth that the forecaster has to guess.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

HOUR_S = 3600.0
MONDAY_S = 1_763_337_600.0
"""Monday, 2025-11-17, 00:00 UTC."""


@dataclass(frozen=True)
class Seen:
    """What was copied until `ended_s`, since the one before."""

    ended_s: float
    files: int
    size_bytes: int


@dataclass(frozen=True)
class Attempt:
    files: int
    size_bytes: int
    seconds: float


@dataclass(frozen=True)
class Simulated:
    """What the ledger knows at `now_s`, and when it ended in truth."""

    began_s: float
    now_s: float
    seen: list[Seen]
    attempts: list[Attempt]
    left_files: int
    left_bytes: int
    end_s: float


def simulate(seed: int, *, after_s: float | None = None) -> Simulated:
    """One migration, looked at somewhere on its way, after a day and a half or later; or after so long a time, in which it is
    seen in sixty steps instead of by the hour.
    """
    dice = random.Random(seed)
    per_byte, per_file = dice.uniform(0.5, 2.0) / 2**27, dice.uniform(0.0005, 0.006)
    trees = _trees(dice)
    whole = sum(size * per_byte + files * per_file for files, size in trees)
    usual_s = dice.uniform(4, 55) * 24 * HOUR_S
    pace = _pace(dice, whole / usual_s)
    stop_at = dice.uniform(0.12, 0.8) * whole
    began_s = MONDAY_S + dice.randrange(7 * 24) * HOUR_S
    at_s, done, now_s = began_s, 0.0, 0.0
    seen: list[Seen] = []
    attempts: list[Attempt] = []
    left = [[float(files), float(size)] for files, size in trees]
    left_files = left_bytes = 0
    hour, of_hour = -1, 0.0
    while True:
        if (now_hour := round(at_s * 1000) // round(HOUR_S * 1000)) != hour:
            hour, of_hour = now_hour, pace(at_s)
        # To the end of the hour, as the pace of the next one is another.
        step_s = (hour + 1) * HOUR_S - at_s
        if after_s is not None and not now_s:
            step_s = min(step_s, after_s / 60)
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
                attempts.append(Attempt(round(took[0]), round(took[1]), seconds))
        if not left:
            return Simulated(
                began_s, now_s, seen, attempts, left_files, left_bytes, at_s + step_s * (1 - rest / can if can else 1)
            )
        at_s += step_s
        done += can
        if not now_s:
            seen.append(Seen(at_s, round(files), round(size)))
            enough = done >= stop_at and at_s - began_s >= 36 * HOUR_S
            if enough if after_s is None else at_s - began_s >= after_s - 0.001 and len(attempts) >= 5:
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
