"""The terminal: documents as rich tables. Cells are `Text`, never markup, so nothing in a name is read as a style."""

from collections.abc import Iterator
from typing import assert_never

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from migrator.adapters.output.chart import sparkline
from migrator.adapters.output.document import Bar, Block, Chart, Document, Facts, Paragraph, Section, Table, cells
from migrator.adapters.output.wording import LINE_CHARACTERS

_BAR_WIDTH = 30


def print_document(console: Console, document: Document) -> None:
    """Write a document to a terminal or a file."""
    for part in renderables(document):
        console.print(part)


def renderables(document: Document) -> list[RenderableType]:
    """A document as things that a rich console prints one after the other."""
    parts: list[RenderableType] = [Text(f"{document.title}, {document.subtitle}".rstrip(", "), style="bold")]
    parts.extend(Group(*_section(section)) for section in document.sections)
    return parts


def _section(section: Section) -> Iterator[RenderableType]:
    yield Rule(Text(section.title), align="left")
    for block in section.blocks:
        yield from _block(block)


def _block(block: Block) -> Iterator[RenderableType]:
    match block:
        case Paragraph():
            yield Text(block.text, style="bold red" if block.alert else "", overflow="fold")
        case Facts():
            grid = RichTable.grid(padding=(0, 2))
            grid.add_column(style="dim", no_wrap=True)
            grid.add_column(overflow="fold")
            for name, value in block.pairs:
                grid.add_row(Text(name), Text(value))
            yield Padding(grid, (0, 0, 0, 1))
        case Bar():
            grid = RichTable.grid(padding=(0, 1))
            grid.add_column(width=10)
            grid.add_column(width=_BAR_WIDTH)
            grid.add_column()
            grid.add_row(
                Text(block.label), ProgressBar(total=1.0, completed=block.share, width=_BAR_WIDTH), Text(block.text)
            )
            yield Padding(grid, (0, 0, 0, 1))
        case Table():
            yield from _table(block)
        case Chart():
            yield Text(block.title, style="bold")
            yield Text(sparkline([value for _, value in block.points]))
            yield Text(block.summary, overflow="fold")
        case _:
            assert_never(block)


def _table(block: Table) -> Iterator[RenderableType]:
    if block.title:
        yield Text(block.title, style="bold")
    grid = RichTable(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
    )
    for column in block.columns:
        grid.add_column(
            Text(column.name),
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=not column.wide and not column.right,
        )
    for row in cells(block, LINE_CHARACTERS):
        grid.add_row(*(Text(cell) for cell in row))
    yield grid
    if block.note:
        yield Text(block.note, style="dim", overflow="fold")
