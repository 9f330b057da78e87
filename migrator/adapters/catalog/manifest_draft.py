"""A manifest that is being made: parts in a directory of their own, which become its files at the end."""

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from migrator.adapters.catalog.database import connect
from migrator.adapters.catalog.manifest_schema import (
    DIFFERENCE_SCHEMA,
    DIFFERENCES_FILE,
    EXPECTED_FILE,
    LINK_SCHEMA,
    LOSS_SCHEMA,
    MANIFEST_FILE,
    MANIFEST_SCHEMA,
    difference_rows,
    link_rows,
    loss_rows,
    manifest_rows,
)
from migrator.adapters.catalog.reader import open_closed
from migrator.adapters.catalog.schema import CLOSING_RECORD, numbered
from migrator.adapters.durable import file_digest, sync, temporary_name
from migrator.decide.expectations import Loss
from migrator.domain.errors import MigratorError
from migrator.domain.units import MIB
from migrator.domain.verification import Difference
from migrator.ports.manifest import ClosedManifest, LinkedPath, LinkFinding, LinkFindingKind, VerifiedPath

Row = TypeVar("Row")

_MEMORY_LIMIT_BYTES = 512 * MIB
_PIECE_ROWS = 2048
_ROW_GROUP_ROWS = 20_480
"""Small enough that a verification that asks this manifest can hold the groups it is at in memory."""
DRAFT_DIRECTORY = "draft"
_FIRST_AFTER_SLASH = b"0"
"""`/` is 0x2f and `0` 0x30: whatever lies in a directory sorts between the two."""

# Names outside the batch on both sides are links that an earlier plan has made, when the trees shared a batch: what
# is told is only what one side has more than the other.
_LINK_QUERY = """
    WITH linked AS (SELECT * FROM read_parquet(?)),
    sources AS (
        SELECT source_ino, min(path) AS first_path, count(*) AS names, max(source_nlink) AS nlink,
            max(target_nlink) AS target_nlink,
            arg_min(target_ino, path) FILTER (target_ino IS NOT NULL) AS target_ino,
            min(path) FILTER (target_ino IS NOT NULL) AS arrived_path
        FROM linked GROUP BY source_ino
    ),
    targets AS (
        SELECT target_ino, min(path) AS first_path, count(*) AS names, max(target_nlink) AS nlink,
            max(source_nlink) AS source_nlink,
            arg_min(source_ino, path) AS source_ino
        FROM linked WHERE target_ino IS NOT NULL GROUP BY target_ino
    )
    SELECT linked.path AS path, 'split' AS kind, sources.arrived_path AS other, sources.names AS names,
        sources.nlink AS nlink
    FROM linked JOIN sources USING (source_ino)
    WHERE linked.target_ino IS NOT NULL AND linked.target_ino <> sources.target_ino
    UNION ALL
    SELECT linked.path, 'merged', targets.first_path, targets.names, targets.nlink
    FROM linked JOIN targets USING (target_ino) WHERE linked.source_ino <> targets.source_ino
    UNION ALL
    SELECT first_path, 'outside', first_path, names, nlink FROM targets WHERE nlink > greatest(names, source_nlink)
    UNION ALL
    SELECT first_path, 'broken', first_path, names, nlink FROM sources
    WHERE nlink > greatest(names, coalesce(target_nlink, 0))
    ORDER BY ALL
"""


class ParquetDraft:
    """The `ManifestDraft` port: parts as they come, sorted into whole files at the end. Memory is flat."""

    def __init__(self, directory: Path, *, catalogs_dir: Path, temp_dir: Path, algorithm: str, part_rows: int) -> None:
        self._directory = directory
        self._draft = directory / DRAFT_DIRECTORY
        self._catalogs_dir = catalogs_dir
        self._abandoned = threading.Event()
        self._closed = False
        self._database = connect(_MEMORY_LIMIT_BYTES, temp_dir)
        draft = self._draft
        self._verified: _Parts[VerifiedPath] = _Parts(
            draft, "verified", MANIFEST_SCHEMA, lambda rows: manifest_rows(rows, algorithm), part_rows
        )
        self._differences: _Parts[Difference] = _Parts(
            draft, "difference", DIFFERENCE_SCHEMA, difference_rows, part_rows
        )
        self._losses: _Parts[Loss] = _Parts(draft, "loss", LOSS_SCHEMA, loss_rows, part_rows)
        self._links: _Parts[LinkedPath] = _Parts(draft, "link", LINK_SCHEMA, link_rows, part_rows)

    def add(
        self,
        *,
        verified: Sequence[VerifiedPath] = (),
        differences: Sequence[Difference] = (),
        losses: Sequence[Loss] = (),
        links: Sequence[LinkedPath] = (),
    ) -> None:
        """Take what was found, from any thread."""
        if self._abandoned.is_set():
            return
        self._verified.add(verified)
        self._differences.add(differences)
        self._losses.add(losses)
        self._links.add(links)

    def link_findings(self) -> Iterator[LinkFinding]:
        """What is wrong with the hard links, in order of path."""
        self._links.flush()
        cursor = self._database.execute(_LINK_QUERY, [self._links.files()])
        while rows := cursor.fetchmany(_PIECE_ROWS):
            for path, kind, other, names, nlink in rows:
                yield LinkFinding(path=path, kind=LinkFindingKind(kind), other=other, names=names, nlink=nlink)

    def catalog_problems(self, catalogs: Sequence[str]) -> tuple[str, ...]:
        """Why earlier catalogs cannot be asked; those that are still open are asked for the parts that they have."""
        problems: list[str] = []
        for name in catalogs:
            directory = self._catalogs_dir / name
            try:
                if (directory / CLOSING_RECORD).is_file() or not directory.is_dir():
                    open_closed(directory)
            except MigratorError as error:
                problems.append(error.message)
        return tuple(problems)

    def unaccounted(self, catalogs: Sequence[str], trees: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """Paths of the catalogs that nothing was added for; an anti-join that spills beyond the memory limit."""
        files = [str(file) for name in catalogs for file in numbered(self._catalogs_dir / name, "part").values()]
        if not files or not trees:
            return
        for parts in (self._verified, self._differences, self._losses):
            parts.flush()
        within = " OR ".join(["path = ? OR (path >= ? AND path < ?)"] * len(trees))
        bounds = [bound for tree in trees for bound in (tree, tree + b"/", tree + _FIRST_AFTER_SLASH)]
        accounted = [*self._verified.files(), *self._differences.files(), *self._losses.files()]
        # Only placeholders are put together here: every path is a parameter.
        query = f"""
            CREATE OR REPLACE TEMP TABLE unaccounted AS
            SELECT seen.path AS path
            FROM (SELECT DISTINCT path FROM read_parquet(?) WHERE {within}) AS seen
            ANTI JOIN (SELECT path FROM read_parquet(?, union_by_name = true)) AS added ON seen.path = added.path
            ORDER BY path
        """  # noqa: S608
        self._database.execute(query, [files, *bounds, accounted])
        cursor = self._database.execute("SELECT path FROM unaccounted ORDER BY path")
        while rows := cursor.fetchmany(_PIECE_ROWS):
            yield [path for (path,) in rows]

    def close(self) -> ClosedManifest:
        """Sort the parts into whole files; the manifest holds no path that has a difference."""
        for parts in (self._verified, self._differences, self._losses, self._links):
            parts.flush()
        differences = self._differences.files()
        self._write(
            MANIFEST_FILE,
            "SELECT * FROM read_parquet($rows) AS verified ANTI JOIN (SELECT path FROM read_parquet($differences)) "
            "AS differing ON verified.path = differing.path ORDER BY path",
            {"rows": self._verified.files(), "differences": differences},
        )
        self._write(DIFFERENCES_FILE, "SELECT * FROM read_parquet($rows) ORDER BY ALL", {"rows": differences})
        self._write(EXPECTED_FILE, "SELECT * FROM read_parquet($rows) ORDER BY ALL", {"rows": self._losses.files()})
        self._closed = True
        shutil.rmtree(self._draft)
        self._database.close()
        sync(self._directory)
        file = self._directory / MANIFEST_FILE
        return ClosedManifest(
            file=str(file),
            digest=file_digest(file),
            rows=pq.read_metadata(file).num_rows,
            differences_file=str(self._directory / DIFFERENCES_FILE),
        )

    def abandon(self) -> None:
        """Interrupt a query under way and remove the directory; threads may still call `add`, to no effect."""
        if self._closed or self._abandoned.is_set():
            return
        self._abandoned.set()
        self._database.interrupt()
        for parts in (self._verified, self._differences, self._losses, self._links):
            parts.stop()
        shutil.rmtree(self._directory)

    def _write(self, name: str, query: str, parameters: dict[str, list[str]]) -> None:
        """Write the result of a query to a file: temporary name, fsync, rename."""
        file = self._directory / name
        temporary = temporary_name(file)
        # The query is one of this module's; the paths of its files are parameters.
        copy = f"COPY ({query}) TO $file (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROW_GROUP_ROWS})"
        self._database.execute(copy, {**parameters, "file": str(temporary)})
        sync(temporary)
        temporary.replace(file)


class _Parts(Generic[Row]):
    """Rows of one kind, written to a file of their own whenever there are enough. Thread-safe."""

    def __init__(
        self,
        directory: Path,
        name: str,
        schema: pa.Schema,
        columns: Callable[[Sequence[Row]], pa.Table],
        part_rows: int,
    ) -> None:
        self._directory = directory
        self._name = name
        self._columns = columns
        self._part_rows = part_rows
        self._lock = threading.Lock()
        self._rows: list[Row] = []
        self._files: list[str] = []
        self._stopped = False
        # A file without rows, so that a query always has one to read.
        self._write(schema.empty_table())

    def add(self, rows: Sequence[Row]) -> None:
        if not rows:
            return
        with self._lock:
            self._rows.extend(rows)
            if len(self._rows) >= self._part_rows:
                self._flush()

    def flush(self) -> None:
        with self._lock:
            self._flush()

    def stop(self) -> None:
        """Nothing is written any more."""
        with self._lock:
            self._stopped = True
            self._rows = []

    def files(self) -> list[str]:
        with self._lock:
            return list(self._files)

    def _flush(self) -> None:
        if self._rows and not self._stopped:
            self._write(self._columns(self._rows))
            self._rows = []

    def _write(self, table: pa.Table) -> None:
        file = self._directory / f"{self._name}-{len(self._files):06d}.parquet"
        pq.write_table(table, file, compression="zstd")
        self._files.append(str(file))
