"""Which windows hold at a time, and when that changes. Pure: the time of day comes from the caller.

Nothing is computed with the length of a day or of an hour: what holds is told by weekday and time of day alone, so the hour
that a clock skips or repeats, and a clock that is set, need no rules of their own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from migrator.domain.units import DAY_S, MINUTE_S
from migrator.domain.windows import Window, WindowStanding

LocalTime = Callable[[float], tuple[int, int]]
"""Weekday (0 is Monday) and minute of the day at a time in seconds since the epoch."""

_FURTHEST_S = 8 * DAY_S
"""Every window comes again within a week; with the hour that a clock may skip, a little later."""


def holds(window: Window, day: int, minute: int) -> bool:
    """Whether a window holds on a weekday at a minute of the day."""
    if window.start_minute < window.end_minute:
        return day in window.days and window.start_minute <= minute < window.end_minute
    # It ends on the day after.
    if minute >= window.start_minute:
        return day in window.days
    return (day - 1) % 7 in window.days and minute < window.end_minute


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What the windows say: whether anything may be begun, and the smallest limits of those that hold now."""

    open: bool
    jobs: int | None = None
    bwlimit_bytes_per_s: int | None = None


def opening(windows: Sequence[Window], at_s: float, local_time: LocalTime) -> Opening:
    """What holds at a time; without windows everything may be begun at any time."""
    if not windows:
        return Opening(open=True)
    day, minute = local_time(at_s)
    now = [window for window in windows if holds(window, day, minute)]
    return Opening(
        open=bool(now),
        jobs=min((window.jobs for window in now if window.jobs is not None), default=None),
        bwlimit_bytes_per_s=min(
            (window.bwlimit_bytes_per_s for window in now if window.bwlimit_bytes_per_s is not None), default=None
        ),
    )


def opens_at(windows: Sequence[Window], at_s: float, local_time: LocalTime) -> float | None:
    """When the next window begins, for a time at which none holds: the beginning of a minute; None where none ever does."""
    return _first_minute(at_s, local_time, lambda *now: any(holds(window, *now) for window in windows))


def standings(
    windows: Sequence[Window], at_s: float, local_time: LocalTime, in_words: Callable[[float], str]
) -> tuple[WindowStanding, ...]:
    """Each window at a time, in their order: which hold, and when each of them ends, or begins next."""
    found = []
    now = local_time(at_s)
    for window in windows:
        is_held = holds(window, *now)
        changes_at_s = _first_minute(at_s, local_time, partial(_has_changed, window, is_held))
        found.append(
            WindowStanding(
                when=window.when,
                jobs=window.jobs,
                bwlimit_bytes_per_s=window.bwlimit_bytes_per_s,
                holds=is_held,
                changes_at_s=changes_at_s,
                changes="" if changes_at_s is None else in_words(changes_at_s),
            )
        )
    return tuple(found)


def _has_changed(window: Window, before: bool, day: int, minute: int) -> bool:
    return holds(window, day, minute) is not before


def _first_minute(at_s: float, local_time: LocalTime, true: Callable[[int, int], bool]) -> float | None:
    """The beginning of the first minute after this one at whose weekday and minute of the day it is true."""
    minute_s = at_s - at_s % MINUTE_S
    while minute_s < at_s + _FURTHEST_S:
        minute_s += MINUTE_S
        if true(*local_time(minute_s)):
            return minute_s
    return None
