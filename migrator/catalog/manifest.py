"""Manifests as Parquet files: written by a verification, read by the next one."""

import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any, Generic, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from migrator.catalog import ports
from migrator.catalog.columns import Columns
from migrator.catalog.database import connect, locked, ranges
from migrator.catalog.files import CLOSING_RECORD, ClosedCatalogs, numbered
from migrator.catalog.model import ContentReading, ReadContent
from migrator.core.durable import file_digest, replacing, sync, temporary_name
from migrator.core.entry import xattr_digest
from migrator.core.errors import MigratorError, Refused
from migrator.core.units import DAY_S
from migrator.fs.beneath import held
from migrator.fs.model import Difference, DifferenceKind, SurpriseKind
from migrator.fs.rules import ExpectedLoss
from migrator.fs.rules_equality import FileState

# --- Files and columns


MANIFEST_FILE = "manifest.parquet"
DIFFERENCES_FILE = "differences.parquet"
EXPECTED_FILE = "expected.parquet"

_MANIFEST: Columns[ports.VerifiedPath] = Columns(
    """
    path:binary=source.path type:string=source.type size:int64=source.size_bytes mtime_ns:int64=source.mtime_ns
    ctime_ns:int64=source.ctime_ns ino:uint64=source.ino uid:uint32=source.uid gid:uint32=source.gid mode:int32=source.mode
    symlink_target:binary?=source.symlink_target rdev:uint64=source.rdev link_group:uint64?=source.link_group
    xattr_digest:binary? digest:binary? algorithm:string? target_ino:uint64? target_mtime_ns:int64? target_ctime_ns:int64?
    read_by:int64? source_clock_ns:int64? target_clock_ns:int64? archive:int64?
    """,
    xattr_digest=lambda row: xattr_digest(row.source.xattrs),
    digest=lambda row: row.archived.digest if row.archived else row.digest,
    target_ino=lambda row: row.target and row.target.ino,
    target_mtime_ns=lambda row: row.target and row.target.mtime_ns,
    target_ctime_ns=lambda row: row.target and row.target.ctime_ns,
    read_by=lambda row: row.reading and row.reading.verification,
    source_clock_ns=lambda row: row.reading and row.reading.source_clock_ns,
    target_clock_ns=lambda row: row.reading and row.reading.target_clock_ns,
    archive=lambda row: row.archived and row.archived.archive,
)
"""One row per verified path, with the attributes of the source (`expected.parquet` has the attributes that the target
cannot keep). `digest` and `algorithm` are null if no content was compared. `target_*` are the attributes of the
target's file when it was listed. `read_by` is the verification that read the content; `*_clock_ns` is the clock of
each side before it was synced for that, null if unknown. `archive` is the number of the archive (in the tree's
archive directory) with the path, whose `target_*` are then null."""
MANIFEST_SCHEMA = _MANIFEST.schema

_DIFFERENCES: Columns[Difference] = Columns("path:binary kind:string source:string target:string")
_LOSSES: Columns[ExpectedLoss] = Columns("path:binary kind:string detail:string")
_LINKS: Columns[ports.LinkedPath] = Columns(
    "path:binary source_ino:uint64 source_nlink:uint32 target_ino:uint64? target_nlink:uint32"
)


def _algorithm(row: ports.VerifiedPath, algorithm: str) -> str | None:
    """Members of archives have the algorithm that the site used when they were archived."""
    if row.archived is not None:
        return row.archived.algorithm
    return None if row.digest is None else algorithm


# --- A manifest in progress: parts in a directory of their own, merged into its files at the end


Row = TypeVar("Row")

DRAFT_DIRECTORY = "draft"
READINGS_DIRECTORY = ".readings"

# Names outside the batch on both sides are links that an earlier plan made when the trees shared a batch. Only names
# that one side has in excess are findings. Names that passes moved to the trash of the target do not count there.
_LINK_QUERY = """
    WITH rows AS (SELECT * FROM read_parquet($links)),
    trashed AS ({trashed}),
    linked AS (
        SELECT rows.* REPLACE ((target_nlink - coalesce(trashed.names, 0))::UINTEGER AS target_nlink),
            coalesce(trashed.names, 0) AS in_trash
        FROM rows LEFT JOIN trashed ON trashed.ino = rows.target_ino
    ),
    sources AS (
        SELECT source_ino, min(path) AS first_path, count(*) AS names, max(source_nlink) AS nlink,
            max(target_nlink) AS target_nlink,
            arg_min(target_ino, path) FILTER (target_ino IS NOT NULL) AS target_ino,
            min(path) FILTER (target_ino IS NOT NULL) AS arrived_path
        FROM linked GROUP BY source_ino
    ),
    targets AS (
        SELECT target_ino, min(path) AS first_path, count(*) AS names, max(target_nlink) AS nlink,
            max(source_nlink) AS source_nlink, max(in_trash) AS in_trash,
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
    SELECT first_path, 'in-trash', first_path, names, nlink + in_trash FROM targets
    WHERE in_trash > 0 AND nlink + in_trash > greatest(names, source_nlink)
    UNION ALL
    SELECT first_path, 'broken', first_path, names, nlink FROM sources
    WHERE nlink > greatest(names, coalesce(target_nlink, 0))
    ORDER BY ALL
"""
_TRASHED = "SELECT ino, count(*) AS names FROM read_parquet($trash) WHERE type <> 'directory' GROUP BY ino"
_NOTHING_TRASHED = "SELECT 0::UBIGINT AS ino, 0 AS names WHERE false"
_OTHER_NAMES = """
    SELECT count(*) FROM (
        SELECT 1 FROM read_parquet($links) WHERE target_ino IS NOT NULL
        GROUP BY target_ino HAVING max(target_nlink) > count(*) LIMIT 1
    )
"""


class ParquetDraft:
    """A manifest in progress: unsorted parts, which `close` merges into sorted files. Constant memory. `lock` is the descriptor
    of its locked directory of parts.
    """

    def __init__(
        self,
        directory: Path,
        *,
        lock: int,
        catalogs: ClosedCatalogs,
        scratch: ports.Scratch,
        algorithm: str,
        part_rows: int,
    ) -> None:
        self._directory = directory
        self._lock = lock
        self._draft = directory / DRAFT_DIRECTORY
        self._catalogs = catalogs
        self._abandoned = threading.Event()
        self._closed = False
        self._joined = 0
        self._database = connect(scratch)
        self._verified: _Parts[ports.VerifiedPath] = _Parts(
            self._draft,
            "verified",
            MANIFEST_SCHEMA,
            lambda rows: _MANIFEST.batch(rows, algorithm=[_algorithm(row, algorithm) for row in rows]),
            part_rows,
        )
        self._differences: _Parts[Difference] = _Parts(
            self._draft, "difference", _DIFFERENCES.schema, _DIFFERENCES.batch, part_rows
        )
        self._losses: _Parts[ExpectedLoss] = _Parts(self._draft, "loss", _LOSSES.schema, _LOSSES.batch, part_rows)
        self._links: _Parts[ports.LinkedPath] = _Parts(self._draft, "link", _LINKS.schema, _LINKS.batch, part_rows)
        self._parts = (self._verified, self._differences, self._losses, self._links)

    def add(
        self,
        *,
        verified: Sequence[ports.VerifiedPath] = (),
        differences: Sequence[Difference] = (),
        losses: Sequence[ExpectedLoss] = (),
        links: Sequence[ports.LinkedPath] = (),
    ) -> None:
        """Add results; several threads may call this. A path with a difference may be added as verified too: it is
        left out of the manifest. After `abandon` the call has no effect. Raises OSError.
        """
        if self._abandoned.is_set():
            return
        self._verified.add(verified)
        self._differences.add(differences)
        self._losses.add(losses)
        self._links.add(links)

    def has_other_names(self) -> bool:
        """True if a file of the target has names that were not added. No links may be added meanwhile."""
        self._links.flush()
        (found,) = self._database.execute(_OTHER_NAMES, {"links": self._links.files()}).fetchone() or (0,)
        return bool(found)

    def link_findings(self, trash: Sequence[str] = ()) -> Iterator[ports.LinkFinding]:
        """Compare the hard links of all added paths; the findings come in order of path. `trash` are files with the rows of the
        target's trash. While this is read, no links may be added.
        """
        self._links.flush()
        query = _LINK_QUERY.format(trashed=_TRASHED if trash else _NOTHING_TRASHED)
        given = {"links": self._links.files()} | ({"trash": list(trash)} if trash else {})
        cursor = self._database.execute(query, given)
        while rows := cursor.fetchmany(_PIECE_ROWS):
            for path, kind, other, names, nlink in rows:
                yield ports.LinkFinding(
                    path=path, kind=ports.LinkFindingKind(kind), other=other, names=names, nlink=nlink
                )

    def catalog_problems(self, catalogs: Sequence[str]) -> tuple[str, ...]:
        """The reason why earlier catalogs cannot be queried. For catalogs that are still open, the existing parts are
        used.
        """
        problems: list[str] = []
        for name in catalogs:
            directory = self._catalogs.directory / name
            try:
                if (directory / CLOSING_RECORD).is_file() or not directory.is_dir():
                    self._catalogs.open(name)
            except MigratorError as error:
                problems.append(error.message)
        return tuple(problems)

    @property
    def scratch(self) -> Path:
        """A directory that goes with the draft."""
        return self._draft

    def catalog_files(self, catalogs: Sequence[str]) -> list[str]:
        """The files with the rows of these catalogs, as far as they exist."""
        return [str(file) for name in catalogs for file in numbered(self._catalogs.directory / name, "part").values()]

    def place_for(self, name: str) -> str | None:
        """A new file for rows of a kind (`verified`, `loss`, `link`) that are added as a whole; None after `abandon`."""
        if self._abandoned.is_set():
            return None
        self._joined += 1
        return str(self._draft / f"{name}-joined-{self._joined:06d}.parquet")

    def accounted(self) -> list[str]:
        """The files with all paths that were added so far."""
        parts = (self._verified, self._differences, self._losses)
        for some in parts:
            some.flush()
        return [file for some in parts for file in some.files()]

    def close(self, cuts: Sequence[bytes] = ()) -> ports.ClosedManifest:
        """Sort the parts into the final files, durably; the manifest has no path with a difference. `cuts` are paths, in order,
        with so few of the rows between two of them that memory suffices to sort these. Raises OSError.
        """
        for parts in self._parts:
            parts.flush()
        self._write(MANIFEST_FILE, self._verified, cuts, order="path", without=self._differences.files())
        self._write(DIFFERENCES_FILE, self._differences, cuts, order="ALL")
        self._write(EXPECTED_FILE, self._losses, cuts, order="ALL")
        self._closed = True
        shutil.rmtree(self._draft)
        os.close(self._lock)
        self._database.close()
        sync(self._directory)
        file, listed = self._directory / MANIFEST_FILE, self._directory / DIFFERENCES_FILE
        return ports.ClosedManifest(
            file=str(file),
            digest=file_digest(file),
            rows=pq.read_metadata(file).num_rows,
            differences_file=str(listed),
            differences_digest=file_digest(listed),
        )

    def abandon(self) -> None:
        """Interrupt a running query and remove the directory. Threads may still call `add`, to no effect. After
        `close` the call has no effect.
        """
        if self._closed or self._abandoned.is_set():
            return
        self._abandoned.set()
        self._database.interrupt()
        for parts in self._parts:
            parts.stop()
        shutil.rmtree(self._directory)
        os.close(self._lock)

    def _write(
        self, name: str, parts: "_Parts[Any]", cuts: Sequence[bytes], *, order: str, without: list[str] | None = None
    ) -> None:
        """Write rows to a file, except the paths of `without`, in order (of the path first): temporary name, fsync, rename."""
        file = self._directory / name
        temporary = temporary_name(file)
        # Nearly all values differ: with dictionaries, a manifest is a third larger.
        with pq.ParquetWriter(temporary, parts.schema, compression="zstd", use_dictionary=False) as writer:
            for within in ranges(cuts):
                found: Any = self._database.read_parquet(parts.files()).filter(within)
                if without:
                    others = self._database.read_parquet(without).filter(within)
                    found = found.join(others, "path", how="anti")
                found = found.project(", ".join(parts.schema.names)).order(order)
                for batch in found.to_arrow_reader(_ROW_GROUP_ROWS):
                    rows_of_kind = pa.RecordBatch.from_arrays(batch.columns, schema=parts.schema)
                    writer.write_batch(rows_of_kind, row_group_size=_ROW_GROUP_ROWS)
        sync(temporary)
        temporary.replace(file)


_ROW_GROUP_ROWS = 20_480
"""Small, so that a reader can hold some row groups."""


@dataclass(slots=True)
class _Parts(Generic[Row]):
    """Rows of one kind, written to a file of their own whenever there are enough. Thread-safe."""

    directory: Path
    name: str
    schema: pa.Schema
    columns: Callable[[Sequence[Row]], pa.RecordBatch]
    part_rows: int
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _rows: list[Row] = field(init=False, default_factory=list)
    _written: int = field(init=False, default=0)
    _stopped: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        # A file without rows: a query needs at least one file.
        self._write(self.schema.empty_table())

    def add(self, rows: Sequence[Row]) -> None:
        if not rows:
            return
        with self._lock:
            self._rows.extend(rows)
            if len(self._rows) >= self.part_rows:
                self._flush()

    def flush(self) -> None:
        with self._lock:
            self._flush()

    def stop(self) -> None:
        """Stop writing, and discard the rows that are not written yet."""
        with self._lock:
            self._stopped = True
            self._rows = []

    def files(self) -> list[str]:
        with self._lock:
            return sorted(str(file) for file in self.directory.glob(f"{self.name}-*.parquet"))

    def _flush(self) -> None:
        if self._rows and not self._stopped:
            self._write(pa.Table.from_batches([self.columns(self._rows)]))
            self._rows = []

    def _write(self, table: pa.Table) -> None:
        file = self.directory / f"{self.name}-{self._written:06d}.parquet"
        pq.write_table(table, file, compression="zstd")
        self._written += 1


# --- Readings of content


def reading_of(row: Sequence[Any]) -> ReadContent:
    """A row of `READINGS_SCHEMA` without its path. A digest implies the same size on both sides."""
    ino, size_bytes, mtime_ns, ctime_ns, target_ino, target_mtime_ns, target_ctime_ns, digest, read_by, *clocks_ns = row
    return ReadContent(
        source=FileState(ino=ino, size_bytes=size_bytes, mtime_ns=mtime_ns, ctime_ns=ctime_ns),
        target=FileState(ino=target_ino, size_bytes=size_bytes, mtime_ns=target_mtime_ns, ctime_ns=target_ctime_ns),
        digest=digest,
        reading=ContentReading(verification=read_by, source_clock_ns=clocks_ns[0], target_clock_ns=clocks_ns[1]),
    )


# --- Content that hosts read before the comparison, chunk by chunk


READINGS_SCHEMA = Columns[Any](
    """
    path:binary ino:uint64 size:int64 mtime_ns:int64 ctime_ns:int64 target_ino:uint64 target_mtime_ns:int64
    target_ctime_ns:int64 digest:binary read_by:int64 source_clock_ns:int64? target_clock_ns:int64?
    """
).schema
"""A manifest has these columns too."""
_RESUMABLE_S = DAY_S


class ReadingParts(Struct, frozen=True):
    """The content of one batch that was equal when hosts read it: a file per chunk, kept until the batch is verified, so that
    a verification that was interrupted resumes. Thread-safe.
    """

    directory: Path
    scratch: ports.Scratch

    def has(self, chunk: str) -> bool:
        """True if the chunk was read."""
        return self._file(chunk).exists()

    def add(self, chunk: str, readings: pa.RecordBatch) -> None:
        """Record the readings of a chunk, in columns of `READINGS_SCHEMA`, durably. Raises OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with replacing(self._file(chunk)) as stream:
            # Nearly all values differ: with dictionaries, the file is larger and takes twice as long.
            pq.write_table(pa.Table.from_batches([readings]), stream, compression="zstd", use_dictionary=False)

    def files(self) -> list[str]:
        """The files with all of them. A path may have several, from lists of several passes."""
        return [str(file) for file in self.directory.glob("chunk-*.parquet")]

    def forget_if_old(self, now_s: float) -> None:
        """Remove them all if the newest is older than a day: disks may have lost since what was read."""
        newest_s = max((file.stat().st_mtime for file in self.directory.glob("chunk-*.parquet")), default=now_s)
        if not now_s - _RESUMABLE_S <= newest_s:
            self.remove()

    def remove(self) -> None:
        """Remove them all. May be called again."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _file(self, chunk: str) -> Path:
        return self.directory / f"chunk-{chunk.replace('/', '_')}.parquet"


# --- Manifests: one directory per verification, with differences and expected losses beside the manifest


PART_ROWS = 50_000
_PIECE_ROWS = 2048
_NOT_MENDED = (DifferenceKind.EXTRA, DifferenceKind.UNREADABLE, DifferenceKind.UNPROVEN)
"""Differences that sending a path again does not repair."""


class ManifestDirectories(Struct, frozen=True):
    """The manifests of a site; `catalogs` are its catalogs. Reading raises Refused if a file is missing."""

    directory: Path
    catalogs: ClosedCatalogs
    scratch: ports.Scratch
    part_rows: int = PART_ROWS

    def create(self, name: str, *, algorithm: str) -> ParquetDraft:
        """Begin a manifest, after removing what killed verifications have left: up to hundreds of bytes per path. An older ledger
        gives numbers again, so a directory that exists is kept, and another name is taken. Raises OSError.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        # Held until the own draft is locked: no other call takes it for that of a killed one.
        with held(locked(self.directory)):
            for draft in self.directory.glob(f"*/{DRAFT_DIRECTORY}"):
                with suppress(BlockingIOError, FileNotFoundError), held(locked(draft, fcntl.LOCK_NB)):
                    if draft.exists():  # otherwise it was closed just now
                        shutil.rmtree(draft.parent)
            names = chain((name,), (f"{name}-{number}" for number in count(2)))
            directory = next(place for one in names if not os.path.lexists(place := self.directory / one))
            (directory / DRAFT_DIRECTORY).mkdir(parents=True)
            lock = locked(directory / DRAFT_DIRECTORY)
        sync(self.directory)
        return ParquetDraft(
            directory,
            lock=lock,
            catalogs=self.catalogs,
            scratch=self.scratch,
            algorithm=algorithm,
            part_rows=self.part_rows,
        )

    def readings(self, name: str) -> ReadingParts:
        """What hosts have read for verifications of this name."""
        return ReadingParts(self.directory / READINGS_DIRECTORY / name, self.scratch)

    def rows_of(self, catalog: str) -> list[str]:
        """The files with the rows of a closed catalog. Raises Refused."""
        return [str(file) for file in self.catalogs.open(catalog).part_files]

    def examples(self, manifest: str, *, per_kind: int = 5) -> ports.Examples:
        """Some findings of each kind, in order of path."""
        directory = Path(manifest).parent
        with connect(self.scratch) as database:
            differences = _first_of_each_kind(database, directory / DIFFERENCES_FILE, per_kind)
            losses = _first_of_each_kind(database, directory / EXPECTED_FILE, per_kind)
        return ports.Examples(
            differences=tuple(
                Difference(path=path, kind=DifferenceKind(kind), source=source, target=target)
                for path, kind, source, target in differences
            ),
            losses=tuple(
                ExpectedLoss(path=path, kind=SurpriseKind(kind), detail=detail) for path, kind, detail in losses
            ),
        )

    def differing(self, manifest: str, *, digest: str | None) -> Iterator[bytes]:
        """The paths of the source that differ on the target or are missing there, in order. `digest` as for `differences_of`."""
        file = differences_of(manifest, digest=digest)
        with connect(self.scratch) as database:
            cursor = database.execute(
                "SELECT DISTINCT path FROM read_parquet(?) WHERE kind NOT IN (SELECT unnest(?)) ORDER BY path",
                [str(file), [kind.value for kind in _NOT_MENDED]],
            )
            while rows := cursor.fetchmany(_PIECE_ROWS):
                yield from (path for (path,) in rows)

    @staticmethod
    def digest(manifest: str) -> str:
        """The digest of the manifest's file as it is now."""
        return file_digest(_existing(Path(manifest)))

    @staticmethod
    def intact(manifest: str, *, digest: str) -> str:
        """The file of an earlier manifest. Reads it once; raises Refused if it is missing or its digest differs."""
        return str(_intact(Path(manifest), digest))


def differences_of(manifest: str, *, digest: str | None) -> Path:
    """The list of differences beside a manifest; `digest` is that of the ledger. Raises Refused if it is missing or was changed."""
    return _intact(Path(manifest).with_name(DIFFERENCES_FILE), digest)


def _intact(file: Path, digest: str | None) -> Path:
    if file_digest(_existing(file)) != digest:
        raise Refused(
            f"{file.name} of a verification is not the one that was written",
            cause=f"{file} was changed or damaged since",
            hint="verify the batch again",
        )
    return file


def _first_of_each_kind(database: duckdb.DuckDBPyConnection, file: Path, per_kind: int) -> Sequence[tuple[Any, ...]]:
    query = """
        SELECT * FROM read_parquet(?)
        QUALIFY row_number() OVER (PARTITION BY kind ORDER BY path) <= ? ORDER BY kind, path
    """
    return database.execute(query, [str(_existing(file)), per_kind]).fetchall()


def _existing(file: Path) -> Path:
    if not file.is_file():
        raise Refused(
            f"{file.name} of a verification is missing",
            cause=f"{file} was moved or removed since",
            hint="verify the batch again",
        )
    return file
