"""Chunk lists: Parquet files ordered by chunk, and the paths of one chunk as columns."""

import os
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace
from pyarrow._compute import CastOptions, MatchSubstringOptions, ReplaceSliceOptions, call_function

from migrator.catalog.columns import Columns
from migrator.catalog.model import ListedPath
from migrator.catalog.rules_packing import PackedChunk
from migrator.core.durable import file_digest, replacing, sync
from migrator.core.errors import Refused
from migrator.core.states import CONTENT_KINDS, ChunkKind, PassKind
from migrator.plan.model import Chunk, WrittenList, check_plan_name

# --- Rows


_OF_PATH = """
    path:binary size:int64=size_bytes link_group:uint64? link_to:binary? mtime_ns:int64?
    range_offset:int64?=range_offset_bytes range_length:int64?=range_length_bytes file_size:int64?=file_size_bytes
"""
_PATHS: Columns[ListedPath] = Columns(_OF_PATH)
_LIST: Columns[ListedPath] = Columns(f"chunk:int32 kind:string tree:binary brick:string? {_OF_PATH}")
LIST_SCHEMA = _LIST.schema
"""`size` counts a link group once in its chunk: the group's further names have 0. For a file that is copied in ranges
it is the length of the range in chunks of ranges, and 0 in the chunk of ranged files; `file_size` is the file's size in
both.
"""

ROW_GROUP_ROWS = 5_000
"""A row group ends with the chunk that reaches this, so reading one chunk reads about as many rows."""


def write_chunks(stream: BinaryIO, chunks: Iterable[PackedChunk]) -> Counter[str]:
    """Write a list; return the sums over it, by the names of WrittenList. All rows of a chunk are in one row group."""
    sums: Counter[str] = Counter(chunks=0, files=0, directories=0, size_bytes=0)
    waiting: list[pa.RecordBatch] = []
    rows = 0
    with open_writer(stream) as writer:
        for chunk in chunks:
            sums["chunks"] += 1
            if chunk.kind is ChunkKind.DIRECTORIES:
                sums["directories"] += chunk.files
            elif chunk.kind in CONTENT_KINDS:
                sums.update(files=chunk.files, size_bytes=chunk.size_bytes)
            waiting.append(_rows(chunk))
            rows += len(chunk.paths)
            if rows >= ROW_GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(waiting), row_group_size=rows)
                waiting, rows = [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting), row_group_size=rows)
    return sums


def open_writer(stream: BinaryIO) -> pq.ParquetWriter:
    """Open a writer for rows that are ordered by chunk."""
    return pq.ParquetWriter(
        stream,
        LIST_SCHEMA,
        compression="zstd",
        write_statistics=["chunk"],
        use_dictionary=["kind", "tree", "brick"],  # type: ignore[arg-type] # a list of columns is documented
    )


def _of_all(chunk: PackedChunk | Chunk, count: int) -> "dict[str, pa.Array[Any]]":
    """The columns that are the same in all rows of a chunk."""
    return {
        "chunk": pa.repeat(pa.scalar(chunk.number, pa.int32()), count),
        "kind": pa.repeat(pa.scalar(chunk.kind.value, pa.string()), count),
        "tree": pa.repeat(pa.scalar(chunk.tree, pa.binary()), count),
        "brick": pa.repeat(pa.scalar(chunk.brick, pa.string()), count),
    }


def _rows(chunk: PackedChunk) -> pa.RecordBatch:
    count = len(chunk.paths)
    nothing = [None] * count
    return _LIST.of(
        {
            **_of_all(chunk, count),
            "path": chunk.paths,
            "size": chunk.sizes_bytes,
            "link_group": chunk.link_groups,
            "link_to": chunk.links_to,
            "mtime_ns": chunk.mtimes_ns,
            "range_offset": [chunk.range_offset_bytes] * count,
            "range_length": chunk.sizes_bytes if chunk.kind is ChunkKind.RANGES else nothing,
            "file_size": chunk.file_sizes_bytes or nothing,
        }
    )


# --- The paths of one chunk


_ROWS_AT_ONCE = 1000
_TEXT, _BINARY = (CastOptions(target_type=of) for of in (pa.string(), pa.binary()))
_NOTHING = pa.scalar(b"", pa.binary())
"""Every scalar has its type: without one, pyarrow 26 tries to import numpy each time, which takes 50 us where it is absent."""


class ListedPaths(Sequence[ListedPath]):
    """Some paths, as columns of Arrow named as in a list: a row is made when it is asked for. Never changed."""

    def __init__(self, columns: pa.RecordBatch) -> None:
        self.columns = columns

    @classmethod
    def of(cls, rows: Sequence[ListedPath]) -> "ListedPaths":
        """The columns of these rows."""
        return rows if isinstance(rows, ListedPaths) else cls(_PATHS.batch(rows))

    def __len__(self) -> int:
        return self.columns.num_rows

    def __iter__(self) -> Iterator[ListedPath]:
        for first in range(0, len(self), _ROWS_AT_ONCE):
            some = self.columns.slice(first, _ROWS_AT_ONCE)
            yield from map(ListedPath, *(column.to_pylist() for column in some.columns))

    def __getitem__(self, at: Any) -> Any:  # noqa: ANN401 - a row, or a list of rows
        if isinstance(at, slice):
            return list(self)[at]
        row = range(len(self))[at]
        return ListedPath(*(column[row].as_py() for column in self.columns.columns))

    def longest_name_bytes(self, tree: bytes) -> int:
        """The length of the longest name relative to the tree; 0 if there is none."""
        longest = call_function("max", [self._lengths()]).as_py()
        return max((longest or 0) - len(_prefix(tree)), 0)

    def within(self, tree: bytes) -> "ListedPaths":
        """All but the root of the tree. Raises ValueError if a path is outside the tree."""
        prefix = MatchSubstringOptions(_prefix(tree))  # type: ignore[arg-type] # takes bytes
        beneath = call_function("starts_with", [self.columns.column("path")], prefix)
        beneath = call_function("and", [beneath, self._longer(tree, 0)])
        if any(listed.path != tree for listed in self._those(call_function("invert", [beneath]))):
            raise ValueError("a path outside its chunk's tree")
        return self._those(beneath)

    def names(self, tree: bytes) -> list[bytes]:
        """The paths relative to the tree, which all of them are in."""
        return _replaced(self.columns.column("path"), len(_prefix(tree)), b"")

    def numbers(self, column: str, before: bytes) -> list[bytes]:
        """The numbers of a column in decimal, after these bytes; nothing for a null."""
        texts = call_function("cast", [self.columns.column(column)], _TEXT)
        return _replaced(call_function("cast", [texts], _BINARY), 0, before)

    def _longer(self, tree: bytes, name_bytes: int) -> pa.BooleanArray:
        least = pa.scalar(len(_prefix(tree)) + name_bytes, pa.int32())
        longer: pa.BooleanArray = call_function("greater", [self._lengths(), least])
        return longer

    def _lengths(self) -> "pa.Array[Any]":
        lengths: pa.Array[Any] = call_function("binary_length", [self.columns.column("path")])
        return lengths

    def _those(self, mask: pa.BooleanArray) -> "ListedPaths":
        return self if mask.true_count == len(self) else ListedPaths(call_function("filter", [self.columns, mask]))


def _prefix(tree: bytes) -> bytes:
    return tree + b"/" if tree else b""


def _replaced(texts: "pa.Array[Any]", first_bytes: int, by: bytes) -> list[bytes]:
    """Texts with other first bytes; nothing for a null."""
    options = ReplaceSliceOptions(0, first_bytes, by)  # type: ignore[arg-type] # takes bytes
    replaced = call_function("binary_replace_slice", [texts], options)
    found: list[bytes] = call_function("coalesce", [replaced, _NOTHING]).to_pylist()
    return found


# --- Files


_CHUNK_COLUMNS = ["chunk", "kind", "tree", "brick"]
_PATH_COLUMNS = _PATHS.schema.names
_SPLITS = "splits/"
_PASSES = "passes/"
_SUFFIX = ".parquet"


class _Index(Struct, frozen=True):
    """The places of the chunks in a list file; `identity` changes when the file is replaced."""

    identity: tuple[int, int, int]
    metadata: pq.FileMetaData
    last_chunks: tuple[int, ...]


class ChunkListFiles:
    """The chunk lists of plans, of later passes, and of split chunks.

    Lists of a plan are in `plans_dir/NAME.chunks`, those of passes after the seed in `passes_dir/NAME`, those of split
    chunks in `splits_dir`. The name of a list is relative to one of them, so the directories can be moved. The names of
    the latter two end with the digest of the file, which is checked when it is opened; that of the former is in the
    plan. Thread-safe for reading.
    """

    def __init__(self, plans_dir: Path, *, splits_dir: Path, passes_dir: Path) -> None:
        self._plans_dir = plans_dir
        self._places = {_SPLITS: splits_dir, _PASSES: passes_dir}
        self._indexes: dict[str, _Index] = {}
        self._checked: dict[str, tuple[int, int, int]] = {}

    def write(self, plan: str, batch: int, chunks: Iterable[PackedChunk]) -> WrittenList:
        """Write the list of one batch durably, replacing the leftovers of an interrupted plan."""
        return self._write(f"{check_plan_name(plan)}.chunks/batch-{batch:04d}.parquet", chunks)

    def write_pass(
        self, plan: str, batch: int, number: int, chunks: Iterable[PackedChunk], *, kind: PassKind = PassKind.DELTA
    ) -> WrittenList:
        """Write the list of a pass after the seed durably."""
        place = self._places[_PASSES]
        place.mkdir(parents=True, exist_ok=True)
        sync(place.parent)
        written = self._write(
            f"{_PASSES}{check_plan_name(plan)}/batch-{batch:04d}-{kind.value}-{number:04d}.parquet", chunks
        )
        return replace(written, chunk_list=self._with_digest(written.chunk_list, written.chunk_list_digest))

    def write_split(self, pass_id: int, chunk: Chunk, paths: Sequence[ListedPath]) -> str:
        """Write the list of one half of a split chunk and return its name. May be called again for the same half."""
        name = f"{_SPLITS}pass-{pass_id:06d}/chunk-{chunk.number:08d}.parquet"
        file = self._file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        sync(self._places[_SPLITS])
        with replacing(file) as stream, open_writer(stream) as writer:
            columns = dict(zip(_PATH_COLUMNS, ListedPaths.of(paths).columns.columns, strict=True))
            writer.write_batch(_LIST.of({**columns, **_of_all(chunk, len(paths))}))
        return self._with_digest(name, self.digest(name))

    def chunks(self, chunk_list: str) -> Iterator[Chunk]:
        """Yield the chunks of a list in order of number. Raises Refused if the list is missing or unreadable."""
        with self._unharmed(chunk_list), self._open(chunk_list) as parquet:
            # No chunk spans two row groups.
            for group in range(parquet.metadata.num_row_groups):
                table = parquet.read_row_group(group, columns=[*_CHUNK_COLUMNS, "size"])
                numbers: list[Any] = table.column("chunk").to_pylist()
                sizes_bytes: list[Any] = table.column("size").to_pylist()
                start = 0
                while start < len(numbers):
                    # Bisection: importing pyarrow's grouping takes longer than reading a plan's lists.
                    end = bisect_right(numbers, numbers[start], lo=start)
                    kind = ChunkKind(table.column("kind")[start].as_py())
                    yield Chunk(
                        number=numbers[start],
                        kind=kind,
                        tree=table.column("tree")[start].as_py(),
                        files=0 if kind is ChunkKind.RANGES else end - start,
                        size_bytes=sum(sizes_bytes[start:end]),
                        brick=table.column("brick")[start].as_py(),
                    )
                    start = end

    def paths(self, chunk_list: str, number: int) -> ListedPaths:
        """Return the paths of one chunk, in order. Reads one row group. Raises Refused if there is no such chunk."""
        file = self._file(chunk_list)
        index = self._index(chunk_list)
        group = bisect_left(index.last_chunks, number)
        if group < len(index.last_chunks):
            with self._unharmed(chunk_list), pq.ParquetFile(file, metadata=index.metadata) as parquet:
                table = parquet.read_row_group(group, columns=["chunk", *_PATH_COLUMNS])
            # Copies: a slice would keep the whole row group in memory.
            of_chunk = call_function("equal", [table.column("chunk"), pa.scalar(number, pa.int32())])
            found = call_function("filter", [table.select(_PATH_COLUMNS), of_chunk]).combine_chunks().to_batches()
            if found:
                return ListedPaths(found[0])
        raise Refused(
            f"chunk {number} is not in its list {chunk_list!r}",
            cause="the list was replaced after the plan was made",
            hint="make a new plan with `migrator plan --activate`",
        )

    def digest(self, chunk_list: str) -> str:
        """Return the BLAKE2b digest of the file, in hexadecimal. Raises Refused if it is missing."""
        try:
            return file_digest(self._file(chunk_list))
        except FileNotFoundError:
            raise _missing(chunk_list, self._file(chunk_list)) from None

    def _write(self, chunk_list: str, chunks: Iterable[PackedChunk]) -> WrittenList:
        file = self._file(chunk_list)
        file.parent.mkdir(parents=True, exist_ok=True)
        sync(file.parent.parent)
        with replacing(file) as stream:
            written = write_chunks(stream, chunks)
        return WrittenList(chunk_list=chunk_list, chunk_list_digest=self.digest(chunk_list), **written)

    def _with_digest(self, chunk_list: str, digest: str) -> str:
        """Rename a list that was just written. Others of the same pass or chunk stay: an older ledger gives numbers again, and
        theirs may be those of the right one.
        """
        file, stem = self._file(chunk_list), chunk_list.removesuffix(_SUFFIX)
        named = f"{stem}-{digest}{_SUFFIX}"
        file.rename(self._file(named))
        sync(file.parent)
        return named

    def _check(self, chunk_list: str, identity: tuple[int, int, int]) -> None:
        """Raises Refused if the file is not the one that its name was made for. Each file is read once."""
        if not chunk_list.startswith(tuple(self._places)) or self._checked.get(chunk_list) == identity:
            return
        digest = chunk_list.removesuffix(_SUFFIX).rpartition("-")[2]
        if self.digest(chunk_list) != digest:
            raise Refused(
                f"the chunk list {chunk_list!r} is not as it was written",
                cause=f"{self._file(chunk_list)} was changed, or its disk is damaged",
                hint="bring it back from a backup, or make a new plan with `migrator plan --activate`",
            )
        self._checked[chunk_list] = identity

    def _file(self, chunk_list: str) -> Path:
        prefix = next((prefix for prefix in self._places if chunk_list.startswith(prefix)), "")
        root = self._places.get(prefix, self._plans_dir)
        relative = Path(chunk_list.removeprefix(prefix))
        if relative.is_absolute() or ".." in relative.parts:
            raise Refused(
                f"{chunk_list!r} cannot be a chunk list of this site",
                cause="lists lie below the plans and the state directory",
                hint="make a new plan with `migrator plan --activate`",
            )
        return root / relative

    def _open(self, chunk_list: str) -> pq.ParquetFile:
        self._check(chunk_list, self._identity(chunk_list))
        with self._unharmed(chunk_list):
            return pq.ParquetFile(self._file(chunk_list))

    @contextmanager
    def _unharmed(self, chunk_list: str) -> Iterator[None]:
        """Raises Refused if the file cannot be read."""
        try:
            yield
        except (OSError, pa.ArrowInvalid) as error:  # pyarrow reports most damage as OSError
            raise Refused(
                f"the chunk list {chunk_list!r} cannot be read: {error}",
                cause=f"{self._file(chunk_list)} was changed, or its disk is damaged",
                hint="bring it back from a backup, or make a new plan with `migrator plan --activate`",
            ) from error

    def _identity(self, chunk_list: str) -> tuple[int, int, int]:
        file = self._file(chunk_list)
        try:
            status = os.stat(file)
        except FileNotFoundError:
            raise _missing(chunk_list, file) from None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _index(self, chunk_list: str) -> _Index:
        identity = self._identity(chunk_list)
        known = self._indexes.get(chunk_list)
        if known is not None and known.identity == identity:
            return known
        with self._open(chunk_list) as parquet:
            metadata = parquet.metadata
        index = _Index(identity, metadata, _last_chunks(metadata))
        if not chunk_list.startswith(_SPLITS):
            # A split list is read once or twice, a batch list once per chunk: only the latter is worth caching.
            self._indexes[chunk_list] = index
        return index


def _last_chunks(metadata: pq.FileMetaData) -> tuple[int, ...]:
    """The last chunk of each row group, from the statistics of the first column."""
    found: list[int] = []
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(0).statistics
        if statistics is None or not isinstance(statistics.max, int):
            raise Refused(
                "a chunk list has no statistics of its chunks",
                cause="it was not written by migrator",
                hint="make a new plan with `migrator plan --activate`",
            )
        found.append(statistics.max)
    return tuple(found)


def _missing(chunk_list: str, file: Path) -> Refused:
    return Refused(
        f"the chunk list {chunk_list!r} is missing",
        cause=f"{file} was removed, or the plan was copied without the directory beside it",
        hint="bring it back, or make a new plan with `migrator plan --activate`",
    )
