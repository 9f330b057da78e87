"""The rows of chunk lists, and how they are written."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from migrator.decide.packing import PackedChunk
from migrator.domain.plan import Chunk, ListedPath
from migrator.domain.states import ChunkKind

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
"""`size` counts a link group once in its chunk: the group's further names have 0. Of a file that is copied in ranges it
is the range's length in chunks of ranges, and 0 in the chunk of ranged files that lists it; `file_size` has its own size in both.
"""

ROW_GROUP_ROWS = 20_000
"""A row group ends with the chunk that reaches this: to read one chunk, one group of about so many rows is read."""


@dataclass(slots=True)
class ListSums:
    """What a list has."""

    chunks: int = 0
    files: int = 0
    directories: int = 0
    size_bytes: int = 0

    def add(self, chunk: PackedChunk) -> None:
        """Count one chunk."""
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
    """Write a whole list; a chunk lies in one row group."""
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
    """For the rows of a list, ordered by chunk."""
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
    """The rows of a chunk whose paths are listed already."""
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
