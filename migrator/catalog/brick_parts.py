"""A catalog from the blocks that walks of bricks send, merged over all bricks."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from migrator.catalog import files as catalog_files
from migrator.catalog.database import ABOVE, connect, literal, totals_of
from migrator.catalog.model import BrickFindings, CatalogRecord, PathFinding
from migrator.catalog.ports import CatalogTotals, Scratch
from migrator.catalog.walk_rows import decode_listings, decode_rows
from migrator.catalog.writer import parquet_bytes
from migrator.core.durable import sync
from migrator.core.entry import Entry, EntryType
from migrator.core.units import MIB
from migrator.fs.model import ScanProblem

# --- The rows of all bricks together: one row per directory, and duplicates. Out of core.
#
# Gluster keeps each directory on every brick. Its times are the latest of them, as the mount shows them; if owner,
# mode, ACLs or attributes differ, or a time is before 1970 (the mount of a distributed volume shows 0), the caller
# asks the mount.


_BATCH_ROWS = 100_000

# Each column as the mount shows it: the greatest time and owner (as dht_iatt_merge does), the fixed size. `nlink` is
# meaningless for a directory of a Gluster volume; `brick` is null, because the directory is on all bricks.
_UNITED = """
    CREATE TABLE united AS SELECT path, max(tree) AS tree, NULL::VARCHAR AS brick, 'directory' AS type,
        4096::BIGINT AS size, max(blocks) AS blocks, max(uid) AS uid, max(gid) AS gid, max(mode) AS mode,
        max(mtime_ns) AS mtime_ns, max(atime_ns) AS atime_ns, max(ctime_ns) AS ctime_ns, max(dev) AS dev,
        max(rdev) AS rdev, max(ino) AS ino, max(gfid) AS gfid, max(nlink) AS nlink, NULL::UBIGINT AS link_group,
        NULL::BLOB AS symlink_target, max(xattr_digest) AS xattr_digest,
        max(xattr_largest_bytes) AS xattr_largest_bytes, max(xattr_kinds) AS xattr_kinds,
        max(acl_entries) AS acl_entries, count(DISTINCT brick) AS copies,
        min(gfid) IS DISTINCT FROM max(gfid) OR count(gfid) <> count(*) AS conflicting,
        min(uid) <> max(uid) OR min(gid) <> max(gid) OR min(mode) <> max(mode)
            OR min(xattr_digest) IS DISTINCT FROM max(xattr_digest)
            OR count(xattr_digest) NOT IN (0, count(*))
            OR least(max(mtime_ns), max(atime_ns)) < 0 AS differing
    FROM read_parquet($files) GROUP BY path
"""

_TWINS = """
    CREATE OR REPLACE TABLE twins AS
    SELECT path, ctime_ns FROM united WHERE hash(gfid) IN (
        SELECT hash(gfid) AS value FROM united WHERE gfid IS NOT NULL GROUP BY value HAVING count(*) > 1
    ) QUALIFY count(*) OVER (PARTITION BY gfid) > 1
"""

# The sums of pieces of a directory are added without a carry beyond 64 bits, as the walk adds the hashes of names.
_UNLIKE = """
    CREATE OR REPLACE TABLE unlike AS
    SELECT DISTINCT path FROM (
        SELECT path, brick, sum(entries) AS entries, sum(names::HUGEINT) % 18446744073709551616::HUGEINT AS names
        FROM read_parquet($files) GROUP BY path, brick
    ) JOIN sets USING (brick)
    GROUP BY path, place HAVING min(entries) <> max(entries) OR min(names) <> max(names)
"""
_UNLIKE_AND_SETTLED = """
    SELECT path FROM unlike LEFT JOIN united USING (path)
    WHERE united.mtime_ns IS NULL OR united.mtime_ns < $settled_before_ns
"""

_TWICE_PATHS = "SELECT hash(path) AS value FROM read_parquet($files) GROUP BY value HAVING count(*) > 1"
_PATHS_OF_TWICE = """
    SELECT path FROM read_parquet($files) WHERE hash(path) IN (SELECT value FROM twice)
    GROUP BY path HAVING count(*) > 1
"""
_TWICE_INODES = """
    SELECT ino AS value FROM read_parquet($files) WHERE brick IS NOT NULL
    GROUP BY value HAVING min(brick) <> max(brick)
"""
_PATHS_OF_INODES = """
    SELECT DISTINCT path FROM read_parquet($files)
    WHERE brick IS NOT NULL AND ino IN (SELECT value FROM twice)
"""


class Union:
    """Queries over the rows of a catalog in progress. To be closed."""

    def __init__(self, *, scratch: Scratch) -> None:
        self._database = connect(scratch)
        self._database.execute(ABOVE)
        self._limit = 0
        self._found_before = BrickFindings()

    def close(self) -> None:
        """Release the memory. May be called again."""
        self._database.close()

    def directories(
        self,
        files: Sequence[Path],
        listings: Sequence[Path],
        *,
        sets: Sequence[Sequence[str]],
        settled_before_ns: int,
        limit: int,
    ) -> Iterator[pa.Table]:
        """One row per directory, in order of path. `sets` has the names of the bricks, those that hold the same files
        together; `listings` are their files. What changed since `settled_before_ns` may have changed between two walks.
        `limit` cuts all lists of paths, including those of `findings`.
        """
        bricks = sum(map(len, sets))
        self._limit = limit
        if not files:
            return
        self._database.execute(_UNITED, {"files": _names(files)})
        self._found_before = BrickFindings(
            conflicting=self._found("SELECT path FROM united WHERE conflicting"),
            differing=self._found("SELECT path FROM united WHERE differing AND NOT conflicting"),
            incomplete=self._found("SELECT path FROM united WHERE copies < $bricks", {"bricks": bricks}),
            twins=self._twins("<", settled_before_ns),
            renamed=self._twins(">=", settled_before_ns),
            unlike=self._unlike(listings, sets, settled_before_ns),
        )
        columns = ", ".join(catalog_files.ROW_SCHEMA.names)
        ordered = self._database.sql(f"SELECT {columns} FROM united ORDER BY path")  # noqa: S608 -- our own columns
        for batch in ordered.to_arrow_reader(_BATCH_ROWS) or ():
            if batch.num_rows:
                yield pa.Table.from_arrays(batch.columns, schema=catalog_files.ROW_SCHEMA)
        self._database.execute("DROP TABLE united")

    def _twins(self, when: str, settled_before_ns: int) -> PathFinding:
        self._database.execute(_TWINS)
        return self._found(f"SELECT path FROM twins WHERE ctime_ns {when} {settled_before_ns:d}")  # noqa: S608 -- ours

    def _unlike(self, listings: Sequence[Path], sets: Sequence[Sequence[str]], settled_before_ns: int) -> PathFinding:
        if not listings:
            return PathFinding()
        places = [(brick, place) for place, bricks in enumerate(sets) for brick in bricks]
        names, numbers = zip(*places, strict=True)
        self._database.register("sets", pa.table({"brick": pa.array(names, pa.string()), "place": list(numbers)}))
        self._database.execute(_UNLIKE, {"files": _names(listings)})
        return self._found(_UNLIKE_AND_SETTLED, {"settled_before_ns": settled_before_ns})

    def without(self, file: Path, directory: bytes) -> pa.Table | None:
        """The rows of a part but those beneath a directory; None if it has no row there."""
        beneath = f"path > {literal(directory + b'/')} AND path < {literal(directory + b'0')}"
        rows = self._database.read_parquet(str(file))
        if not rows.filter(beneath).aggregate("count(*)").fetchall()[0][0]:
            return None
        kept: pa.Table = rows.filter(f"NOT ({beneath})").to_arrow_table().cast(catalog_files.ROW_SCHEMA)
        return kept

    def children(self, directory: bytes, files: Sequence[Path], limit: int) -> list[tuple[bytes, EntryType]]:
        """The rows directly in a directory, at most `limit`, in order."""
        within = f"path > {literal(directory + b'/')} AND path < {literal(directory + b'0')} AND " if directory else ""
        rows = self._database.execute(
            f"SELECT path, type FROM read_parquet($files) WHERE {within}above(path) = $directory"  # noqa: S608 -- ours
            f" ORDER BY path LIMIT {limit:d}",
            {"files": _names(files), "directory": directory},
        ).fetchall()
        return [(bytes(path), EntryType(kind)) for path, kind in rows]

    def findings(self, files: Sequence[Path]) -> BrickFindings:
        """All findings. `files` are the parts of the catalog, with those of directories."""
        if not files:
            return self._found_before
        return replace(
            self._found_before,
            doubled_paths=self._twice(_TWICE_PATHS, _PATHS_OF_TWICE, files),
            doubled_inodes=self._twice(_TWICE_INODES, _PATHS_OF_INODES, files),
        )

    def files_of(self, paths: Sequence[bytes], files: Sequence[Path]) -> dict[bytes, set[Path]]:
        """The parts with rows of each path; paths without rows are left out."""
        found: dict[bytes, set[Path]] = {}
        if not paths or not files:
            return found
        self._database.register("wanted", pa.table({"path": pa.array(sorted(set(paths)), type=pa.binary())}))
        rows = self._database.execute(
            "SELECT path, filename FROM read_parquet($files, filename = true) WHERE path IN (SELECT path FROM wanted)",
            {"files": _names(files)},
        ).fetchall()
        self._database.unregister("wanted")
        for path, file in rows:
            found.setdefault(bytes(path), set()).add(Path(file))
        return found

    def totals(self, files: Sequence[Path]) -> CatalogTotals:
        """Rows, directories and bytes of files."""
        return totals_of(self._database, files)

    def _twice(self, values: str, paths: str, files: Sequence[Path]) -> PathFinding:
        """The second query is expensive. It runs only if the first one finds values, which is rare."""
        names: dict[str, object] = {"files": _names(files)}
        self._database.execute(f"CREATE OR REPLACE TABLE twice AS {values}", names)
        (count,) = self._database.execute("SELECT count(*) FROM twice").fetchall()[0]
        return self._found(paths, names) if count else PathFinding()

    def _found(self, query: str, values: dict[str, object] | None = None) -> PathFinding:
        (count,) = self._database.execute(f"SELECT count(*) FROM ({query})", values).fetchall()[0]  # noqa: S608 -- ours
        if not count:
            return PathFinding()
        rows = self._database.execute(
            f"SELECT path FROM ({query}) ORDER BY path LIMIT {self._limit}",  # noqa: S608 -- ours
            values,
        ).fetchall()
        return PathFinding(count=count, paths=tuple(bytes(path) for (path,) in rows))


def _names(files: Sequence[Path]) -> list[str]:
    return [str(file) for file in files]


# --- The writer
#
# Entries other than directories are final rows at once, because each is on one brick. Directories are on all bricks:
# they are kept aside until all walks have ended, then merged into one row each. Nothing is synced before the catalog is
# closed, because an interrupted scan of bricks starts over.


_MAX_PART_ROWS = 200_000
_BUFFERS_BYTES = 512 * MIB
"""Limit of the pending rows of all bricks together."""
_MAX_PART_BYTES = 48 * MIB
_MIN_PART_BYTES = 2 * MIB
_FEW_VALUES: Any = [
    *("tree", "brick", "type", "blocks", "uid", "gid", "mode", "dev", "rdev", "nlink"),
    *("xattr_largest_bytes", "xattr_kinds", "acl_entries"),
]
"""Columns worth a dictionary. Without one for the others, writing takes 40 % less time and a sixth less room (100,000
realistic rows of a brick: 64 ms and 66 bytes per row with, 39 ms and 55 bytes without)."""


_FEW_LISTING_VALUES: Any = ["brick"]


def write_part(file: Path, table: pa.Table) -> None:
    """Write a part without syncing it. Raises OSError."""
    pq.write_table(table, file, compression="zstd", compression_level=1, use_dictionary=_FEW_VALUES)


class BrickPartsWriter:
    """Writes a catalog from the blocks that walks of bricks send. It cannot be resumed.

    `add_rows`, `add_directories` and `brick_done` may be called by one thread per brick at the same time, everything
    else by a single thread. All raise OSError.
    """

    def __init__(self, directory: Path, *, trees: Sequence[bytes], scratch: Scratch, bricks: int = 1) -> None:
        self._directory = directory
        self._trees = tuple(trees)
        self._part_bytes = min(max(_BUFFERS_BYTES // (2 * max(bricks, 1)), _MIN_PART_BYTES), _MAX_PART_BYTES)
        self._lock = threading.Lock()
        self._rows: dict[str, list[pa.RecordBatch]] = {}
        self._directories: dict[str, list[pa.RecordBatch]] = {}
        self._parts: dict[int, str] = {}
        self._number = 0
        self._kept: list[Path] = []
        self._listings: dict[str, list[pa.RecordBatch]] = {}
        self._listing_files: list[Path] = []
        self._problem_files: list[Path] = []
        self._problems: list[ScanProblem] = []
        # Opened now, in parallel with the walks, and not at the end.
        self._union = Union(scratch=scratch)

    def add_rows(self, brick: str, device: int, payload: memoryview) -> CatalogTotals:
        """Add a block of entries without directories, and return its totals. `brick` and `device` apply to all rows.
        Raises MigratorError for a malformed block.
        """
        batch = decode_rows(payload, trees=self._trees, brick=brick, dev=device)
        self._add(self._rows, brick, batch, self._write_table)
        return CatalogTotals(rows=batch.num_rows)

    def add_directories(self, brick: str, device: int, payload: memoryview) -> CatalogTotals:
        """Add a block of a brick's directories, which `unite` merges. Raises MigratorError for a malformed block."""
        batch = decode_rows(payload, trees=self._trees, brick=brick, dev=device)
        self._add(self._directories, brick, batch, self._keep_directories)
        return CatalogTotals(directories=batch.num_rows)

    def add_listings(self, brick: str, payload: memoryview) -> None:
        """Add a block of listings, which `unite` compares. Raises MigratorError for a malformed block."""
        self._add(self._listings, brick, decode_listings(payload, brick=brick), self._keep_listings)

    def brick_done(self, brick: str) -> None:
        """Write the pending rows of a brick that has ended."""
        for buffers, write in (
            (self._rows, self._write_table),
            (self._directories, self._keep_directories),
            (self._listings, self._keep_listings),
        ):
            with self._lock:
                batches = buffers.pop(brick, [])
            if batches:
                write(pa.Table.from_batches(batches))

    def note(self, problems: Sequence[ScanProblem]) -> None:
        self._problems.extend(problems)
        if len(self._problems) >= _MAX_PART_ROWS // 10:
            self._write_problems()

    def problems(self) -> Iterator[ScanProblem]:
        """All problems of the catalog."""
        self._write_problems()
        return catalog_files.read_problems(self._directory)

    def unite(self, sets: Sequence[Sequence[str]], *, settled_before_ns: int, limit: int) -> BrickFindings:
        """Merge directories into one row each, and find states that are impossible in a quiet volume. `sets` and
        `settled_before_ns` as for `Union.directories`.
        """
        for brick in {*self._rows, *self._directories, *self._listings}:
            self.brick_done(brick)
        merged = self._union.directories(
            self._kept, self._listing_files, sets=sets, settled_before_ns=settled_before_ns, limit=limit
        )
        for table in merged:
            self._write_table(table)
        for file in (*self._kept, *self._listing_files):
            file.unlink()
        self._kept, self._listing_files = [], []
        return self._union.findings(self._part_files())

    def lacks(self, paths: Sequence[bytes]) -> Sequence[bytes]:
        """After `unite`: the paths that have no row."""
        present = self._union.files_of(paths, self._part_files())
        return [path for path in dict.fromkeys(paths) if path not in present]

    def children(self, directory: bytes, limit: int) -> list[tuple[bytes, EntryType]]:
        """After `unite`: the paths directly in a directory, at most `limit`."""
        return self._union.children(directory, self._part_files(), limit)

    def remove_beneath(self, directory: bytes) -> None:
        """Remove all rows beneath a directory. After `unite`."""
        for file in self._part_files():
            kept = self._union.without(file, directory)
            if kept is not None:
                write_part(file, kept)

    def replace(self, rows: Mapping[bytes, tuple[bytes | None, Entry] | None]) -> None:
        """Replace the rows of these paths by the tree and the entry that the mount shows, or remove them (None). Call
        it after `unite`.
        """
        if not rows:
            return
        import pyarrow.compute as pc  # noqa: PLC0415 - few scans come here

        present = self._union.files_of(list(rows), self._part_files())
        gone = pa.array(sorted(rows), type=pa.binary())
        for name in self._parts.values():
            file = self._directory / name
            if any(file in files for files in present.values()):
                table = pq.read_table(file, schema=catalog_files.ROW_SCHEMA)
                kept = table.filter(pc.invert(pc.is_in(table.column("path"), value_set=gone)))
                write_part(file, kept)
        added = [catalog_files.rows_of(found[0], [found[1]]) for found in rows.values() if found is not None]
        if added:
            self._write_table(pa.Table.from_batches(added, schema=catalog_files.ROW_SCHEMA))

    def totals(self) -> CatalogTotals:
        """Rows, directories and bytes of files. After `unite`."""
        return self._union.totals(self._part_files())

    def close(self, record: CatalogRecord) -> CatalogRecord:
        """Sync the written parts, then write the closing record."""
        self._write_problems()
        self._union.close()
        for file in (*self._part_files(), *self._problem_files):
            sync(file)
        sync(self._directory)
        return catalog_files.close_catalog(self._directory, record, [name for _, name in sorted(self._parts.items())])

    def _add(
        self,
        buffers: dict[str, list[pa.RecordBatch]],
        brick: str,
        batch: pa.RecordBatch,
        write: Callable[[pa.Table], None],
    ) -> None:
        """Keep rows of a brick, and write them once there are enough."""
        with self._lock:
            batches = buffers.setdefault(brick, [])
        batches.append(batch)
        rows, size_bytes = sum(one.num_rows for one in batches), sum(one.nbytes for one in batches)
        if rows >= _MAX_PART_ROWS or size_bytes >= self._part_bytes:
            table = pa.Table.from_batches(batches)
            batches.clear()
            write(table)

    def _write_table(self, table: pa.Table) -> None:
        with self._lock:
            number = self._number
            self._number += 1
        write_part(self._directory / catalog_files.part_name(number), table)
        with self._lock:
            self._parts[number] = catalog_files.part_name(number)

    def _keep_directories(self, table: pa.Table) -> None:
        with self._lock:
            file = self._directory / f"directories-{len(self._kept):06d}.parquet"
            self._kept.append(file)
        pq.write_table(table, file, compression="lz4", use_dictionary=_FEW_VALUES)

    def _keep_listings(self, table: pa.Table) -> None:
        with self._lock:
            file = self._directory / f"listings-{len(self._listing_files):06d}.parquet"
            self._listing_files.append(file)
        pq.write_table(table, file, compression="lz4", use_dictionary=_FEW_LISTING_VALUES)

    def _write_problems(self) -> None:
        if self._problems:
            file = self._directory / catalog_files.problems_name(len(self._problem_files))
            file.write_bytes(parquet_bytes(catalog_files.problem_rows(self._problems)))
            self._problem_files.append(file)
            self._problems = []

    def _part_files(self) -> list[Path]:
        return [self._directory / name for _, name in sorted(self._parts.items())]
