"""Markdown (GitHub's dialect): documents that can be pasted into a ticket or a wiki."""

import re
from collections.abc import Iterator
from typing import assert_never

from migrator.adapters.output.chart import sparkline
from migrator.adapters.output.document import Bar, BarChart, Block, Chart, Document, Facts, Paragraph, Table, cells
from migrator.adapters.output.wording import FILE_CHARACTERS

_MARKUP = re.compile(r"[\\`*_\[\]<>|~&!$@#]|:(?=//)|(?<=www)\.|(?<=WWW)\.|^[-+=]|(?<=\d)[.)](?= )")


def to_markdown(document: Document) -> str:
    """A document as Markdown, ending with a line feed. Nothing in names is read as markup, HTML or a link."""
    lines = [f"# {escape(document.title)}", "", escape(document.subtitle), ""]
    for section in document.sections:
        lines += [f"## {escape(section.title)}", ""]
        for block in section.blocks:
            lines += [*_block(block), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def escape(text: str) -> str:
    """Text that shows as itself. It is one line already: what is no printable character was escaped before."""
    return _MARKUP.sub(r"\\\g<0>", text)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Paragraph():
            yield f"**{escape(block.text)}**" if block.alert else escape(block.text)
        case Facts():
            for name, value in block.pairs:
                yield f"- {escape(name)}: {escape(value)}"
        case Bar():
            yield f"- {escape(block.label)}: {escape(block.text)}"
        case Table():
            yield from _table(block)
        case Chart():
            yield f"**{escape(block.title)}**"
            yield ""
            yield f"`{sparkline([value for _, value in block.points])}`"
            yield ""
            yield escape(block.summary)
        case BarChart():
            yield f"**{escape(block.title)}**"
            yield ""
            for label, lines in block.groups:
                values = "; ".join(f"{line.label} {line.text}" for line in lines)
                yield f"- {escape(label)}: {escape(values)}"
            yield ""
            yield escape(block.summary)
        case _:
            assert_never(block)


def _table(block: Table) -> Iterator[str]:
    if block.title:
        yield f"**{escape(block.title)}**"
        yield ""
    yield "| " + " | ".join(escape(column.name) for column in block.columns) + " |"
    yield "| " + " | ".join("---:" if column.right else "---" for column in block.columns) + " |"
    for row in cells(block, FILE_CHARACTERS):
        yield "| " + " | ".join(escape(cell) for cell in row) + " |"
    if block.note:
        yield ""
        yield escape(block.note)
