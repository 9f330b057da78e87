"""Cells that the tables of bricks, drains and additions share."""

from migrator.bricks.model import BrickStanding
from migrator.core.units import format_count, format_duration, format_rate, format_size
from migrator.render import document
from migrator.render.document import figure, text

UNKNOWN = "unknown"


def size_text(size_bytes: int | None, unknown: str = document.NONE) -> str:
    """A size, or `unknown`."""
    return unknown if size_bytes is None else format_size(size_bytes)


def count_text(count: int | None, unknown: str = document.NONE) -> str:
    """A number, or `unknown`."""
    return unknown if count is None else format_count(count)


def progress_cells(looked_at: str) -> document.Cells[BrickStanding]:
    """The columns that end a table of additions or drains."""
    return (
        (figure("failures"), lambda one: format_count(one.failures)),
        (figure("skipped"), lambda one: format_count(one.skipped)),
        (figure("rate"), lambda one: document.known(one.bytes_per_s, format_rate)),
        (figure("time left"), lambda one: document.known(one.left_s, format_duration)),
        (text(looked_at), lambda one: document.when(one.looked_at_s)),
    )
