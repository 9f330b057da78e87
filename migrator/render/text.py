"""Documents as Markdown, and values as JSON."""

import csv
import io
import json
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import assert_never

from msgspec import Struct

from migrator.core.errors import MigratorError
from migrator.core.paths import percent_escape
from migrator.render import document as render_document
from migrator.render.charts import sparkline, timeline_lines

# --- CSV


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_csv(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV (RFC 4180; lines end with a line feed)."""
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    return written.getvalue()


def csv_text(text: str) -> str:
    """A cell. Text that resembles a formula gets a leading apostrophe: spreadsheets then treat it as text."""
    return f"'{text}" if text.startswith(_FORMULA) else text


# --- Markdown (GitHub's dialect)


_MARKUP = re.compile(r"[\\`*_\[\]<>|~&!$@#]|:(?=//)|(?<=www)\.|(?<=WWW)\.|^[-+=]|(?<=\d)[.)](?= )")


def to_markdown(document: render_document.Document) -> str:
    """A document as Markdown, ending with a line feed. Names are escaped: no markup, HTML or links."""
    lines = [f"# {escape(document.title)}", "", escape(document.subtitle), ""]
    contents = render_document.contents(document)
    for section in document.sections:
        if contents and not section.first_page:
            lines, contents = [*lines, "## Details", "", f"{escape(', '.join(contents))}.", ""], ()
        lines += [f"## {escape(section.title)}", ""]
        for block in section.blocks:
            lines += [*_block(block), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def escape(text: str) -> str:
    """Text without any markup. It is one line already: documents contain printable characters only."""
    return _MARKUP.sub(r"\\\g<0>", text)


def _block(block: render_document.Block) -> Iterator[str]:
    match block:
        case render_document.Paragraph():
            yield f"**{escape(block.text)}**" if block.alert else escape(block.text)
        case render_document.NamedValues():
            for name, value in block.pairs:
                yield f"- {escape(name)}: {escape(value)}"
        case render_document.Bar():
            yield f"- {escape(': '.join(filter(None, (block.label, block.text))))}"
        case render_document.Table():
            yield from _table(block)
        case render_document.Chart():
            yield f"**{escape(block.title)}**"
            yield ""
            yield f"`{sparkline([value for _, value in block.points])}`"
            yield ""
            yield escape(block.summary)
        case render_document.Timeline():
            yield f"**{escape(block.title)}**"
            yield ""
            # An indented block: nothing in it is markup.
            yield from (f"    {line}" for line in timeline_lines(block))
            yield ""
            yield escape(block.summary)
        case _:
            assert_never(block)


def _table(block: render_document.Table) -> Iterator[str]:
    if block.title:
        yield f"**{escape(block.title)}**"
        yield ""
    yield "| " + " | ".join(escape(column.name) for column in block.columns) + " |"
    yield "| " + " | ".join("---:" if column.right else "---" for column in block.columns) + " |"
    for row in render_document.shown_rows(block, render_document.FILE_CHARACTERS):
        yield "| " + " | ".join(escape(cell) for cell in row) + " |"
    if block.note:
        yield ""
        yield escape(block.note)


# --- Plain text, for mails


_WIDTH = 76


def to_plain_text(document: render_document.Document) -> str:
    """A document as text of at most 76 columns (longer words stay whole), ending with a line feed. Rows of tables are lists. The
    title is the first line, whole: it can be the subject of a mail.
    """
    lines = [document.title, *_wrapped(document.subtitle)]
    for section in document.sections:
        lines += ["", section.title, "-" * min(len(section.title), _WIDTH)]
        for block in section.blocks:
            lines += _plain_block(block)
    return "\n".join(lines) + "\n"


def _plain_block(block: render_document.Block) -> Iterator[str]:
    match block:
        case render_document.Paragraph():
            yield ""
            yield from _wrapped(block.text)
        case render_document.NamedValues():
            for name, value in block.pairs:
                yield from _wrapped(f"{name}: {value}", later="  ")
        case render_document.Bar():
            yield from _wrapped(": ".join(filter(None, (block.label, block.text))))
        case render_document.Table():
            for row in block.rows:
                yield from _wrapped(row[0], first="- ", later="  ")
                for column, cell in zip(block.columns[1:], row[1:], strict=True):
                    if cell not in ("", render_document.NONE):
                        yield from _wrapped(f"{column.name}: {cell}", first="  ", later="    ")
            yield from _wrapped(block.note)
        case render_document.Chart() | render_document.Timeline():
            yield from _wrapped(f"{block.title}. {block.summary}")
        case _:
            assert_never(block)


def _wrapped(text: str, *, first: str = "", later: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


# --- JSON: the fields and properties of values under their own names
#
# The rules (docs/json.md repeats them): keys are sorted; bytes (paths) are percent-escaped text; times are seconds
# since the epoch, durations seconds, sizes bytes (the key has the unit); states are words; unknown values are null.
# Only ASCII: everything else is escaped in JSON's own way. Keys are added over time, never renamed.


def to_json(value: object, *, indent: int | None = 1) -> str:
    """A value of the program as one JSON document, ending with a line feed. Raises TypeError for other types."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=True, allow_nan=False, sort_keys=True) + "\n"


def plain(value: object) -> object:
    """A value of the program as dictionaries, lists, strings and numbers. Raises TypeError for other types."""
    match value:
        case None | bool():
            return value
        case Enum():
            return plain(value.value)
        case int():
            return int(value)
        case float():
            return value if math.isfinite(value) else None
        case bytes():
            return percent_escape(value)
        case str():
            return value.encode("utf-8", "backslashreplace").decode("utf-8")
        case Path():
            return plain(str(value))
        case Mapping():
            return {_key(key): plain(item) for key, item in value.items()}
        case tuple() | list():
            return [plain(item) for item in value]
        case set() | frozenset():
            return sorted((plain(item) for item in value), key=str)
        case MigratorError():
            return {"message": plain(value.message), "cause": plain(value.cause), "hint": plain(value.hint)}
        case Struct():
            return _record(value)
        case _:
            raise TypeError(f"{type(value).__name__} has no form in JSON")


@cache
def json_keys(kind: type[Struct]) -> tuple[str, ...]:
    """The keys of a struct's object: its fields and properties, without its `NO_KEYS`. These are for the program alone, or
    follow from other keys.
    """
    properties = (name for name in dir(kind) if isinstance(getattr(kind, name), property) and not name.startswith("_"))
    hidden: frozenset[str] = getattr(kind, "NO_KEYS", frozenset())
    return tuple(name for name in (*kind.__struct_fields__, *properties) if name not in hidden)


def _record(value: Struct) -> dict[str, object]:
    return {name: plain(getattr(value, name)) for name in json_keys(type(value))}


def _key(key: object) -> str:
    form = plain(key)
    return form if isinstance(form, str) else str(form)
