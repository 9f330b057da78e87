"""What the governor allows, and what people have set."""

from collections.abc import Iterator

from migrator.adapters.output.document import Block, Document, Section, clean, facts, paragraph, table, text
from migrator.adapters.output.wording import NONE, when
from migrator.domain.governing import Gate, GoverningFacts, GovernorRecord, Limits
from migrator.domain.units import format_rate, several
from migrator.domain.windows import WindowStanding


def governing_document(governing: GoverningFacts) -> Document:
    """The answer to `tune`, `pause` and `resume`."""
    blocks = (*governing_blocks(governing), *_limits(governing), *_windows(governing))
    return Document(title="Limits", subtitle="", sections=(Section(title="What is in force", blocks=blocks),))


def governing_blocks(governing: GoverningFacts) -> Iterator[Block]:
    """What people have set, and what the run at work is allowed."""
    hold, tuned, record = governing.controls.hold, governing.controls.tuned, governing.governor
    if hold is not None:
        why = f": {clean(hold.reason)}" if hold.reason else ""
        yield paragraph(f"Paused by {clean(hold.by)} since {when(hold.since_s)}{why}. No chunk is begun.")
    if record is not None and governing.at_work:
        if record.gate is not Gate.PAUSED:
            yield paragraph(_now(record))
        elif hold is None:
            yield paragraph("It was paused; the run goes on within seconds.")
        if record.gate is Gate.OPEN and len(record.hosts) > 1:
            loads = {one.host: one.load for one in governing.loads}
            yield facts([(clean(host), _on_host(streams, loads.get(host))) for host, streams in record.hosts])
    if tuned is not None:
        yield paragraph(f"Tuned by {clean(tuned.by)} since {when(tuned.since_s)}.")


def is_told(governing: GoverningFacts) -> bool:
    """Whether there is anything to say."""
    return governing.at_work or governing.controls.hold is not None or governing.controls.tuned is not None


def _now(record: GovernorRecord) -> str:
    reason = clean(record.reason)
    if record.gate is Gate.OUTSIDE_WINDOWS:
        return f"No chunk is begun until {when(record.until_s)}: {reason}."
    limit = record.bwlimit_bytes_per_s
    together = "" if limit is None else f", {format_rate(limit)} together"
    return f"{several(record.streams, 'stream')} of {record.most} may be at work{together}: {reason}."


def _limits(governing: GoverningFacts) -> Iterator[Block]:
    given = governing.given or Limits()
    tuned = governing.controls.tuned.limits if governing.controls.tuned is not None else Limits()
    rows = [
        ("streams on each host", _number(given.jobs), _number(tuned.jobs)),
        ("all streams together", _rate(given.bwlimit_bytes_per_s), _rate(tuned.bwlimit_bytes_per_s)),
        ("latency of small operations", _milliseconds(given.max_latency_s), _milliseconds(tuned.max_latency_s)),
        ("load of a host", _number(given.max_load), _number(tuned.max_load)),
    ]
    yield table("", [text("limit"), text("site.toml"), text("tuned")], rows)


def _windows(governing: GoverningFacts) -> Iterator[Block]:
    """Which windows hold, and when the next begins."""
    if governing.windows is None:
        return
    if not governing.windows:
        yield paragraph("There are no windows: chunks may be begun at any time.")
        return
    columns = [text("window"), text("streams on each host"), text("all streams together"), text("now")]
    rows = [
        (window.when, _number(window.jobs), _rate(window.bwlimit_bytes_per_s), _standing(window))
        for window in governing.windows
    ]
    yield table("Windows", columns, rows)
    if not any(window.holds for window in governing.windows):
        begins = [(one.changes_at_s, one.changes) for one in governing.windows if one.changes_at_s is not None]
        if begins:
            yield paragraph(f"Outside of all windows: no chunk is begun before {min(begins)[1]}.")


def _standing(window: WindowStanding) -> str:
    if window.changes_at_s is None:
        return "holds at all times" if window.holds else "never holds"
    return f"{'holds until' if window.holds else 'begins'} {window.changes}"


def _on_host(streams: int, load: float | None) -> str:
    return several(streams, "stream") + ("" if load is None else f", load {load:.1f}")


def _number(number: float | None) -> str:
    return NONE if number is None else f"{number:g}"


def _rate(bytes_per_s: int | None) -> str:
    return NONE if bytes_per_s is None else format_rate(bytes_per_s)


def _milliseconds(duration_s: float | None) -> str:
    return NONE if duration_s is None else f"{1000.0 * duration_s:,.0f} ms"
