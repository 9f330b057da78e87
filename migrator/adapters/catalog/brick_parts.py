"""Writing a catalog from the blocks that walks of bricks send.

Entries that are no directories are rows at once: every one of them lies on one brick. Directories lie on all bricks, so
they are kept aside and made one row each when every walk has ended (`united.py`). Nothing is synced before the catalog
is closed, because a scan of bricks that is killed starts over.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from migrator.adapters.catalog.blocks import decode_rows
from migrator.adapters.catalog.records import PartFacts, write_record
from migrator.adapters.catalog.schema import (
    CLOSING_RECORD,
    ROW_SCHEMA,
    part_name,
    problem_rows,
    problems_name,
    rows_of,
)
from migrator.adapters.catalog.united import Union
from migrator.adapters.catalog.writer import parquet_bytes
from migrator.adapters.durable import sync
from migrator.domain.entry import Entry
from migrator.domain.scan import CatalogRecord, ScanProblem
from migrator.domain.units import MIB
from migrator.ports.catalog import BrickFindings, CatalogTotals

_MAX_PART_ROWS = 200_000
_BUFFERS_BYTES = 512 * MIB
"""What the rows of all bricks together that wait to be written take at most."""
_MAX_PART_BYTES = 48 * MIB
_MIN_PART_BYTES = 2 * MIB
_FEW_VALUES: Any = [
    *("tree", "brick", "type", "blocks", "uid", "gid", "mode", "dev", "rdev", "nlink"),
    *("xattr_largest_bytes", "xattr_kinds", "acl_entries"),
]
"""Columns worth a dictionary. Without one for the others writing takes 40 % less time and a sixth less room (measured on
100,000 rows of a real brick's kind: 64 ms and 66 bytes a row with, 39 ms and 55 bytes without)."""


def write_part(file: Path, table: pa.Table) -> int:
    """A part for which nothing is guaranteed before it is synced; returns its size in bytes. Raises OSError."""
    pq.write_table(table, file, compression="zstd", compression_level=1, use_dictionary=_FEW_VALUES)
    return file.stat().st_size


@dataclass(slots=True)
class _Buffer:
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0


class BrickPartsWriter:
    """The `BrickCatalogWriter` port."""

    def __init__(self, directory: Path, *, trees: Sequence[bytes], temp_dir: Path, bricks: int = 1) -> None:
        self._directory = directory
        self._trees = tuple(trees)
        self._part_bytes = min(max(_BUFFERS_BYTES // (2 * max(bricks, 1)), _MIN_PART_BYTES), _MAX_PART_BYTES)
        self._lock = threading.Lock()
        self._rows: dict[str, _Buffer] = {}
        self._directories: dict[str, _Buffer] = {}
        self._parts: dict[int, PartFacts] = {}
        self._number = 0
        self._kept_number = 0
        self._problem_number = 0
        self._kept: list[Path] = []
        self._problem_files: list[Path] = []
        self._problems: list[ScanProblem] = []
        # Opened now, while the hosts are at work: at the end it would be waited for.
        self._union = Union(temp_dir=temp_dir)
        self._is_united = False
        self._totals: CatalogTotals | None = CatalogTotals()

    def add_rows(self, brick: str, device: int, payload: memoryview) -> CatalogTotals:
        """Take a block of entries that are no directories. Raises MigratorError, OSError."""
        batch = decode_rows(payload, trees=self._trees, brick=brick, dev=device)
        buffer = self._buffer(self._rows, brick, batch)
        if buffer.rows >= _MAX_PART_ROWS or buffer.size_bytes >= self._part_bytes:
            self._write_rows(buffer)
        counted = _totals(batch)
        self._count(counted)
        return counted

    def add_directories(self, brick: str, device: int, payload: memoryview) -> CatalogTotals:
        """Take a block of a brick's directories. Raises MigratorError, OSError."""
        batch = decode_rows(payload, trees=self._trees, brick=brick, dev=device)
        buffer = self._buffer(self._directories, brick, batch)
        if buffer.rows >= _MAX_PART_ROWS or buffer.size_bytes >= self._part_bytes:
            self._write_directories(buffer)
        return CatalogTotals(directories=batch.num_rows)

    def brick_done(self, brick: str) -> None:
        """Write what waits of a brick. Raises OSError."""
        with self._lock:
            rows, directories = self._rows.pop(brick, None), self._directories.pop(brick, None)
        if rows is not None:
            self._write_rows(rows)
        if directories is not None:
            self._write_directories(directories)

    def note(self, problems: Sequence[ScanProblem]) -> None:
        """Take problems. Raises OSError."""
        self._problems.extend(problems)
        if len(self._problems) >= _MAX_PART_ROWS // 10:
            self._write_problems()

    def unite(self, *, bricks: int, limit: int) -> BrickFindings:
        """Make one row of every directory, and look for what cannot be in a quiet volume. Raises OSError."""
        for brick in set(self._rows) | set(self._directories):
            self.brick_done(brick)
        self._is_united = True
        for table in self._union.directories(self._kept, limit=limit):
            self._write_table(table)
            for batch in table.to_batches():
                self._count(replace(_totals(batch), directories=batch.num_rows))
        for file in self._kept:
            file.unlink()
        self._kept = []
        return self._union.findings(self._part_files(), bricks=bricks)

    def lacks(self, paths: Sequence[bytes]) -> Sequence[bytes]:
        """Those of the paths that have no row."""
        present = self._united().files_of(paths, self._part_files())
        return [path for path in dict.fromkeys(paths) if path not in present]

    def replace(self, rows: Mapping[bytes, tuple[bytes | None, Entry] | None]) -> None:
        """Put what the mount says in the place of the rows of these paths. Raises OSError."""
        if not rows:
            return
        self._totals = None
        present = self._united().files_of(list(rows), self._part_files())
        gone = pa.array(sorted(rows), type=pa.binary())
        for number, facts in list(self._parts.items()):
            file = self._directory / facts.name
            if any(file in files for files in present.values()):
                table = pq.read_table(file, schema=ROW_SCHEMA)
                kept = table.filter(pc.invert(pc.is_in(table.column("path"), value_set=gone)))
                size_bytes = write_part(file, kept)
                self._parts[number] = PartFacts(name=facts.name, rows=kept.num_rows, size_bytes=size_bytes)
        added = [rows_of(found[0], [found[1]]) for found in rows.values() if found is not None]
        if added:
            self._write_table(pa.Table.from_batches(added, schema=ROW_SCHEMA))

    def totals(self) -> CatalogTotals:
        """What is in the catalog now."""
        union = self._united()
        return union.totals(self._part_files()) if self._totals is None else self._totals

    def close(self, record: CatalogRecord) -> CatalogRecord:
        """Sync what was written, then the closing record. Raises OSError."""
        self._write_problems()
        self._union.close()
        for file in (*self._part_files(), *self._problem_files):
            sync(file)
        sync(self._directory)
        parts = tuple(self._parts[number] for number in sorted(self._parts))
        closed = replace(record, parts=tuple(part.name for part in parts))
        write_record(self._directory / CLOSING_RECORD, closed, parts)
        return closed

    def _count(self, counted: CatalogTotals) -> None:
        with self._lock:
            if self._totals is not None:
                self._totals = _sum(self._totals, counted)

    def _buffer(self, buffers: dict[str, _Buffer], brick: str, batch: pa.RecordBatch) -> _Buffer:
        with self._lock:
            buffer = buffers.setdefault(brick, _Buffer())
        buffer.batches.append(batch)
        buffer.rows += batch.num_rows
        buffer.size_bytes += batch.nbytes
        return buffer

    def _write_rows(self, buffer: _Buffer) -> None:
        table = _taken(buffer)
        if table is not None:
            self._write_table(table)

    def _write_table(self, table: pa.Table) -> None:
        with self._lock:
            number = self._number
            self._number += 1
        size_bytes = write_part(self._directory / part_name(number), table)
        facts = PartFacts(name=part_name(number), rows=table.num_rows, size_bytes=size_bytes)
        with self._lock:
            self._parts[number] = facts

    def _write_directories(self, buffer: _Buffer) -> None:
        table = _taken(buffer)
        if table is None:
            return
        with self._lock:
            file = self._directory / f"directories-{self._kept_number:06d}.parquet"
            self._kept_number += 1
            self._kept.append(file)
        pq.write_table(table, file, compression="lz4", use_dictionary=_FEW_VALUES)

    def _write_problems(self) -> None:
        if self._problems:
            file = self._directory / problems_name(self._problem_number)
            file.write_bytes(parquet_bytes(problem_rows(self._problems)))
            self._problem_files.append(file)
            self._problem_number += 1
            self._problems = []

    def _part_files(self) -> list[Path]:
        return [self._directory / self._parts[number].name for number in sorted(self._parts)]

    def _united(self) -> Union:
        if not self._is_united:
            raise ValueError("the directories of the bricks are not united yet")
        return self._union


def _taken(buffer: _Buffer) -> pa.Table | None:
    if not buffer.rows:
        return None
    table = pa.Table.from_batches(buffer.batches, schema=ROW_SCHEMA)
    buffer.batches, buffer.rows, buffer.size_bytes = [], 0, 0
    return table


def _totals(batch: pa.RecordBatch) -> CatalogTotals:
    """Rows and bytes of files, by tree."""
    is_file = pc.equal(batch.column("type"), pa.scalar("file"))
    sizes = pc.if_else(is_file, batch.column("size"), pa.scalar(0, type=pa.int64()))
    table = pa.table({"tree": batch.column("tree"), "size": sizes})
    groups = table.group_by("tree", use_threads=False).aggregate([("size", "sum"), ([], "count_all")])
    by_tree = {row["tree"]: (int(row["count_all"]), int(row["size_sum"])) for row in groups.to_pylist()}
    return CatalogTotals(
        rows=batch.num_rows,
        size_bytes=sum(size_bytes for _, size_bytes in by_tree.values()),
        by_tree=by_tree,
    )


def _sum(one: CatalogTotals, other: CatalogTotals) -> CatalogTotals:
    by_tree = dict(one.by_tree)
    for tree, (rows, size_bytes) in other.by_tree.items():
        tree_rows, tree_bytes = by_tree.get(tree, (0, 0))
        by_tree[tree] = (tree_rows + rows, tree_bytes + size_bytes)
    return CatalogTotals(
        rows=one.rows + other.rows,
        directories=one.directories + other.directories,
        size_bytes=one.size_bytes + other.size_bytes,
        by_tree=by_tree,
    )
