"""Delta passes, streams and limits for display."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from migrator.core.units import format_count, format_duration, format_rate, format_size, several
from migrator.core.windows import WindowStanding
from migrator.render import document as doc
from migrator.render.document import NONE, Block, clean, figure, paragraph, text, when
from migrator.transfer.delta.model import ChangeKind, Changes
from migrator.transfer.model import SizeClass, StreamSum
from migrator.transfer.model_governor import Gate, GoverningFacts, GovernorRecord, Limits
from migrator.transfer.model_runs import DeltaSummary

T = TypeVar("T")
# The delta passes of one run over a batch.


def _count(changes: Changes | None, *kinds: ChangeKind) -> str:
    return NONE if changes is None else format_count(sum(changes.tally(kind).paths for kind in kinds))


def _shown(value: T | None, words: Callable[[T], str]) -> str:
    return NONE if value is None else words(value)


_DELTA: doc.Cells[DeltaSummary] = (
    (text("pass"), lambda one: str(one.number)),
    (figure("new"), lambda one: _count(one.changes, ChangeKind.NEW)),
    (
        figure("changed"),
        lambda one: _count(one.changes, ChangeKind.GROWN, ChangeKind.REWRITTEN, ChangeKind.ATTRIBUTES),
    ),
    (figure("renamed"), lambda one: _count(one.changes, ChangeKind.RENAMED)),
    (figure("vanished"), lambda one: _count(one.changes, ChangeKind.VANISHED)),
    (figure("sent to be sure"), lambda one: _count(one.changes, ChangeKind.UNSETTLED)),
    (figure("files sent"), lambda one: format_count(one.files)),
    (figure("bytes sent"), lambda one: format_size(one.size_bytes)),
    (figure("scan and comparison"), lambda one: format_duration(one.scan_s)),
    (figure("pass took"), lambda one: format_duration(one.elapsed_s)),
    (figure("freeze now"), lambda one: _shown(one.freeze_s, format_duration)),
)


def delta_blocks(deltas: Sequence[DeltaSummary]) -> Iterator[Block]:
    """The changes, the data sent by each pass, and the decision after the last one; empty without passes."""
    if deltas:
        yield doc.records("Delta passes", _DELTA, deltas)
    for delta in deltas:
        if delta.sentence:
            yield paragraph(delta.sentence[:1].upper() + delta.sentence[1:])


def describe_follow_up(at_most: int) -> str:
    """The delta passes that a dry run does not examine."""
    return (
        f"After that, {several(at_most, 'delta pass', 'delta passes')} at most would follow, for what users change. They are "
        "not previewed: each begins with a scan of the source."
    )


# The allowance of the governor, and the operators' settings.


def governing_document(governing: GoverningFacts) -> doc.Document:
    """The answer to `tune`, `pause` and `resume`."""
    blocks = (*governing_blocks(governing), *_limits(governing), *_windows(governing))
    return doc.page("Limits", ("Limits in force", blocks))


def governing_blocks(governing: GoverningFacts) -> Iterator[Block]:
    """The operators' settings, and the allowance of the governor in the present run."""
    hold, tuned, record = governing.controls.hold, governing.controls.tuned, governing.governor
    if hold is not None:
        why = f": {clean(hold.reason)}" if hold.reason else ""
        yield paragraph(f"Paused by {clean(hold.by)} since {when(hold.since_s)}{why}. No chunk is begun.")
    if record is not None and governing.at_work:
        if record.gate is not Gate.PAUSED:
            yield paragraph(_now(record))
        elif hold is None:
            yield paragraph("It was paused; the run resumes within seconds.")
        if record.gate is Gate.OPEN and len(record.hosts) > 1:
            loads = {one.host: one.load for one in governing.loads}
            yield doc.facts([(clean(host), _on_host(streams, loads.get(host))) for host, streams in record.hosts])
    if tuned is not None:
        yield paragraph(f"Tuned by {clean(tuned.by)} since {when(tuned.since_s)}.")


def _now(record: GovernorRecord) -> str:
    reason = clean(record.reason)
    if record.gate is Gate.OUTSIDE_WINDOWS:
        return f"No chunk is begun until {when(record.until_s)}: {reason}."
    limit = record.bwlimit_bytes_per_s
    together = "" if limit is None else f", {format_rate(limit)} together"
    return f"{several(record.streams, 'stream')} of {record.most} may run{together}: {reason}."


def _limits(governing: GoverningFacts) -> Iterator[Block]:
    given = governing.given or Limits()
    tuned = governing.controls.tuned.limits if governing.controls.tuned is not None else Limits()
    rows = [
        ("streams on each host", *(_shown(one.jobs, "{:g}".format) for one in (given, tuned))),
        ("all streams together", *(_shown(one.bwlimit_bytes_per_s, format_rate) for one in (given, tuned))),
        (
            "latency of small operations",
            *(_shown(one.max_latency_s, lambda limit_s: f"{1000.0 * limit_s:,.0f} ms") for one in (given, tuned)),
        ),
        ("load of a host", *(_shown(one.max_load, "{:g}".format) for one in (given, tuned))),
    ]
    yield doc.table("", [text("limit"), text("site.toml"), text("tuned")], rows)


def _windows(governing: GoverningFacts) -> Iterator[Block]:
    """The open windows, and the start of the next one."""
    if governing.windows is None:
        return
    if not governing.windows:
        yield paragraph("There are no windows: chunks may be begun at any time.")
        return
    yield doc.records("Windows", _WINDOW, governing.windows)
    if not any(window.holds for window in governing.windows):
        begins = [(one.changes_at_s, one.changes) for one in governing.windows if one.changes_at_s is not None]
        if begins:
            yield paragraph(f"Outside of all windows: no chunk is begun before {min(begins)[1]}.")


def _standing(window: WindowStanding) -> str:
    if window.changes_at_s is None:
        return "holds at all times" if window.holds else "never holds"
    return f"{'holds until' if window.holds else 'begins'} {window.changes}"


_WINDOW: doc.Cells[WindowStanding] = (
    (text("window"), lambda window: window.when),
    (text("streams on each host"), lambda window: _shown(window.jobs, "{:g}".format)),
    (text("all streams together"), lambda window: _shown(window.bwlimit_bytes_per_s, format_rate)),
    (text("now"), _standing),
)


def _on_host(streams: int, load: float | None) -> str:
    return several(streams, "stream") + ("" if load is None else f", load {load:.1f}")


# Copies by streams, grouped by size of files, host, brick and engine.


_ROWS = 40
"""Maximum rows of a report; its JSON has all bricks."""


def stream_blocks(sums: Sequence[StreamSum]) -> Iterator[Block]:
    """One table, or nothing without sums."""
    cells: doc.Cells[tuple[str, str, StreamSum]] = (
        (text("by"), lambda row: row[0]),
        (text("which"), lambda row: clean(row[1])),
        (figure("files"), lambda row: format_count(row[2].files)),
        (figure("bytes"), lambda row: format_size(row[2].size_bytes)),
        (figure("a stream"), lambda row: format_rate(row[2].bytes_per_s)),
        (figure("files/s a stream"), lambda row: f"{row[2].files_per_s:,.1f}"),
    )
    rows = [(by, name, one) for by in BY for name, one in added_up(sums, by)[:_ROWS]]
    if rows:
        yield doc.records("Files that streams copied", cells, rows, note="Chunks that arrived, of all plans.")


BY: Mapping[str, Callable[[StreamSum], str]] = {
    "size of files": lambda one: one.size_class.value,
    "host": lambda one: one.host,
    "brick": lambda one: one.brick or "the mount",
    "engine": lambda one: one.engine,
}
"""The properties that sums can be grouped by."""


def added_up(sums: Sequence[StreamSum], by: str) -> Sequence[tuple[str, StreamSum]]:
    """The sums for each value of one property; sizes in ascending order, everything else by name."""
    name_of, found = BY[by], dict[str, StreamSum]()
    for one in sums:
        name = name_of(one)
        so_far = found.get(name)
        found[name] = one if so_far is None else _together(so_far, one)
    order = [size_class.value for size_class in SizeClass]
    return sorted(found.items(), key=lambda item: (order.index(item[0]) if item[0] in order else 0, item[0]))


def _together(one: StreamSum, other: StreamSum) -> StreamSum:
    return replace(
        one,
        attempts=one.attempts + other.attempts,
        files=one.files + other.files,
        size_bytes=one.size_bytes + other.size_bytes,
        stream_s=one.stream_s + other.stream_s,
    )
