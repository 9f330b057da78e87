"""How a site works, as measured: how much of a day streams run, and how long users wait for their move. Pure."""

import statistics
from collections.abc import Sequence

from msgspec import Struct

from migrator.core.units import DAY_S, format_duration, several

ENOUGH_DAYS = 3
"""Whole days with copying; fewer may have been a weekend."""

_LEAST_SHARE = 0.01
_NEWEST = 20
"""The number of waits that count, as in the expected dates of the report."""


class Habits(Struct, frozen=True, kw_only=True):
    """Streams run `run_share` of a day with copying. Users work on the target `move_days` after their batch is copied.
    `basis` are sentences on what was measured.
    """

    run_share: float = 1.0
    move_days: float = 0.0
    basis: tuple[str, ...] = ()


def habits(days: Sequence[tuple[float, float]], waits_s: Sequence[float]) -> Habits:
    """From the working time and the length of each day with copying, and the waits of moved users, both oldest first. The
    first and the last day are not whole. Days without copying do not count: nothing may have been left to copy.
    """
    basis, run_share, move_days = [], 1.0, 0.0
    whole = days[1:-1]
    if len(whole) >= ENOUGH_DAYS:
        measured = sum(busy_s for busy_s, _ in whole) / sum(span_s for _, span_s in whole)
        run_share = min(max(measured, _LEAST_SHARE), 1.0)
        basis.append(f"streams run {run_share:.0%} of the time, as on {several(len(whole), 'day')} with copying")
    if waits_s:
        wait_s = max(statistics.median(waits_s[-_NEWEST:]), 0.0)
        move_days = wait_s / DAY_S
        basis.append(f"users move {format_duration(wait_s)} after their batch is copied, as the last ones did")
    return Habits(run_share=run_share, move_days=move_days, basis=tuple(basis))
