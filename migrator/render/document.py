"""A document as data, and the wording of times, shares and counts. All text in it is safe to show."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

# ---
# How times, shares and counts are worded, everywhere the same.


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


# ---
# A document as data: sections of paragraphs, facts, tables and charts. All text in it is plain and safe to show:
# whatever is no printable character has been escaped when it came in; markup is the renderers' business.


def clean(text: str) -> str:
    r"""Text for people on one line: control characters, terminal escapes, right-to-left marks and what UTF-8 cannot
    hold become `\xNN`. A backslash stays: paths were escaped by `migrator.core.paths.show` already.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable()
        else "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))
        for character in text
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: figures stand right; `wide` ones may be folded over several lines.

    `paths`: there may be users' paths in it, of thousands of bytes, which renderers shorten.
    """

    name: str
    right: bool = False
    wide: bool = False
    paths: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; `note` stands below it and says, for example, what was left out."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """Some sentences; `alert` ones must not be overlooked."""

    text: str
    alert: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names with their values."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A share of a whole, from 0 to 1, in words beside it."""

    label: str
    share: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A further line in a chart."""

    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Values over time. Points with a `span_s` are spans that end at their time; otherwise they are joined by lines.

    `limit` is drawn as a line across, `series` are further lines, `band` is an area (time, low, high). The values are
    bytes, bytes per second (`is_rate`), or what `counts` names. `summary` says in words what the chart shows.
    """

    title: str
    summary: str
    points: tuple[tuple[float, float], ...]
    is_rate: bool
    span_s: float | None = None
    limit: tuple[str, float] | None = None
    label: str = ""
    series: tuple[Series, ...] = ()
    band: tuple[tuple[float, float, float], ...] = ()
    band_label: str = ""
    counts: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarLine:
    """One bar: a value with the span that it was measured in (None: not known), and both in words."""

    label: str
    value: float
    text: str
    span: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BarChart:
    """Groups of bars, each group to a scale of its own, or all to one (`common`). `summary` says in words what the chart shows.

    `marked` is a value with its words that a line stands for in every group, where there is one scale.
    """

    title: str
    summary: str
    groups: tuple[tuple[str, tuple[BarLine, ...]], ...]
    common: bool = False
    marked: tuple[str, float] | None = None


Block = Paragraph | Facts | Bar | Table | Chart | BarChart


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part with a heading."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The whole."""

    title: str
    subtitle: str
    sections: tuple[Section, ...] = field(default=())


def paragraph(text: str, *, alert: bool = False) -> Paragraph:
    """A paragraph of cleaned text."""
    return Paragraph(text=clean(text), alert=alert)


def facts(pairs: Iterable[tuple[str, str]]) -> Facts:
    """Facts with cleaned values."""
    return Facts(pairs=tuple((name, clean(value)) for name, value in pairs))


def table(
    title: str, columns: Sequence[Column], rows: Iterable[Sequence[str]], *, limit: int | None = None, note: str = ""
) -> Table:
    """A table with cleaned cells, of at most `limit` rows; what is left out is said in its note."""
    every = [tuple(clean(cell) for cell in row) for row in rows]
    shown = every if limit is None else every[:limit]
    left_out = len(every) - len(shown)
    notes = [clean(note)] if note else []
    if left_out:
        notes.append(f"{left_out:,} more are not shown; --json has them all.")
    return Table(title=clean(title), columns=tuple(columns), rows=tuple(shown), note=" ".join(notes))


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
    """A column of users' paths, or of sentences with such paths in them: long ones are shortened."""
    return Column(name=name, wide=True, paths=True)


def cells(table: Table, most: int) -> Iterator[tuple[str, ...]]:
    """The rows of a table with their paths shortened to so many characters."""
    for row in table.rows:
        yield tuple(
            shortened(cell, most) if column.paths else cell for column, cell in zip(table.columns, row, strict=True)
        )
