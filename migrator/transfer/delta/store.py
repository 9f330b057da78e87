"""Comparisons of catalogs and extras, by DuckDB out of core, and the move lists of passes."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, dropwhile, islice, takewhile
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from migrator.catalog.columns import Columns
from migrator.catalog.database import ABOVE, connect, content_bytes_sql, in_parts, require_room
from migrator.catalog.files import ClosedCatalog, ClosedCatalogs
from migrator.catalog.manifest import differences_of
from migrator.catalog.model import SETTLED_BEFORE_SCAN_S, CatalogRecord
from migrator.catalog.ports import Scratch
from migrator.catalog.queries import ROWS_AT_ONCE, create_entries, listed
from migrator.catalog.rules_packing import PathSequence
from migrator.core.durable import file_digest, replacing, sync
from migrator.core.entry import EntryType
from migrator.core.errors import MigratorError, Refused, UsageError
from migrator.core.paths import tree_of
from migrator.core.units import NS_PER_S
from migrator.fs.model import DifferenceKind
from migrator.fs.rules_equality import same_attributes_sql, same_content_sql, same_inode_sql, unchanged_sql
from migrator.transfer.delta import model
from migrator.transfer.delta.model import ChangeKind, Gone, Rename, TreeChanges

# The SQL of a comparison.
#
# `base` and `now` are the rows of both catalogs. A join of those that may differ leaves the differing rows in
# `differing`; all other queries use it: `was` and `here` are its two sides. The `place` of a path in `was` is its name
# now if only the directories above it were renamed. `place` is null if a directory above is gone and another directory
# has its name.


_COLUMNS = (
    *("path", "tree", "type", "size", "blocks", "mtime_ns", "ctime_ns", "mode", "uid", "gid", "xattr_digest"),
    *("symlink_target", "rdev", "link_group", "nlink", "dev", "ino", "gfid", "by_mount"),
)
_LISTED = ", ".join(_COLUMNS)
_BY_MOUNT = "(type = 'file' AND brick IS NULL AND {from_bricks}) AS by_mount"
"""Whether a scan of the bricks took a file from the mount. Its content may be another one than that of the copy on the brick.
"""
_DOUBTED = "(n.by_mount AND NOT b.by_mount)"

_SAME_ATTRIBUTES = same_attributes_sql("b.", "n.")
_SAME_CONTENT = f"({same_content_sql('b.', 'n.')} AND b.mtime_ns = n.mtime_ns)"
_OTHER_INODE = f"coalesce(NOT {same_inode_sql('b.', 'n.')}, false)"

_DIFFER = f"""(CASE
    WHEN b.type <> n.type OR NOT {_SAME_ATTRIBUTES} OR b.mtime_ns <> n.mtime_ns OR {_OTHER_INODE} THEN true
    WHEN b.type = 'directory' THEN false
    ELSE {_DOUBTED} OR NOT {_SAME_CONTENT} OR NOT {unchanged_sql("b.", "n.", with_inode=False)}
        OR b.nlink <> n.nlink OR b.link_group IS DISTINCT FROM n.link_group
END)"""
"""Times and size of a directory change with its entries; its ctime adds nothing to its mtime."""

_SELECTED = "tree IN (SELECT tree FROM wanted) AND path <> tree"
"""The roots of trees stay closed until the cutover and are not sent."""

_SETTINGS = f"""
    {ABOVE};
    CREATE TEMP MACRO from_byte(path, place) AS array_slice(path, place, octet_length(path));
    CREATE TEMP TABLE wanted (tree BLOB, resend BOOLEAN);
    CREATE TEMP TABLE unsettled (path BLOB);
    CREATE TEMP TABLE leftover (path BLOB, tree BLOB);
    CREATE TEMP VIEW base AS
    SELECT {_LISTED},
        (type <> 'directory' AND (ctime_ns > {{after_ns}} OR mtime_ns > {{after_ns}} AND mtime_ns <= {{until_ns}}))
            OR tree IN (SELECT tree FROM wanted WHERE resend) OR path IN (SELECT path FROM unsettled) AS unsettled
    FROM (SELECT *, {_BY_MOUNT.format(from_bricks="{base_from_bricks}")} FROM base_rows) WHERE {_SELECTED}
    UNION ALL BY NAME
    SELECT path, tree, 'file' AS type, 0 AS size, 0 AS blocks, true AS unsettled FROM leftover;
    CREATE TEMP VIEW now AS SELECT {_LISTED}
    FROM (SELECT *, {_BY_MOUNT.format(from_bricks="{now_from_bricks}")} FROM now_rows) WHERE {_SELECTED}
"""
"""`resend`: no path of the tree is known to have arrived. A change of the base between these times may have left no trace.
`leftover`: paths that only the target has. Their attributes are unknown, so they differ from every entry.
"""

_ONLY_ON_TARGET = "DELETE FROM leftover WHERE path IN (SELECT path FROM base_rows SEMI JOIN leftover USING (path))"

_WANTED_ROWS = """
    SELECT count(*) FROM (SELECT tree FROM base_rows UNION ALL SELECT tree FROM now_rows)
    WHERE tree IN (SELECT tree FROM wanted)
"""

_BOTH = ", ".join(f"b.{column} AS b_{column}, n.{column} AS n_{column}" for column in _COLUMNS)
_CONTENT = f"hash({', '.join(column for column in _COLUMNS if column not in ('tree', 'dev'))})"
_KEYS = f"""
    SELECT hash(path) AS key, CASE WHEN NOT unsettled THEN {_CONTENT} END AS content, 1::UTINYINT AS side FROM base
    UNION ALL SELECT hash(path), {_CONTENT}, 2::UTINYINT FROM now
"""
_KEYS_AT_ONCE = 8_000_000
_CANDIDATES = "SELECT DISTINCT key FROM keys GROUP BY key, content HAVING bit_or(side) <> 3"
"""Hashes of the paths that may differ: DuckDB 2.0 cannot join the rows of 10^8 paths on each side in 512 MiB. A catalog may list
a path twice.
"""

_PART = "(SELECT * FROM {} SEMI JOIN candidates ON hash(path) = key WHERE hash(path) % {{parts}} = {{part}})"
_DIFFERING_PART = f"""
    SELECT {_BOTH}, b.unsettled AS b_unsettled
    FROM {_PART.format("base")} b FULL OUTER JOIN {_PART.format("now")} n ON b.path = n.path
    WHERE b.path IS NULL OR n.path IS NULL OR b.unsettled OR {_DIFFER}
"""
_JOINED_PATHS = 10_000_000
"""Maximum number of candidates per join; more are split over several joins."""

_DIFFERING = f"""
    CREATE TEMP VIEW was AS
    SELECT {", ".join(f"b_{column} AS {column}" for column in _COLUMNS)}, b_unsettled AS unsettled
    FROM differing WHERE b_path IS NOT NULL;
    CREATE TEMP VIEW here AS
    SELECT {", ".join(f"n_{column} AS {column}" for column in _COLUMNS)} FROM differing WHERE n_path IS NOT NULL;
    CREATE TEMP TABLE gluster AS SELECT count(b_gfid) + count(n_gfid) > 0 AS is_it FROM differing
"""

_ONCE = """
    DELETE FROM differing WHERE rowid IN (
        SELECT rowid FROM differing SEMI JOIN (
            SELECT hash(coalesce(b_path, n_path)) AS key FROM differing GROUP BY key HAVING count(*) > 1
        ) ON hash(coalesce(b_path, n_path)) = key
        QUALIFY row_number() OVER (PARTITION BY coalesce(b_path, n_path)) > 1
    )
"""
"""Keep one row of a path that a catalog lists twice: each of the following joins would multiply them."""

_BENEATH = f"""
    INSERT INTO differing
    SELECT {_BOTH}, b.unsettled AS b_unsettled
    FROM (SELECT * FROM base WHERE {{ranges}}) b JOIN (SELECT * FROM now WHERE {{ranges}}) n
        ON b.path = n.path AND NOT b.unsettled AND NOT {_DIFFER}
"""
"""Add the equal paths beneath some directories."""

_REAPED = """
    CREATE TEMP TABLE reaped AS
    SELECT was.path FROM was SEMI JOIN {listed} listed
        ON listed.path = was.path AND listed.size = was.size
        AND listed.mtime_ns = was.mtime_ns AND listed.ctime_ns = was.ctime_ns
    ANTI JOIN unsettled ON unsettled.path = was.path
"""
"""Paths of `was` that are unchanged on the reap list, and so were never sent. Paths that are unsettled by name are sent
anyway.
"""

_SAME_INODE_IN_TREE = f"""
    b.ino = n.ino AND b.tree = n.tree AND {same_inode_sql("b.", "n.", lasting="(SELECT is_it FROM gluster)")}
"""
_RENAMES_WANTED = "b.tree IN (SELECT tree FROM wanted WHERE NOT resend)"

_PAIRED = f"""
    CREATE OR REPLACE TEMP TABLE paired AS
    SELECT b.path AS old, n.path AS new, b.tree
    FROM was b JOIN here n ON {_SAME_INODE_IN_TREE}
    WHERE b.type = 'directory' AND n.type = 'directory' AND {_RENAMES_WANTED}
    QUALIFY count(*) OVER (PARTITION BY b.path) = 1 AND count(*) OVER (PARTITION BY n.path) = 1;
    CREATE OR REPLACE TEMP TABLE headed AS
    WITH parents AS (SELECT *, above(old) AS holder FROM paired)
    SELECT parents.old, parents.new, parents.tree
    FROM parents LEFT JOIN paired AS held ON held.old = parents.holder
    LEFT JOIN (SELECT path FROM was WHERE type = 'directory') known ON known.path = parents.holder
    WHERE parents.new IS DISTINCT FROM CASE
        WHEN held.old IS NOT NULL THEN held.new WHEN known.path IS NULL THEN parents.holder
    END || from_byte(parents.old, octet_length(parents.holder) + 1);
    CREATE OR REPLACE TEMP TABLE blocked (path BLOB, tree BLOB)
"""
"""`paired`: directories with the same inode in both catalogs, under any names. `headed`: those that did not merely move
with the directory above. A directory that is absent from `was` did not move.
"""

_BLOCKED = """
    INSERT INTO blocked
    SELECT placed.path, placed.tree
    FROM placed ANTI JOIN paired ON paired.old = placed.path SEMI JOIN paired AS taken ON taken.new = placed.place
    WHERE placed.type = 'directory'
"""
"""Vanished directories whose name now belongs to another directory with content of its own."""

_SEGMENT_SOURCES = """
    SELECT old AS path, tree, new AS target FROM headed
    UNION ALL SELECT path, tree, NULL FROM blocked
    ORDER BY path || '/'::BLOB
"""

_SEGMENTS = "CREATE OR REPLACE TEMP TABLE segments (tree BLOB, start BLOB, cut BIGINT, target BLOB)"
"""From `start` to the next row's start, the nearest directory above the paths has a name of `cut` bytes and became
`target` (null: it is gone). If `cut` is null, the paths keep their names.
"""

_PLACED = """
    CREATE OR REPLACE TEMP TABLE placed AS
    SELECT was.path, was.tree, was.type,
        CASE WHEN cut IS NULL THEN was.path ELSE target || from_byte(was.path, cut + 1) END AS place
    FROM was ASOF LEFT JOIN segments ON was.tree = segments.tree AND was.path >= segments.start
"""

_OCCUPIED = """
    SELECT path FROM (
        SELECT old AS path FROM headed WHERE old <> new UNION ALL SELECT path FROM blocked
    ) SEMI JOIN (SELECT path FROM here WHERE type = 'directory') now USING (path)
    ORDER BY path || '/'::BLOB
"""
"""Directories that moved or vanished while another one took their name: equal paths beneath it are new there."""

_MATCHED = f"""
    CREATE TEMP TABLE slots AS
    SELECT placed.path AS old, here.path AS new
    FROM placed LEFT JOIN paired ON paired.old = placed.path
    JOIN here ON here.path = coalesce(paired.new, placed.place)
        AND (here.type = 'directory') = (placed.type = 'directory')
    LEFT JOIN paired AS taken ON taken.new = here.path
    WHERE placed.type <> 'directory' OR paired.old IS NOT NULL OR taken.new IS NULL;
    CREATE TEMP TABLE moved_files AS
    SELECT old, new, tree, place FROM (
        SELECT b.path AS old, n.path AS new, b.tree, placed.place,
            {_SAME_CONTENT} AND b.link_group IS NULL AND n.link_group IS NULL AND NOT b.unsettled AND NOT {_DOUBTED}
            AND b.path NOT IN (SELECT path FROM reaped) AS fits,
            count(*) OVER (PARTITION BY b.path) AS news, count(*) OVER (PARTITION BY n.path) AS olds
        FROM was b JOIN here n ON {_SAME_INODE_IN_TREE} JOIN placed ON placed.path = b.path
        WHERE b.type <> 'directory' AND n.type <> 'directory' AND {_RENAMES_WANTED}
    ) WHERE fits AND news = 1 AND olds = 1 AND place IS DISTINCT FROM new;
    CREATE TEMP TABLE renamed AS
    SELECT headed.old, headed.new, headed.tree, placed.place, true AS directory
    FROM headed JOIN placed ON placed.path = headed.old WHERE placed.place IS DISTINCT FROM headed.new
    UNION ALL SELECT old, new, tree, place, false FROM moved_files;
    CREATE TEMP TABLE origins AS
    SELECT old, new, true AS by_rename FROM moved_files
    UNION ALL
    SELECT old, new, false FROM slots
    ANTI JOIN moved_files AS left_it ON left_it.old = slots.old ANTI JOIN moved_files AS came ON came.new = slots.new
"""
"""`slots` are pairs of paths of the base and of now, before renames of files."""

_RENAMES = """
    SELECT renamed.tree, old, new, here.type, here.size, here.mtime_ns
    FROM renamed JOIN here ON here.path = renamed.new ORDER BY old DESC
"""
"""The content of a directory precedes it."""

_SENT = f"""
    CREATE TEMP TABLE sent AS
    SELECT * FROM (
        SELECT n.path, n.tree, n.type, n.link_group, {content_bytes_sql("n.")} AS bytes,
            CASE
                WHEN b.path IS NULL THEN 'new'
                WHEN origins.by_rename THEN CASE WHEN NOT {_SAME_ATTRIBUTES} THEN 'attributes' END
                WHEN n.type = 'directory' THEN CASE
                    WHEN NOT {_SAME_ATTRIBUTES} OR b.mtime_ns <> n.mtime_ns THEN 'attributes'
                    WHEN b.unsettled THEN 'unsettled'
                END
                WHEN b.type <> n.type THEN 'rewritten'
                WHEN n.type = 'file' AND n.size > b.size THEN 'grown'
                WHEN NOT {_SAME_CONTENT} THEN 'rewritten'
                WHEN NOT {_SAME_ATTRIBUTES} THEN 'attributes'
                WHEN b.ctime_ns <> n.ctime_ns OR b.nlink <> n.nlink OR b.link_group IS DISTINCT FROM n.link_group
                    OR b.gfid <> n.gfid OR {_DOUBTED} THEN 'rewritten'
                WHEN reaped.path IS NOT NULL THEN CASE WHEN b.path <> n.path THEN 'unsettled' END
                WHEN b.unsettled THEN 'unsettled'
            END AS kind
        FROM here n LEFT JOIN origins ON origins.new = n.path LEFT JOIN was b ON b.path = origins.old
        LEFT JOIN reaped ON reaped.path = b.path
    ) WHERE kind IS NOT NULL
"""
"""A file is unchanged if only its inode number differs: some file systems assign new numbers. A gfid is stable."""

_VANISHED = f"""
    CREATE TEMP TABLE vanished AS
    SELECT was.path, was.tree, was.type, placed.place, {content_bytes_sql("was.")} AS bytes
    FROM was JOIN placed ON placed.path = was.path
    ANTI JOIN slots ON slots.old = was.path ANTI JOIN moved_files ON moved_files.old = was.path
"""

_GONE_PATHS = """
    SELECT tree, path
    FROM vanished ANTI JOIN (SELECT path FROM vanished WHERE type = 'directory') holders
        ON holders.path = above(vanished.path)
    ORDER BY path
"""

_BEFORE = f"""
    SELECT tree, count(*), sum(bytes)::BIGINT FROM (
        SELECT tree, path, bytes FROM base_rows UNION ALL SELECT tree, path, 0 FROM leftover
    ) WHERE {_SELECTED} GROUP BY tree
"""

_TALLIES = f"""
    WITH found AS (
        SELECT tree, kind, type, bytes FROM sent
        UNION ALL SELECT tree, 'vanished', type, bytes FROM vanished
        UNION ALL
        SELECT here.tree, 'renamed', here.type, {content_bytes_sql("here.")}
        FROM here SEMI JOIN renamed ON renamed.new = here.path
    )
    SELECT tree, kind, count(*), count(*) FILTER (WHERE type = 'directory'), sum(bytes)::BIGINT
    FROM found GROUP BY tree, kind
"""

_ENTRIES = f"""
    CREATE TEMP TABLE touched AS SELECT DISTINCT link_group FROM sent WHERE link_group IS NOT NULL;
    CREATE TEMP TABLE chosen AS
    SELECT path FROM sent
    UNION ALL SELECT path FROM now_rows WHERE {_SELECTED} AND link_group IN (SELECT link_group FROM touched);
    CREATE TEMP TABLE entries AS
    WITH wanted_paths AS (
        SELECT path FROM chosen
        UNION ALL SELECT above(chosen.path) FROM chosen
            ANTI JOIN sent ON sent.path = chosen.path AND sent.type = 'directory' AND sent.kind <> 'new'
        UNION ALL SELECT above(new) FROM renamed
        UNION ALL SELECT above(place) FROM renamed WHERE place IS NOT NULL
        UNION ALL SELECT new FROM renamed WHERE directory
        UNION ALL SELECT above(place) FROM vanished WHERE place IS NOT NULL
    )
    SELECT path, tree, brick, type, size, bytes, link_group, mtime_ns, position
    FROM now_rows WHERE {_SELECTED} AND path IN (SELECT path FROM wanted_paths)
"""
"""The rows to list: everything that is sent, all names of its link groups, and the directories whose times change
because of sent paths, renames or deletions.
"""


# Running a comparison, out of core.


_RANGES_AT_ONCE = 100


class Comparisons:
    """Compares catalogs; queries spill to `scratch`."""

    def __init__(self, catalogs: ClosedCatalogs, *, scratch: Scratch, threads: int | None = None) -> None:
        self._catalogs = catalogs
        self._scratch = scratch
        self._threads = threads

    @contextmanager
    def open(
        self,
        base: str,
        now: str,
        *,
        trees: Collection[bytes],
        unsettled: Collection[bytes] = (),
        unsettled_trees: Collection[bytes] = (),
        leftovers: Collection[bytes] = (),
        reap_list: Path | None = None,
    ) -> Iterator["CatalogComparison"]:
        """Compare two closed catalogs. `unsettled` are paths, and `unsettled_trees` whole trees, that are not known to
        have arrived: they are sent again whether they changed or not. `leftovers` are paths that the target may have
        although the base lacks them: they count as paths of the base that changed.

        Files of `reap_list` (see `ReapLists.checked`) are not on the target. While they keep content and place, they
        are not sent, even in an unsettled tree. If they or a directory above were renamed, they are sent, never
        renamed.

        The roots of the trees are ignored: they stay closed until the cutover. Nothing is renamed in an unsettled tree.
        Raises UsageError if a catalog does not exist, Refused if one is damaged or does not cover the trees, or if
        `now` is incomplete for these trees (paths that a base lacks are sent again).
        """
        before = self._catalogs.open(base)
        after = self._catalogs.open(now)
        if not after.record.whole_of(trees):
            raise Refused(
                f"catalog {now!r} is not whole: what it does not list may be there all the same",
                cause="; ".join(after.record.reasons) or "the scan says so",
                hint="run `migrator scan` when the source is healthy",
            )
        for catalog in (before.record, after.record):
            if not catalog.covers(trees):
                raise Refused(
                    f"catalog {catalog.name!r} was made of other user trees than those that are compared",
                    cause="everything in a tree that was not scanned would look as if it were new or had vanished",
                )
        resend = set(unsettled_trees)
        with connect(self._scratch, threads=self._threads) as connection:
            create_entries(connection, before.part_files, view="base_rows")
            create_entries(connection, after.part_files, view="now_rows")
            ended_at_s = before.record.finished_at_s or before.record.started_at_s
            after_ns = int((before.record.started_at_s - SETTLED_BEFORE_SCAN_S) * NS_PER_S)
            until_ns = int((ended_at_s + SETTLED_BEFORE_SCAN_S) * NS_PER_S)
            settings = _SETTINGS.format(
                after_ns=after_ns,
                until_ns=until_ns,
                base_from_bricks=bool(before.record.bricks),
                now_from_bricks=bool(after.record.bricks),
            )
            connection.execute(settings)
            for tree in sorted(set(trees)):
                connection.execute("INSERT INTO wanted VALUES (?, ?)", [tree, tree in resend])
            _insert(connection, "unsettled", {"path": sorted(set(unsettled))})
            if leftovers:
                of_trees = ((path, tree_of(path, set(trees))) for path in leftovers)
                placed = {path: tree for path, tree in of_trees if tree is not None and tree != path}
                _insert(connection, "leftover", {"path": list(placed), "tree": list(placed.values())})
                connection.execute(_ONLY_ON_TARGET)
            # A catalog of everything may have a thousand times the rows of these trees.
            (rows,) = connection.execute(_WANTED_ROWS).fetchone() or (0,)
            require_room(self._scratch, rows)
            differ = _compare(connection, rows, reap_list)
            yield CatalogComparison(connection, before.record, after.record, sorted(set(trees)), differ=differ)


def _keep_keys(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    keys: str,
    kept: str,
    parameters: Mapping[str, object],
    *,
    rows: int,
) -> None:
    """Create a table with those of the `keys` (hashes of the paths of so many rows) that the query `kept` selects, in parts:
    those of 10^8 paths on each side are not grouped at once in 512 MiB.
    """
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} (key UBIGINT)")
    parts = rows // _KEYS_AT_ONCE + 1
    for some in in_parts(connection, keys, parameters, part=f"key % {parts}", parts=parts):
        some.query("keys", kept).insert_into(table)


def _compare(connection: duckdb.DuckDBPyConnection, rows: int, reap_list: Path | None) -> bool:
    """Create all tables of a comparison of so many rows of both catalogs; False, without them, if no path differs."""
    _keep_keys(connection, "candidates", _KEYS, _CANDIDATES, {}, rows=rows)
    (candidates,) = connection.execute("SELECT count(*) FROM candidates").fetchone() or (0,)
    if not candidates:
        return False
    parts = candidates // _JOINED_PATHS + 1
    for part in range(parts):
        into = "INSERT INTO differing" if part else "CREATE TEMP TABLE differing AS"
        connection.execute(into + _DIFFERING_PART.format(parts=parts, part=part))
    connection.execute(_DIFFERING)
    _place_directories(connection)
    if _add_occupied(connection):
        _place_directories(connection)
    # Table functions take literals only, no parameters.
    literal = "" if reap_list is None else str(reap_list).replace("'", "''")
    none = "(SELECT * FROM was WHERE false)"
    connection.execute(_REAPED.format(listed=f"read_parquet(['{literal}'])" if reap_list is not None else none))
    for query in (_MATCHED, _SENT, _VANISHED):
        connection.execute(query)
    return True


def _insert(connection: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, Sequence[object]]) -> None:
    schema = connection.table(table).to_arrow_table().schema
    connection.from_arrow(pa.table(dict(columns), schema=schema)).insert_into(table)


def _place_directories(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(_ONCE)
    connection.execute(_PAIRED)
    if _place(connection):
        connection.execute(_BLOCKED)
        _place(connection)


def _place(connection: duckdb.DuckDBPyConnection) -> bool:
    """Fill `placed`. Returns whether any directory changes the place of paths."""
    sources = connection.execute(_SEGMENT_SOURCES).fetchall()
    connection.execute(_SEGMENTS)
    segments = list(_segments(sources))
    nearest = [source for _, _, source in segments]
    columns: dict[str, Sequence[object]] = {
        "tree": [tree for tree, _, _ in segments],
        "start": [start for _, start, _ in segments],
        "cut": [None if source is None else len(source[0]) for source in nearest],
        "target": [None if source is None else source[2] for source in nearest],
    }
    _insert(connection, "segments", columns)
    connection.execute(_PLACED)
    return bool(sources)


def _add_occupied(connection: duckdb.DuckDBPyConnection) -> bool:
    directories: list[bytes] = []
    for (path,) in connection.execute(_OCCUPIED).fetchall():
        if not (directories and path.startswith(directories[-1] + b"/")):
            directories.append(path)
    for start in range(0, len(directories), _RANGES_AT_ONCE):
        some = directories[start : start + _RANGES_AT_ONCE]
        ranges = " OR ".join(f"(path > $start{index} AND path < $end{index})" for index in range(len(some)))
        parameters = {f"start{index}": path + b"/" for index, path in enumerate(some)}
        parameters |= {f"end{index}": path + b"0" for index, path in enumerate(some)}
        connection.execute(_BENEATH.format(ranges=ranges), parameters)
    return bool(directories)


_Source = tuple[bytes, bytes, bytes | None]


def _segments(sources: Sequence[_Source]) -> Iterator[tuple[bytes, bytes, _Source | None]]:
    """Tree, start and nearest directory above, for every run of paths; None: no directory of `sources` is above.
    `sources` (path, tree, ...) are sorted so that the content of a directory directly follows it.
    """
    open_ones: list[_Source] = []

    def close(until: bytes | None) -> Iterator[tuple[bytes, bytes, _Source | None]]:
        while open_ones and (until is None or not until.startswith(open_ones[-1][0] + b"/")):
            last = open_ones.pop()
            # The byte after the slash: no path beneath the directory starts with this.
            yield last[1], last[0] + b"0", open_ones[-1] if open_ones else None

    for source in sources:
        yield from close(source[0])
        open_ones.append(source)
        yield source[1], source[0] + b"/", source
    yield from close(None)


class CatalogComparison:
    """Two compared catalogs, for some trees. Queries are out of core, one at a time. Blocking."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        base: CatalogRecord,
        now: CatalogRecord,
        trees: Sequence[bytes],
        *,
        differ: bool,
    ) -> None:
        self._connection = connection
        self._bricks = sorted(walk.brick for walk in now.bricks)
        self._differ, self._chosen = differ, False
        before = {tree: (names, size) for tree, names, size in connection.execute(_BEFORE).fetchall()}
        tallies: defaultdict[bytes, dict[ChangeKind, model.ChangeTally]] = defaultdict(dict)
        for tree, kind, paths, directories, size in self._rows(_TALLIES):
            tallies[tree][ChangeKind(kind)] = model.ChangeTally(paths=paths, directories=directories, size_bytes=size)
        changed = []
        for tree in trees:
            names, size = before.get(tree, (0, 0))
            changed.append(TreeChanges(tree=tree, names_before=names, bytes_before=size, by_kind=tallies[tree]))
        self.changes = model.Changes(base=base.name, now=now.name, trees=tuple(changed))

    def _rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        if not self._differ:
            return
        for block in self._connection.sql(query).to_arrow_reader(ROWS_AT_ONCE):
            yield from zip(*(column.to_pylist() for column in block.columns), strict=True)

    def renames(self) -> Iterator[Rename]:
        """Renames under their names in the base, with the content of a directory before the directory. The caller moves
        all old names away before it creates the first new name: chains and cycles need no order.
        """
        for tree, old, new, kind, size_bytes, mtime_ns in self._rows(_RENAMES):
            yield Rename(tree=tree, old=old, new=new, type=EntryType(kind), size_bytes=size_bytes, mtime_ns=mtime_ns)

    def gone(self) -> Iterator[Gone]:
        """The outermost vanished paths, in order of path. Another entry may have the name now: a directory became something
        else or the reverse, or another directory was renamed to it. Files that were replaced by other files are not
        included. A directory that was renamed out of a vanished one may hold vanished paths of its own.
        """
        for tree, path in self._rows(_GONE_PATHS):
            yield Gone(tree=tree, path=path)

    def listings(self, batches: Sequence[Sequence[bytes]]) -> Iterator[PathSequence]:
        """The entries to send of these trees, for packing, as for a plan (see `CatalogQueries.listings`).

        A changed file adds all names of its link group. A new, renamed or removed entry adds its directories, because
        their times change.
        """
        if not self._differ:
            return iter(())
        if not self._chosen:
            self._connection.execute(_ENTRIES)
            self._chosen = True
        return listed(self._connection, batches, bricks=self._bricks)


# Move lists: one Parquet file for each delta pass, renames first, then vanished paths.


MOVES_SCHEMA = Columns[object](
    "what:string tree:binary path:binary new_path:binary? type:string? size:int64? mtime_ns:int64?"
).schema
"""`what` is `rename` (with all columns) or `gone`."""

_RENAME, _GONE = "rename", "gone"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}", re.ASCII)
_SUFFIX = ".parquet"
_NAME_DIGITS = 16
"""How much of its digest is in the name of a list."""
_BRING_BACK = "restore the state directory"


class MoveListFiles:
    """The move lists of a site, one for each delta pass. A list's name is relative to their directory, so that a site
    can be moved. Reading raises Refused if a list is missing or damaged.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, name: str, renames: Iterable[Rename], gone: Iterable[Gone]) -> model.WrittenMoves:
        """Write a list durably, in the given order, with some thousand rows in memory. The digest of the list is added
        to its name. Raises UsageError for an unusable name, and OSError.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(f'"{name}" cannot be the name of a move list', hint="letters, digits, dots, dashes")
        move_list = name + _SUFFIX
        self._directory.mkdir(parents=True, exist_ok=True)
        sync(self._directory.parent)
        counts = Counter[str]()
        rows = chain(map(_of_rename, renames), map(_of_gone, gone))
        with (
            replacing(self._directory / move_list) as stream,
            pq.ParquetWriter(stream, MOVES_SCHEMA, compression="zstd", write_page_checksum=True) as writer,
        ):
            while block := list(islice(rows, ROWS_AT_ONCE)):
                writer.write_batch(pa.RecordBatch.from_pylist(block, schema=MOVES_SCHEMA))
                counts.update(row["what"] for row in block)
        digest = self.digest(move_list)
        # An older ledger gives numbers again: a list never takes the place of another one.
        written, move_list = move_list, f"{name}-{digest[:_NAME_DIGITS]}{_SUFFIX}"
        (self._directory / written).rename(self._directory / move_list)
        sync(self._directory)
        return model.WrittenMoves(move_list=move_list, digest=digest, renames=counts[_RENAME], gone=counts[_GONE])

    def renames(self, move_list: str) -> Iterator[Rename]:
        for row in takewhile(lambda row: row["what"] == _RENAME, self._rows(move_list)):
            yield Rename(
                tree=row["tree"],
                old=row["path"],
                new=row["new_path"],
                type=EntryType(row["type"]),
                size_bytes=row["size"],
                mtime_ns=row["mtime_ns"],
            )

    def gone(self, move_list: str) -> Iterator[Gone]:
        for row in dropwhile(lambda row: row["what"] == _RENAME, self._rows(move_list)):
            yield Gone(tree=row["tree"], path=row["path"])

    def digest(self, move_list: str) -> str:
        """BLAKE2b of the file, in hexadecimal. Raises Refused if it is missing."""
        file = self._file(move_list)
        try:
            return file_digest(file)
        except FileNotFoundError:
            raise _missing(move_list, file) from None

    def _rows(self, move_list: str) -> Iterator[dict[str, Any]]:
        file = self._file(move_list)
        try:
            with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
                if not parquet.schema_arrow.equals(MOVES_SCHEMA):
                    raise _damaged(move_list, file, "it has other columns")
                for block in parquet.iter_batches(ROWS_AT_ONCE):
                    yield from block.to_pylist()
        except FileNotFoundError:
            raise _missing(move_list, file) from None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(move_list, file, str(error)) from error

    def _file(self, move_list: str) -> Path:
        if not _NAME.fullmatch(move_list):
            raise Refused(
                f"{move_list!r} cannot be a move list of this site",
                cause="move lists lie in the state directory",
                hint=_BRING_BACK,
            )
        return self._directory / move_list


def _of_rename(one: Rename) -> dict[str, Any]:
    row = {"what": _RENAME, "tree": one.tree, "path": one.old, "new_path": one.new, "type": one.type.value}
    return row | {"size": one.size_bytes, "mtime_ns": one.mtime_ns}


def _of_gone(one: Gone) -> dict[str, Any]:
    return {"what": _GONE, "tree": one.tree, "path": one.path}


def _missing(move_list: str, file: Path) -> Refused:
    cause = f"{file} was removed while its delta pass was in flight"
    return Refused(f"the move list {move_list!r} is missing", cause=cause, hint=_BRING_BACK)


def _damaged(move_list: str, file: Path, why: str) -> Refused:
    cause = f"{file} was cut off or replaced"
    return Refused(f"the move list {move_list!r} cannot be read: {why}", cause=cause, hint=_BRING_BACK)


# Extras, found out of core in earlier catalogs and in the differences of verifications.


_TABLES = """
    CREATE TEMP TABLE extras (tree BLOB, path BLOB, bytes BIGINT);
    CREATE TEMP TABLE of_others (path BLOB)
"""

_IN_TREES = "tree IN (SELECT unnest($trees)) AND path <> tree"

_BROUGHT = f"""
    SELECT path, any_value(tree) AS tree, max({content_bytes_sql()})::BIGINT AS bytes
    FROM read_parquet($catalogs) SEMI JOIN found USING (path) WHERE {_IN_TREES} GROUP BY path
"""

_EARLIER_KEYS = f"""
    SELECT hash(path) AS key, type = 'directory' AS directory, true AS earlier FROM read_parquet($catalogs) WHERE {_IN_TREES}
    UNION ALL SELECT hash(path), type = 'directory', false FROM base_rows WHERE {_IN_TREES}
    UNION ALL SELECT hash(path), type = 'directory', false FROM now_rows WHERE {_IN_TREES}
"""
_ONLY_EARLIER = "SELECT DISTINCT key FROM keys GROUP BY key, directory HAVING bool_and(earlier)"

_EARLIER = f"""
    INSERT INTO extras
    SELECT tree, path, bytes FROM (
        SELECT path, any_value(tree) AS tree, arg_max(type, ctime_ns) AS type,
            max({content_bytes_sql()})::BIGINT AS bytes
        FROM read_parquet($catalogs) SEMI JOIN only_earlier ON hash(path) = key WHERE {_IN_TREES} GROUP BY path
    ) e
    LEFT JOIN (SELECT path, type AS base_type FROM base_rows SEMI JOIN only_earlier ON hash(path) = key) b USING (path)
    LEFT JOIN (SELECT path, type AS now_type FROM now_rows SEMI JOIN only_earlier ON hash(path) = key) n USING (path)
    WHERE (now_type IS NULL OR (now_type = 'directory') <> (type = 'directory'))
        AND (base_type IS NULL OR (base_type = 'directory') <> (type = 'directory'))
"""
"""Another list already contains paths that vanished since the base. `only_earlier` are hashes of all these paths, and of few
others: a whole catalog is not grouped by path in little memory.
"""

_FOUND = """
    CREATE OR REPLACE TEMP TABLE found AS
    SELECT path, split_part(target, ',', 1) AS type FROM read_parquet($differences)
    WHERE kind = $extra OR (kind = $type AND (source = 'directory') <> (target = 'directory'))
"""

_NAMED = f"""
    INSERT INTO extras
    SELECT tree, path, bytes FROM found JOIN ({_BROUGHT}) brought USING (path)
    LEFT JOIN (SELECT path, type AS now_type FROM now_rows) n USING (path)
    WHERE now_type IS NULL OR (now_type = 'directory') <> (type = 'directory')
"""

_OF_OTHERS = """
    INSERT INTO of_others SELECT path FROM found ANTI JOIN (SELECT path FROM extras) known USING (path)
"""

_TALLY = """
    SELECT
        (SELECT count(*) FROM base_rows WHERE tree = $tree AND path <> tree),
        (SELECT coalesce(sum(bytes), 0)::BIGINT FROM base_rows WHERE tree = $tree AND path <> tree),
        count(*), coalesce(sum(bytes), 0)::BIGINT
    FROM (
        SELECT path, max(bytes) AS bytes FROM extras WHERE tree = $tree GROUP BY path
    )
"""

_EXTRAS_GONE = """
    SELECT any_value(tree), path FROM extras GROUP BY path ORDER BY path || '/'::BLOB
"""
"""The content of a directory follows it directly."""


class Extras:
    """Finds extras with the catalogs and the manifests of a site; queries spill to `scratch`."""

    def __init__(self, catalogs: ClosedCatalogs, *, scratch: Scratch) -> None:
        self._catalogs = catalogs
        self._scratch = scratch

    @contextmanager
    def open(self, wanted: Sequence[model.ExtrasOfTree], *, base: str, now: str) -> Iterator["FoundExtras"]:
        """Find paths that the catalog `now` no longer lists, or that changed from a directory to something else or the
        reverse, except those that vanished since `base`. Missing catalogs of `brought` and `earlier` are skipped: then
        less is found. Blocking. Raises UsageError and Refused as a comparison does, and Refused if the differences of
        the verification are missing or were changed.
        """
        groups: defaultdict[model.ExtrasOfTree, list[bytes]] = defaultdict(list)
        for one in wanted:
            groups[replace(one, tree=b"")].append(one.tree)
        with connect(self._scratch) as connection:
            sides = [self._catalogs.open(base), self._catalogs.open(now)]
            for side, view in zip(sides, ("base_rows", "now_rows"), strict=True):
                create_entries(connection, side.part_files, view=view)
            connection.execute(_TABLES)
            for one, trees in groups.items():
                if earlier := self._there(one.earlier):
                    given = {"catalogs": _files_of(earlier), "trees": trees}
                    rows = sum(catalog.record.rows for catalog in (*sides, *earlier))
                    _keep_keys(connection, "only_earlier", _EARLIER_KEYS, _ONLY_EARLIER, given, rows=rows)
                    connection.execute(_EARLIER, given)
                if one.manifest is not None:
                    differences = str(differences_of(one.manifest, digest=one.differences_digest))
                    kinds = {"extra": DifferenceKind.EXTRA.value, "type": DifferenceKind.TYPE.value}
                    connection.execute(_FOUND, {"differences": differences, **kinds})
                    if brought := self._there(one.brought):
                        connection.execute(_NAMED, {"catalogs": _files_of(brought), "trees": trees})
                    connection.execute(_OF_OTHERS)
            yield FoundExtras(connection)

    def _there(self, names: Sequence[str]) -> list[ClosedCatalog]:
        """Those catalogs that can be opened and have rows."""
        found: list[ClosedCatalog] = []
        for name in names:
            with suppress(MigratorError):
                found.append(self._catalogs.open(name))
        return [one for one in found if one.part_files]


def _files_of(catalogs: Sequence[ClosedCatalog]) -> list[str]:
    return [str(file) for catalog in catalogs for file in catalog.part_files]


class FoundExtras:
    """Extras of some trees. Out of core; one query at a time. Blocking."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def lost(self, tree: bytes) -> TreeChanges | None:
        """The extras of a tree in the form of a comparison: the target has the paths of the base and the extras, and
        loses the extras. None: the tree has none.
        """
        row = self._connection.execute(_TALLY, {"tree": tree}).fetchone()
        names_before, bytes_before, names, size_bytes = row or (0, 0, 0, 0)
        if not names:
            return None
        return TreeChanges(
            tree=tree,
            names_before=names_before + names,
            bytes_before=bytes_before + size_bytes,
            by_kind={ChangeKind.VANISHED: model.ChangeTally(paths=names, size_bytes=size_bytes)},
        )

    def keep(self, trees: Sequence[bytes]) -> None:
        """Forget the extras of all other trees."""
        self._connection.execute("DELETE FROM extras WHERE tree NOT IN (SELECT unnest($trees))", {"trees": list(trees)})

    def gone(self) -> Iterator[Gone]:
        """The outermost extras, in order of path. Omits directories that are known to hold a path that this program did
        not copy. May be called again.
        """
        kept = self._directories_with_others()
        outermost: Gone | None = None
        query = self._connection.execute(_EXTRAS_GONE)
        while rows := query.fetchmany(ROWS_AT_ONCE):
            for tree, path in rows:
                if path not in kept and not (outermost and path.startswith(outermost.path + b"/")):
                    yield (outermost := Gone(tree=tree, path=path))

    def _directories_with_others(self) -> frozenset[bytes]:
        found: set[bytes] = set()
        for (path,) in self._connection.execute("SELECT path FROM of_others").fetchall():
            above = path.rpartition(b"/")[0]
            while above and above not in found:
                found.add(above)
                above = above.rpartition(b"/")[0]
        return frozenset(found)
