"""The pace of work and its extrapolation, and the expected end of the copying, with a range. Pure.

The work left is the cost of the files and bytes left. The history gives the work per day, including pauses,
failures and nights; the expected end is that pace extrapolated. The range comes from the differences between days and
from the uncertainty of the costs. Growth of the source adds to the work left. The constants are fitted to simulated
migrations (`python -m bench forecast`). rules_stages has the stages after the copying.
"""

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from migrator.core.units import DAY_S, format_duration, several
from migrator.plan.model import USUAL_COST, CostSums, TransferCost, least_squares, sum_of
from migrator.report.model import FARTHEST_S, RANGE_SHARE, ConePoint, CopyForecast, ProgressCounts, WorkSlot
from migrator.report.rules import span_width

# --- Slots: the history cut into equal spans without gaps


SLOTS = 48
"""The most slots of a history of less than some days."""

_DAYS = 3.0
"""A history of this length is cut into days."""


def slot_width_s(history_s: float) -> float:
    """The length of the slots: a day, or less for a short history."""
    if history_s >= _DAYS * DAY_S:
        return DAY_S
    return span_width(history_s, SLOTS)


def slots_of(copied: Iterable[tuple[float, int, int]], *, from_s: float, now_s: float) -> Sequence[WorkSlot]:
    """The slots from the first stream until now, oldest first. `copied` has the end, files and bytes of spans that are
    not longer than a slot; a span belongs to the slot in which it ends.
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
    ]


# --- Pace: work per time, and the time that work takes


Ends = tuple[float, float, float]
"""The earliest, the likely and the latest: the ends of the range of RANGE_SHARE, and the median."""

_HALF_LIFE_DAYS = 20.0
"""The half-life of a day in the history, because sites change."""

_UNSEEN = 0.43
"""Relative error of a pace measured at one moment of the week, due to nights, weekends and other load. It decreases
with the square root of the days in the history.
"""

_MOST_SPREAD = 1.5
_QUANTILE = 1.2816
"""The standard normal quantile of RANGE_SHARE."""


class PaceSlot(Struct, frozen=True, kw_only=True):
    """The work done in one slot of the history, in any unit; `seen_s` of it count."""

    at_s: float
    seen_s: float
    work: float


def pace_of(slots: Sequence[PaceSlot], *, now_s: float) -> float:
    """Work per second; older days count less. 0 without any."""
    rates, weights = _rates(slots, now_s)
    return _mean(rates, weights)


def time_left_s(
    slots: Sequence[PaceSlot], left: float, *, now_s: float, spread: float = 0.0, growth_per_s: float = 0.0
) -> Ends | None:
    """Seconds until the work left is done at the pace of the slots, cut to FARTHEST_S. `spread` is the relative error of
    the work left, which grows by the share `growth_per_s`. None if it is not done in a century.
    """
    rates, weights = _rates(slots, now_s)
    pace = _mean(rates, weights)
    if pace <= 0:
        return None
    usual_s = left / pace
    if _grown_s(usual_s, growth_per_s) >= FARTHEST_S:
        return None
    history_s = sum(slot.seen_s for slot in slots)
    whole = min(math.hypot(_pace_spread(rates, weights, history_s, usual_s), spread), _MOST_SPREAD)
    earliest, likely, latest = (
        _grown_s(usual_s * math.exp(times * whole), growth_per_s) for times in (-_QUANTILE, 0.0, _QUANTILE)
    )
    return earliest, likely, latest


def _rates(slots: Sequence[PaceSlot], now_s: float) -> tuple[list[float], list[float]]:
    rates = [slot.work / max(slot.seen_s, 1e-9) for slot in slots]
    return rates, [slot.seen_s * 0.5 ** ((now_s - slot.at_s) / DAY_S / _HALF_LIFE_DAYS) for slot in slots]


def _grown_s(left_s: float, growth_per_s: float) -> float:
    """The time for work of `left_s` that grows by a share of what is left of it."""
    kept = 1.0 - growth_per_s * left_s
    if growth_per_s <= 0:
        return min(left_s, FARTHEST_S)
    return FARTHEST_S if kept <= 0 else min(-math.log(kept) / growth_per_s, FARTHEST_S)


def _pace_spread(rates: Sequence[float], weights: Sequence[float], history_s: float, left_s: float) -> float:
    """The relative error of the pace until the end: of the measured pace, and of the slots to come."""
    mean, total = _mean(rates, weights), sum(weights)
    count = total * total / sum(weight * weight for weight in weights)
    variance = _mean([(rate / mean - 1.0) ** 2 for rate in rates], weights)
    ahead = max(left_s / history_s * len(rates), 1.0)
    unseen = _UNSEEN / math.sqrt(1.0 + history_s / DAY_S)
    return math.hypot(unseen, math.sqrt(variance / count), math.sqrt(variance / ahead))


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    total = sum(weights)
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / total if total > 0 else 0.0


# --- The copying


LEAST_SLOTS = 4
"""The shortest history that allows a forecast."""

_LEAST_COST = (1e-4, 1e-11)
"""Lower bounds for the cost of a file and of a byte, because a fit over a few attempts may give 0."""


def forecast_copy(
    *,
    now_s: float,
    slots: Sequence[WorkSlot],
    left: ProgressCounts,
    cost: TransferCost,
    cost_groups: Sequence[CostSums],
    growth_per_day: float = 0.0,
) -> CopyForecast | None:
    """The end of the copying; None if nothing is left, the history is too short, almost nothing of it is recent, or users
    add files faster than they are copied: an end in a century is none. `slots` are without gaps, oldest first.
    `cost_groups` are random groups of the measured attempts. The work left grows by the share `growth_per_day`.
    """
    if (left.left_files <= 0 and left.left_bytes <= 0) or len(slots) < LEAST_SLOTS:
        return None
    costs = _at_least(cost.s_per_file, cost.s_per_byte)
    done = [
        PaceSlot(at_s=slot.at_s, seen_s=slot.seen_s, work=_work(slot.files, slot.size_bytes, costs)) for slot in slots
    ]
    pace = pace_of(done, now_s=now_s)
    if pace <= 0:
        return None
    shares = _work_left(slots, left, costs, cost_groups)
    mean = sum(shares) / len(shares)
    ends_s = time_left_s(done, mean, now_s=now_s, spread=_cost_spread(shares), growth_per_s=growth_per_day / DAY_S)
    if ends_s is None:
        return None
    history_s = sum(slot.seen_s for slot in slots)
    newest = done[-1].work / max(done[-1].seen_s, 1e-9)
    growth = (f"users add {growth_per_day * 100:.2g} % a day to what is left",) if growth_per_day > 0 else ()
    return CopyForecast(
        made_at_s=now_s,
        likely_at_s=now_s + ends_s[1],
        earliest_at_s=now_s + ends_s[0],
        latest_at_s=now_s + ends_s[2],
        share=RANGE_SHARE,
        history_s=history_s,
        basis=(
            f"at the pace of the {format_duration(history_s)} since the first stream, pauses included; older days count less",
            f"the remaining {several(left.left_files, 'file')} count by the cost per file, and their bytes by the cost per byte "
            f"({cost.basis})",
            f"in the newest {format_duration(slots[-1].seen_s)} the pace was {newest / pace * 100:.0f} % of that",
            *growth,
        ),
        cone=_cone(now_s, ends_s, left.left_bytes),
    )


def _at_least(per_file: float, per_byte: float) -> tuple[float, float]:
    return max(per_file, _LEAST_COST[0]), max(per_byte, _LEAST_COST[1])


def _work(files: int, size_bytes: int, costs: tuple[float, float]) -> float:
    """Seconds of one stream."""
    return files * costs[0] + size_bytes * costs[1]


def _work_left(
    slots: Sequence[WorkSlot], left: ProgressCounts, costs: tuple[float, float], groups: Sequence[CostSums]
) -> list[float]:
    """The work left, in seconds of stream work, one value per group: by the costs of all attempts except those of the
    group. Each value is scaled to the costs behind the rates: a fit with expensive files has no effect if the history
    has the same mix.
    """
    files, size_bytes = sum(slot.files for slot in slots), sum(slot.size_bytes for slot in slots)
    fits = [costs]
    if len(groups) > 1:
        others = [sum_of([*groups[:number], *groups[number + 1 :]]) for number in range(len(groups))]
        fits = [_at_least(*least_squares(sums, usual=USUAL_COST)) for sums in others]
    done = _work(files, size_bytes, costs)
    return [_work(left.left_files, left.left_bytes, fit) / _work(files, size_bytes, fit) * done for fit in fits]


def _cost_spread(works: Sequence[float]) -> float:
    """The relative error of the work that is left, by the jackknife over the groups of attempts."""
    mean = sum(works) / len(works)
    return math.sqrt(sum((work / mean - 1.0) ** 2 for work in works) * (len(works) - 1) / len(works))


def _cone(now_s: float, ends_s: Sequence[float], left_bytes: int) -> tuple[ConePoint, ...]:
    """A straight way to each end."""
    points = []
    for after_s in (0.0, *ends_s):
        least, likely, most = (left_bytes * max(1.0 - after_s / end_s, 0.0) for end_s in ends_s)
        points.append(ConePoint(at_s=now_s + after_s, left_bytes=likely, least_bytes=least, most_bytes=most))
    return tuple(points)
