"""Calendars as text (RFC 5545). Pure."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from math import ceil

from migrator.core.units import MINUTE_S
from migrator.notices.model import CalendarEvent

_LINE_BYTES = 75
"""The most octets of a line without its end; a space of a continued line counts."""


def to_calendar(events: Iterable[CalendarEvent]) -> bytes:
    """A calendar in UTF-8. It needs at least one event: the standard has no empty calendar. Texts are on one line."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//migrator//cutovers//EN", "METHOD:PUBLISH"]
    for event in events:
        lines += _event(event)
    lines.append("END:VCALENDAR")
    return b"".join(part + b"\r\n" for line in lines for part in _folded(line.encode("utf-8")))


def _event(event: CalendarEvent) -> Iterator[str]:
    yield "BEGIN:VEVENT"
    yield f"UID:{event.uid}"
    yield f"SEQUENCE:{event.sequence}"
    yield f"DTSTAMP:{_time(event.stamp_at_s)}"
    yield f"DTSTART:{_time(event.begins_at_s)}"
    if event.duration_s is not None:
        yield f"DURATION:PT{max(ceil(event.duration_s / MINUTE_S), 1)}M"
    yield f"SUMMARY:{_text(event.summary)}"
    yield f"DESCRIPTION:{_text(event.description)}"
    yield "STATUS:CONFIRMED"
    yield "END:VEVENT"


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y%m%dT%H%M%SZ")


def _text(text: str) -> str:
    for special in ("\\", ";", ","):
        text = text.replace(special, f"\\{special}")
    return text


def _folded(line: bytes) -> Iterator[bytes]:
    """The parts of a line; none ends within a character."""
    first = True
    while line:
        end = min(len(line), _LINE_BYTES if first else _LINE_BYTES - 1)
        while end < len(line) and line[end] & 0xC0 == 0x80:
            end -= 1
        yield line[:end] if first else b" " + line[:end]
        line, first = line[end:], False
