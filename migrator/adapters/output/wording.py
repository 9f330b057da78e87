"""How times, shares and counts are worded, everywhere the same."""

from datetime import UTC, datetime

NONE = "\N{EN DASH}"
"""What stands where there is no figure."""

_LAST_S = 253402300799.0
"""The end of the year 9999, the last that a date can hold."""


def when(at_s: float | None) -> str:
    """A time in UTC, to the minute: `2026-11-20 23:30 UTC`."""
    if at_s is None:
        return NONE
    if not -_LAST_S / 8 < at_s < _LAST_S:
        return "beyond all dates"
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def percent(share: float | None) -> str:
    """A share in percent, given as percent: `62.3 %`."""
    return NONE if share is None else f"{share:.1f} %"


def several(count: int, one: str, many: str = "") -> str:
    """A count with its noun: `1 file`, `2,000 files`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def yes(value: bool) -> str:
    """A flag in words."""
    return "yes" if value else "no"
