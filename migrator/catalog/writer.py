"""Catalogs written in parts: a killed scan can be resumed."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from migrator.catalog import files
from migrator.catalog.model import CatalogRecord
from migrator.catalog.ports import CatalogTotals, OpenCatalog, Scratch
from migrator.core.durable import sync, write_durably
from migrator.core.entry import Entry
from migrator.core.units import MIB
from migrator.fs.model import ScanProblem

if TYPE_CHECKING:
    from migrator.catalog.brick_parts import BrickPartsWriter


# --- Parts
#
# A part is committed by its done-file, which is renamed last and names the directories that became complete with it. All
# rows of a directory are added before it is done, and a directory is done before those below it. So a restart discards
# only the rows of the few directories that were in flight.


MAX_PART_ROWS = 100_000
"""The maximum number of paths that are read again after a kill."""
MAX_PART_BYTES = 32 * MIB
_BATCH_ROWS = 8192
"""The number of entries that are converted to columns at a time. Columns take a tenth of the memory."""


def parquet_bytes(table: pa.Table) -> memoryview:
    """A table as a Parquet file in memory."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return memoryview(sink.getvalue())


class PartsWriter:
    """Writes one catalog in parts. One thread at a time may call it. A directory is done once it is in a part on disk; a
    killed scan resumes from there.

    A part is written when it has `max_part_rows` rows or 32 MiB of columns in memory.
    """

    def __init__(
        self, directory: Path, *, parts: Sequence[str] = (), next_number: int = 0, max_part_rows: int = MAX_PART_ROWS
    ) -> None:
        self._directory = directory
        self._parts = list(parts)
        self._number = next_number
        self._max_part_rows = max_part_rows
        self._waiting: list[tuple[bytes | None, Sequence[Entry]]] = []
        self._waiting_rows = 0
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._done: list[bytes] = []
        self._problems: list[ScanProblem] = []

    def add(self, tree: bytes | None, entries: Sequence[Entry]) -> None:
        """Add entries of one tree (None: outside every tree). Raises OSError."""
        if not entries:
            return
        self._waiting.append((tree, entries))
        self._waiting_rows += len(entries)
        if self._waiting_rows >= _BATCH_ROWS:
            self._to_columns()
        self._write_full_part()

    def add_rows(self, rows: pa.RecordBatch) -> None:
        """Add rows of ROW_SCHEMA. Raises OSError."""
        self._to_columns()
        self._take(rows)
        self._write_full_part()

    def directories_done(self, paths: Sequence[bytes]) -> None:
        """Complete directories, after all their entries and problems were added."""
        self._done.extend(paths)

    def note(self, problems: Sequence[ScanProblem]) -> None:
        """Add problems; they are written with the next part."""
        self._problems.extend(problems)

    def problems(self) -> Iterator[ScanProblem]:
        """All problems of the catalog, those of earlier sessions included."""
        self._write_part()
        return files.read_problems(self._directory)

    def close(self, record: CatalogRecord) -> CatalogRecord:
        """Write the rest, then the closing record, with its `parts` filled in. Raises OSError."""
        self._write_part()
        return files.close_catalog(self._directory, record, self._parts)

    def abandon(self) -> None:
        """Write the rest and leave the catalog open, for a later resume. Raises OSError."""
        self._write_part()

    def _to_columns(self) -> None:
        # Neighbours of the same tree share a batch: small directories would give many batches.
        for tree, neighbours in groupby(self._waiting, key=itemgetter(0)):
            batch = files.rows_of(tree, [entry for _, entries in neighbours for entry in entries])
            self._take(batch)
        self._waiting = []
        self._waiting_rows = 0

    def _take(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes

    def _write_full_part(self) -> None:
        if self._rows + self._waiting_rows >= self._max_part_rows or self._bytes >= MAX_PART_BYTES:
            self._write_part()

    def _write_part(self) -> None:
        self._to_columns()
        if not (self._rows or self._done or self._problems):
            return
        number = self._number
        if self._rows:
            content = parquet_bytes(pa.Table.from_batches(self._batches, schema=files.ROW_SCHEMA))
            write_durably(self._directory / files.part_name(number), content)
            self._parts.append(files.part_name(number))
        if self._problems:
            write_durably(
                self._directory / files.problems_name(number), parquet_bytes(files.problem_rows(self._problems))
            )
        write_durably(self._directory / files.done_name(number), self._done_file())
        self._number += 1
        self._batches, self._rows, self._bytes = [], 0, 0
        self._done, self._problems = [], []

    def _done_file(self) -> memoryview:
        table = pa.table({"path": self._done, "complete": [True] * len(self._done)}, schema=files.DONE_SCHEMA)
        return parquet_bytes(table.replace_schema_metadata({files.DONE_ROWS_KEY: str(self._rows).encode("ascii")}))


# --- The catalogs of a site: one directory each


class CatalogDirectories(Struct, frozen=True):
    """The catalogs of a site; queries spill to `scratch`."""

    directory: Path
    scratch: Scratch
    max_part_rows: int = MAX_PART_ROWS

    def create(self, record: CatalogRecord) -> OpenCatalog:
        """A new catalog with this opening record. Raises OSError (FileExistsError if the name is taken)."""
        writer = PartsWriter(self._made(record), max_part_rows=self.max_part_rows)
        return OpenCatalog(record=record, writer=writer, frontier=(b"",), totals=CatalogTotals())

    def _made(self, record: CatalogRecord) -> Path:
        directory = self.directory / record.name
        directory.mkdir(parents=True)
        files.write_record(directory / files.OPENING_RECORD, record)
        sync(self.directory)
        return directory

    def load_for_bricks(self) -> None:
        """Import the modules of `create_from_bricks`. Blocking: call it in a thread during another wait. No other
        effect.
        """
        # Imported late: a scan of the mount that is not resumed does without DuckDB.
        import migrator.catalog.brick_parts  # noqa: F401, PLC0415

    def create_from_bricks(self, record: CatalogRecord, *, bricks: int) -> "BrickPartsWriter":
        """Create a catalog for the walks of `bricks` bricks. Raises OSError (FileExistsError if the name is taken)."""
        # Imported late, as above.
        from migrator.catalog.brick_parts import BrickPartsWriter  # noqa: PLC0415

        trees = [tree.path for tree in record.trees]
        return BrickPartsWriter(self._made(record), trees=trees, scratch=self.scratch, bricks=bricks)

    def discard(self, name: str) -> None:
        """Remove a catalog that was never closed. May be called twice. Raises OSError."""
        directory = self.directory / name
        if directory.is_dir() and not (directory / files.CLOSING_RECORD).exists():
            for file in directory.iterdir():
                file.unlink()
            directory.rmdir()

    def resume(self, name: str) -> OpenCatalog | None:
        """Resume a catalog; None if it was never begun on disk. Raises Refused if it cannot be resumed."""
        directory = self.directory / name
        if not (directory / files.OPENING_RECORD).is_file():
            return None
        # Imported late, as above.
        from migrator.catalog.resume import resume  # noqa: PLC0415

        return resume(directory, scratch=self.scratch, max_part_rows=self.max_part_rows)

    def closing_record(self, name: str) -> CatalogRecord | None:
        """The record of a closed catalog; None for others. Raises Refused if a part of it is missing or torn."""
        if not (self.directory / name / files.CLOSING_RECORD).is_file():
            return None
        return self.closed(name).record

    def closed(self, name: str) -> files.ClosedCatalog:
        """Open a closed catalog. Raises UsageError or Refused as `open_closed` does."""
        return files.open_closed(self.directory / name)
