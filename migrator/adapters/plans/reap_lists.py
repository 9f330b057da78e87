"""Reap lists: one Parquet file beside each plan that reaps, its rows tree by tree."""

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from migrator.adapters.durable import file_digest, replacing, sync
from migrator.adapters.plans.documents import check_plan_name
from migrator.domain.errors import Refused
from migrator.domain.reap import ReapAction, ReapRow, reap_rows
from migrator.ports.reap import ReapIndex, WrittenReapList

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("path", pa.binary(), nullable=False),
    pa.field("tree", pa.binary(), nullable=False),
    pa.field("action", pa.string(), nullable=False),
    pa.field("size", pa.int64(), nullable=False),
    pa.field("blocks", pa.int64(), nullable=False),
    pa.field("mtime_ns", pa.int64(), nullable=False),
    pa.field("ctime_ns", pa.int64(), nullable=False),
    pa.field("atime_ns", pa.int64(), nullable=False),
    pa.field("ino", pa.uint64(), nullable=False),
    pa.field("gfid", pa.binary()),
    pa.field("uid", pa.uint32(), nullable=False),
    pa.field("gid", pa.uint32(), nullable=False),
    pa.field("mode", pa.int32(), nullable=False),
]
REAP_SCHEMA = pa.schema(_FIELDS)
"""`action` is `archive` or `skip`; a row group holds rows of one tree and one action."""

ROW_GROUP_ROWS = 20_000

_FILE = "reap.parquet"
_KEY_BYTES = 8
_HINT = "bring it back, or make a new plan with `migrator plan`"


class ReapListFiles:
    """The `ReapLists` port over the directory of the plans. A list's name is relative to it, so that it can be moved."""

    def __init__(self, plans_dir: Path) -> None:
        self._plans_dir = plans_dir

    def write(self, plan: str, rows: Iterable[Sequence[ReapRow]]) -> WrittenReapList:
        """Write the list of a plan, as the port says. Raises OSError."""
        reap_list = f"{check_plan_name(plan)}.chunks/{_FILE}"
        file = self._plans_dir / reap_list
        file.parent.mkdir(parents=True, exist_ok=True)
        sync(self._plans_dir)
        with replacing(file) as stream:
            count = _write(stream, rows)
        return WrittenReapList(reap_list=reap_list, digest=self.digest(reap_list), rows=count)

    def paths(
        self, reap_list: str, *, trees: Collection[bytes] | None = None, action: ReapAction | None = None
    ) -> Iterator[Sequence[ReapRow]]:
        """The rows of these trees with this action, in blocks, each of one tree and one action."""
        for table in self._groups(reap_list, trees, action, [field.name for field in REAP_SCHEMA]):
            yield reap_rows(column.to_pylist() for column in table.columns)

    def digest(self, reap_list: str) -> str:
        """BLAKE2b over the file, in hexadecimal. Raises Refused where it is missing."""
        file = self._file(reap_list)
        try:
            return file_digest(file)
        except FileNotFoundError:
            raise _missing(reap_list, file) from None

    def checked(self, reap_list: str, digest: str) -> Path:
        """The file, once its digest is that of the plan. Raises Refused where it is not."""
        if self.digest(reap_list) != digest:
            raise _damaged(reap_list, self._file(reap_list), "its digest is not the one in the plan")
        return self._file(reap_list)

    def index(self, reap_list: str, *, trees: Collection[bytes] | None = None) -> ReapIndex:
        """The list of these trees in memory. Raises Refused where it is missing or damaged."""
        index = _DigestIndex()
        columns = ["action", "path", "size", "mtime_ns", "ctime_ns"]
        for table in self._groups(reap_list, trees, None, columns):
            action = ReapAction(table.column("action")[0].as_py())
            facts = (table.column(name).to_pylist() for name in columns[1:])
            index.add(action, zip(*facts, strict=True))
        index.close()
        return index

    def _groups(
        self, reap_list: str, trees: Collection[bytes] | None, action: ReapAction | None, columns: list[str]
    ) -> Iterator["pa.Table"]:
        file = self._file(reap_list)
        try:
            with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
                if not parquet.schema_arrow.equals(REAP_SCHEMA):
                    raise _damaged(reap_list, file, "it has other columns")
                for group in range(parquet.metadata.num_row_groups):
                    first = parquet.read_row_group(group, columns=["tree", "action"]).slice(0, 1).to_pylist()[0]
                    wanted = (trees is None or first["tree"] in trees) and action in (None, first["action"])
                    if wanted:
                        yield parquet.read_row_group(group, columns=columns)
        except FileNotFoundError:
            raise _missing(reap_list, file) from None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(reap_list, file, str(error)) from error

    def _file(self, reap_list: str) -> Path:
        directory, _, name = reap_list.partition("/")
        if name != _FILE or directory in ("", ".", ".."):
            raise Refused(
                f"{reap_list!r} cannot be a reap list of this site", cause="it lies beside its plan", hint=_HINT
            )
        return self._plans_dir / directory / name


class _DigestIndex:
    """The `ReapIndex` port: 128 bits a row, in two columns of 64 that are sorted by the first."""

    def __init__(self) -> None:
        self._waiting: dict[ReapAction, list[array[int]]] = {}
        self._sorted: dict[ReapAction, tuple[memoryview, memoryview]] = {}

    def add(self, action: ReapAction, rows: Iterable[tuple[bytes, int, int, int]]) -> None:
        """Take rows in: path, size, mtime, ctime."""
        low, high = self._waiting.setdefault(action, [array("Q"), array("Q")])
        for path, size_bytes, mtime_ns, ctime_ns in rows:
            first, second = _keys(path, size_bytes, mtime_ns, ctime_ns)
            low.append(first)
            high.append(second)

    def close(self) -> None:
        """Nothing is added any more."""
        for action, (low, high) in self._waiting.items():
            columns = {"low": _column(low), "high": _column(high)}
            ordered = pa.table(columns).sort_by("low")
            self._sorted[action] = (_numbers(ordered.column("low")), _numbers(ordered.column("high")))
        self._waiting.clear()

    def action(self, path: bytes, *, size_bytes: int, mtime_ns: int, ctime_ns: int) -> ReapAction | None:
        """What the list says of a path with these facts."""
        first, second = _keys(path, size_bytes, mtime_ns, ctime_ns)
        for action, (low, high) in self._sorted.items():
            place = bisect_left(low, first)
            while place < len(low) and low[place] == first:
                if high[place] == second:
                    return action
                place += 1
        return None


def _column(numbers: "array[int]") -> "pa.Array[Any]":
    return pa.Array.from_buffers(pa.uint64(), len(numbers), [None, pa.py_buffer(numbers)])


def _numbers(column: "pa.ChunkedArray[Any]") -> memoryview:
    whole = column.combine_chunks()
    buffer = whole.buffers()[1]
    if buffer is None:
        return memoryview(b"").cast("Q")
    return memoryview(buffer).cast("B").cast("Q")[whole.offset : whole.offset + len(whole)]


def _keys(path: bytes, size_bytes: int, mtime_ns: int, ctime_ns: int) -> tuple[int, int]:
    digest = hashlib.blake2b(
        b"%d %d %d " % (size_bytes, mtime_ns, ctime_ns) + path, digest_size=2 * _KEY_BYTES
    ).digest()
    return int.from_bytes(digest[:_KEY_BYTES], "little"), int.from_bytes(digest[_KEY_BYTES:], "little")


def _write(stream: BinaryIO, rows: Iterable[Sequence[ReapRow]]) -> int:
    count = 0
    waiting: list[ReapRow] = []
    with pq.ParquetWriter(
        stream,
        REAP_SCHEMA,
        compression="zstd",
        write_statistics=False,
        write_page_checksum=True,
        use_dictionary=["tree", "action"],  # type: ignore[arg-type] # a list of columns is documented
    ) as writer:
        for block in rows:
            for row in block:
                full = len(waiting) >= ROW_GROUP_ROWS
                if waiting and (full or (waiting[-1].tree, waiting[-1].action) != (row.tree, row.action)):
                    writer.write_batch(_batch(waiting))
                    waiting = []
                waiting.append(row)
                count += 1
        if waiting:
            writer.write_batch(_batch(waiting))
    return count


def _batch(rows: Sequence[ReapRow]) -> pa.RecordBatch:
    columns: dict[str, Sequence[object]] = {
        "path": [row.path for row in rows],
        "tree": [row.tree for row in rows],
        "action": [row.action.value for row in rows],
        "size": [row.size_bytes for row in rows],
        "blocks": [row.blocks for row in rows],
        "mtime_ns": [row.mtime_ns for row in rows],
        "ctime_ns": [row.ctime_ns for row in rows],
        "atime_ns": [row.atime_ns for row in rows],
        "ino": [row.ino for row in rows],
        "gfid": [row.gfid for row in rows],
        "uid": [row.uid for row in rows],
        "gid": [row.gid for row in rows],
        "mode": [row.mode for row in rows],
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], type=field.type) for field in REAP_SCHEMA], schema=REAP_SCHEMA
    )


def _missing(reap_list: str, file: Path) -> Refused:
    return Refused(
        f"the reap list {reap_list!r} is missing",
        cause=f"{file} was removed, or the plan was copied without the directory beside it",
        hint=_HINT,
    )


def _damaged(reap_list: str, file: Path, why: str) -> Refused:
    return Refused(
        f"the reap list {reap_list!r} cannot be read: {why}", cause=f"{file} was cut off or replaced", hint=_HINT
    )
