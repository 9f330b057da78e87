"""When the copying ends, with a range. Pure."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from migrator.core.units import DAY_S, HOUR_S, MINUTE_S, format_duration, several
from migrator.plan.model import CostSums, TransferCost, sum_of, transfer_squares
from migrator.report.model import FARTHEST_S, RANGE_SHARE, ConePoint, CopyForecast, WorkSlot

# ---
# How the pace of copying goes with the time of day and with weekends, and what is left when that is taken out. Pure.


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


# ---
# A history of throughput, cut into slots of equal length without gaps. Pure.


SLOTS = 48
"""A short history is cut into at most so many slots."""

_WIDTHS_S = (5.0, 15.0, MINUTE_S, 5 * MINUTE_S, 15 * MINUTE_S, 30 * MINUTE_S, HOUR_S, 2 * HOUR_S)


def slot_width_s(history_s: float) -> float:
    """How long the slots of a history are: quarters of a day, or shorter ones where it is short."""
    if history_s >= DAYS_FOR_PHASES * DAY_S:
        return PHASE_S
    return next((width for width in _WIDTHS_S if history_s <= width * SLOTS), _WIDTHS_S[-1])


def slots_of(
    copied: Iterable[tuple[float, int, int]], *, from_s: float, now_s: float
) -> tuple[Sequence[WorkSlot], float]:
    """The slots from the first stream until now, oldest first, and how long they are. `copied` are the ends of spans with
    files and bytes; a span counts where it ends. Spans that are longer than a slot are no good.
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


# ---
# When the copying will be done, with a range: from what was copied when, and what files and bytes cost here. Pure.
#
# What is left is weighed by the cost of files and bytes, so that many small files count for what they take. How much work a
# day brings is known from the days so far, pauses, failures and nights included. The range comes from playing the rest of the
# migration through many times: each time on blocks of time that are drawn from the history, with costs fitted to
# a drawn part of the attempts, and with a pace that is off by what so short a history may be off. Chance comes from the caller.


PATHS = 400
"""How often the rest is played through."""

LEAST_SLOTS = 4
"""A shorter history says nothing."""

_COSTS = 24
"""How many fits of the costs the paths share."""

_STEPS = 240
"""How many slots a path is played through; beyond them it goes on at its own mean."""

_CONE_POINTS = 40
_LEAST_S_PER_FILE = 1e-4
_LEAST_S_PER_BYTE = 1e-11
"""Nothing is free, whatever a fit over a few attempts says: a file has to be made, and a byte to be written."""

_LATE_S = DAY_S
_LATE_HISTORY_S = 3 * DAY_S
_OTHER = 1.6
"""A day that differs from what the history lets expect by such a factor is worth a word: of one day in some it is chance, of a
change of streams or of a standstill it is not.
"""

_SLOWEST = 0.1
"""A random number from 0 (included) to 1 (excluded), another one at every call."""


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
    """The end of the copying; None where nothing is left, or the history is too short. `slots` lie without gaps, oldest
    first, at multiples of `slot_s`. `cost_groups` are the measured attempts in groups by chance, for drawing among them.
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
    """The value below which this share of ordered values lies, between neighbours in proportion."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _at_least(per_file: float, per_byte: float) -> tuple[float, float]:
    return max(per_file, _LEAST_S_PER_FILE), max(per_byte, _LEAST_S_PER_BYTE)


def _works(
    slots: Sequence[WorkSlot], left: Left, cost: TransferCost, groups: Sequence[CostSums], chance: Chance
) -> list[float]:
    """What is left, as seconds of streams' work, by several fits of the costs. Each is given in the currency of the rates:
    dearer files count for nothing where the history was just as full of them.
    """
    done_files = sum(slot.files for slot in slots)
    done_bytes = sum(slot.size_bytes for slot in slots)
    fits = [_at_least(cost.s_per_file, cost.s_per_byte)]
    plain = done_files * fits[0][0] + done_bytes * fits[0][1]
    if len(groups) > 1:
        for _ in range(_COSTS):
            drawn = sum_of([groups[int(chance() * len(groups))] for _ in groups])
            fits.append(_at_least(*transfer_squares(drawn)))
    works = []
    for per_file, per_byte in fits[1:] or fits:
        done = done_files * per_file + done_bytes * per_byte
        if done > 0 and plain > 0:
            works.append((left.files * per_file + left.size_bytes * per_byte) / done * plain)
    return works or [left.files * fits[0][0] + left.size_bytes * fits[0][1]]


class _Path:
    """The rest of the migration, played through once. `left` is the share of the work that is left after each slot."""

    def __init__(self, rhythm: Rhythm, work: float, now_s: float, chance: Chance) -> None:
        self.from_s = now_s
        self.slot_s = rhythm.slot_s
        self.left: list[float] = []
        pace = max(rhythm.drawn_pace(work, chance), _SLOWEST * rhythm.level)
        self.first_end_s = (now_s // rhythm.slot_s + 1) * rhythm.slot_s
        begin_s, end_s = now_s, self.first_end_s
        residuals = rhythm.residuals
        block, count = rhythm.block_slots, len(residuals)
        place, until = 0, 0
        slot_s = rhythm.slot_s
        rest = work
        for step in range(_STEPS):
            if step == until or place == count:
                place, until = rhythm.drawn_place(begin_s // slot_s * slot_s, chance), step + block
            done = pace * rhythm.factor(begin_s) * residuals[place] * (end_s - begin_s)
            place += 1
            if done >= rest:
                self.end_s = begin_s + (end_s - begin_s) * rest / done
                return
            rest -= done
            self.left.append(rest / work)
            begin_s, end_s = end_s, end_s + self.slot_s
        gone = work - rest
        mean = max(gone / (begin_s - now_s), _SLOWEST * pace)
        self.end_s = min(begin_s + rest / mean, now_s + FARTHEST_S)

    def left_at(self, at_s: float) -> float:
        """The share of the work that is left at a time."""
        if at_s >= self.end_s:
            return 0.0
        place = (at_s - self.first_end_s) / self.slot_s
        if place < 0 or not self.left:
            first = self.left[0] if self.left else 0.0
            until_s = self.first_end_s if self.left else self.end_s
            return 1.0 + (first - 1.0) * (at_s - self.from_s) / max(until_s - self.from_s, 1e-9)
        index = int(place)
        if index + 1 < len(self.left):
            return self.left[index] + (self.left[index + 1] - self.left[index]) * (place - index)
        last_s = self.first_end_s + (len(self.left) - 1) * self.slot_s
        return self.left[-1] * (self.end_s - at_s) / max(self.end_s - last_s, 1e-9)


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
        rhythm_words = "day and night, and weekends, were told apart"
    elif rhythm.by_day:
        rhythm_words = "day and night were told apart; for weekends the history is too short"
    else:
        rhythm_words = "the history is too short to tell day and night, or weekends, apart"
    return (
        f"from the {format_duration(rhythm.history_s)} since the first stream, pauses included: {rhythm_words}",
        f"{several(left.files, 'file')} that are left count for what a file costs, and bytes for what a byte costs "
        f"({cost.basis})",
        f"the range is from {several(paths, 'replay')} of the rest, drawn from that history: the end lies in it with a "
        f"probability of {RANGE_SHARE * 100:.0f} %",
    )


def _of_late(
    rhythm: Rhythm, slots: Sequence[WorkSlot], rates: Sequence[float], now_s: float, left_s: float
) -> Iterator[str]:
    """What the last day would let expect, where it was quite another one: the history of weeks follows a change slowly."""
    if rhythm.history_s < _LATE_HISTORY_S:
        return
    last = max((slot.at_s + slot.seen_s for slot, rate in zip(slots, rates, strict=True) if rate > 0), default=now_s)
    if now_s - last >= _LATE_S:
        yield f"for the last {format_duration(now_s - last)} nothing was copied; that it goes on as before is taken for granted"
        return
    late = [index for index, slot in enumerate(slots) if slot.at_s + slot.seen_s > now_s - _LATE_S]
    was = sum(rates[index] * slots[index].seen_s for index in late)
    usual = sum(rhythm.level * rhythm.factor(slots[index].at_s) * slots[index].seen_s for index in late)
    if usual <= 0 or max(was / usual, usual / max(was, 1e-9)) < _OTHER:
        return
    yield (
        f"in the last {format_duration(_LATE_S)} it went at {was / usual * 100:.0f} % of the pace that this takes: should it "
        f"stay so, {format_duration(left_s * usual / was)} are left instead of {format_duration(left_s)}"
    )
