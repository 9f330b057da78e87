"""Documents as data, and the wording of times, shares and counts.

All text in a document is plain and safe to show: constructors escape unprintable characters, renderers escape markup.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.units import format_size, format_time

NONE = "\N{EN DASH}"
"""Shown instead of an unknown or missing figure."""

LINE_CHARACTERS = 80
"""The most characters of a path in a table on a terminal, and in a line of progress."""

FILE_CHARACTERS = 200
"""The most characters of a path in a table of a report file."""

_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
_TEXT_WORDS = 5

_Record = TypeVar("_Record")


def known(value: _Record | None, shown: Callable[[_Record], str]) -> str:
    """A value as shown, or `NONE` if it is unknown."""
    return NONE if value is None else shown(value)


def when(at_s: float | None) -> str:
    """A time in the time zone of this machine, to the minute: `2026-11-20 23:30 CET`."""
    return known(at_s, format_time)


def percent(share: float | None) -> str:
    """A share given in percent: `62.3 %`."""
    return NONE if share is None else f"{share:.1f} %"


def share(part: int, whole: int) -> str:
    """A part of a whole in percent; `NONE` of nothing."""
    return percent(100 * part / whole if whole else None)


def format_verified_share(percent_content: float | None) -> str:
    """`verified`, with the share of the compared content if that is not all."""
    if percent_content is None or percent_content >= 100.0:
        return "verified"
    if percent_content <= 0.0:
        return "verified (attributes only)"
    return f"verified (content of {percent(percent_content)})"


def yes(value: bool) -> str:
    """A flag in words."""
    return "yes" if value else "no"


def shortened(text: str, most: int) -> str:
    """Text that may contain paths, for tables and lines. Every word of more than `most` characters is cut in its
    middle, and so is a text of more than five times that length.
    """
    if len(text) <= most:
        return text
    words = re.sub(rf"[^ ]{{{most + 1},}}", lambda word: cut(word[0], most), text)
    return cut(words, most * _TEXT_WORDS)


def cut(text: str, most: int) -> str:
    """Text of at most so many characters: its middle is left out."""
    if len(text) <= most:
        return text
    kept = most - len(_ELLIPSIS)
    return text[: kept - kept // 2] + _ELLIPSIS + text[len(text) - kept // 2 :]


# --- Documents: sections of paragraphs, facts, tables and charts


def clean(text: str) -> str:
    r"""Text on one line: control characters, terminal escapes, right-to-left marks and invalid UTF-8 become `\xNN`.
    Backslashes stay, because `migrator.core.paths.show` has escaped paths before.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable()
        else "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))
        for character in text
    )


class Column(Struct, frozen=True, kw_only=True):
    """A column. Figures are aligned right; `wide` columns may be folded over several lines.

    `paths`: cells may contain paths of thousands of bytes, which renderers shorten.
    """

    name: str
    right: bool = False
    wide: bool = False
    paths: bool = False


class Table(Struct, frozen=True, kw_only=True):
    """A table with a note below, for example on omitted rows."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


class Paragraph(Struct, frozen=True, kw_only=True):
    """Some sentences; `alert` ones must not be overlooked."""

    text: str
    alert: bool = False


class NamedValues(Struct, frozen=True, kw_only=True):
    """Names with their values."""

    pairs: tuple[tuple[str, str], ...]


class Bar(Struct, frozen=True, kw_only=True):
    """A share from 0 to 1, with the same in words; the label may be empty."""

    label: str
    share: float
    text: str


class ChartLine(Struct, frozen=True, kw_only=True):
    """A further line in a chart."""

    label: str
    points: tuple[tuple[float, float], ...]


class Chart(Struct, frozen=True, kw_only=True):
    """Bytes over time, or numbers of what `counted` names. With `span_s`, points are spans that end at their time;
    otherwise lines join them.

    `limit` is a horizontal line, `series` are more lines, `band` is an area (time, low, high). `summary` describes the
    chart in words.
    """

    title: str
    summary: str
    points: tuple[tuple[float, float], ...]
    span_s: float | None = None
    limit: tuple[str, float] | None = None
    label: str = ""
    series: tuple[ChartLine, ...] = ()
    band: tuple[tuple[float, float, float], ...] = ()
    band_label: str = ""
    counted: str = ""

    def shown(self, value: float) -> str:
        """A value in words."""
        return f"{value:,.0f}" if self.counted else format_size(value)


class SpanStyle(StrEnum):
    """How a span is drawn. `PLAN` is an outline behind the others, `RANGE` a line across them."""

    PLAN = "plan"
    DONE = "done"
    FIRST = "first"
    SECOND = "second"
    THIRD = "third"
    PALE = "pale"
    EXPECTED = "expected"
    RANGE = "range"


class Span(Struct, frozen=True, kw_only=True):
    """A part of a lane. Spans of one style have one label. The end is never before the begin."""

    style: SpanStyle
    label: str
    from_s: float
    to_s: float


class Lane(Struct, frozen=True, kw_only=True):
    """One subject of a timeline, with spans that may overlap."""

    label: str
    spans: tuple[Span, ...]


class LaneGroup(Struct, frozen=True, kw_only=True):
    """Lanes with a heading."""

    title: str
    lanes: tuple[Lane, ...]


class Timeline(Struct, frozen=True, kw_only=True):
    """A Gantt chart with a line for the present. It ends at `until_s`; later ends are cut off in the drawing only."""

    title: str
    summary: str
    now_s: float
    until_s: float
    groups: tuple[LaneGroup, ...]

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(lane for group in self.groups for lane in group.lanes)

    @property
    def styles(self) -> dict[SpanStyle, str]:
        """The styles in use with their labels."""
        labels = {span.style: span.label for lane in self.lanes for span in lane.spans}
        return {style: labels[style] for style in SpanStyle if style in labels}


Block = Paragraph | NamedValues | Bar | Table | Chart | Timeline


class Section(Struct, frozen=True, kw_only=True):
    """A part with a heading. Sections with `first_page` come first, and management can read them alone. Those with
    `overview` follow; all others are details.
    """

    title: str
    blocks: tuple[Block, ...]
    first_page: bool = False
    overview: bool = False


class Document(Struct, frozen=True, kw_only=True):
    """A title and sections."""

    title: str
    subtitle: str
    sections: tuple[Section, ...] = ()


def first_page(document: Document, more: str) -> Document:
    """Only the first page of a document. `more` is the command that shows the rest."""
    shown = [section for section in document.sections if section.first_page]
    if len(shown) < len(document.sections):
        shown[-1] = replace(shown[-1], blocks=(*shown[-1].blocks, paragraph(f"Details: {more}")))
    return replace(document, sections=tuple(shown))


def contents(document: Document) -> tuple[str, ...]:
    """The titles of the sections behind the first page, for a table of contents; empty without a first page."""
    titles = [section.title for section in document.sections if not section.first_page]
    return tuple(titles) if len(titles) < len(document.sections) else ()


def sections(*pairs: tuple[str, Iterable[Block]]) -> Iterator[Section]:
    """Sections of these titles and blocks. Tables without rows are left out, and so are sections without blocks."""
    for title, blocks in pairs:
        shown = tuple(block for block in blocks if not isinstance(block, Table) or block.rows)
        if shown:
            yield Section(title=title, blocks=shown)


def first_sections(*pairs: tuple[str, Iterable[Block]]) -> Iterator[Section]:
    """The same, on the first page."""
    return (replace(section, first_page=True) for section in sections(*pairs))


def overview_sections(*pairs: tuple[str, Iterable[Block]]) -> Iterator[Section]:
    """The same, between the first page and the details."""
    return (replace(section, overview=True) for section in sections(*pairs))


def page(title: str, *parts: tuple[str, Iterable[Block]], subtitle: str = "") -> Document:
    """A document of `sections`, with a cleaned title and subtitle."""
    return Document(title=clean(title), subtitle=clean(subtitle), sections=tuple(sections(*parts)))


def paragraph(text: str, *, alert: bool = False) -> Paragraph:
    """A paragraph of cleaned text."""
    return Paragraph(text=clean(text), alert=alert)


def bars(
    title: str,
    summary: str,
    groups: Iterable[tuple[str, Sequence[tuple[str, float, str]]]],
    *,
    scale: float | None = None,
) -> Iterator[Block]:
    """Groups of bars, each with a label, a value, and the value in words. A full bar is `scale`, or the highest of its group."""
    yield paragraph(f"{title}. {summary}")
    for group, lines in groups:
        yield paragraph(group)
        full = max((value for _, value, _ in lines), default=0.0) if scale is None else scale
        for label, value, words in lines:
            yield Bar(label="", share=value / full if full > 0 else 0.0, text=clean(f"{label}: {words}"))


def facts(pairs: Iterable[tuple[str, str]]) -> NamedValues:
    """Facts with cleaned values."""
    return NamedValues(pairs=tuple((name, clean(value)) for name, value in pairs))


def table(
    title: str, columns: Sequence[Column], rows: Iterable[Sequence[str]], *, limit: int | None = None, note: str = ""
) -> Table:
    """A table with cleaned cells and at most `limit` rows; its note counts omitted rows."""
    every = [tuple(clean(cell) for cell in row) for row in rows]
    shown = every if limit is None else every[:limit]
    left_out = len(every) - len(shown)
    notes = [clean(note)] if note else []
    if left_out:
        notes.append(f"{left_out:,} more are not shown; --json has them all.")
    return Table(title=clean(title), columns=tuple(columns), rows=tuple(shown), note=" ".join(notes))


Cells = Sequence[tuple[Column, Callable[[_Record], str]]]
"""The columns of a table over records, each with a function that returns the cell of a record."""


def records(
    title: str, cells: Cells[_Record], found: Iterable[_Record], *, limit: int | None = None, note: str = ""
) -> Table:
    """A table with a row for each record."""
    rows = [[shown(record) for _, shown in cells] for record in found]
    return table(title, [column for column, _ in cells], rows, limit=limit, note=note)


def figures(drawn: Chart | Timeline) -> Table:
    """The figures of a drawing."""
    match drawn:
        case Chart():
            return _figures_of_chart(drawn)
        case Timeline():
            columns = [paths("subject"), text("part"), text("from"), text("to")]
            rows = [
                (lane.label, span.label, when(span.from_s), when(span.to_s))
                for lane in drawn.lanes
                for span in lane.spans
            ]
            return table(f"{drawn.title}: figures", columns, rows)


def _figures_of_chart(chart: Chart) -> Table:
    lines = [(chart.label or "value", dict(chart.points)), *((one.label, dict(one.points)) for one in chart.series)]
    if chart.band:
        lines.append((f"{chart.band_label}, from", {at_s: least for at_s, least, _ in chart.band}))
        lines.append((f"{chart.band_label}, to", {at_s: most for at_s, _, most in chart.band}))
    times = sorted({at_s for _, values in lines for at_s in values})
    columns = [text("time" if chart.span_s is None else "until"), *(figure(label) for label, _ in lines)]
    rows = [(when(at_s), *(known(values.get(at_s), chart.shown) for _, values in lines)) for at_s in times]
    note = "" if chart.limit is None else f"{chart.limit[0]}: {chart.shown(chart.limit[1])}"
    return table(f"{chart.title}: figures", columns, rows, note=note)


def figure(name: str) -> Column:
    """A column of figures."""
    return Column(name=name, right=True)


def text(name: str) -> Column:
    """A column of short text."""
    return Column(name=name)


def wide(name: str) -> Column:
    """A column of text that may be long."""
    return Column(name=name, wide=True)


def paths(name: str) -> Column:
    """A column of paths, or of sentences that contain paths."""
    return Column(name=name, wide=True, paths=True)


def shown_rows(table: Table, most: int) -> Iterator[tuple[str, ...]]:
    """The rows of a table with paths shortened to `most` characters."""
    for row in table.rows:
        yield tuple(
            shortened(cell, most) if column.paths else cell for column, cell in zip(table.columns, row, strict=True)
        )
