"""Calendars, read back by the rules of RFC 5545."""

import re
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.notices.model import CalendarEvent
from migrator.notices.rules_calendar import to_calendar
from migrator.render.document import clean

AT_S = datetime(2030, 1, 31, 19, tzinfo=UTC).timestamp()
EVENT = CalendarEvent(
    uid="0a1b@migrator",
    sequence=2,
    stamp_at_s=AT_S - 86400,
    begins_at_s=AT_S,
    duration_s=61.0,
    summary="gl: alice moves",
    description="From here to there.",
)


def read(content: bytes) -> list[dict[str, str]]:
    """The events of a calendar, unescaped. Whatever is not as the standard has it fails."""
    assert content.endswith(b"\r\n")
    assert re.search(rb"(?<!\r)\n|\r(?!\n)", content) is None
    lines = content[:-2].split(b"\r\n")
    for line in lines:
        assert 0 < len(line) <= 75
        line.decode("utf-8")  # no line ends within a character
    properties: list[tuple[str, str]] = []
    for line in b"\r\n".join(lines).replace(b"\r\n ", b"").split(b"\r\n"):
        found = re.fullmatch(rb"([A-Z-]+):([^\x00-\x08\x0a-\x1f\x7f]*)", line)
        assert found is not None, line
        properties.append((found[1].decode(), found[2].decode("utf-8")))
    assert properties[0] == ("BEGIN", "VCALENDAR")
    assert properties.pop() == ("END", "VCALENDAR")
    head = dict(properties[1 : properties.index(("BEGIN", "VEVENT"))])
    assert {"VERSION": "2.0", "METHOD": "PUBLISH"}.items() <= head.items()
    assert head["PRODID"]
    events: list[dict[str, str]] = []
    for name, value in properties[1 + len(head) :]:
        if name == "BEGIN":
            events.append({})
        elif name in ("SUMMARY", "DESCRIPTION"):
            assert re.fullmatch(r"(?:[^\\;,]|\\[\\;,nN])*", value), value
            events[-1][name] = re.sub(r"\\(.)", r"\1", value)
        elif name != "END":
            assert name not in events[-1]
            events[-1][name] = value
    for event in events:
        assert {"UID", "DTSTAMP", "DTSTART"} <= event.keys()
        for name in ("DTSTAMP", "DTSTART"):
            assert re.fullmatch(r"\d{8}T\d{6}Z", event[name])
    return events


def test_an_event_has_what_calendar_programs_need() -> None:
    assert read(to_calendar([EVENT, replace(EVENT, uid="2@migrator", duration_s=None)])) == [
        {
            "UID": "0a1b@migrator",
            "SEQUENCE": "2",
            "DTSTAMP": "20300130T190000Z",
            "DTSTART": "20300131T190000Z",
            "DURATION": "PT2M",
            "SUMMARY": "gl: alice moves",
            "DESCRIPTION": "From here to there.",
            "STATUS": "CONFIRMED",
        },
        {
            "UID": "2@migrator",
            "SEQUENCE": "2",
            "DTSTAMP": "20300130T190000Z",
            "DTSTART": "20300131T190000Z",
            "SUMMARY": "gl: alice moves",
            "DESCRIPTION": "From here to there.",
            "STATUS": "CONFIRMED",
        },
    ]


@given(st.lists(st.text(max_size=300), min_size=1, max_size=3))
def test_any_text_comes_back(texts: list[str]) -> None:
    """Texts are cleaned before, as all text in documents is."""
    cleaned = [clean(text) for text in texts]
    events = [replace(EVENT, summary=text, description=text * 2) for text in cleaned]
    found: list[Any] = read(to_calendar(events))
    assert [(one["SUMMARY"], one["DESCRIPTION"]) for one in found] == [(text, text * 2) for text in cleaned]
