"""Sizes, durations, rates and shares in words, to and from numbers. The only place that parses them."""

import re
from decimal import Decimal
from difflib import get_close_matches
from typing import NoReturn

from migrator.domain.errors import UsageError
from migrator.domain.units import DAY_S, GIB, HOUR_S, KIB, MIB, MINUTE_S, PIB, TIB, YEAR_S

SIZE_UNITS: dict[str, int] = {
    "B": 1,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": TIB,
    "PiB": PIB,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "K": KIB,
    "M": MIB,
    "G": GIB,
    "T": TIB,
    "P": PIB,
}
"""Upper and lower case are the same. A letter alone is binary, as rsync and fpsync mean it."""

DURATION_UNITS: dict[str, Decimal] = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "min": Decimal(MINUTE_S),
    "h": Decimal(HOUR_S),
    "d": Decimal(DAY_S),
    "w": Decimal(7 * DAY_S),
    "y": Decimal(YEAR_S),
}

_MEANT = {"m": "min", "minute": "min", "minutes": "min", "sec": "s", "seconds": "s", "hours": "h", "days": "d"}
"""Duration units that people write, and what they mean by them."""

_SIZES_FOLDED = {unit.lower(): factor for unit, factor in SIZE_UNITS.items()}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)
_DIGITS_LIMIT = 30
"""A number with more digits is a slip of the keyboard, and no size that anything has."""


def parse_size(text: str | int) -> int:
    """Bytes: `"10GiB"`, `"10GB"` (decimal), `"10G"` (binary), `"4096"` and `4096`. Parts of a byte are cut off.

    Raises UsageError that names the unit and the valid ones.
    """
    if isinstance(text, int):
        return _not_negative(text, "size")
    number, unit = _split(text, "size", "10GiB")
    factor = _SIZES_FOLDED.get(unit.lower() or "b")
    if factor is None:
        _unknown_unit(text, unit, "size", SIZE_UNITS)
    return int(number * factor)


def parse_rate(text: str | int) -> int:
    """Bytes per second: a size, with or without `/s`. Raises UsageError."""
    return parse_size(text.strip().removesuffix("/s") if isinstance(text, str) else text)


def parse_growth(text: str | int) -> int:
    """Bytes per day: a size with `/d` (or without), `/w` or `/y`. Raises UsageError."""
    if isinstance(text, int):
        return parse_size(text)
    amount, slash, unit = (part.strip() for part in text.partition("/"))
    if slash and unit not in ("d", "w", "y"):
        _unknown_unit(text, unit, "growth", {"d": 1, "w": 1, "y": 1})
    return int(parse_size(amount) / (DURATION_UNITS[unit or "d"] / DAY_S))


def parse_duration(text: str) -> float:
    """Seconds: `"90d"`, `"10min"`, `"30s"`, `"20ms"`. The unit is needed: `m` alone would be guessed at.

    Raises UsageError that names the unit and the valid ones.
    """
    number, unit = _split(text, "duration", "90d")
    factor = DURATION_UNITS.get(unit)
    if factor is None:
        _unknown_unit(text, unit, "duration", DURATION_UNITS)
    return float(number * factor)


def parse_share(text: str | float) -> float:
    """A share between 0 and 1: `0.05` or `"5%"`. Raises UsageError."""
    if isinstance(text, str):
        number, percent = text.strip().removesuffix("%").strip(), text.strip().endswith("%")
        if not re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", number, re.ASCII):
            raise UsageError(f'"{text}" is no share', hint='write 0.05 or "5%"')
        share = float(number) / 100 if percent else float(number)
    else:
        share = float(text)
    if not 0 <= share <= 1:
        raise UsageError(f"{text} is no share between 0 and 1", hint='write 0.05 or "5%"')
    return share


def _split(text: str, what: str, example: str) -> tuple[Decimal, str]:
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or len(found[1]) > _DIGITS_LIMIT:
        raise UsageError(f'"{text}" is no {what}', hint=f'a number and a unit, as in "{example}"')
    return Decimal(found[1]), found[2]


def _unknown_unit(text: str, unit: str, what: str, units: dict[str, int] | dict[str, Decimal]) -> NoReturn:
    folded = {known.lower(): known for known in units}
    near = [_MEANT[unit]] if what == "duration" and unit in _MEANT else get_close_matches(unit.lower(), folded, 1, 0.5)
    said = f'"{text}" has the unknown {what} unit "{unit}"' if unit else f'"{text}" has no unit'
    guess = f'; "{folded[near[0]]}" is the nearest' if near else ""
    raise UsageError(f"{said}; valid units: {', '.join(units)}{guess}")


def _not_negative(number: int, what: str) -> int:
    if number < 0:
        raise UsageError(f"{number} is no {what}: it is below zero")
    return number
