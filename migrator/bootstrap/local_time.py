"""The time of day on this machine, as windows are written."""

import time

from migrator.config.site import Site
from migrator.decide.windows import standings
from migrator.domain.windows import WindowStanding


def local_time(at_s: float) -> tuple[int, int]:
    """Weekday (0 is Monday) and minute of the day on this machine."""
    found = time.localtime(at_s)
    return found.tm_wday, found.tm_hour * 60 + found.tm_min


def in_words(at_s: float) -> str:
    """A time for people, on this machine's clock: `Mon 2030-01-31 19:00`."""
    return time.strftime("%a %Y-%m-%d %H:%M", time.localtime(at_s))


def window_standings(site: Site, at_s: float) -> tuple[WindowStanding, ...]:
    """The windows of [transfer] at a time, by this machine's clock."""
    return standings(site.transfer.windows, at_s, local_time, in_words)
