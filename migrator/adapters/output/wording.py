"""How times, shares and counts are worded, everywhere the same."""

import re
from datetime import UTC, datetime

NONE = "\N{EN DASH}"
"""What stands where there is no figure."""

LINE_CHARACTERS = 80
"""How much of a path stands in a table on a terminal, and in a line of progress."""

FILE_CHARACTERS = 200
"""How much of a path stands in a table of a report that is a file."""

_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
_TEXT_WORDS = 5

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


def verified_words(percent_content: float | None) -> str:
    """`verified`, and of how much the content was compared where that is not all."""
    if percent_content is None or percent_content >= 100.0:
        return "verified"
    if percent_content <= 0.0:
        return "verified (attributes only)"
    return f"verified (content of {percent(percent_content)})"


def yes(value: bool) -> str:
    """A flag in words."""
    return "yes" if value else "no"


def shortened(text: str, most: int) -> str:
    """Text with users' paths in it, for tables and lines: every word of more than `most` characters is cut in its
    middle, and so is the whole where many blanks make it more than five times as long.
    """
    if len(text) <= most:
        return text
    words = re.sub(rf"[^ ]{{{most + 1},}}", lambda word: _cut(word[0], most), text)
    return _cut(words, most * _TEXT_WORDS)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    kept = most - len(_ELLIPSIS)
    return text[: kept - kept // 2] + _ELLIPSIS + text[len(text) - kept // 2 :]
