"""The expected end of the copying, with a range. Pure: the caller provides random numbers.

Files and bytes that are left count by their cost. The history gives the work per day, including pauses, failures and nights. The
range comes from many simulations of the rest: each draws blocks of the history, fits costs to a sample of the attempts, and shifts
the pace by the uncertainty of a history of that length.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from migrator.core.units import DAY_S, HOUR_S, MINUTE_S, format_duration, several
from migrator.plan.model import USUAL_COST, CostSums, TransferCost, least_squares, sum_of
from migrator.report.model import FARTHEST_S, RANGE_SHARE, ConePoint, CopyForecast, WorkSlot

# --- Rhythm: the pace by time of day and weekday, and the residuals


PHASE_S = DAY_S / 4
"""Day and night are distinguished by quarters of a day, in UTC."""

DAYS_FOR_PHASES = 4.0
DAYS_FOR_WEEKENDS = 9.0
"""Shorter histories have too few days or weekends for more than chance."""

_SHRINK = 2.0
"""Shrinks every factor towards 1, as so many additional days without a rhythm would."""

_HALF_LIFE_DAYS = 20.0
"""The half-life of a day in the history, because sites change."""

_UNSEEN = 0.43
"""Relative error of a pace measured at one moment of the week, due to nights, weekends and other load. It decreases with the
square root of the days in the history.
"""

_DRIFT_PER_DAY = 0.02
"""Relative lasting change of the pace from day to day, due to other load."""
_MOST_DRIFT = 0.35
"""Upper bound of the drift, however distant the end is."""

Chance = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """The pace of a history in work per second: `level`, times the factors of the quarter and the kind of day, times a residual.
    `residuals` have a mean of 1 and are in order of time from `residuals_from_s` on; they are drawn in blocks. `level_spread` is
    the relative error of the level.
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
        """The pace at a time relative to the level."""
        return _factor(at_s, self.phases, (self.weekday, self.weekend))

    def drawn_place(self, at_s: float, chance: Chance) -> int:
        """The index of a random block of residuals for a time. It begins at the same time of day, to keep the part of the rhythm
        that the factors do not explain.
        """
        if not self.by_day:
            return int(chance() * len(self.residuals))
        of_a_day = round(DAY_S / self.slot_s)
        first = round((at_s - self.residuals_from_s) / self.slot_s) % of_a_day
        days = (len(self.residuals) - first + of_a_day - 1) // of_a_day
        return first + int(chance() * days) * of_a_day

    def drawn_pace(self, work: float, chance: Chance) -> float:
        """A random level for the rest of the work, within the error of the level and its drift."""
        ahead_days = work / self.level / DAY_S
        spread = math.hypot(self.level_spread, min(_DRIFT_PER_DAY * math.sqrt(ahead_days / 3), _MOST_DRIFT))
        return self.level * math.exp(spread * _normal(chance) - spread * spread / 2)


def is_weekend(at_s: float) -> bool:
    """Whether a time is on a Saturday or Sunday in UTC. The epoch began on a Thursday."""
    return (int(at_s // DAY_S) + 3) % 7 >= 5


def _phase(at_s: float) -> int:
    return int(at_s % DAY_S / PHASE_S)


def _factor(at_s: float, phases: Sequence[float], kinds: Sequence[float]) -> float:
    return phases[_phase(at_s)] * kinds[is_weekend(at_s)]


def find_rhythm(slots: Sequence[WorkSlot], rates: Sequence[float], slot_s: float) -> Rhythm | None:
    """The rhythm of a history of slots with their rates; None if nothing was copied."""
    history_s = sum(slot.seen_s for slot in slots)
    days = history_s / DAY_S
    end_s = slots[-1].at_s
    weights = [slot.seen_s * 0.5 ** ((end_s - slot.at_s) / DAY_S / _HALF_LIFE_DAYS) for slot in slots]
    mean = _mean(rates, weights)
    if mean <= 0:
        return None
    by_day = days >= DAYS_FOR_PHASES and slot_s <= PHASE_S
    by_weekday = days >= DAYS_FOR_WEEKENDS
    shares = [rate / mean for rate in rates]
    kinds = _factors(slots, shares, is_weekend, (5 / 7, 2 / 7), 1.0) if by_weekday else (1.0, 1.0)
    phases = _factors(slots, shares, _phase, (0.25,) * 4, 4.0) if by_day else (1.0,) * 4
    expected = [max(_factor(slot.at_s, phases, kinds), 0.02) for slot in slots]
    level = mean / _mean(expected, weights)
    seen = [index for index, slot in enumerate(slots) if slot.seen_s >= slot_s / 2] or list(range(len(slots)))
    ratios = [rates[index] / expected[index] / level for index in seen]
    # The unweighted mean of the residuals is 1; age affects only the level.
    scale = _mean(ratios, [expected[index] for index in seen]) or 1.0
    residuals = tuple(ratio / scale for ratio in ratios)
    per_day = max(round(DAY_S / slot_s), 1) if days >= 2 else max(len(residuals) // 8, 1)
    return Rhythm(
        slot_s=slot_s,
        history_s=history_s,
        level=level,
        phases=phases,
        weekday=kinds[0],
        weekend=kinds[1],
        residuals=residuals,
        residuals_from_s=slots[seen[0]].at_s,
        block_slots=max(min(per_day, len(residuals) // 2), 1),
        level_spread=_spread(residuals, [weights[index] * expected[index] for index in seen], per_day, days),
        by_day=by_day,
        by_weekday=by_weekday,
    )


def _factors(
    slots: Sequence[WorkSlot],
    rates: Sequence[float],
    kind_of: Callable[[float], int],
    shares: Sequence[float],
    days_weight: float,
) -> tuple[float, ...]:
    """The mean rate of each kind of time, shrunk towards 1; their mean, weighted by the share of each kind, is 1."""
    factors = []
    for kind in range(len(shares)):
        own = [(rate, slot.seen_s) for rate, slot in zip(rates, slots, strict=True) if kind_of(slot.at_s) == kind]
        seen = [seen_s for _, seen_s in own]
        days = days_weight * sum(seen) / DAY_S
        factors.append((_mean([rate for rate, _ in own], seen) * days + _SHRINK) / (days + _SHRINK))
    whole = sum(factor * share for factor, share in zip(factors, shares, strict=True))
    return tuple(factor / whole for factor in factors)


def _spread(residuals: Sequence[float], weights: Sequence[float], block: int, days: float) -> float:
    """The relative error of the level, from the differences between blocks of the history and the observed part of a week."""
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
    # Neighbouring blocks are correlated, which reduces the effective number of blocks.
    alike = min(max(_alike(means, center, variance), 0.0), 0.6)
    count *= (1.0 - alike) / (1.0 + alike)
    return math.hypot(unseen, math.sqrt(variance / max(count, 1.0)))


def _alike(means: Sequence[float], center: float, variance: float) -> float:
    """Correlation of neighbours, from -1 to 1, shrunk towards 0.25 for few blocks."""
    if variance <= 0:
        return 0.0
    pairs = [(one - center) * (other - center) for one, other in pairwise(means)]
    return (sum(pairs) / variance + 0.25 * 6) / (len(means) + 6)


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    total = sum(weights)
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / total if total > 0 else 0.0


def _normal(chance: Chance) -> float:
    return math.sqrt(-2.0 * math.log(1.0 - chance())) * math.cos(2.0 * math.pi * chance())


# --- Slots: the history cut into equal spans without gaps


SLOTS = 48
"""The most slots of a short history."""

_WIDTHS_S = (5.0, 15.0, MINUTE_S, 5 * MINUTE_S, 15 * MINUTE_S, 30 * MINUTE_S, HOUR_S, 2 * HOUR_S)


def slot_width_s(history_s: float) -> float:
    """The length of the slots: a quarter of a day, or less for a short history."""
    if history_s >= DAYS_FOR_PHASES * DAY_S:
        return PHASE_S
    return next((width for width in _WIDTHS_S if history_s <= width * SLOTS), _WIDTHS_S[-1])


def slots_of(
    copied: Iterable[tuple[float, int, int]], *, from_s: float, now_s: float
) -> tuple[Sequence[WorkSlot], float]:
    """The slots from the first stream until now, oldest first, and their length. `copied` has the end, files and bytes of spans
    that are not longer than a slot; a span belongs to the slot in which it ends.
    """
    width_s = slot_width_s(now_s - from_s)
    first, last = math.floor(from_s / width_s), max(math.ceil(now_s / width_s) - 1, math.floor(from_s / width_s))
    files, sizes = [0] * (last - first + 1), [0] * (last - first + 1)
    for end_s, its_files, its_bytes in copied:
        index = min(max(math.ceil(end_s / width_s) - 1 - first, 0), last - first)
        files[index] += its_files
        sizes[index] += its_bytes
    return [
        WorkSlot(
            at_s=(first + index) * width_s,
            seen_s=min((first + index + 1) * width_s, now_s) - max((first + index) * width_s, from_s),
            files=files[index],
            size_bytes=sizes[index],
        )
        for index in range(last - first + 1)
    ], width_s


# --- Simulation of the rest


PATHS = 400
"""The number of simulations."""

LEAST_SLOTS = 4
"""The shortest history that allows a forecast."""

_COSTS = 24
"""The number of cost fits that the simulations share."""

_STEPS = 240
"""The most simulated slots; beyond them a simulation continues at its mean pace."""

_CONE_POINTS = 40
_LEAST_S_PER_FILE = 1e-4
_LEAST_S_PER_BYTE = 1e-11
"""Lower bounds for the costs, because a fit over a few attempts may give 0."""

_LATE_S = DAY_S
_LATE_HISTORY_S = 3 * DAY_S
_OTHER = 1.6
"""The report mentions a last day that differs from the expected one by this factor. Smaller differences are often chance."""

_SLOWEST = 0.1
"""The least pace of a simulation, relative to the level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is left to copy."""

    files: int
    size_bytes: int


def forecast_copy(
    *,
    now_s: float,
    slots: Sequence[WorkSlot],
    slot_s: float,
    left: Left,
    cost: TransferCost,
    cost_groups: Sequence[CostSums],
    chance: Chance,
    paths: int = PATHS,
) -> CopyForecast | None:
    """The end of the copying; None if nothing is left or the history is too short. `slots` are without gaps, oldest first, at
    multiples of `slot_s`. `cost_groups` are random groups of the measured attempts, for resampling.
    """
    if (left.files <= 0 and left.size_bytes <= 0) or len(slots) < LEAST_SLOTS:
        return None
    per_file, per_byte = _at_least(cost.s_per_file, cost.s_per_byte)
    rates = [(slot.files * per_file + slot.size_bytes * per_byte) / max(slot.seen_s, 1e-9) for slot in slots]
    rhythm = find_rhythm(slots, rates, slot_s)
    if rhythm is None:
        return None
    works = _works(slots, left, cost, cost_groups, chance)
    played = [_Path(rhythm, work, now_s, chance) for work in (works[turn % len(works)] for turn in range(paths))]
    ends = sorted(path.end_s for path in played)
    tail = (1.0 - RANGE_SHARE) / 2
    earliest_s, likely_s, latest_s = (quantile(ends, share) for share in (tail, 0.5, 1.0 - tail))
    return CopyForecast(
        made_at_s=now_s,
        likely_at_s=likely_s,
        earliest_at_s=earliest_s,
        latest_at_s=latest_s,
        share=RANGE_SHARE,
        history_s=rhythm.history_s,
        by_day=rhythm.by_day,
        by_weekday=rhythm.by_weekday,
        basis=(*_basis(rhythm, cost, paths, left), *_of_late(rhythm, slots, rates, now_s, likely_s - now_s)),
        cone=_cone(played, now_s, latest_s, left.size_bytes, tail),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile of ordered values, interpolated between neighbours."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _at_least(per_file: float, per_byte: float) -> tuple[float, float]:
    return max(per_file, _LEAST_S_PER_FILE), max(per_byte, _LEAST_S_PER_BYTE)


def _works(
    slots: Sequence[WorkSlot], left: Left, cost: TransferCost, groups: Sequence[CostSums], chance: Chance
) -> list[float]:
    """What is left, in seconds of stream work, by several fits of the costs. Each is scaled to the costs behind the rates, so that
    a fit with expensive files has no effect if the history has the same mix of files.
    """
    done_files = sum(slot.files for slot in slots)
    done_bytes = sum(slot.size_bytes for slot in slots)
    fits = [_at_least(cost.s_per_file, cost.s_per_byte)]
    plain = done_files * fits[0][0] + done_bytes * fits[0][1]
    if len(groups) > 1:
        for _ in range(_COSTS):
            drawn = sum_of([groups[int(chance() * len(groups))] for _ in groups])
            fits.append(_at_least(*least_squares(drawn, usual=USUAL_COST)))
    works = []
    for per_file, per_byte in fits[1:] or fits:
        done = done_files * per_file + done_bytes * per_byte
        if done > 0 and plain > 0:
            works.append((left.files * per_file + left.size_bytes * per_byte) / done * plain)
    return works or [left.files * fits[0][0] + left.size_bytes * fits[0][1]]


class _Path:
    """One simulation of the rest: the share of the work that is left (`lefts`) at `times_s`."""

    def __init__(self, rhythm: Rhythm, work: float, now_s: float, chance: Chance) -> None:
        self.times_s, self.lefts = [now_s], [1.0]
        pace = max(rhythm.drawn_pace(work, chance), _SLOWEST * rhythm.level)
        slot_s, residuals = rhythm.slot_s, rhythm.residuals
        begin_s, end_s = now_s, (now_s // slot_s + 1) * slot_s
        place, until, rest = 0, 0, work
        for step in range(_STEPS):
            if step == until or place == len(residuals):
                place, until = rhythm.drawn_place(begin_s // slot_s * slot_s, chance), step + rhythm.block_slots
            done = pace * rhythm.factor(begin_s) * residuals[place] * (end_s - begin_s)
            place += 1
            if done >= rest:
                self.end_s = begin_s + (end_s - begin_s) * rest / done
                break
            rest -= done
            self.times_s.append(end_s)
            self.lefts.append(rest / work)
            begin_s, end_s = end_s, end_s + slot_s
        else:
            mean = max((work - rest) / (begin_s - now_s), _SLOWEST * pace)
            self.end_s = min(begin_s + rest / mean, now_s + FARTHEST_S)
        self.times_s.append(self.end_s)
        self.lefts.append(0.0)

    def left_at(self, at_s: float) -> float:
        """The share of the work that is left at `at_s`."""
        after = bisect_right(self.times_s, at_s)
        if after == len(self.times_s):
            return 0.0
        before_s, left = self.times_s[after - 1], self.lefts[after - 1]
        return left + (self.lefts[after] - left) * (at_s - before_s) / (self.times_s[after] - before_s)


def _cone(played: Sequence[_Path], now_s: float, until_s: float, left_bytes: int, tail: float) -> tuple[ConePoint, ...]:
    points = []
    for index in range(_CONE_POINTS + 1):
        at_s = now_s + (until_s - now_s) * index / _CONE_POINTS
        lefts = sorted(path.left_at(at_s) for path in played)
        least, likely, most = (quantile(lefts, share) * left_bytes for share in (tail, 0.5, 1.0 - tail))
        points.append(ConePoint(at_s=at_s, left_bytes=likely, least_bytes=least, most_bytes=most))
    return tuple(points)


def _basis(rhythm: Rhythm, cost: TransferCost, paths: int, left: Left) -> tuple[str, ...]:
    if rhythm.by_weekday:
        rhythm_words = "day and night, and weekends, are distinguished"
    elif rhythm.by_day:
        rhythm_words = "day and night are distinguished; for weekends the history is too short"
    else:
        rhythm_words = "the history is too short to distinguish day and night, or weekends"
    return (
        f"from the {format_duration(rhythm.history_s)} since the first stream, pauses included: {rhythm_words}",
        f"the remaining {several(left.files, 'file')} count by the cost per file, and their bytes by the cost per byte "
        f"({cost.basis})",
        f"the range comes from {several(paths, 'simulation')} of the rest with parts of that history: the end lies in it "
        f"with a probability of {RANGE_SHARE * 100:.0f} %",
    )


def _of_late(
    rhythm: Rhythm, slots: Sequence[WorkSlot], rates: Sequence[float], now_s: float, left_s: float
) -> Iterator[str]:
    """What the last day alone would give, if it differs a lot: a long history follows a change slowly."""
    if rhythm.history_s < _LATE_HISTORY_S:
        return
    late = [(slot, rate) for slot, rate in zip(slots, rates, strict=True) if slot.at_s + slot.seen_s > now_s - _LATE_S]
    was = sum(rate * slot.seen_s for slot, rate in late)
    usual = sum(rhythm.level * rhythm.factor(slot.at_s) * slot.seen_s for slot, _ in late)
    if was <= 0:
        last_s = max(slot.at_s + slot.seen_s for slot, rate in zip(slots, rates, strict=True) if rate > 0)
        idle = format_duration(now_s - last_s)
        yield f"for the last {idle} nothing was copied; the forecast assumes that copying continues as before"
    elif max(was / usual, usual / was) >= _OTHER:
        yield (
            f"in the last {format_duration(_LATE_S)} the pace was {was / usual * 100:.0f} % of the pace assumed here: if this "
            f"continues, {format_duration(left_s * usual / was)} are left instead of {format_duration(left_s)}"
        )
