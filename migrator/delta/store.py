"""Comparisons of catalogs and extras, by DuckDB out of core, and the move lists of passes."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from migrator.catalog.database import connect
from migrator.catalog.files import ClosedCatalog, open_closed
from migrator.catalog.manifest import DIFFERENCES_FILE
from migrator.catalog.model import SETTLED_BEFORE_SCAN_S, CatalogRecord
from migrator.catalog.queries import ROWS_AT_ONCE, create_entries, listed
from migrator.catalog.rules_packing import Listing
from migrator.core.durable import file_digest, replacing, sync
from migrator.core.entry import EntryType
from migrator.core.errors import MigratorError, Refused, UsageError
from migrator.core.units import NS_PER_S
from migrator.delta.model import ChangeKind, Changes, ChangeTally, Gone, Rename, TreeChanges
from migrator.delta.ports import ExtraOrigin, ExtrasOfTree, ExtrasTally, WrittenMoves
from migrator.delta.rules import Relocation, in_order
from migrator.plan.store import DUCKDB_MEMORY_BYTES
from migrator.verify.model import DifferenceKind

# The SQL of a comparison.
#
# `base_rows` and `now_rows` are views of the catalogs. One join of both leaves the differing rows in `differing`; all other
# queries use it: `was` and `here` are its two sides. The `place` of a path in `was` is its name now if only the directories
# above it were renamed. `place` is null if a directory above is gone and another directory has its name.


_COLUMNS = (
    *("path", "tree", "type", "size", "mtime_ns", "ctime_ns", "mode", "uid", "gid", "xattr_digest", "symlink_target"),
    *("rdev", "link_group", "nlink", "dev", "ino", "gfid"),
)

MACROS = """
    CREATE TEMP MACRO above(path) AS
        unhex(regexp_extract(hex(path), '^((?:..)*)2F(?:[013-9A-F].|2[0-9A-E])*$', 1));
    CREATE TEMP MACRO from_byte(path, place) AS array_slice(path, place, octet_length(path));
"""
"""`above` is the directory that holds a path. DuckDB has few functions on BLOB; on `hex` it is exact."""

SETTINGS_TABLES = """
    CREATE TEMP TABLE wanted (tree BLOB, resend BOOLEAN, renames BOOLEAN);
    CREATE TEMP TABLE unsettled (path BLOB);
    CREATE TEMP TABLE excluded (path BLOB)
"""
"""`resend`: nothing of the tree is known to have arrived. `renames`: search for renames. `excluded` are paths of the base
that count as vanished although they were renamed, because no order of their renames works."""

_ATTRIBUTES = """(
    b.mode <> n.mode OR b.uid <> n.uid OR b.gid <> n.gid OR b.xattr_digest IS DISTINCT FROM n.xattr_digest
)"""

_DEVICE = """(b.type IN ('block', 'character') AND b.rdev <> n.rdev)"""

_OTHER_INODE = """(CASE
    WHEN b.gfid IS NOT NULL AND n.gfid IS NOT NULL THEN b.gfid <> n.gfid
    WHEN b.gfid IS NOT NULL OR n.gfid IS NOT NULL OR b.dev = n.dev THEN b.ino <> n.ino
    ELSE false
END)"""
"""True if the inodes are known to differ. On Gluster the inode number is the low half of the gfid, through mount and bricks;
elsewhere numbers of different devices prove nothing (a new mount may have another device number)."""

_DIFFER = f"""(CASE
    WHEN b.type <> n.type OR {_ATTRIBUTES} OR b.mtime_ns <> n.mtime_ns OR {_OTHER_INODE} THEN true
    WHEN b.type = 'directory' THEN false
    ELSE b.size <> n.size OR b.ctime_ns <> n.ctime_ns OR b.symlink_target IS DISTINCT FROM n.symlink_target
        OR b.nlink <> n.nlink OR b.link_group IS DISTINCT FROM n.link_group OR {_DEVICE}
END)"""
"""Times and size of a directory change with its entries; its ctime adds nothing to its mtime."""

_SELECTED = "tree IN (SELECT tree FROM wanted) AND path <> tree"
"""The roots of trees stay closed until the cutover and are not sent."""

_BASE = f"""(
    SELECT {", ".join(_COLUMNS)},
        (type <> 'directory' AND (ctime_ns > {{after_ns}} OR mtime_ns > {{after_ns}} AND mtime_ns <= {{until_ns}}))
            OR tree IN (SELECT tree FROM wanted WHERE resend) OR path IN (SELECT path FROM unsettled) AS unsettled
    FROM base_rows WHERE {_SELECTED}
)"""
_NOW = f"(SELECT {', '.join(_COLUMNS)} FROM now_rows WHERE {_SELECTED})"
_BOTH = ", ".join(f"b.{column} AS b_{column}, n.{column} AS n_{column}" for column in _COLUMNS)

_EQUAL = f"b.path = n.path AND NOT b.unsettled AND NOT {_DIFFER}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Young:
    """Times in the base after which another change may have left no trace."""

    after_ns: int
    until_ns: int

    @property
    def base(self) -> str:
        return _BASE.format(after_ns=self.after_ns, until_ns=self.until_ns)


def differing(young: Young) -> str:
    """Make `differing`: the one query that reads both catalogs."""
    return f"""
        CREATE TEMP TABLE differing AS
        SELECT {_BOTH}, b.unsettled AS b_unsettled
        FROM {young.base} b FULL OUTER JOIN {_NOW} n ON b.path = n.path
        WHERE b.path IS NULL OR n.path IS NULL OR b.unsettled OR {_DIFFER}
    """


def beneath(directories: int, young: Young) -> str:
    """Add the equal paths beneath some directories to `differing`: `$start0`, `$end0` and so on."""
    ranges = " OR ".join(f"(path > $start{index} AND path < $end{index})" for index in range(directories))
    return f"""
        INSERT INTO differing
        SELECT {_BOTH}, b.unsettled AS b_unsettled
        FROM (SELECT * FROM {young.base} WHERE {ranges}) b
        JOIN (SELECT * FROM {_NOW} WHERE {ranges}) n ON {_EQUAL}
    """


_REAPED = "CREATE TEMP TABLE reaped (path BLOB)"
_REAPED_OF = """
    CREATE TEMP TABLE reaped AS
    SELECT was.path FROM was SEMI JOIN read_parquet([{files}]) listed
        ON listed.path = was.path AND listed.size = was.size
        AND listed.mtime_ns = was.mtime_ns AND listed.ctime_ns = was.ctime_ns
    ANTI JOIN unsettled ON unsettled.path = was.path
"""


def reaped(reap_list: Path | None) -> str:
    """Make `reaped`: paths of `was` that are unchanged on the reap list, and so were never sent. Paths that are unsettled by
    name are sent all the same.
    """
    if reap_list is None:
        return _REAPED
    # Table functions take literals only, no parameters.
    return _REAPED_OF.format(files="'" + str(reap_list).replace("'", "''") + "'")


SIDES = f"""
    CREATE TEMP VIEW was AS
    SELECT {", ".join(f"b_{column} AS {column}" for column in _COLUMNS)}, b_unsettled AS unsettled
    FROM differing WHERE b_path IS NOT NULL;
    CREATE TEMP VIEW here AS
    SELECT {", ".join(f"n_{column} AS {column}" for column in _COLUMNS)} FROM differing WHERE n_path IS NOT NULL;
    CREATE TEMP TABLE gluster AS SELECT count(b_gfid) + count(n_gfid) > 0 AS is_it FROM differing
"""

_SAME_INODE = """
    b.ino = n.ino AND b.tree = n.tree
    AND CASE WHEN b.gfid IS NOT NULL AND n.gfid IS NOT NULL THEN b.gfid = n.gfid
        ELSE b.dev = n.dev OR (SELECT is_it FROM gluster) END
"""
_RENAMES_WANTED = """
    b.tree IN (SELECT tree FROM wanted WHERE renames) AND b.path NOT IN (SELECT path FROM excluded)
"""

PAIRED = f"""
    CREATE OR REPLACE TEMP TABLE paired AS
    SELECT b.path AS old, n.path AS new, b.tree
    FROM was b JOIN here n ON {_SAME_INODE}
    WHERE b.type = 'directory' AND n.type = 'directory' AND {_RENAMES_WANTED}
    QUALIFY count(*) OVER (PARTITION BY b.path) = 1 AND count(*) OVER (PARTITION BY n.path) = 1
"""
"""Directories with the same inode in both catalogs, under whatever names."""

HEADED = """
    CREATE OR REPLACE TEMP TABLE headed AS
    WITH parents AS (SELECT *, above(old) AS holder FROM paired)
    SELECT parents.old, parents.new, parents.tree
    FROM parents LEFT JOIN paired AS held ON held.old = parents.holder
    LEFT JOIN (SELECT path FROM was WHERE type = 'directory') known ON known.path = parents.holder
    WHERE parents.new IS DISTINCT FROM CASE
        WHEN held.old IS NOT NULL THEN held.new WHEN known.path IS NULL THEN parents.holder
    END || from_byte(parents.old, octet_length(parents.holder) + 1)
"""
"""Those that did not just move with the directory above. A directory that is not in `was` did not move."""

BLOCKED = """
    CREATE OR REPLACE TEMP TABLE blocked AS
    SELECT placed.path, placed.tree, placed.place
    FROM placed ANTI JOIN paired ON paired.old = placed.path SEMI JOIN paired AS taken ON taken.new = placed.place
    WHERE placed.type = 'directory'
"""
"""Vanished directories whose name another directory has now, with content of its own."""

SEGMENTS_TABLE = "CREATE OR REPLACE TEMP TABLE segments (tree BLOB, start BLOB, cut BIGINT, target BLOB, held_by BLOB)"
"""From `start` to the next row's start, the nearest directory above the paths has a name of `cut` bytes and became `target`,
or is gone from the place `held_by`; if both are null, the paths keep their names."""

SEGMENT_SOURCES = """
    SELECT old AS path, tree, new AS target, NULL::BLOB AS held_by FROM headed
    UNION ALL SELECT path, tree, NULL, place FROM blocked
    ORDER BY path || '/'::BLOB
"""

PLACED = """
    CREATE OR REPLACE TEMP TABLE placed AS
    SELECT was.path, was.tree, was.type, segments.held_by, CASE
        WHEN held_by IS NOT NULL THEN NULL
        WHEN target IS NOT NULL THEN target || from_byte(was.path, cut + 1)
        ELSE was.path
    END AS place
    FROM was ASOF LEFT JOIN segments ON was.tree = segments.tree AND was.path >= segments.start
"""

OCCUPIED = """
    SELECT path FROM (
        SELECT old AS path FROM headed WHERE old <> new UNION ALL SELECT path FROM blocked
    ) SEMI JOIN (SELECT path FROM here WHERE type = 'directory') now USING (path)
    ORDER BY path || '/'::BLOB
"""
"""Directories that moved or vanished while another one got their name: equal paths beneath it are new there."""

SLOTS = """
    CREATE OR REPLACE TEMP TABLE slots AS
    SELECT placed.path AS old, here.path AS new
    FROM placed LEFT JOIN paired ON paired.old = placed.path
    JOIN here ON here.path = coalesce(paired.new, placed.place)
        AND (here.type = 'directory') = (placed.type = 'directory')
    LEFT JOIN paired AS taken ON taken.new = here.path
    WHERE placed.type <> 'directory' OR paired.old IS NOT NULL OR taken.new IS NULL
"""
"""Pairs of paths of the base and of now, before renames of files."""

MOVED_FILES = f"""
    CREATE OR REPLACE TEMP TABLE moved_files AS
    SELECT old, new, tree, place, held_by FROM (
        SELECT b.path AS old, n.path AS new, b.tree, placed.place, placed.held_by,
            b.type = n.type AND b.size = n.size AND b.mtime_ns = n.mtime_ns
            AND b.symlink_target IS NOT DISTINCT FROM n.symlink_target AND NOT {_DEVICE}
            AND b.link_group IS NULL AND n.link_group IS NULL AND NOT b.unsettled
            AND b.path NOT IN (SELECT path FROM reaped) AS fits,
            count(*) OVER (PARTITION BY b.path) AS news, count(*) OVER (PARTITION BY n.path) AS olds
        FROM was b JOIN here n ON {_SAME_INODE} JOIN placed ON placed.path = b.path
        WHERE b.type <> 'directory' AND n.type <> 'directory' AND {_RENAMES_WANTED}
    ) WHERE fits AND news = 1 AND olds = 1 AND place IS DISTINCT FROM new
"""

RENAMED = """
    CREATE OR REPLACE TEMP TABLE renamed AS
    SELECT headed.old, headed.new, headed.tree, placed.place, placed.held_by, true AS directory
    FROM headed JOIN placed ON placed.path = headed.old WHERE placed.place IS DISTINCT FROM headed.new
    UNION ALL SELECT old, new, tree, place, held_by, false FROM moved_files
"""

TO_ORDER = "SELECT old, new, tree, place, held_by, directory FROM renamed WHERE directory OR place IS NULL"
"""Renames whose order matters; the other ones are of files, whose place is fixed once the directories have moved."""

ORDERED_TABLE = "CREATE OR REPLACE TEMP TABLE ordered (number BIGINT, old BLOB, called BLOB)"

RENAMES = """
    SELECT renamed.tree, coalesce(ordered.called, renamed.place), renamed.new, here.type, here.size, here.mtime_ns
    FROM renamed LEFT JOIN ordered USING (old) JOIN here ON here.path = renamed.new
    ORDER BY ordered.number NULLS LAST, renamed.new
"""

ORIGINS = """
    CREATE OR REPLACE TEMP TABLE origins AS
    SELECT old, new, true AS by_rename FROM moved_files
    UNION ALL
    SELECT old, new, false FROM slots
    ANTI JOIN moved_files AS left_it ON left_it.old = slots.old ANTI JOIN moved_files AS came ON came.new = slots.new
"""

SENT = f"""
    CREATE OR REPLACE TEMP TABLE sent AS
    SELECT * FROM (
        SELECT n.path, n.tree, n.type, n.link_group, CASE WHEN n.type = 'file' THEN n.size ELSE 0 END AS bytes,
            CASE
                WHEN b.path IS NULL THEN 'new'
                WHEN origins.by_rename THEN CASE WHEN {_ATTRIBUTES} THEN 'attributes' END
                WHEN n.type = 'directory' THEN CASE
                    WHEN {_ATTRIBUTES} OR b.mtime_ns <> n.mtime_ns THEN 'attributes'
                    WHEN b.unsettled THEN 'unsettled'
                END
                WHEN b.type <> n.type THEN 'rewritten'
                WHEN n.type = 'file' AND n.size > b.size THEN 'grown'
                WHEN b.size <> n.size OR b.mtime_ns <> n.mtime_ns
                    OR b.symlink_target IS DISTINCT FROM n.symlink_target OR {_DEVICE} THEN 'rewritten'
                WHEN {_ATTRIBUTES} THEN 'attributes'
                WHEN b.ctime_ns <> n.ctime_ns OR b.nlink <> n.nlink OR b.link_group IS DISTINCT FROM n.link_group
                    OR b.gfid <> n.gfid THEN 'rewritten'
                WHEN reaped.path IS NOT NULL THEN CASE WHEN b.path <> n.path THEN 'unsettled' END
                WHEN b.unsettled THEN 'unsettled'
            END AS kind
        FROM here n LEFT JOIN origins ON origins.new = n.path LEFT JOIN was b ON b.path = origins.old
        LEFT JOIN reaped ON reaped.path = b.path
    ) WHERE kind IS NOT NULL
"""
"""A file is unchanged if only its inode number differs: some file systems assign new numbers. A gfid is stable."""

VANISHED = """
    CREATE OR REPLACE TEMP TABLE vanished AS
    SELECT was.path, was.tree, was.type, placed.place, CASE WHEN was.type = 'file' THEN was.size ELSE 0 END AS bytes
    FROM was JOIN placed ON placed.path = was.path
    ANTI JOIN slots ON slots.old = was.path ANTI JOIN moved_files ON moved_files.old = was.path
"""

GONE = """
    SELECT vanished.path, vanished.tree, vanished.type, holders.path IS NULL AS outermost
    FROM vanished LEFT JOIN (SELECT path FROM vanished WHERE type = 'directory') holders
        ON holders.path = above(vanished.path)
    ORDER BY vanished.path || '/'::BLOB
"""
"""The content of a directory follows it directly."""

BEFORE = f"""
    SELECT tree, count(*), sum(bytes)::BIGINT FROM base_rows WHERE {_SELECTED} GROUP BY tree
"""

TALLIES = """
    WITH found AS (
        SELECT tree, kind, type, bytes FROM sent
        UNION ALL SELECT tree, 'vanished', type, bytes FROM vanished
        UNION ALL
        SELECT here.tree, 'renamed', here.type, CASE WHEN here.type = 'file' THEN here.size ELSE 0 END
        FROM here SEMI JOIN renamed ON renamed.new = here.path
    )
    SELECT tree, kind, count(*), count(*) FILTER (WHERE type = 'directory'), sum(bytes)::BIGINT
    FROM found GROUP BY tree, kind
"""

ENTRIES = f"""
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
    SELECT path, tree, brick, type, bytes, link_group, mtime_ns, position
    FROM now_rows WHERE {_SELECTED} AND path IN (SELECT path FROM wanted_paths)
"""
"""The rows to list: everything that is sent, all names of its link groups, and the directories whose times change by that,
by renames or by deletions."""


# Running a comparison, out of core.


_RANGES_AT_ONCE = 100
_ORDERING_ROUNDS = 4


class Comparisons:
    """Compares catalogs of one directory; `temp_dir` takes what DuckDB spills."""

    def __init__(self, directory: Path, *, temp_dir: Path, threads: int | None = None) -> None:
        self._directory = directory
        self._temp_dir = temp_dir
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
        reap_list: Path | None = None,
    ) -> Iterator["Comparison"]:
        """Compare two closed catalogs. `unsettled` are paths, and `unsettled_trees` whole trees, that are not known to have
        arrived: they are sent again whether they changed or not.

        Files of `reap_list` (see `ReapLists.checked`) are not on the target. They are not sent while they keep content and
        place, even in an unsettled tree; they are sent, never renamed, if they or a directory above were renamed.

        The roots of the trees are ignored: they stay closed until the cutover. Nothing is renamed in an unsettled tree.
        Raises UsageError if a catalog does not exist, Refused if one is damaged or does not cover the trees, or if `now`
        is not whole (paths that a base lacks are sent again).
        """
        before = open_closed(self._directory / base)
        after = open_closed(self._directory / now)
        if not after.record.whole:
            raise Refused(
                f"catalog {now!r} is not whole: what it does not list may be there all the same",
                cause="; ".join(after.record.reasons) or "the scan says so",
                hint="run `migrator scan` when the source is healthy",
            )
        for catalog in (before.record, after.record):
            _require_covered(catalog, trees)
        with connect(DUCKDB_MEMORY_BYTES, self._temp_dir, threads=self._threads) as connection:
            compared = _Tables(connection, before, after, reap_list)
            compared.fill(trees=trees, unsettled=unsettled, unsettled_trees=unsettled_trees)
            yield Comparison(connection, before, after, sorted(set(trees)))


def _require_covered(catalog: CatalogRecord, trees: Collection[bytes]) -> None:
    if not catalog.covers(trees):
        raise Refused(
            f"catalog {catalog.name!r} was made of other user trees than those that are compared",
            cause="everything in a tree that was not scanned would look as if it were new or had vanished",
        )


class _Tables:
    """The tables of one comparison, made one after another."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        base: ClosedCatalog,
        now: ClosedCatalog,
        reap_list: Path | None,
    ) -> None:
        self._connection = connection
        self._reap_list = reap_list
        ended_at_s = base.record.finished_at_s or base.record.started_at_s
        self._young = Young(
            after_ns=int((base.record.started_at_s - SETTLED_BEFORE_SCAN_S) * NS_PER_S),
            until_ns=int((ended_at_s + SETTLED_BEFORE_SCAN_S) * NS_PER_S),
        )
        create_entries(connection, base.part_files, view="base_rows")
        create_entries(connection, now.part_files, view="now_rows")
        connection.execute(MACROS)
        connection.execute(SETTINGS_TABLES)

    def fill(
        self, *, trees: Collection[bytes], unsettled: Collection[bytes], unsettled_trees: Collection[bytes]
    ) -> None:
        again = set(unsettled_trees)
        for tree in sorted(set(trees)):
            resend = tree in again
            self._connection.execute("INSERT INTO wanted VALUES (?, ?, ?)", [tree, resend, not resend])
        self._insert("unsettled", path=sorted(set(unsettled)))
        self._connection.execute(differing(self._young))
        self._connection.execute(SIDES)
        self._place_directories()
        if self._add_occupied():
            self._place_directories()
        self._connection.execute(reaped(self._reap_list))
        self._match_in_order()
        for query in (ORIGINS, SENT, VANISHED):
            self._connection.execute(query)

    def _insert(self, table: str, **columns: Sequence[object]) -> None:
        if any(columns.values()):
            arrays = [pa.array(values, type=_COLUMN_TYPES[name]) for name, values in columns.items()]
            self._connection.from_arrow(pa.table(arrays, names=list(columns))).insert_into(table)

    def _place_directories(self) -> None:
        self._connection.execute(PAIRED)
        self._connection.execute(HEADED)
        self._connection.execute("CREATE OR REPLACE TEMP TABLE blocked (path BLOB, tree BLOB, place BLOB)")
        if self._place():
            self._connection.execute(BLOCKED)
            self._place()

    def _place(self) -> bool:
        """Fill `placed`. Returns whether any directory moves paths."""
        sources = self._connection.execute(SEGMENT_SOURCES).fetchall()
        self._connection.execute(SEGMENTS_TABLE)
        trees, starts, cuts, targets, holders = [], [], [], [], []
        for tree, start, source in _segments(sources):
            path, _, target, held_by = source or (None, None, None, None)
            trees.append(tree)
            starts.append(start)
            cuts.append(None if path is None else len(path))
            targets.append(target)
            holders.append(held_by)
        self._insert("segments", tree=trees, start=starts, cut=cuts, target=targets, held_by=holders)
        self._connection.execute(PLACED)
        return bool(sources)

    def _add_occupied(self) -> bool:
        found = [path for (path,) in self._connection.execute(OCCUPIED).fetchall()]
        directories: list[bytes] = []
        for path in found:
            if not (directories and path.startswith(directories[-1] + b"/")):
                directories.append(path)
        for start in range(0, len(directories), _RANGES_AT_ONCE):
            some = directories[start : start + _RANGES_AT_ONCE]
            parameters = {f"start{index}": path + b"/" for index, path in enumerate(some)}
            parameters |= {f"end{index}": path + b"0" for index, path in enumerate(some)}
            self._connection.execute(beneath(len(some), self._young), parameters)
        return bool(directories)

    def _match_in_order(self) -> None:
        for turn in range(_ORDERING_ROUNDS + 1):
            for query in (SLOTS, MOVED_FILES, RENAMED):
                self._connection.execute(query)
            rows = self._connection.execute(TO_ORDER).fetchall()
            relocations = [
                Relocation(path=old, new=new, place=place, held_by=held_by, directory=directory)
                for old, new, _, place, held_by, directory in rows
            ]
            ordered = in_order(relocations)
            if not ordered.impossible:
                break
            if turn < _ORDERING_ROUNDS - 1:
                self._insert("excluded", path=[relocations[index].path for index in ordered.impossible])
            else:
                for tree in {rows[index][2] for index in ordered.impossible}:
                    self._connection.execute("UPDATE wanted SET renames = false WHERE tree = ?", [tree])
            self._place_directories()
        self._connection.execute(ORDERED_TABLE)
        self._insert(
            "ordered",
            number=list(range(len(ordered.order))),
            old=[relocations[index].path for index, _ in ordered.order],
            called=[called for _, called in ordered.order],
        )


_COLUMN_TYPES: "dict[str, pa.DataType]" = {
    **dict.fromkeys(("path", "tree", "start", "target", "held_by", "old", "called"), pa.binary()),
    **dict.fromkeys(("cut", "number"), pa.int64()),
}

_Source = tuple[bytes, bytes, bytes | None, bytes | None]


def _segments(sources: Sequence[_Source]) -> Iterator[tuple[bytes, bytes, _Source | None]]:
    """Tree, start and nearest directory above, for every run of paths; None: no directory of `sources` is above. `sources`
    (path, tree, ...) are in order, the content of a directory right after it.
    """
    open_ones: list[_Source] = []

    def close(until: bytes | None) -> Iterator[tuple[bytes, bytes, _Source | None]]:
        while open_ones and (until is None or not until.startswith(open_ones[-1][0] + b"/")):
            last = open_ones.pop()
            # The byte after the slash: no path beneath the directory starts like this.
            yield last[1], last[0] + b"0", open_ones[-1] if open_ones else None

    for source in sources:
        yield from close(source[0])
        open_ones.append(source)
        yield source[1], source[0] + b"/", source
    yield from close(None)


class Comparison:
    """Two compared catalogs, for some trees. Queries are out of core, one at a time. Blocking."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        base: ClosedCatalog,
        now: ClosedCatalog,
        trees: Sequence[bytes],
    ) -> None:
        self._connection = connection
        self._bricks = sorted(walk.brick for walk in now.record.bricks)
        self._chosen = False
        self.changes = self._count(base.record.name, now.record.name, trees)

    def _count(self, base: str, now: str, trees: Sequence[bytes]) -> Changes:
        before = {tree: (names, size) for tree, names, size in self._connection.execute(BEFORE).fetchall()}
        tallies: dict[bytes, dict[ChangeKind, ChangeTally]] = {}
        for tree, kind, paths, directories, size in self._connection.execute(TALLIES).fetchall():
            tally = ChangeTally(paths=paths, directories=directories, size_bytes=size)
            tallies.setdefault(tree, {})[ChangeKind(kind)] = tally
        return Changes(
            base=base,
            now=now,
            trees=tuple(
                TreeChanges(
                    tree=tree,
                    names_before=before.get(tree, (0, 0))[0],
                    bytes_before=before.get(tree, (0, 0))[1],
                    by_kind=tallies.get(tree, {}),
                )
                for tree in trees
            ),
        )

    def _rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        for block in self._connection.sql(query).to_arrow_reader(ROWS_AT_ONCE):
            yield from zip(*(column.to_pylist() for column in block.columns), strict=True)

    def renames(self) -> Iterator[Rename]:
        """Directories first, each after those that hold its new name. The caller takes all of them out of their old names
        before the first one gets its new name: chains and cycles need no order.
        """
        for tree, old, new, kind, size_bytes, mtime_ns in self._rows(RENAMES):
            yield Rename(tree=tree, old=old, new=new, type=EntryType(kind), size_bytes=size_bytes, mtime_ns=mtime_ns)

    def gone(self) -> Iterator[Gone]:
        """The outermost vanished paths, in order of path, the content of a directory right after it. Another entry may have
        the name now: a directory became something else or the reverse, or another directory was renamed to it. Files that
        were replaced by other files are not included.
        """
        counted: list[Gone] = []
        # Positions in `counted` of the paths above the row: a directory that was renamed out of a vanished one may hold
        # vanished paths of its own.
        inside: list[int] = []
        for path, tree, kind, outermost in self._rows(GONE):
            while inside and not path.startswith(counted[inside[-1]].path + b"/"):
                inside.pop()
            if not inside:
                yield from counted
                counted.clear()
            if outermost:
                inside.append(len(counted))
                counted.append(Gone(tree=tree, path=path, type=EntryType(kind), names=0))
            counted[inside[-1]] = replace(counted[inside[-1]], names=counted[inside[-1]].names + 1)
        yield from counted

    def listings(self, batches: Sequence[Sequence[bytes]]) -> Iterator[Listing]:
        """What to send of these trees, for packing, as for a plan (see `CatalogQueries.listings`).

        A changed file brings all names of its link group; a new, renamed or removed entry brings the directories that hold
        it, because their times change.
        """
        if not self._chosen:
            self._connection.execute(ENTRIES)
            self._chosen = True
        return listed(self._connection, batches, bricks=self._bricks)


# Move lists: one Parquet file for each delta pass, renames first, then vanished paths.


_FIELDS: list["pa.Field[Any]"] = [
    pa.field("what", pa.string(), nullable=False),
    pa.field("tree", pa.binary(), nullable=False),
    pa.field("path", pa.binary(), nullable=False),
    pa.field("new_path", pa.binary()),
    pa.field("type", pa.string(), nullable=False),
    pa.field("size", pa.int64()),
    pa.field("mtime_ns", pa.int64()),
    pa.field("names", pa.int64()),
]
MOVES_SCHEMA = pa.schema(_FIELDS)
"""`what` is `rename` (with `new_path`, `size` and `mtime_ns`) or `gone` (with `names`); a row group holds one of them."""

ROW_GROUP_ROWS = 20_000

_RENAME, _GONE = "rename", "gone"
T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}", re.ASCII)
_SUFFIX = ".parquet"
_BRING_BACK = "restore the state directory"


class MoveListFiles:
    """The `MoveLists` port over one directory. A list's name is relative to it, so that a site can be moved."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, name: str, renames: Iterable[Rename], gone: Iterable[Gone]) -> WrittenMoves:
        """As the port. Raises UsageError for an unusable name, and OSError."""
        if not _NAME.fullmatch(name):
            raise UsageError(f'"{name}" cannot be the name of a move list', hint="letters, digits, dots, dashes")
        move_list = name + _SUFFIX
        self._directory.mkdir(parents=True, exist_ok=True)
        sync(self._directory.parent)
        with replacing(self._directory / move_list) as stream:
            renamed, vanished = _write(stream, renames, gone)
        return WrittenMoves(move_list=move_list, digest=self.digest(move_list), renames=renamed, gone=vanished)

    def renames(self, move_list: str) -> Iterator[Rename]:
        for row in self._rows(move_list, _RENAME):
            yield Rename(
                tree=row["tree"],
                old=row["path"],
                new=row["new_path"],
                type=EntryType(row["type"]),
                size_bytes=row["size"],
                mtime_ns=row["mtime_ns"],
            )

    def gone(self, move_list: str) -> Iterator[Gone]:
        for row in self._rows(move_list, _GONE):
            yield Gone(tree=row["tree"], path=row["path"], type=EntryType(row["type"]), names=row["names"])

    def digest(self, move_list: str) -> str:
        """BLAKE2b of the file, in hexadecimal. Raises Refused if it is missing."""
        file = self._file(move_list)
        try:
            return file_digest(file)
        except FileNotFoundError:
            raise _missing(move_list, file) from None

    def _rows(self, move_list: str, what: str) -> Iterator[dict[str, Any]]:
        file = self._file(move_list)
        try:
            with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
                if not parquet.schema_arrow.equals(MOVES_SCHEMA):
                    raise _damaged(move_list, file, "it has other columns")
                for group in range(parquet.metadata.num_row_groups):
                    statistics = parquet.metadata.row_group(group).column(0).statistics
                    if statistics is None or statistics.max not in (_RENAME, _GONE):
                        raise _damaged(move_list, file, "what its rows are is not known")
                    if statistics.max == what:
                        yield from parquet.read_row_group(group).to_pylist()
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


def _batched(items: Iterable[T]) -> Iterator[list[T]]:
    """As many items as a row group holds at once."""
    left = iter(items)
    while block := list(islice(left, ROW_GROUP_ROWS)):
        yield block


def _write(stream: BinaryIO, renames: Iterable[Rename], gone: Iterable[Gone]) -> tuple[int, int]:
    counts = [0, 0]
    with pq.ParquetWriter(
        stream,
        MOVES_SCHEMA,
        compression="zstd",
        write_statistics=["what"],
        write_page_checksum=True,
        use_dictionary=["what", "tree", "type"],  # type: ignore[arg-type] # a list of columns is documented
    ) as writer:
        for block in _batched(renames):
            writer.write_batch(
                _rows(
                    _RENAME,
                    [(one.tree, one.old, one.new, one.type.value, one.size_bytes, one.mtime_ns, None) for one in block],
                )
            )
            counts[0] += len(block)
        for vanished in _batched(gone):
            writer.write_batch(
                _rows(_GONE, [(one.tree, one.path, None, one.type.value, None, None, one.names) for one in vanished])
            )
            counts[1] += len(vanished)
    return counts[0], counts[1]


def _rows(what: str, rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    columns = ([what] * len(rows), *zip(*rows, strict=True))
    arrays = [pa.array(column, field.type) for column, field in zip(columns, MOVES_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=MOVES_SCHEMA)


def _missing(move_list: str, file: Path) -> Refused:
    cause = f"{file} was removed while its delta pass was in flight"
    return Refused(f"the move list {move_list!r} is missing", cause=cause, hint=_BRING_BACK)


def _damaged(move_list: str, file: Path, why: str) -> Refused:
    cause = f"{file} was cut off or replaced"
    return Refused(f"the move list {move_list!r} cannot be read: {why}", cause=cause, hint=_BRING_BACK)


# Extras, found out of core in earlier catalogs and in the differences of verifications.


_TABLES = """
    CREATE TEMP TABLE extras (tree BLOB, path BLOB, type VARCHAR, bytes BIGINT, origin VARCHAR);
    CREATE TEMP TABLE of_others (path BLOB)
"""

_BROUGHT = """
    SELECT path, any_value(tree) AS tree, max(CASE WHEN type = 'file' THEN size ELSE 0 END)::BIGINT AS bytes
    FROM read_parquet($brought) WHERE tree IN (SELECT unnest($trees)) AND path <> tree GROUP BY path
"""

_EARLIER = """
    INSERT INTO extras
    SELECT tree, path, type, bytes, $origin FROM (
        SELECT path, any_value(tree) AS tree, arg_max(type, ctime_ns) AS type,
            max(CASE WHEN type = 'file' THEN size ELSE 0 END)::BIGINT AS bytes
        FROM read_parquet($earlier) WHERE tree IN (SELECT unnest($trees)) AND path <> tree GROUP BY path
    ) e
    LEFT JOIN (SELECT path, type AS base_type FROM base_rows) b USING (path)
    LEFT JOIN (SELECT path, type AS now_type FROM now_rows) n USING (path)
    WHERE (now_type IS NULL OR (now_type = 'directory') <> (type = 'directory'))
        AND (base_type IS NULL OR (base_type = 'directory') <> (type = 'directory'))
"""
"""Paths that vanished since the base are in another list already."""

_FOUND = """
    CREATE OR REPLACE TEMP TABLE found AS
    SELECT path, split_part(target, ',', 1) AS type FROM read_parquet($differences)
    WHERE kind = $extra OR (kind = $type AND (source = 'directory') <> (target = 'directory'))
"""

_NAMED = f"""
    INSERT INTO extras
    SELECT tree, path, type, bytes, $origin FROM found JOIN ({_BROUGHT}) brought USING (path)
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
        SELECT path, max(bytes) AS bytes FROM extras
        WHERE tree = $tree AND origin IN (SELECT unnest($origins)) GROUP BY path
    )
"""

_EXTRAS_GONE = """
    SELECT path, any_value(tree) AS tree, any_value(type) AS type
    FROM extras WHERE origin IN (SELECT unnest($origins)) GROUP BY path ORDER BY path || '/'::BLOB
"""
"""The content of a directory follows it directly."""


class Extras:
    """Finds extras with the catalogs of one directory and the manifests of a site; `temp_dir` takes what DuckDB spills."""

    def __init__(self, catalogs_dir: Path, *, temp_dir: Path) -> None:
        self._catalogs_dir = catalogs_dir
        self._temp_dir = temp_dir

    @contextmanager
    def open(self, wanted: Sequence[ExtrasOfTree], *, base: str, now: str) -> Iterator["FoundExtras"]:
        """Find paths that the catalog `now` no longer lists, or that changed from a directory to something else or the
        reverse, except those that vanished since `base`. Missing catalogs of `brought` and `earlier` are skipped: then less
        is found. Blocking. Raises UsageError and Refused as a comparison does, and Refused if the differences of the
        verification are missing.
        """
        groups: defaultdict[tuple[tuple[str, ...], tuple[str, ...], str | None], list[bytes]] = defaultdict(list)
        for one in wanted:
            groups[one.brought, one.earlier, one.manifest].append(one.tree)
        with connect(DUCKDB_MEMORY_BYTES, self._temp_dir) as connection:
            create_entries(connection, open_closed(self._catalogs_dir / base).part_files, view="base_rows")
            create_entries(connection, open_closed(self._catalogs_dir / now).part_files, view="now_rows")
            connection.execute(_TABLES)
            for (brought, earlier, manifest), trees in groups.items():
                self._add_earlier(connection, trees, earlier)
                if manifest is not None:
                    self._add_named(connection, trees, brought, manifest)
            yield FoundExtras(connection)

    def _add_earlier(
        self, connection: duckdb.DuckDBPyConnection, trees: Sequence[bytes], earlier: Sequence[str]
    ) -> None:
        if files := self._parts(earlier):
            connection.execute(
                _EARLIER, {"earlier": files, "trees": list(trees), "origin": ExtraOrigin.EARLIER_PLAN.value}
            )

    def _add_named(
        self, connection: duckdb.DuckDBPyConnection, trees: Sequence[bytes], brought: Sequence[str], manifest: str
    ) -> None:
        differences = Path(manifest).parent / DIFFERENCES_FILE
        if not differences.is_file():
            raise Refused(
                f"what a verification found to differ is missing: {differences}",
                cause="it was moved or removed since",
                hint="verify the batch again",
            )
        connection.execute(
            _FOUND,
            {
                "differences": str(differences),
                "extra": DifferenceKind.EXTRA.value,
                "type": DifferenceKind.TYPE.value,
            },
        )
        if files := self._parts(brought):
            connection.execute(
                _NAMED, {"brought": files, "trees": list(trees), "origin": ExtraOrigin.VERIFICATION.value}
            )
        connection.execute(_OF_OTHERS)

    def _parts(self, catalogs: Sequence[str]) -> list[str]:
        files: list[str] = []
        for name in catalogs:
            try:
                files += [str(file) for file in open_closed(self._catalogs_dir / name).part_files]
            except MigratorError:
                continue
        return files


class FoundExtras:
    """Extras of some trees. Out of core; one query at a time. Blocking."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def tally(self, tree: bytes, origins: Collection[ExtraOrigin]) -> ExtrasTally:
        """How many extras of these origins a tree has."""
        row = self._connection.execute(_TALLY, {"tree": tree, "origins": [one.value for one in origins]}).fetchone()
        names_before, bytes_before, names, size_bytes = row or (0, 0, 0, 0)
        return ExtrasTally(names_before=names_before, bytes_before=bytes_before, names=names, size_bytes=size_bytes)

    def gone(self, origins: Collection[ExtraOrigin]) -> Iterator[Gone]:
        """The outermost extras of these origins, in order of path, without directories that are known to hold anything that
        this program did not copy.
        """
        kept = self._directories_with_others()
        outermost: Gone | None = None
        query = self._connection.execute(_EXTRAS_GONE, {"origins": [one.value for one in origins]})
        while rows := query.fetchmany(ROWS_AT_ONCE):
            for path, tree, kind in rows:
                if outermost is not None and path.startswith(outermost.path + b"/"):
                    outermost = replace(outermost, names=outermost.names + 1)
                    continue
                if outermost is not None:
                    yield outermost
                outermost = None if path in kept else Gone(tree=tree, path=path, type=EntryType(kind), names=1)
        if outermost is not None:
            yield outermost

    def _directories_with_others(self) -> frozenset[bytes]:
        found: set[bytes] = set()
        for (path,) in self._connection.execute("SELECT path FROM of_others").fetchall():
            above = path.rpartition(b"/")[0]
            while above and above not in found:
                found.add(above)
                above = above.rpartition(b"/")[0]
        return frozenset(found)
