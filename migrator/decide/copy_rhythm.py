"""How the pace of copying goes with the time of day and with weekends, and what is left when that is taken out. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from migrator.domain.forecast import WorkSlot
from migrator.domain.units import DAY_S

PHASE_S = DAY_S / 4
"""Day and night are told apart by quarters of a day, in UTC."""

DAYS_FOR_PHASES = 4.0
DAYS_FOR_WEEKENDS = 9.0
"""Before that there were not enough days and weekends to tell them apart by more than chance."""

_SHRINK = 2.0
"""Every factor is drawn towards 1 as if so many days had been seen that know no rhythm."""

_HALF_LIFE_DAYS = 20.0
"""After so many days a day counts half as much: sites change."""

_UNSEEN = 0.43
"""By how much a pace is off that was measured on one moment of the week, as a share: what nights, weekends and other
people's work do. It goes down with the square root of the days seen.
"""

_DRIFT_PER_DAY = 0.02
"""By how much the pace of a site changes from one day to the next for good, as a share: other people's work."""
_MOST_DRIFT = 0.35
"""However far the end lies: a site that has its pace for years does not become another one."""

Chance = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """The pace of a history, in work per second: `level` on average, times the factors of its quarter of the day and of the
    kind of day, times one of the `residuals`, which are 1 on average and lie in order of time,
    from `residuals_from_s` on, and are drawn in blocks. `level_spread` is by what share the level may be off.
    """

    slot_s: float
    history_s: float
    level: float
    phases: tuple[float, ...]
    weekday: float
    weekend: float
    residuals: tuple[float, ...]
    residuals_from_s: float
    block_slots: int
    level_spread: float
    by_day: bool
    by_weekday: bool

    def factor(self, at_s: float) -> float:
        """How the pace is at a time, against the level."""
        kind = self.weekend if is_weekend(at_s) else self.weekday
        return self.phases[int(at_s % DAY_S / PHASE_S)] * kind

    def drawn_place(self, at_s: float, chance: Chance) -> int:
        """Where among the residuals a block begins that is drawn for a time: at the same quarter of a day, so that what the
        factors have left of a rhythm stays where it belongs.
        """
        if not self.by_day:
            return int(chance() * len(self.residuals))
        of_a_day = round(DAY_S / self.slot_s)
        first = round((at_s - self.residuals_from_s) / self.slot_s) % of_a_day
        days = (len(self.residuals) - first + of_a_day - 1) // of_a_day
        return first + int(chance() * days) * of_a_day

    def drawn_pace(self, work: float, chance: Chance) -> float:
        """The level as it may be in truth, from now until so much work is done: it is known from a short history, and
        changes.
        """
        ahead_days = work / self.level / DAY_S
        spread = math.hypot(self.level_spread, min(_DRIFT_PER_DAY * math.sqrt(ahead_days / 3), _MOST_DRIFT))
        return self.level * math.exp(spread * _normal(chance) - spread * spread / 2)


def is_weekend(at_s: float) -> bool:
    """Whether a time lies on a Saturday or a Sunday, in UTC. The epoch began on a Thursday."""
    return (int(at_s // DAY_S) + 3) % 7 >= 5


def find_rhythm(slots: Sequence[WorkSlot], rates: Sequence[float], slot_s: float) -> Rhythm | None:
    """The rhythm of a history, of slots with their rates; None where nothing was copied in it."""
    history_s = sum(slot.seen_s for slot in slots)
    days = history_s / DAY_S
    end_s = slots[-1].at_s
    weights = [slot.seen_s * 0.5 ** ((end_s - slot.at_s) / DAY_S / _HALF_LIFE_DAYS) for slot in slots]
    mean = _mean(rates, weights)
    if mean <= 0:
        return None
    by_day = days >= DAYS_FOR_PHASES and slot_s <= PHASE_S
    by_weekday = days >= DAYS_FOR_WEEKENDS
    weekday, weekend = _weekend_factors(slots, rates, mean) if by_weekday else (1.0, 1.0)
    phases = _phase_factors(slots, rates, mean, days) if by_day else (1.0,) * 4
    rhythm = Rhythm(
        slot_s=slot_s,
        history_s=history_s,
        level=1.0,
        phases=phases,
        weekday=weekday,
        weekend=weekend,
        residuals=(),
        residuals_from_s=0.0,
        block_slots=1,
        level_spread=0.0,
        by_day=by_day,
        by_weekday=by_weekday,
    )
    expected = [max(rhythm.factor(slot.at_s), 0.02) for slot in slots]
    level = _mean(rates, weights) / _mean(expected, weights)
    seen = [index for index, slot in enumerate(slots) if slot.seen_s >= slot_s / 2] or list(range(len(slots)))
    ratios = [rates[index] / expected[index] / level for index in seen]
    of_ratios = [weights[index] * expected[index] for index in seen]
    # On average 1 where each is met as often as any other: what is older counts less for the level alone.
    scale = _mean(ratios, [expected[index] for index in seen]) or 1.0
    residuals = tuple(ratio / scale for ratio in ratios)
    per_day = max(round(DAY_S / slot_s), 1) if days >= 2 else max(len(residuals) // 8, 1)
    return Rhythm(
        slot_s=slot_s,
        history_s=history_s,
        level=level,
        phases=phases,
        weekday=weekday,
        weekend=weekend,
        residuals=residuals,
        residuals_from_s=slots[seen[0]].at_s,
        block_slots=max(min(per_day, len(residuals) // 2), 1),
        level_spread=_spread(residuals, of_ratios, per_day, days),
        by_day=by_day,
        by_weekday=by_weekday,
    )


def _phase_factors(slots: Sequence[WorkSlot], rates: Sequence[float], mean: float, days: float) -> tuple[float, ...]:
    factors = []
    for phase in range(4):
        own = [index for index, slot in enumerate(slots) if int(slot.at_s % DAY_S / PHASE_S) == phase]
        found = _mean([rates[index] for index in own], [slots[index].seen_s for index in own]) / mean
        factors.append((found * days + _SHRINK) / (days + _SHRINK))
    whole = sum(factors) / 4
    return tuple(factor / whole for factor in factors)


def _weekend_factors(slots: Sequence[WorkSlot], rates: Sequence[float], mean: float) -> tuple[float, float]:
    found = []
    for kind in (False, True):
        own = [index for index, slot in enumerate(slots) if is_weekend(slot.at_s) is kind]
        seen = [slots[index].seen_s for index in own]
        days = sum(seen) / DAY_S
        factor = _mean([rates[index] for index in own], seen) / mean
        found.append((factor * days + _SHRINK) / (days + _SHRINK))
    whole = (found[0] * 5 + found[1] * 2) / 7
    return found[0] / whole, found[1] / whole


def _spread(residuals: Sequence[float], weights: Sequence[float], block: int, days: float) -> float:
    """By how much the level may be off, as a share: from how blocks of the history differ, and for how little of a
    week was seen.
    """
    means, heavy = [], []
    for begin in range(0, len(residuals) - block + 1, block):
        means.append(_mean(residuals[begin : begin + block], weights[begin : begin + block]))
        heavy.append(sum(weights[begin : begin + block]))
    unseen = _UNSEEN / math.sqrt(1.0 + days)
    if len(means) < 2:
        return math.hypot(unseen, 0.3)
    total = sum(heavy)
    center = sum(mean * weight for mean, weight in zip(means, heavy, strict=True)) / total
    count = total * total / sum(weight * weight for weight in heavy)
    variance = sum(weight * (mean - center) ** 2 for mean, weight in zip(means, heavy, strict=True)) / total
    variance *= len(means) / (len(means) - 1)
    # What is good or bad for a day is often so for some days: neighbours are alike, so there are fewer that count.
    alike = min(max(_alike(means, center, variance), 0.0), 0.6)
    count *= (1.0 - alike) / (1.0 + alike)
    return math.hypot(unseen, math.sqrt(variance / max(count, 1.0)))


def _alike(means: Sequence[float], center: float, variance: float) -> float:
    """How alike neighbours are, from -1 to 1; drawn towards a quarter where there are few."""
    if variance <= 0:
        return 0.0
    pairs = [(one - center) * (other - center) for one, other in pairwise(means)]
    return (sum(pairs) / variance + 0.25 * 6) / (len(means) + 6)


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    total = sum(weights)
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / total if total > 0 else 0.0


def _normal(chance: Chance) -> float:
    return math.sqrt(-2.0 * math.log(1.0 - chance())) * math.cos(2.0 * math.pi * chance())
