"""Documents on the terminal, as rich tables. Cells are `Text`, never markup, so names cannot contain styles."""

import re
from collections.abc import Iterator, Sequence
from typing import assert_never

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from migrator.render import document as render_document
from migrator.render.charts import sparkline, timeline_lines

_BAR_WIDTH = 30
_BAR_LEAST_WIDTH = 8
_BAR_LABEL_WIDTH = 10
_INDENT = 4

_WIDE_LEAST = 24
"""The least width at which a column of sentences or paths is readable."""


def print_document(console: Console, document: render_document.Document) -> None:
    """Write a document to a terminal or a file."""
    for part in renderables(document):
        # A command that is longer than a line is not cut off.
        console.print(part, crop=False)


def renderables(document: render_document.Document) -> list[RenderableType]:
    """A document as renderables for a rich console, in order."""
    parts: list[RenderableType] = [Text(f"{document.title}, {document.subtitle}".rstrip(", "), style="bold")]
    parts.extend(Group(*_section(section)) for section in document.sections)
    return parts


def _section(section: render_document.Section) -> Iterator[RenderableType]:
    yield Rule(Text(section.title), align="left")
    for block in section.blocks:
        yield from _block(block)


def _block(block: render_document.Block) -> Iterator[RenderableType]:
    match block:
        case render_document.Paragraph():
            yield _Sentences(block.text, "bold red" if block.alert else "")
        case render_document.NamedValues():
            grid = RichTable.grid(padding=(0, 2))
            grid.add_column(style="dim", no_wrap=True)
            grid.add_column(overflow="fold")
            for name, value in block.pairs:
                grid.add_row(Text(name), Text(value))
            yield Padding(grid, (0, 0, 0, 1))
        case render_document.Bar():
            yield Padding(_FittedBar(block), (0, 0, 0, 1))
        case render_document.Table():
            yield from _table(block)
        case render_document.Chart():
            yield Text(block.title, style="bold")
            yield Text(sparkline([value for _, value in block.points]))
            yield Text(block.summary, overflow="fold")
        case render_document.Timeline():
            yield Text(block.title, style="bold")
            yield from (Text(line, no_wrap=True, overflow="ellipsis") for line in timeline_lines(block))
            yield Text(block.summary, overflow="fold")
        case _:
            assert_never(block)


def _table(block: render_document.Table) -> Iterator[RenderableType]:
    if block.title:
        yield Text(block.title, style="bold")
    yield _Fitted(block)
    if block.note:
        yield _Sentences(block.note, "dim")


_WORD = re.compile(r"(?:`[^`\n]*`|[^\s`]|`)+")


class _Sentences:
    """Text in lines of the available width. A command in backquotes is not broken, so that it can be copied, also one that is
    longer than a line; other words that are too long are folded.
    """

    def __init__(self, text: str, style: str) -> None:
        self._text = text
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        for paragraph in self._text.split("\n"):
            line = ""
            for word in _WORD.findall(paragraph):
                if line and cell_len(line) + 1 + cell_len(word) > options.max_width:
                    yield self._line(line)
                    line = ""
                line = f"{line} {word}" if line else word
            yield self._line(line)

    def _line(self, line: str) -> Text:
        if "`" in line:
            return Text(line, style=self._style, no_wrap=True, overflow="ignore")
        return Text(line, style=self._style, overflow="fold")


class _FittedBar:
    """A bar with its text on one line; the bar is shorter on a narrow terminal."""

    def __init__(self, bar: render_document.Bar) -> None:
        self._bar = bar

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        label_width = _BAR_LABEL_WIDTH if self._bar.label else 0
        left = options.max_width - label_width - cell_len(self._bar.text) - 2
        width = min(max(left, _BAR_LEAST_WIDTH), _BAR_WIDTH)
        grid = RichTable.grid(padding=(0, 1))
        if self._bar.label:
            grid.add_column(width=label_width)
        grid.add_column(width=width)
        grid.add_column()
        bar = ProgressBar(total=1.0, completed=self._bar.share, width=width)
        label = [Text(self._bar.label)] if self._bar.label else []
        grid.add_row(*label, bar, Text(self._bar.text))
        yield grid


class _Fitted:
    """A table in the available width: in columns if figures fit unbroken and sentences stay readable, otherwise row by
    row with a name before each value.
    """

    def __init__(self, table: render_document.Table) -> None:
        self._table = table
        self._rows = tuple(render_document.shown_rows(table, render_document.LINE_CHARACTERS))

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        widths = column_widths(self._table.columns, self._rows, options.max_width)
        if widths is None:
            yield from _stacked(self._table.columns, self._rows, options.max_width)
        else:
            yield _grid(self._table.columns, self._rows, widths)


def column_widths(
    columns: Sequence[render_document.Column], rows: Sequence[tuple[str, ...]], width: int
) -> list[int] | None:
    """The width of each column; None if figures or short text would have to be broken.

    Only wide columns get less than they need, but at least 24 cells; column names are folded first.
    """
    least, wanted = [], []
    for number, column in enumerate(columns):
        content = max((cell_len(row[number]) for row in rows), default=0)
        name = max((cell_len(word) for word in column.name.split()), default=0)
        least.append(max(name, min(content, _WIDE_LEAST) if column.wide else content))
        wanted.append(max(content, cell_len(column.name)))
    # Between two columns are one blank of padding and one of the box; each outer side has one of the box.
    spare = width - sum(least) - 2 * len(columns)
    if spare < 0:
        return None
    widths = list(least)
    # Columns that need least are served first; the rest is left for the others.
    in_need = sorted(range(len(columns)), key=lambda number: wanted[number] - least[number])
    for served, number in enumerate(in_need):
        more = min(wanted[number] - least[number], spare // (len(columns) - served))
        widths[number] += more
        spare -= more
    return widths


def _grid(
    columns: Sequence[render_document.Column], rows: Sequence[tuple[str, ...]], widths: Sequence[int]
) -> RichTable:
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column, width in zip(columns, widths, strict=True):
        grid.add_column(Text(column.name), justify="right" if column.right else "left", overflow="fold", width=width)
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    return grid


def _stacked(
    columns: Sequence[render_document.Column], rows: Sequence[tuple[str, ...]], width: int
) -> Iterator[RenderableType]:
    for row in rows:
        named = [
            ("" if number == 0 and not column.right else column.name.removesuffix(", %"), cell)
            for number, (column, cell) in enumerate(zip(columns, row, strict=True))
            if cell not in ("", render_document.NONE)
        ]
        for number, line in enumerate(_filled(named, max(width - _INDENT, 1))):
            yield Padding(line, (0, 0, 0, 1 if number == 0 else _INDENT))
    yield Text("")


def _filled(named: Sequence[tuple[str, str]], width: int) -> Iterator[Text]:
    """Names and values, as many on a line as fit; a pair is broken only if it is longer than a line."""
    line = Text(overflow="fold")
    for number, (name, value) in enumerate(named):
        pair = Text.assemble((name, "dim"), " " if name else "", (value, "bold" if number == 0 else ""))
        pair.append("," if number < len(named) - 1 else "")
        if line.cell_len and line.cell_len + 1 + pair.cell_len > width:
            yield line
            line = Text(overflow="fold")
        if line.cell_len:
            line.append(" ")
        line.append_text(pair)
    if line.cell_len:
        yield line
