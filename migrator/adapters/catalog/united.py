"""What only shows when the rows of all bricks lie together, by DuckDB and out of core: one row for every directory,
paths and files that are there twice.

Gluster keeps a directory on every brick. Its times are the greatest of them, as the mount shows them; where owner, mode,
ACLs or attributes differ the mount is asked, by the caller.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from migrator.adapters.catalog.database import connect
from migrator.adapters.catalog.schema import ROW_SCHEMA
from migrator.domain.units import GIB
from migrator.ports.catalog import BrickFindings, CatalogTotals, PathFinding

_MEMORY_LIMIT_BYTES = GIB
_BATCH_ROWS = 100_000

# Of every column the mount's way to show it: the greatest time and owner (dht_iatt_merge takes these too), the fixed size.
# `nlink` has no meaning for a directory of a Gluster volume; `brick` is none, because it lies on all.
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
            OR count(xattr_digest) NOT IN (0, count(*)) AS differing
    FROM read_parquet($files) GROUP BY path
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
    """Questions about the rows of a catalog that is being made. Close it."""

    def __init__(self, *, temp_dir: Path) -> None:
        self._database = connect(_MEMORY_LIMIT_BYTES, temp_dir)
        self._limit = 0
        self._conflicting = PathFinding()
        self._differing = PathFinding()
        self._copies: dict[int, PathFinding] = {}

    def close(self) -> None:
        """Give back the memory. May be called again."""
        self._database.close()

    def directories(self, files: Sequence[Path], *, limit: int) -> Iterator[pa.Table]:
        """One row of every directory, in order of path. `limit` cuts every list of paths, also those of `findings`."""
        self._limit = limit
        if not files:
            return
        self._database.execute(_UNITED, {"files": _names(files)})
        self._conflicting = self._found("SELECT path FROM united WHERE conflicting")
        self._differing = self._found("SELECT path FROM united WHERE differing AND NOT conflicting")
        for (copies,) in self._database.execute("SELECT DISTINCT copies FROM united").fetchall():
            self._copies[copies] = self._found("SELECT path FROM united WHERE copies = $copies", {"copies": copies})
        columns = ", ".join(ROW_SCHEMA.names)
        ordered = self._database.sql(f"SELECT {columns} FROM united ORDER BY path")  # noqa: S608 -- our own columns
        for batch in ordered.to_arrow_reader(_BATCH_ROWS) or ():
            if batch.num_rows:
                yield pa.Table.from_batches([batch]).cast(ROW_SCHEMA)
        self._database.execute("DROP TABLE united")

    def findings(self, files: Sequence[Path], *, bricks: int) -> BrickFindings:
        """Everything that is to be said of a catalog of so many bricks. `files` are its parts, the directories' too."""
        incomplete = [finding for copies, finding in self._copies.items() if copies < bricks]
        paths = sorted(path for finding in incomplete for path in finding.paths)[: self._limit]
        doubled_paths, doubled_inodes = PathFinding(), PathFinding()
        if files:
            doubled_paths = self._twice(_TWICE_PATHS, _PATHS_OF_TWICE, files)
            doubled_inodes = self._twice(_TWICE_INODES, _PATHS_OF_INODES, files)
        return BrickFindings(
            doubled_paths=doubled_paths,
            doubled_inodes=doubled_inodes,
            conflicting=self._conflicting,
            differing=self._differing,
            incomplete=PathFinding(count=sum(finding.count for finding in incomplete), paths=tuple(paths)),
        )

    def files_of(self, paths: Sequence[bytes], files: Sequence[Path]) -> dict[bytes, set[Path]]:
        """In which parts the paths have rows; those without one are left out."""
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
        if not files:
            return CatalogTotals()
        rows = self._database.execute(
            "SELECT tree, count(*), count(*) FILTER (type = 'directory'), "
            "coalesce(sum(size) FILTER (type = 'file'), 0)::HUGEINT FROM read_parquet($files) GROUP BY tree",
            {"files": _names(files)},
        ).fetchall()
        return CatalogTotals(
            rows=sum(row[1] for row in rows),
            directories=sum(row[2] for row in rows),
            size_bytes=sum(int(row[3]) for row in rows),
            by_tree={None if row[0] is None else bytes(row[0]): (row[1], int(row[3])) for row in rows},
        )

    def _twice(self, values: str, paths: str, files: Sequence[Path]) -> PathFinding:
        """Mostly there is nothing, and the second, dearer question is not asked."""
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
