"""Parsing and writing sizes, durations, rates, shares and windows of time. No other module parses them."""

import re
from collections.abc import Mapping
from decimal import Decimal
from difflib import get_close_matches
from typing import NoReturn

from migrator.core.errors import UsageError
from migrator.core.units import DAY_S, GIB, HOUR_S, KIB, MIB, MINUTE_S, PIB, TIB, YEAR_S
from migrator.core.windows import DAY_NAMES, Window

# fmt: off
SIZE_UNITS: Mapping[str, int] = {
    "B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB, "PiB": PIB,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15,
    "K": KIB, "M": MIB, "G": GIB, "T": TIB, "P": PIB,
}
"""Case does not matter. A letter alone is binary, as in rsync and fpsync."""

DURATION_UNITS: Mapping[str, Decimal] = {
    "ms": Decimal("0.001"), "s": Decimal(1), "min": Decimal(MINUTE_S), "h": Decimal(HOUR_S),
    "d": Decimal(DAY_S), "w": Decimal(7 * DAY_S), "y": Decimal(YEAR_S),
}
# fmt: on

_SPELLINGS = {"m": "min", "minute": "min", "minutes": "min", "sec": "s", "seconds": "s", "hours": "h", "days": "d"}
_SIZES_FOLDED = {unit.lower(): factor for unit, factor in SIZE_UNITS.items()}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(%?)", re.ASCII)
_MAX_DIGITS = 30
_WINDOW = re.compile(r"(?:(\S+)\s+)?(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})", re.ASCII)
_WINDOW_HINT = 'write "DAYS HH:MM-HH:MM", as in "Mon-Fri 19:00-07:00" or "Sat,Sun 00:00-24:00"; without days: every day'


def parse_size(text: str | int) -> int:
    """Bytes: `"10GiB"`, `"10GB"` (decimal), `"10G"` (binary), `"4096"` and `4096`, rounded down to whole bytes.

    Raises UsageError that names the unit and the valid ones.
    """
    if isinstance(text, int):
        if text < 0:
            raise UsageError(f"{text} is not a size: it is negative")
        return text
    number, unit = _split(text, "size", "10GiB")
    factor = _SIZES_FOLDED.get(unit.lower() or "b")
    if factor is None:
        _refuse_unit(text, unit, "size", SIZE_UNITS)
    return int(number * factor)


def parse_rate(text: str | int) -> int:
    """Bytes per second: a size, with or without `/s`. Raises UsageError."""
    return parse_size(text.strip().removesuffix("/s") if isinstance(text, str) else text)


def parse_growth(text: str | int) -> int:
    """Bytes per day: a size with `/d` (or without), `/w` or `/y`. Raises UsageError."""
    amount, slash, unit = (part.strip() for part in str(text).partition("/"))
    if slash and unit not in ("d", "w", "y"):
        _refuse_unit(str(text), unit, "growth", {name: DURATION_UNITS[name] for name in ("d", "w", "y")})
    return int(parse_size(amount) / (DURATION_UNITS[unit or "d"] / DAY_S))


def parse_duration(text: str) -> float:
    """Seconds: `"90d"`, `"10min"`, `"30s"`, `"20ms"`. The unit is required: a lone `m` would be a guess.

    Raises UsageError that names the unit and the valid ones.
    """
    number, unit = _split(text, "duration", "90d")
    factor = DURATION_UNITS.get(unit)
    if factor is None:
        _refuse_unit(text, unit, "duration", DURATION_UNITS)
    return float(number * factor)


def parse_whole_seconds(text: str) -> int:
    """Seconds, as `parse_duration`; parts of a second are refused."""
    seconds = parse_duration(text)
    if seconds != int(seconds):
        raise UsageError(f'"{text}" is not a whole number of seconds')
    return int(seconds)


def parse_share(text: str | float) -> float:
    """A share between 0 and 1: `0.05` or `"5%"`. Raises UsageError."""
    found = _SHARE.fullmatch(str(text).strip())
    share = float(text) if not isinstance(text, str) else found and float(found[1]) / (100 if found[2] else 1)
    if share is None or not 0 <= share <= 1:
        raise UsageError(f'"{text}" is not a share between 0 and 1', hint='write 0.05 or "5%"')
    return share


def parse_window(text: str) -> Window:
    """A window: `"Mon-Fri 19:00-07:00"`; without days, every day. Raises UsageError."""
    found = _WINDOW.fullmatch(text.strip())
    if found is None:
        raise UsageError(f'"{text}" is not a window', hint=_WINDOW_HINT)
    start, end = (_minute(text, found[hour], found[hour + 1]) for hour in (2, 4))
    if start in (end, 24 * 60):
        raise UsageError(f'"{text}" is an empty window', hint=_WINDOW_HINT)
    days: set[int] = set()
    for part in (found[1] or "Mon-Sun").split(","):
        first, _, last = part.partition("-")
        begin, final = _day(text, first), _day(text, last or first)
        days.update((begin + step) % 7 for step in range((final - begin) % 7 + 1))
    return Window(days=tuple(sorted(days)), start_minute=start, end_minute=end)


def write_size(size_bytes: int) -> str:
    """Exactly, in the largest binary unit: `4294967296` becomes `4GiB`."""
    return _write_quantity(size_bytes, {unit: SIZE_UNITS[unit] for unit in ("PiB", "TiB", "GiB", "MiB", "KiB", "B")})


def write_duration(seconds: float) -> str:
    """Exactly, in the largest unit up to days: `600` becomes `10min`."""
    return _write_quantity(seconds, {unit: DURATION_UNITS[unit] for unit in ("d", "h", "min", "s", "ms")})


def _write_quantity(number: float, units: Mapping[str, int | Decimal]) -> str:
    exact = Decimal(str(number))
    name, factor = next(
        ((name, factor) for name, factor in units.items() if exact >= factor and exact % factor == 0), ("", Decimal(1))
    )
    return f"{exact / factor:f}".removesuffix(".0") + (name or ("B" if "B" in units else "s"))


def _split(text: str, what: str, example: str) -> tuple[Decimal, str]:
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or len(found[1]) > _MAX_DIGITS:
        raise UsageError(f'"{text}" is not a {what}', hint=f'a number and a unit, as in "{example}"')
    return Decimal(found[1]), found[2]


def _refuse_unit(text: str, unit: str, what: str, units: Mapping[str, int | Decimal]) -> NoReturn:
    folded = {known.lower(): known for known in units}
    spelled = _SPELLINGS.get(unit) if what == "duration" else None
    near = [spelled] if spelled else get_close_matches(unit.lower(), folded, 1, 0.5)
    problem = f'"{text}" has the unknown {what} unit "{unit}"' if unit else f'"{text}" has no unit'
    guess = f'; "{folded[near[0]]}" is the nearest' if near else ""
    raise UsageError(f"{problem}; valid units: {', '.join(units)}{guess}")


def _minute(text: str, hour: str, minute: str) -> int:
    value = int(hour) * 60 + int(minute)
    if int(minute) > 59 or value > 24 * 60:
        raise UsageError(f'"{text}" has an invalid time of day: {hour}:{minute}', hint=_WINDOW_HINT)
    return value


def _day(text: str, day: str) -> int:
    try:
        return DAY_NAMES.index(day.capitalize())
    except ValueError:
        days = ", ".join(DAY_NAMES)
        raise UsageError(f'"{text}" has an invalid day: {day}; days are {days}', hint=_WINDOW_HINT) from None
