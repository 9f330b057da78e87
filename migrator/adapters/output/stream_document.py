"""What streams brought, by size of files, host, brick and engine."""

from collections.abc import Iterator, Sequence

from migrator.adapters.output.document import Block, clean, figure, table, text
from migrator.decide.stream_sums import BY, added_up
from migrator.domain.stream_sums import StreamSum
from migrator.domain.units import format_count, format_rate, format_size

_ROWS = 40
"""More bricks than that are not read in a report; the sums of all are in its JSON."""


def stream_blocks(sums: Sequence[StreamSum]) -> Iterator[Block]:
    """One table, where there is anything."""
    rows = [
        (
            by,
            clean(name),
            format_count(one.files),
            format_size(one.size_bytes),
            format_rate(one.bytes_per_s),
            f"{one.files_per_s:,.1f}",
        )
        for by in BY
        for name, one in added_up(sums, by)[:_ROWS]
    ]
    if rows:
        columns = [
            text("by"),
            text("which"),
            figure("files"),
            figure("bytes"),
            figure("a stream"),
            figure("files/s a stream"),
        ]
        yield table("What streams brought", columns, rows, note="Chunks that arrived, of all plans.")
