"""Queries over a catalog for several features: lists to pack, samples, use of bricks."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from msgspec import Struct
from pyarrow._compute import call_function

from migrator.catalog.database import connect, content_bytes_sql, in_parts, numbered_part
from migrator.catalog.files import ROW_SCHEMA, ClosedCatalogs
from migrator.catalog.model import BrickContent, BrickUse, TreeOnBricks
from migrator.catalog.ports import Scratch
from migrator.catalog.rules_packing import PathSequence
from migrator.core.entry import XattrKinds
from migrator.core.states import ChunkKind

# --- Samples of the files of a tree


_DRAW = """
    WITH drawn AS (
        SELECT class, arg_min(path, place, $count) AS paths FROM (
            SELECT path, hash(path, $seed::BIGINT) AS place,
                CASE WHEN size <= 4096 THEN 0 WHEN size <= 65536 THEN 1 WHEN size <= 1048576 THEN 2
                     WHEN size <= 16777216 THEN 3 ELSE 4 END AS class
            FROM read_parquet($files) WHERE tree = $tree AND type = 'file' AND size > 0
        ) GROUP BY class
    )
    SELECT path FROM (SELECT class, unnest(paths) AS path, generate_subscripts(paths, 1) AS turn FROM drawn)
    ORDER BY turn, class LIMIT $count
"""
"""Round robin over the size classes: any prefix has files of all of them. Only the drawn files are sorted: 0.5 s for
3 million files; a window over all of them takes ten times as long."""


# --- SQL of lists to pack


STEP_DIRECTORIES, STEP_FILES, STEP_GROUPS, STEP_LINKS = range(4)
STEPS = 4
"""The order of the lists within one brick's part of a tree. A slot combines the batch, the kind of lists, the tree's ordinal, the
brick's place and the step in one number, in the order of the lists."""

ROWS = f"""
    SELECT *, {content_bytes_sql()} AS bytes, (file_index::BIGINT << 40) + file_row_number AS position
    FROM read_parquet([{{files}}])
"""
"""`bytes` are those to copy; `position` is the place in the scan's order: part by part, row by row."""

NO_ROWS = "SELECT *, 0::BIGINT AS bytes, 0::BIGINT AS position FROM {table}"

PLACEMENT = "CREATE OR REPLACE TEMP TABLE placement (tree BLOB, batch INTEGER, ordinal INTEGER)"
BRICK_TABLE = "CREATE OR REPLACE TEMP TABLE bricks (brick VARCHAR, place BIGINT)"
"""The walked bricks, numbered from 1; 0 is for paths of none of them."""

LISTINGS = f"""
    WITH placed AS (
        SELECT batch, ordinal, path, type, bytes, type = 'file' AND bytes < size AS sparse, link_group, position, mtime_ns,
            coalesce(bricks.place, 0) AS brick
        FROM {{rows}} AS entries JOIN placement USING (tree) LEFT JOIN bricks USING (brick) WHERE path <> tree
    ), linked AS (
        SELECT batch, ordinal, path, bytes, link_group, position, mtime_ns,
            first_value(ordinal) OVER names AS home,
            first_value(path) OVER names AS first_path,
            first_value(position) OVER names AS first_position,
            CASE WHEN min(brick) OVER whole_group = max(brick) OVER whole_group THEN brick ELSE 0 END AS brick
        FROM placed WHERE link_group IS NOT NULL AND type <> 'directory'
        WINDOW names AS (PARTITION BY batch, link_group ORDER BY ordinal, position),
            whole_group AS (PARTITION BY batch, link_group)
    ), listed AS (
        SELECT batch, CASE WHEN type = 'directory' THEN {STEP_DIRECTORIES} ELSE {STEP_FILES} END AS step,
            ordinal, CASE WHEN type = 'directory' THEN 0 ELSE brick END AS brick,
            position AS place, 0::BIGINT AS own, path, bytes, sparse, mtime_ns,
            NULL::UBIGINT AS link_group, NULL::BLOB AS link_to
        FROM placed WHERE link_group IS NULL OR type = 'directory'
        UNION ALL
        SELECT batch, {STEP_GROUPS}, ordinal, brick, first_position, position, path, bytes, false, mtime_ns,
            link_group, NULL
        FROM linked WHERE ordinal = home
        UNION ALL
        SELECT batch, {STEP_LINKS}, ordinal, 0, position, 0, path, 0, false, mtime_ns, link_group, first_path
        FROM linked WHERE ordinal <> home
    )
    SELECT (batch * {STEPS} + CASE step WHEN {STEP_GROUPS} THEN {STEP_FILES} ELSE step END) * $slots::BIGINT
        + (ordinal * $places + brick) * {STEPS} + step AS slot, place, own, path, bytes, sparse, link_group,
        link_to, mtime_ns
    FROM listed
"""
_LISTED_ORDER = "slot, place, own"
"""Numbers only. The order of the scan keeps the files of a directory together; a link group has the position of its first name.
Its content goes to the first tree of the batch that has one of its names. All names of a file are on one brick; if rows
disagree, the file moved during the scan, and its brick is unknown."""
_SORTED_AT_ONCE = 1_000_000
"""More are cut into parts first. DuckDB 2.0 needs memory for every run that it merges: 10^8 rows are not sorted at once in 512 MiB."""
_DRAWN_OF_A_PART = 100
_SOME = "(SELECT * FROM {rows} WHERE hash(position) % {every} = 0)"


# --- Lists to pack: all rows of `entries` on the connection, or some


ROWS_AT_ONCE = 32768

_STEP_KINDS = {
    STEP_DIRECTORIES: ChunkKind.DIRECTORIES,
    STEP_FILES: ChunkKind.FILES,
    STEP_GROUPS: ChunkKind.FILES,
    STEP_LINKS: ChunkKind.LINKS,
}


def create_entries(connection: duckdb.DuckDBPyConnection, files: Sequence[Path], *, view: str = "entries") -> None:
    """Create a view of the rows in the parts of a catalog, with `bytes` and `position`. `view` must be a constant."""
    if files:
        # A view takes no parameters: the names become literals.
        names = ", ".join("'" + str(file).replace("'", "''") + "'" for file in sorted(files))
        connection.execute(f"CREATE TEMP VIEW {view} AS {ROWS.format(files=names)}")
        return
    connection.from_arrow(ROW_SCHEMA.empty_table()).create(f"no_{view}")
    connection.execute(f"CREATE TEMP VIEW {view} AS {NO_ROWS.format(table=f'no_{view}')}")


def listed(
    connection: duckdb.DuckDBPyConnection,
    batches: Sequence[Sequence[bytes]],
    *,
    bricks: Sequence[str],
    rows: str = "entries",
) -> Iterator[PathSequence]:
    """The rows of the table `rows` (a constant) in the trees of the batches, for packing: sorted by DuckDB, streamed.
    `bricks` must be in order.
    """
    connection.execute(BRICK_TABLE)
    for place, brick in enumerate(bricks, start=1):
        connection.execute("INSERT INTO bricks VALUES (?, ?)", [brick, place])
    placed = [(number, tree) for number, trees in enumerate(batches, start=1) for tree in trees]
    connection.execute(PLACEMENT)
    for ordinal, (number, tree) in enumerate(placed):
        connection.execute("INSERT INTO placement VALUES (?, ?, ?)", [tree, number, ordinal])
    places = len(bricks) + 1
    slots = len(placed) * places * STEPS
    parameters = {"places": places, "slots": slots}
    every = max(_SORTED_AT_ONCE // _DRAWN_OF_A_PART, 1)
    some = LISTINGS.format(rows=_SOME.format(rows=rows, every=every))
    drawn = connection.sql(some, params=parameters).project("slot, place").order("slot, place").fetchall()
    of_a_part = _SORTED_AT_ONCE // every
    ends = [f"slot < {slot} OR (slot = {slot} AND place < {place})" for slot, place in drawn[of_a_part::of_a_part]]
    query, part = LISTINGS.format(rows=rows), numbered_part(ends)
    of_parts = in_parts(connection, query, parameters, part=part, parts=len(ends) + 1)
    for block in chain.from_iterable(one.order(_LISTED_ORDER).to_arrow_reader(ROWS_AT_ONCE) for one in of_parts):
        for start, end, slot in _runs(block.column("slot")):
            place, step = divmod(slot % slots, STEPS)
            ordinal, brick_place = divmod(place, places)
            piece = block.slice(start, end - start)
            batch, tree = placed[ordinal]
            yield PathSequence(
                batch=batch,
                kind=_STEP_KINDS[step],
                tree=tree,
                grouped=step == STEP_GROUPS,
                paths=piece.column("path").to_pylist(),
                sizes_bytes=piece.column("bytes").to_pylist(),
                sparse=frozenset(call_function("filter", [piece.column("path"), piece.column("sparse")]).to_pylist()),
                link_groups=piece.column("link_group").to_pylist(),
                links_to=piece.column("link_to").to_pylist(),
                mtimes_ns=piece.column("mtime_ns").to_pylist(),
                brick=bricks[brick_place - 1] if brick_place else None,
            )


def _runs(slots: "pa.Array[Any]") -> Iterator[tuple[int, int, int]]:
    """Start, end and value of every run of equal values; no value has two runs.

    Bisection: importing pyarrow's own function takes longer than finding the runs of a small catalog.
    """
    start = 0
    while start < len(slots):
        slot = slots[start].as_py()
        end = bisect_left(slots, True, lo=start, key=_is_not(slot))
        yield start, end, slot
        start = end


def _is_not(slot: int) -> "Callable[[pa.Scalar[Any]], bool]":
    return lambda found: found.as_py() != slot


# --- Use of bricks by users
#
# All names of a hard-linked file are on one brick. It counts there once, for the first of its users in order of tree.
# Directories are on every brick and count for no user.


BRICK_USES = """
    WITH counted AS (
        SELECT brick, tree, 1 AS names, bytes, blocks FROM entries
        WHERE type <> 'directory' AND link_group IS NULL
        UNION ALL
        SELECT brick, tree, count(*), 0, 0 FROM entries
        WHERE type <> 'directory' AND link_group IS NOT NULL GROUP BY brick, tree
        UNION ALL
        SELECT brick, min(tree), 0, max(bytes), max(blocks) FROM entries
        WHERE type <> 'directory' AND link_group IS NOT NULL GROUP BY brick, link_group
    )
    SELECT brick, tree, sum(names)::BIGINT, sum(bytes)::BIGINT, (sum(blocks) * 512)::BIGINT
    FROM counted GROUP BY brick, tree
"""
"""Rows of brick, tree, names, bytes and allocated bytes."""


def _sorted(found: Mapping[str | None, list[int]]) -> tuple[BrickUse, ...]:
    uses = (
        BrickUse(user=user, files=files, size_bytes=size_bytes, allocated_bytes=allocated_bytes)
        for user, (files, size_bytes, allocated_bytes) in found.items()
    )
    return tuple(sorted(uses, key=lambda use: (-use.size_bytes, -use.files, use.user or "")))


# --- Content of bricks that are to be drained: a hard-linked file, whose names are all on one brick, counts once


_MOST_SYMLINKS = 1000

_SUMS = """
    WITH counted AS (
        SELECT 1 AS names, bytes, blocks FROM entries
        WHERE type <> 'directory' AND link_group IS NULL AND list_contains($bricks, brick)
        UNION ALL
        SELECT count(*), max(bytes), max(blocks) FROM entries
        WHERE type <> 'directory' AND link_group IS NOT NULL AND list_contains($bricks, brick)
        GROUP BY brick, link_group
    )
    SELECT coalesce(sum(names), 0)::BIGINT, coalesce(sum(bytes), 0)::BIGINT,
           (coalesce(max(blocks), 0) * 512)::BIGINT
    FROM counted
"""
_SYMLINKS = """
    SELECT path FROM entries WHERE type = 'symlink' AND nlink > 1 AND list_contains($bricks, brick)
    ORDER BY path LIMIT $most
"""
_TREES = f"""
    SELECT tree, sum(names)::BIGINT, sum(bytes)::BIGINT FROM ({BRICK_USES}) AS uses(brick, tree, names, bytes, allocated)
    WHERE tree IS NOT NULL AND list_contains($bricks, brick) GROUP BY tree ORDER BY tree
"""


_DEFAULT_ACLS = f"""
    SELECT count(*), min(path) FROM entries
    WHERE tree = $tree AND type = 'directory' AND xattr_kinds & {int(XattrKinds.ACL_DEFAULT)} <> 0
"""


class CatalogReads(Struct, frozen=True):
    """Samples, and use and content of bricks, from closed catalogs; queries spill to `scratch`. All raise UsageError if
    there is no such catalog, Refused if it is incomplete or damaged.
    """

    catalogs: ClosedCatalogs
    scratch: Scratch

    def draw(self, catalog: str, tree: bytes, *, count: int, seed: int) -> Sequence[bytes]:
        """Draw up to `count` regular files of a tree that are not empty, as paths relative to it: as many of each class
        of size as there are, in the order of their drawing. The same seed draws the same ones. Blocking: a second or
        two for millions of rows.
        """
        files = [str(file) for file in self.catalogs.open(catalog).part_files]
        if not files:
            return []
        with connect(self.scratch) as connection:
            rows = connection.execute(_DRAW, {"seed": seed, "files": files, "tree": tree, "count": count}).fetchall()
        return [path[len(tree) + 1 :] for (path,) in rows]

    def default_acls(self, catalog: str, tree: bytes) -> tuple[int, bytes]:
        """How many directories of a tree have a default ACL, and the first of them in order of path. Blocking."""
        with connect(self.scratch) as connection:
            create_entries(connection, self.catalogs.open(catalog).part_files)
            ((count, first),) = connection.execute(_DEFAULT_ACLS, {"tree": tree}).fetchall()
        return count, first or b""

    def uses(self, catalog: str) -> Mapping[str | None, tuple[BrickUse, ...]]:
        """By brick, the usage of each user, most bytes first; under None the files read through the mount. A scanned
        empty brick has an empty tuple.
        """
        closed = self.catalogs.open(catalog)
        users = {tree.path: tree.user for tree in closed.record.trees}
        with connect(self.scratch) as connection:
            create_entries(connection, closed.part_files)
            rows = connection.execute(BRICK_USES).fetchall()
        # A user can have several trees.
        sums: dict[str | None, dict[str | None, list[int]]] = {walk.brick: {} for walk in closed.record.bricks}
        for brick, tree, files, size_bytes, allocated_bytes in rows:
            of_user = sums.setdefault(brick, {}).setdefault(None if tree is None else users[tree], [0, 0, 0])
            for place, count in enumerate((files, size_bytes, allocated_bytes)):
                of_user[place] += count
        return {brick: _sorted(found) for brick, found in sums.items()}

    def content(self, catalog: str, bricks: Sequence[str]) -> BrickContent | None:
        """The content of these bricks at the scan; None if the catalog was not made from any of them."""
        closed = self.catalogs.open(catalog)
        if not {walk.brick for walk in closed.record.bricks}.intersection(bricks):
            return None
        with connect(self.scratch) as connection:
            create_entries(connection, closed.part_files)
            sums = connection.execute(_SUMS, {"bricks": list(bricks)}).fetchone() or (0, 0, 0)
            rows = connection.execute(_SYMLINKS, {"bricks": list(bricks), "most": _MOST_SYMLINKS}).fetchall()
            trees = connection.execute(_TREES, {"bricks": list(bricks)}).fetchall()
        return BrickContent(
            files=sums[0],
            size_bytes=sums[1],
            largest_bytes=sums[2],
            linked_symlinks=tuple(path for (path,) in rows),
            trees=tuple(TreeOnBricks(tree=tree, files=files, size_bytes=size) for tree, files, size in trees),
        )
