"""Sizes, durations, times, rates and counts: constants, and how they are shown."""

from collections.abc import Sequence
from datetime import UTC, datetime

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB
PIB = 1024 * TIB

MINUTE_S = 60
HOUR_S = 60 * MINUTE_S
DAY_S = 24 * HOUR_S
YEAR_S = 365 * DAY_S
NS_PER_S = 1_000_000_000

_SIZE_STEPS = ((PIB, "PiB"), (TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_LAST_S = 253402300799.0
"""The end of the year 9999, the last year of `datetime`."""

_DURATION_STEPS = ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min"), (1, "s"))


def format_size(size_bytes: float) -> str:
    """Show bytes with one decimal in binary units: `1536` becomes `1.5 KiB`."""
    for step, name in _SIZE_STEPS:
        if abs(size_bytes) >= step:
            return f"{size_bytes / step:.1f} {name}"
    return f"{size_bytes:.0f} B"


def format_rate(rate_bytes_per_s: float) -> str:
    """Show a byte rate: `1048576` becomes `1.0 MiB/s`."""
    return f"{format_size(rate_bytes_per_s)}/s"


def format_duration(duration_s: float) -> str:
    """Show seconds in the two largest units that are not zero: `93784` becomes `1 d 2 h`."""
    if duration_s < 10:
        return f"{duration_s:.1f} s"
    left = round(duration_s)
    shown: list[str] = []
    for step, name in _DURATION_STEPS:
        count, left = divmod(left, step)
        if count:
            shown.append(f"{count} {name}")
        if len(shown) == 2 or (shown and not count):
            break
    return " ".join(shown)


def local_datetime(at_s: float) -> datetime | None:
    """A time with the time zone of this machine (`TZ`, otherwise /etc/localtime); None beyond the years of `datetime`."""
    if not -_LAST_S / 8 < at_s < _LAST_S - DAY_S:
        return None
    return datetime.fromtimestamp(at_s, UTC).astimezone()


def format_time(at_s: float, form: str = "%Y-%m-%d %H:%M %Z") -> str:
    """Show a time in the time zone of this machine: `2026-11-20 23:30 CET`."""
    found = local_datetime(at_s)
    return "beyond all dates" if found is None else found.strftime(form)


def format_count(count: int) -> str:
    """Show a count with thousands separated: `1234567` becomes `1,234,567`."""
    return f"{count:,}"


def several(count: int, one: str, many: str = "") -> str:
    """A count with its noun: `1 file`, `2,000 files`."""
    return f"{format_count(count)} {one if count == 1 else many or one + 's'}"


def first_of(names: Sequence[str], most: int = 5, *, of: int = 0, mark: str = ",") -> str:
    """The first names, and how many more there are (`of`: in all, if the names were cut before): `a, b, and 3 more`."""
    left = max(of, len(names)) - most
    return f"{mark} ".join(names[:most]) + (f"{mark} and {format_count(left)} more" if left > 0 else "")


def by_numbers(numbers: Sequence[int], one: str, many: str = "") -> str:
    """Things by their numbers: `batch 3`, `batches 1, 2, 3`."""
    return f"{one if len(numbers) == 1 else many or one + 's'} {', '.join(map(str, numbers))}"


def format_factor(factor: float) -> str:
    """A ratio to three digits: `0.85`, `2.24`, `17.4`, `103`."""
    decimals = 2 if factor < 10 else 1 if factor < 100 else 0
    return f"{factor:,.{decimals}f}"


def format_age(age_s: float) -> str:
    """An age in one unit: `3 h`, `34 d`, `3.7 y`."""
    if age_s >= 2 * YEAR_S:
        return f"{age_s / YEAR_S:.1f} y"
    return f"{age_s / DAY_S:.0f} d" if age_s >= 2 * DAY_S else format_duration(age_s)


def percent_of(part: int, whole: int) -> float | None:
    """The share in percent, to one digit; None if the whole is 0. Rounded down: only the whole gives 100 %."""
    return part * 1000 // whole / 10 if whole > 0 else None
