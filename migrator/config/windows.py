"""When streams may work: `"Mon-Fri 19:00-07:00"`."""

import re

from migrator.domain.errors import UsageError
from migrator.domain.windows import DAY_NAMES, Window

_WINDOW = re.compile(r"(?:(\S+)\s+)?(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})", re.ASCII)
_HINT = 'write "DAYS HH:MM-HH:MM", as in "Mon-Fri 19:00-07:00" or "Sat,Sun 00:00-24:00"; without days: every day'


def parse_window(text: str) -> Window:
    """A window; without days it holds on every day. Raises UsageError."""
    found = _WINDOW.fullmatch(text.strip())
    if found is None:
        raise UsageError(f'"{text}" is no window', hint=_HINT)
    start, end = (_minute(text, found[hour], found[hour + 1]) for hour in (2, 4))
    if start in (end, 24 * 60):
        raise UsageError(f'"{text}" is no window: it is empty', hint=_HINT)
    return Window(days=_days(text, found[1]), start_minute=start, end_minute=end)


def _minute(text: str, hour: str, minute: str) -> int:
    value = int(hour) * 60 + int(minute)
    if int(minute) > 59 or value > 24 * 60:
        raise UsageError(f'"{text}" has no such time of day: {hour}:{minute}', hint=_HINT)
    return value


def _days(text: str, days: str | None) -> tuple[int, ...]:
    if days is None:
        return tuple(range(7))
    found: set[int] = set()
    for part in days.split(","):
        first, _, last = part.partition("-")
        begin, end = _day(text, first), _day(text, last or first)
        found.update((begin + step) % 7 for step in range((end - begin) % 7 + 1))
    return tuple(sorted(found))


def _day(text: str, day: str) -> int:
    try:
        return DAY_NAMES.index(day[:1].upper() + day[1:].lower())
    except ValueError:
        raise UsageError(f'"{text}" has no such day: {day}; days are {", ".join(DAY_NAMES)}', hint=_HINT) from None
