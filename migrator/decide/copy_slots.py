"""A history of throughput, cut into slots of equal length without gaps. Pure."""

import math
from collections.abc import Iterable, Sequence

from migrator.decide.copy_rhythm import DAYS_FOR_PHASES, PHASE_S
from migrator.domain.forecast import WorkSlot
from migrator.domain.units import DAY_S, HOUR_S, MINUTE_S

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
