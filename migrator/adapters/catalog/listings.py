"""Lists to pack, of all rows of a catalog or of some: whatever `entries` holds on the connection."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from migrator.adapters.catalog import listings_sql
from migrator.adapters.catalog.schema import ROW_SCHEMA
from migrator.decide.packing import Listing
from migrator.domain.states import ChunkKind

ROWS_AT_ONCE = 32768

_STEP_KINDS = {
    listings_sql.STEP_DIRECTORIES: ChunkKind.DIRECTORIES,
    listings_sql.STEP_FILES: ChunkKind.FILES,
    listings_sql.STEP_GROUPS: ChunkKind.FILES,
    listings_sql.STEP_LINKS: ChunkKind.LINKS,
}


def create_entries(connection: duckdb.DuckDBPyConnection, files: Sequence[Path], *, view: str = "entries") -> None:
    """Make a view of the rows in the parts of a catalog, with `bytes` and `position`. `view` is a name of the program."""
    if files:
        # A view takes no parameters: the names become literals.
        names = ", ".join("'" + str(file).replace("'", "''") + "'" for file in sorted(files))
        connection.execute(f"CREATE TEMP VIEW {view} AS {listings_sql.ROWS.format(files=names)}")
        return
    connection.from_arrow(ROW_SCHEMA.empty_table()).create(f"no_{view}")
    connection.execute(f"CREATE TEMP VIEW {view} AS {listings_sql.NO_ROWS.format(table=f'no_{view}')}")


def listed(
    connection: duckdb.DuckDBPyConnection,
    batches: Sequence[Sequence[bytes]],
    *,
    bricks: Sequence[str],
    rows: str = "entries",
) -> Iterator[Listing]:
    """What `rows` (a name of the program) holds of the trees of the batches, for packing: sorted by DuckDB, streamed.
    `bricks` in order.
    """
    connection.execute(listings_sql.BRICK_TABLE)
    for place, brick in enumerate(bricks, start=1):
        connection.execute("INSERT INTO bricks VALUES (?, ?)", [brick, place])
    placed = [(number, tree) for number, trees in enumerate(batches, start=1) for tree in trees]
    connection.execute(listings_sql.PLACEMENT)
    for ordinal, (number, tree) in enumerate(placed):
        connection.execute("INSERT INTO placement VALUES (?, ?, ?)", [tree, number, ordinal])
    places = len(bricks) + 1
    query = connection.sql(listings_sql.LISTINGS.format(rows=rows), params={"places": places})
    for block in query.to_arrow_reader(ROWS_AT_ONCE):
        for start, end, slot in _runs(block.column("slot")):
            place, step = divmod(slot, listings_sql.STEPS)
            ordinal, brick_place = divmod(place, places)
            piece = block.slice(start, end - start)
            batch, tree = placed[ordinal]
            yield Listing(
                batch=batch,
                kind=_STEP_KINDS[step],
                tree=tree,
                grouped=step == listings_sql.STEP_GROUPS,
                paths=piece.column("path").to_pylist(),
                sizes_bytes=piece.column("bytes").to_pylist(),
                link_groups=piece.column("link_group").to_pylist(),
                links_to=piece.column("link_to").to_pylist(),
                mtimes_ns=piece.column("mtime_ns").to_pylist(),
                brick=bricks[brick_place - 1] if brick_place else None,
            )


def _runs(slots: "pa.Array[Any]") -> Iterator[tuple[int, int, int]]:
    """Beginning, end and value of every run of equal values; no value has two runs.

    By bisection: what pyarrow has for it takes longer to load than the runs of a small catalog to find.
    """
    start = 0
    while start < len(slots):
        slot = slots[start].as_py()
        end = bisect_left(slots, True, lo=start, key=_is_not(slot))
        yield start, end, slot
        start = end


def _is_not(slot: int) -> "Callable[[pa.Scalar[Any]], bool]":
    return lambda found: found.as_py() != slot
