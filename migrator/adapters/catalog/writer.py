"""Writing a catalog in parts: what is on disk is complete, and a scan that is killed goes on from there.

A part is committed by its done-file, which is renamed last. A directory whose rows are spread over several parts is
named in each of their done-files, and complete in the last one only. Children of a directory must not be added before
the directory is done: so no directory is ever done beneath one that is not, and what a restart has to take back are the
rows of the few directories that were under way.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from migrator.adapters.catalog.records import PartFacts, write_record
from migrator.adapters.catalog.schema import (
    CLOSING_RECORD,
    DONE_ROWS_KEY,
    DONE_SCHEMA,
    ROW_SCHEMA,
    done_name,
    part_name,
    problem_rows,
    problems_name,
    rows_of,
)
from migrator.adapters.durable import write_durably
from migrator.domain.entry import Entry
from migrator.domain.paths import parent
from migrator.domain.scan import CatalogRecord, ScanProblem
from migrator.domain.units import MIB

MAX_PART_ROWS = 100_000
"""What a kill costs at most is the reading of so many paths."""
MAX_PART_BYTES = 32 * MIB
_BATCH_ROWS = 8192
"""Entries are turned into columns, which take a tenth of the memory, when so many have come."""


def parquet_bytes(table: pa.Table) -> memoryview:
    """A table as a Parquet file in memory."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return memoryview(sink.getvalue())


class PartsWriter:
    """The `CatalogWriter` port. One thread at a time may call it; the entries of one call lie in one directory.

    A part is written when it has `max_part_rows` rows or `max_part_bytes` of columns in memory.
    """

    def __init__(
        self,
        directory: Path,
        *,
        parts: Sequence[PartFacts] = (),
        next_number: int = 0,
        max_part_rows: int = MAX_PART_ROWS,
        max_part_bytes: int = MAX_PART_BYTES,
    ) -> None:
        self._directory = directory
        self._parts = list(parts)
        self._number = next_number
        self._finished = next_number
        self._max_part_rows = max_part_rows
        self._max_part_bytes = max_part_bytes
        self._waiting: list[tuple[bytes | None, Sequence[Entry]]] = []
        self._waiting_rows = 0
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._touched: set[bytes] = set()
        self._done: list[bytes] = []
        self._problems: list[ScanProblem] = []

    def add(self, tree: bytes | None, entries: Sequence[Entry]) -> None:
        """Take entries of one tree (None: outside every tree) and of one directory. Raises OSError."""
        if not entries:
            return
        self._touched.add(parent(entries[0].path))
        self._waiting.append((tree, entries))
        self._waiting_rows += len(entries)
        if self._waiting_rows >= _BATCH_ROWS:
            self._to_columns()
        if self._rows + self._waiting_rows >= self._max_part_rows or self._bytes >= self._max_part_bytes:
            self._write_part()

    def directory_done(self, path: bytes, problems: Sequence[ScanProblem]) -> None:
        """All entries of this directory have been added."""
        self._done.append(path)
        self._problems.extend(problems)

    def note(self, problems: Sequence[ScanProblem]) -> None:
        """Take problems that belong to no directory: they are on disk with the next part."""
        self._problems.extend(problems)

    def close(self, record: CatalogRecord) -> CatalogRecord:
        """Write what is left, then the closing record; `parts` of the record is filled in. Raises OSError."""
        self._write_part()
        closed = replace(record, parts=tuple(part.name for part in self._parts))
        write_record(self._directory / CLOSING_RECORD, closed, tuple(self._parts))
        return closed

    def abandon(self) -> None:
        """Write what is left and leave the catalog open, to go on later. Raises OSError."""
        self._write_part()

    def _to_columns(self) -> None:
        for tree, entries in _runs(self._waiting):
            batch = rows_of(tree, entries)
            self._batches.append(batch)
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
        self._waiting = []
        self._waiting_rows = 0

    def _write_part(self) -> None:
        self._to_columns()
        if not (self._rows or self._done or self._problems):
            return
        number = self._number
        if self._rows:
            content = parquet_bytes(pa.Table.from_batches(self._batches, schema=ROW_SCHEMA))
            write_durably(self._directory / part_name(number), content)
            self._parts.append(PartFacts(name=part_name(number), rows=self._rows, size_bytes=len(content)))
        if self._problems:
            write_durably(self._directory / problems_name(number), parquet_bytes(problem_rows(self._problems)))
        write_durably(self._directory / done_name(number), self._done_file())
        self._number += 1
        self._finished += 1
        self._batches, self._rows, self._bytes = [], 0, 0
        self._touched, self._done, self._problems = set(), [], []

    def _done_file(self) -> memoryview:
        going_on = sorted(self._touched.difference(self._done))
        paths = [*self._done, *going_on]
        complete = [True] * len(self._done) + [False] * len(going_on)
        table = pa.table([pa.array(paths, type=pa.binary()), pa.array(complete, type=pa.bool_())], schema=DONE_SCHEMA)
        return parquet_bytes(table.replace_schema_metadata({DONE_ROWS_KEY: str(self._rows).encode("ascii")}))


def _runs(waiting: Iterable[tuple[bytes | None, Sequence[Entry]]]) -> Iterable[tuple[bytes | None, list[Entry]]]:
    """Neighbours of the same tree as one: batches are few where directories are small."""
    current: bytes | None = None
    run: list[Entry] = []
    for tree, entries in waiting:
        if run and tree != current:
            yield current, run
            run = []
        current = tree
        run.extend(entries)
    if run:
        yield current, run
