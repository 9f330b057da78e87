"""The facts of a report as one CSV file: a row for every value, with plain numbers, for spreadsheets and scripts.

`table` is where the value stands in the JSON form, `row` counts its entries from 1 (empty where there is one), `column` is the
key, with dots where it lies deeper. A list of plain values is one cell, with blanks between them.
"""

import csv
import io
from collections.abc import Iterator

from migrator.adapters.output.document import clean
from migrator.adapters.output.json_form import plain

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(value: object) -> str:
    """A value of ours as CSV (RFC 4180, UTF-8, lines end with a line feed). No cell begins as a formula: text that does gets
    an apostrophe before it, as spreadsheets have it for text.
    """
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(("table", "row", "column", "value"))
    for table, row, column, cell in _cells("", plain(value)):
        writer.writerow((table, row, column, cell))
    return written.getvalue()


def _cells(table: str, value: object) -> Iterator[tuple[str, str, str, str]]:
    if isinstance(value, dict):
        yield from _record(table, "", "", value)
    elif isinstance(value, list):
        yield from _list(table, value)


def _record(table: str, row: str, prefix: str, record: dict[str, object]) -> Iterator[tuple[str, str, str, str]]:
    for key in sorted(record):
        value = record[key]
        column = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _record(table, row, f"{column}.", value)
        elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
            place = ".".join(part for part in (table, row, column) if part)
            yield from _list(place, value)
        else:
            yield table, row, _safe(column), _shown(value)


def _list(table: str, values: list[object]) -> Iterator[tuple[str, str, str, str]]:
    for number, item in enumerate(values, 1):
        if isinstance(item, dict):
            yield from _record(table, str(number), "", item)
        elif isinstance(item, list) and any(isinstance(one, dict | list) for one in item):
            yield from _list(f"{table}.{number}", item)
        else:
            yield table, str(number), "", _shown(item)


def _shown(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case list():
            return _safe(" ".join(_shown(item) for item in value))
        case _:
            return _safe(_one_line(str(value)))


def _one_line(text: str) -> str:
    """Control characters and right-to-left marks are escaped, as in every other form."""
    return clean(text)


def _safe(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
