"""Chunk lists: Parquet files ordered by chunk."""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from migrator.catalog.rules_packing import PackedChunk
from migrator.core.durable import file_digest, replacing, sync
from migrator.core.errors import Refused
from migrator.core.states import ChunkKind, PassKind
from migrator.plan.model import Chunk, ListedPath, WrittenList, check_plan_name

# --- Rows


_LIST_FIELDS: list["pa.Field[Any]"] = [
    pa.field("chunk", pa.int32(), nullable=False),
    pa.field("kind", pa.string(), nullable=False),
    pa.field("tree", pa.binary(), nullable=False),
    pa.field("path", pa.binary(), nullable=False),
    pa.field("size", pa.int64(), nullable=False),
    pa.field("link_group", pa.uint64()),
    pa.field("link_to", pa.binary()),
    pa.field("brick", pa.string()),
    pa.field("mtime_ns", pa.int64()),
    pa.field("range_offset", pa.int64()),
    pa.field("range_length", pa.int64()),
    pa.field("file_size", pa.int64()),
]
LIST_SCHEMA = pa.schema(_LIST_FIELDS)
"""`size` counts a link group once in its chunk: the group's further names have 0. For a file that is copied in ranges it
is the length of the range in chunks of ranges, and 0 in the chunk of ranged files; `file_size` is the file's size in both.
"""

ROW_GROUP_ROWS = 20_000
"""A row group ends with the chunk that reaches this, so reading one chunk reads about as many rows."""


@dataclass(slots=True)
class ListSums:
    """The sums over one list."""

    chunks: int = 0
    files: int = 0
    directories: int = 0
    size_bytes: int = 0

    def add(self, chunk: PackedChunk) -> None:
        self.chunks += 1
        match chunk.kind:
            case ChunkKind.DIRECTORIES:
                self.directories += chunk.files
            case ChunkKind.FILES | ChunkKind.LINKS | ChunkKind.RANGES | ChunkKind.RANGED_FILES:
                self.files += chunk.files
                self.size_bytes += chunk.size_bytes
            case ChunkKind.DIRECTORY_TIMES | ChunkKind.TREE:
                pass


def write_chunks(stream: BinaryIO, chunks: Iterable[PackedChunk]) -> ListSums:
    """Write a list. All rows of a chunk are in one row group."""
    sums = ListSums()
    waiting: list[pa.RecordBatch] = []
    rows = 0
    with open_writer(stream) as writer:
        for chunk in chunks:
            sums.add(chunk)
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


def _rows(chunk: PackedChunk) -> pa.RecordBatch:
    count = len(chunk.paths)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(chunk.number, pa.int32()), count),
            pa.repeat(pa.scalar(chunk.kind.value, pa.string()), count),
            pa.repeat(pa.scalar(chunk.tree, pa.binary()), count),
            pa.array(chunk.paths, pa.binary()),
            pa.array(chunk.sizes_bytes, pa.int64()),
            pa.array(chunk.link_groups, pa.uint64()),
            pa.array(chunk.links_to, pa.binary()),
            pa.repeat(pa.scalar(chunk.brick, pa.string()), count),
            pa.array(chunk.mtimes_ns, pa.int64()),
            pa.repeat(pa.scalar(chunk.range_offset_bytes, pa.int64()), count),
            pa.array(chunk.sizes_bytes, pa.int64()) if chunk.kind is ChunkKind.RANGES else pa.nulls(count, pa.int64()),
            pa.array(chunk.file_sizes_bytes or [None] * count, pa.int64()),
        ],
        schema=LIST_SCHEMA,
    )


def listed_rows(chunk: Chunk, paths: Sequence[ListedPath]) -> pa.RecordBatch:
    """Return the rows of a chunk that is part of an existing list."""
    count = len(paths)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(chunk.number, pa.int32()), count),
            pa.repeat(pa.scalar(chunk.kind.value, pa.string()), count),
            pa.repeat(pa.scalar(chunk.tree, pa.binary()), count),
            pa.array([listed.path for listed in paths], pa.binary()),
            pa.array([listed.size_bytes for listed in paths], pa.int64()),
            pa.array([listed.link_group for listed in paths], pa.uint64()),
            pa.array([listed.link_to for listed in paths], pa.binary()),
            pa.repeat(pa.scalar(chunk.brick, pa.string()), count),
            pa.array([listed.mtime_ns for listed in paths], pa.int64()),
            pa.array([listed.range_offset_bytes for listed in paths], pa.int64()),
            pa.array([listed.range_length_bytes for listed in paths], pa.int64()),
            pa.array([listed.file_size_bytes for listed in paths], pa.int64()),
        ],
        schema=LIST_SCHEMA,
    )


# --- Files


_CHUNK_COLUMNS = ["chunk", "kind", "tree", "brick"]
_PATH_COLUMNS = ("path", "size", "link_group", "link_to", "mtime_ns", "range_offset", "range_length", "file_size")
_SPLITS = "splits/"
_PASSES = "passes/"


@dataclass(frozen=True, slots=True)
class _Index:
    """The places of the chunks in a list file; `identity` changes when the file is replaced."""

    identity: tuple[int, int, int]
    metadata: pq.FileMetaData
    last_chunks: tuple[int, ...]


class ChunkListFiles:
    """The `ChunkLists` and `ChunkListWriter` ports.

    Lists of a plan are in `plans_dir/NAME.chunks`, those of passes after the seed in `passes_dir/NAME`, those of
    split chunks in `splits_dir`. The name of a list is relative to one of them, so the directories can be moved.
    Thread-safe for reading.
    """

    def __init__(self, plans_dir: Path, *, splits_dir: Path, passes_dir: Path) -> None:
        self._plans_dir = plans_dir
        self._places = {_SPLITS: splits_dir, _PASSES: passes_dir}
        self._indexes: dict[str, _Index] = {}

    def write(self, plan: str, batch: int, chunks: Iterable[PackedChunk]) -> WrittenList:
        """Write the list of one batch durably, replacing the leftovers of an interrupted plan."""
        return self._write(f"{check_plan_name(plan)}.chunks/batch-{batch:04d}.parquet", chunks)

    def write_pass(
        self, plan: str, batch: int, number: int, chunks: Iterable[PackedChunk], *, kind: PassKind = PassKind.DELTA
    ) -> WrittenList:
        """Write the list of a pass after the seed durably, replacing one whose pass was never recorded."""
        place = self._places[_PASSES]
        place.mkdir(parents=True, exist_ok=True)
        sync(place.parent)
        return self._write(
            f"{_PASSES}{check_plan_name(plan)}/batch-{batch:04d}-{kind.value}-{number:04d}.parquet", chunks
        )

    def write_split(self, pass_id: int, chunk: Chunk, paths: Sequence[ListedPath]) -> str:
        """Write the list of one half of a split chunk and return its name. May be called again for the same half."""
        name = f"pass-{pass_id:06d}/chunk-{chunk.number:08d}.parquet"
        file = self._places[_SPLITS] / name
        file.parent.mkdir(parents=True, exist_ok=True)
        sync(self._places[_SPLITS])
        with replacing(file) as stream, open_writer(stream) as writer:
            writer.write_batch(listed_rows(chunk, paths))
        return _SPLITS + name

    def chunks(self, chunk_list: str) -> Iterator[Chunk]:
        """Yield the chunks of a list in order of number. Raises Refused if the list is missing or unreadable."""
        with self._open(chunk_list) as parquet:
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

    def paths(self, chunk_list: str, number: int) -> Sequence[ListedPath]:
        """Return the paths of one chunk, in order. Reads one row group. Raises Refused if there is no such chunk."""
        file = self._file(chunk_list)
        index = self._index(chunk_list)
        group = bisect_left(index.last_chunks, number)
        found: list[ListedPath] = []
        if group < len(index.last_chunks):
            with pq.ParquetFile(file, metadata=index.metadata) as parquet:
                table = parquet.read_row_group(group, columns=["chunk", *_PATH_COLUMNS])
            numbers: list[Any] = table.column("chunk").to_pylist()
            start = bisect_left(numbers, number)
            end = bisect_left(numbers, number + 1)
            rows = table.slice(start, end - start)
            columns = (rows.column(name).to_pylist() for name in _PATH_COLUMNS)
            found = [
                ListedPath(
                    path=path,
                    size_bytes=size_bytes,
                    link_group=link_group,
                    link_to=link_to,
                    mtime_ns=mtime_ns,
                    range_offset_bytes=offset_bytes,
                    range_length_bytes=length_bytes,
                    file_size_bytes=file_size_bytes,
                )
                for (
                    path,
                    size_bytes,
                    link_group,
                    link_to,
                    mtime_ns,
                    offset_bytes,
                    length_bytes,
                    file_size_bytes,
                ) in zip(*columns, strict=True)
            ]
        if not found:
            raise Refused(
                f"chunk {number} is not in its list {chunk_list!r}",
                cause="the list was replaced after the plan was made",
                hint="make a new plan with `migrator plan`",
            )
        return found

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
        return WrittenList(
            chunk_list=chunk_list,
            digest=self.digest(chunk_list),
            chunks=written.chunks,
            files=written.files,
            directories=written.directories,
            size_bytes=written.size_bytes,
        )

    def _file(self, chunk_list: str) -> Path:
        prefix = next((prefix for prefix in self._places if chunk_list.startswith(prefix)), "")
        root = self._places.get(prefix, self._plans_dir)
        relative = Path(chunk_list.removeprefix(prefix))
        if relative.is_absolute() or ".." in relative.parts:
            raise Refused(
                f"{chunk_list!r} cannot be a chunk list of this site",
                cause="lists lie below the plans and the state directory",
                hint="make a new plan with `migrator plan`",
            )
        return root / relative

    def _open(self, chunk_list: str) -> pq.ParquetFile:
        file = self._file(chunk_list)
        try:
            return pq.ParquetFile(file)
        except FileNotFoundError:
            raise _missing(chunk_list, file) from None
        except pa.ArrowInvalid as error:
            raise Refused(
                f"the chunk list {chunk_list!r} cannot be read: {error}",
                cause=f"{file} was cut off or replaced",
                hint="make a new plan with `migrator plan`",
            ) from error

    def _index(self, chunk_list: str) -> _Index:
        file = self._file(chunk_list)
        try:
            status = os.stat(file)
        except FileNotFoundError:
            raise _missing(chunk_list, file) from None
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
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
                hint="make a new plan with `migrator plan`",
            )
        found.append(statistics.max)
    return tuple(found)


def _missing(chunk_list: str, file: Path) -> Refused:
    return Refused(
        f"the chunk list {chunk_list!r} is missing",
        cause=f"{file} was removed, or the plan was copied without the directory beside it",
        hint="bring it back, or make a new plan with `migrator plan`",
    )
