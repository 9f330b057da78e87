"""The expected end of the copying, with a range. Pure.

The work left is the cost of the files and bytes left. The history gives the work per day, including pauses,
failures and nights; the expected end is that pace extrapolated. The range comes from the differences between days and
from the uncertainty of the costs. Its constants are fitted to simulated migrations
(tests/report/test_copy_forecast.py).
"""

import math
from collections.abc import Iterable, Sequence

from migrator.core.units import DAY_S, format_duration, several
from migrator.plan.model import USUAL_COST, CostSums, TransferCost, least_squares, sum_of
from migrator.report.model import FARTHEST_S, RANGE_SHARE, ConePoint, CopyForecast, Tally, WorkSlot
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


# --- The forecast


LEAST_SLOTS = 4
"""The shortest history that allows a forecast."""

_HALF_LIFE_DAYS = 20.0
"""The half-life of a day in the history, because sites change."""

_UNSEEN = 0.43
"""Relative error of a pace measured at one moment of the week, due to nights, weekends and other load. It decreases
with the square root of the days in the history.
"""

_MOST_SPREAD = 1.5
_QUANTILE = 1.2816
"""The standard normal quantile of RANGE_SHARE."""

_LEAST_COST = (1e-4, 1e-11)
"""Lower bounds for the cost of a file and of a byte, because a fit over a few attempts may give 0."""


def forecast_copy(
    *, now_s: float, slots: Sequence[WorkSlot], left: Tally, cost: TransferCost, cost_groups: Sequence[CostSums]
) -> CopyForecast | None:
    """The end of the copying; None if nothing is left, the history is too short, or almost nothing of it is recent: an end
    in a century is none. `slots` are without gaps, oldest
    first. `cost_groups` are random groups of the measured attempts.
    """
    if (left.left_files <= 0 and left.left_bytes <= 0) or len(slots) < LEAST_SLOTS:
        return None
    costs = _at_least(cost.s_per_file, cost.s_per_byte)
    rates = [_work(slot.files, slot.size_bytes, costs) / max(slot.seen_s, 1e-9) for slot in slots]
    weights = [slot.seen_s * 0.5 ** ((now_s - slot.at_s) / DAY_S / _HALF_LIFE_DAYS) for slot in slots]
    pace = _mean(rates, weights)
    if pace <= 0:
        return None
    history_s = sum(slot.seen_s for slot in slots)
    shares = _work_left(slots, left, costs, cost_groups)
    likely_s = _mean(shares, [1.0] * len(shares)) / pace
    if likely_s >= FARTHEST_S:
        return None
    spread = min(math.hypot(_pace_spread(rates, weights, history_s, likely_s), _cost_spread(shares)), _MOST_SPREAD)
    ends_s = [min(likely_s * math.exp(times * spread), FARTHEST_S) for times in (-_QUANTILE, 0.0, _QUANTILE)]
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
            f"in the newest {format_duration(slots[-1].seen_s)} the pace was {rates[-1] / pace * 100:.0f} % of that",
        ),
        cone=_cone(now_s, ends_s, left.left_bytes),
    )


def _at_least(per_file: float, per_byte: float) -> tuple[float, float]:
    return max(per_file, _LEAST_COST[0]), max(per_byte, _LEAST_COST[1])


def _work(files: int, size_bytes: int, costs: tuple[float, float]) -> float:
    """Seconds of one stream."""
    return files * costs[0] + size_bytes * costs[1]


def _work_left(
    slots: Sequence[WorkSlot], left: Tally, costs: tuple[float, float], groups: Sequence[CostSums]
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


def _pace_spread(rates: Sequence[float], weights: Sequence[float], history_s: float, left_s: float) -> float:
    """The relative error of the pace until the end: of the measured pace, and of the slots to come."""
    mean, total = _mean(rates, weights), sum(weights)
    count = total * total / sum(weight * weight for weight in weights)
    variance = _mean([(rate / mean - 1.0) ** 2 for rate in rates], weights)
    ahead = max(left_s / history_s * len(rates), 1.0)
    unseen = _UNSEEN / math.sqrt(1.0 + history_s / DAY_S)
    return math.hypot(unseen, math.sqrt(variance / count), math.sqrt(variance / ahead))


def _cone(now_s: float, ends_s: Sequence[float], left_bytes: int) -> tuple[ConePoint, ...]:
    """A straight way to each end."""
    points = []
    for after_s in (0.0, *ends_s):
        least, likely, most = (left_bytes * max(1.0 - after_s / end_s, 0.0) for end_s in ends_s)
        points.append(ConePoint(at_s=now_s + after_s, left_bytes=likely, least_bytes=least, most_bytes=most))
    return tuple(points)


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    total = sum(weights)
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / total if total > 0 else 0.0
