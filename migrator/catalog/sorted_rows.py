"""Parquet files in order of a key: written out of core, and read by key in constant memory."""

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from migrator.catalog.database import sorted_parts
from migrator.core.durable import sync, temporary_name

ROW_GROUP_ROWS = 20_480
"""Small, so that a reader can hold some row groups."""
_SORTED_AT_ONCE = 4_000_000
_DRAWN_KEYS = 1000
_HELD_GROUPS = 12

Columns = Mapping[str, "pa.ChunkedArray[Any]"]


def write_sorted(
    database: duckdb.DuckDBPyConnection,
    rows: str,
    parameters: Mapping[str, object],
    file: Path,
    schema: pa.Schema,
    *,
    order: str,
    key: str = "path",
    without: Sequence[str] = (),
) -> None:
    """Write the rows of a query to a file: temporary name, fsync, rename. `order` begins with the key (binary), or is ALL.
    Paths of the files `without` are left out.
    """
    temporary = temporary_name(file)
    given = dict(parameters)
    ((count,),) = database.execute(f"SELECT count(*) FROM ({rows})", given).fetchall()  # noqa: S608 # the caller's text
    every = count // _SORTED_AT_ONCE + 1
    # Keys that cut the rows into parts of about that many.
    drawing = f"SELECT {key} FROM ({rows}) WHERE hash({key}) % $every = 0 ORDER BY {key}"  # noqa: S608
    drawn: list[Any] = []
    if every > 1:
        drawn = database.execute(drawing, {**given, "every": max(count // (_DRAWN_KEYS * every), 1)}).fetchall()
    cuts = [cut for (cut,) in drawn[len(drawn) // every :: len(drawn) // every or 1]]
    beyond = "".join(f" WHEN {key} < $cut{number} THEN {number}" for number in range(1, len(cuts) + 1))
    query = f"SELECT *, CASE{beyond} WHEN true THEN {len(cuts) + 1} END AS part FROM ({rows})"  # noqa: S608
    given |= {f"cut{place}": cut for place, cut in enumerate(cuts, start=1)}
    if without:
        query += " ANTI JOIN read_parquet($without) AS without USING (path)"
        given["without"] = without
    sorted_rows = sorted_parts(database, query, given, parts=len(cuts) + 1, order=order, rows_at_once=ROW_GROUP_ROWS)
    with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for batch in sorted_rows:
            writer.write_batch(batch.cast(schema), row_group_size=ROW_GROUP_ROWS)
    sync(temporary)
    temporary.replace(file)


class SortedRows:
    """The rows of such a file by key. Neighbouring keys are in few row groups, and callers ask for the same groups repeatedly:
    only some are held. Thread-safe.
    """

    def __init__(self, file: Path, *, key: str, columns: Sequence[str]) -> None:
        """Raises OSError, and ArrowException if it is no such file."""
        self._lock = threading.Lock()
        self._held: OrderedDict[int, tuple[list[bytes], Columns]] = OrderedDict()
        self._key = key
        self._columns = columns
        self._closed = False
        self._file = pq.ParquetFile(file)
        self._groups, self._firsts = self._index()

    def rows(self, keys: Collection[bytes]) -> Iterator[tuple[bytes, tuple[Any, ...]]]:
        """The rows with these keys, each with its key; nothing after `close`. Raises OSError, ArrowException."""
        wanted = sorted(keys)
        if not wanted:
            return
        # The rows of one key may begin in the group before the first that begins with it.
        start = max(bisect_left(self._firsts, wanted[0]) - 1, 0)
        for place in range(start, bisect_right(self._firsts, wanted[-1])):
            first, *later = self._firsts[place : place + 2]
            here = wanted[bisect_left(wanted, first) : bisect_right(wanted, later[0]) if later else len(wanted)]
            if not here:
                continue
            with self._lock:
                if self._closed:
                    return
                found, columns = self._group(self._groups[place])
            chosen: list[int] = []
            for key in here:
                chosen.extend(range(bisect_left(found, key), bisect_right(found, key)))
            if chosen:
                # Callers ask for neighbours: as one slice, which is far faster than pyarrow's `take`.
                first_row = chosen[0]
                slices = (columns[name].slice(first_row, chosen[-1] + 1 - first_row) for name in self._columns)
                rows = list(zip(*(one.to_pylist() for one in slices), strict=True))
                yield from ((found[row], rows[row - first_row]) for row in chosen)

    def close(self) -> None:
        """Release the file. May be called again."""
        with self._lock:
            self._closed = True
            self._held.clear()
            self._file.close()

    def _index(self) -> tuple[list[int], list[bytes]]:
        """The non-empty row groups, and the first key of each. Not from the statistics, which may be truncated."""
        missing = {self._key, *self._columns} - set(self._file.schema_arrow.names)
        if missing:
            raise pa.ArrowInvalid(f"it has no columns {', '.join(sorted(missing))}")
        groups: list[int] = []
        firsts: list[bytes] = []
        for number in range(self._file.num_row_groups):
            batch = next(self._file.iter_batches(batch_size=1, row_groups=[number], columns=[self._key]), None)
            if batch is not None and batch.num_rows:
                groups.append(number)
                firsts.append(batch.column(0)[0].as_py())
        if any(later < earlier for earlier, later in pairwise(firsts)):
            raise pa.ArrowInvalid("its rows are not in order")
        return groups, firsts

    def _group(self, number: int) -> tuple[list[bytes], Columns]:
        held = self._held.get(number)
        if held is not None:
            self._held.move_to_end(number)
            return held
        table = self._file.read_row_group(number, columns=[self._key, *self._columns])
        keys = [key or b"" for key in table.column(self._key).to_pylist()]
        group = self._held[number] = keys, {name: table.column(name) for name in self._columns}
        if len(self._held) > _HELD_GROUPS:
            self._held.popitem(last=False)
        return group
