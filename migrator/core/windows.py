"""Windows of time by weekday and time of day on this machine, and which of them are open.

All calculations use only weekday and time of day, never the length of a day or an hour. So skipped and repeated hours
and clock changes need no special rules. Pure: the caller passes the local time.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import ClassVar

from msgspec import Struct

from migrator.core.units import DAY_S, HOUR_S, MINUTE_S

DAY_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MINUTES = HOUR_S // MINUTE_S
_FEWEST_IN_A_RANGE = 3


class Window(Struct, frozen=True, kw_only=True):
    """On `days` (0 is Monday) from `start_minute` of the day; an end that is not after the start is on the next day.

    `jobs` limits the streams per host, `bwlimit_bytes_per_s` all streams together; None: the usual limit.
    """

    days: tuple[int, ...]
    start_minute: int
    end_minute: int
    jobs: int | None = None
    bwlimit_bytes_per_s: int | None = None

    @property
    def when(self) -> str:
        """As in site.toml: `Mon-Fri 19:00-07:00`, without days if it is open on every day."""
        minutes = (self.start_minute, self.end_minute)
        times = "-".join(f"{minute // _MINUTES:02}:{minute % _MINUTES:02}" for minute in minutes)
        return times if len(self.days) == len(DAY_NAMES) else f"{self._days_text} {times}"

    @property
    def _days_text(self) -> str:
        found = []
        # For consecutive days, the difference between day and position in the list is the same.
        for _, together in groupby(enumerate(self.days), lambda placed: placed[1] - placed[0]):
            names = [DAY_NAMES[day] for _, day in together]
            found += [f"{names[0]}-{names[-1]}"] if len(names) >= _FEWEST_IN_A_RANGE else names
        return ",".join(found)


class WindowStanding(Struct, frozen=True, kw_only=True):
    """A window, and whether it is open."""

    NO_KEYS: ClassVar = frozenset({"changes"})

    when: str
    """The window, as in site.toml."""
    jobs: int | None
    """Its limit of streams per host."""
    bwlimit_bytes_per_s: int | None
    """Its limit for all streams together."""
    holds: bool
    """It applies now."""
    changes_at_s: float | None
    """When that changes; None: never."""
    changes: str
    """The same in local time."""


LocalTime = Callable[[float], tuple[int, int]]
"""Weekday (0 is Monday) and minute of the day at a time in seconds since the epoch."""

_FURTHEST_S = 8 * DAY_S
"""Every window opens again within a week, or a little later if the clock skips an hour."""


def holds(window: Window, day: int, minute: int) -> bool:
    """True if a window is open on a weekday at a minute of the day."""
    if window.start_minute < window.end_minute:
        return day in window.days and window.start_minute <= minute < window.end_minute
    # The window ends on the next day.
    if minute >= window.start_minute:
        return day in window.days
    return (day - 1) % 7 in window.days and minute < window.end_minute


class Opening(Struct, frozen=True, kw_only=True):
    """Whether any window is open, and the smallest limits of the open ones."""

    open: bool
    jobs: int | None = None
    bwlimit_bytes_per_s: int | None = None


def opening(windows: Sequence[Window], at_s: float, local_time: LocalTime) -> Opening:
    """The opening at a time; without windows it is always open."""
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
    """When the next window opens, if none is open now: the beginning of a minute; None: never."""
    return _first_minute(at_s, local_time, lambda *now: any(holds(window, *now) for window in windows))


class OpenTimes(Struct, frozen=True, kw_only=True):
    """When something may begin: while a window is open, or always without windows."""

    windows: tuple[Window, ...] = ()
    local_time: LocalTime = lambda _: (0, 0)

    def is_open(self, at_s: float) -> bool:
        return opening(self.windows, at_s, self.local_time).open

    def from_(self, at_s: float) -> float:
        """The first time from this one on at which a window is open."""
        if self.is_open(at_s):
            return at_s
        opens_at_s = opens_at(self.windows, at_s, self.local_time)
        return at_s if opens_at_s is None else opens_at_s


ALWAYS = OpenTimes()


def standings(
    windows: Sequence[Window], at_s: float, local_time: LocalTime, in_words: Callable[[float], str]
) -> tuple[WindowStanding, ...]:
    """Each window, in order: whether it is open, and when it closes or opens next."""
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
    """The beginning of the first minute after this one for which `true` holds."""
    minute_s = at_s - at_s % MINUTE_S
    while minute_s < at_s + _FURTHEST_S:
        minute_s += MINUTE_S
        if true(*local_time(minute_s)):
            return minute_s
    return None
