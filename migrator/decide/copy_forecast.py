"""When the copying will be done, with a range: from what was copied when, and what files and bytes cost here. Pure.

What is left is weighed by the cost of files and bytes, so that many small files count for what they take. How much work a
day brings is known from the days so far, pauses, failures and nights included. The range comes from playing the rest of the
migration through many times: each time on blocks of time that are drawn from the history, with costs fitted to
a drawn part of the attempts, and with a pace that is off by what so short a history may be off. Chance comes from the caller.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from migrator.decide.copy_rhythm import Rhythm, find_rhythm
from migrator.decide.transfer_cost import sum_of, transfer_squares
from migrator.domain.cost import CostSums
from migrator.domain.forecast import FARTHEST_S, RANGE_SHARE, ConePoint, CopyForecast, WorkSlot
from migrator.domain.plan import TransferCost
from migrator.domain.units import DAY_S, format_duration, several

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

Chance = Callable[[], float]
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
