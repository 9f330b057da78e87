"""Decoding the rows of a walk: Arrow columns, as the compiled program writes them.

The bytes may come from another machine: malformed ones raise only MigratorError.
"""

import os
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow._compute import call_function

from migrator.catalog import files as catalog_files
from migrator.catalog.columns import Columns
from migrator.core.entry import BLOCK_BYTES, LEAST_HOLES, SPARSE_FROM_BYTES, EntryType
from migrator.native.program import malformed

_ROWS_HEAD = struct.Struct("<5Q")

_WIDE = ("size", "blocks", "mtime_ns", "atime_ns", "ctime_ns", "rdev", "ino")
_NARROW = ("uid", "gid", "mode", "nlink", "xattr_largest_bytes", "xattr_kinds", "acl_entries")
_NULLABLE = ("tree", "gfid", "link_group", "symlink_target", "xattr_digest")
_VARIABLE = ("path", "gfid", "symlink_target", "xattr_digest")
_TYPES = pa.array([kind.value for kind in EntryType], type=pa.string())
"""Indexed by the numbers that walkers send: the order of `EntryType`."""


def decode_rows(payload: memoryview, *, trees: Sequence[bytes], brick: str | None, dev: int) -> pa.RecordBatch:
    """Decode a frame of rows into a batch of ROW_SCHEMA, without touching single rows. The batch refers to the payload.

    `trees` are those that were passed to the walk, in that order; `brick` (None: a mount) and `dev` apply to all rows.
    Raises MigratorError.
    """
    try:
        return _decode_rows(payload, trees, brick, dev)
    except (pa.ArrowException, struct.error, ValueError, IndexError) as error:
        raise malformed(f"its rows cannot be read: {error}") from error


def _decode_rows(payload: memoryview, trees: Sequence[bytes], brick: str | None, dev: int) -> pa.RecordBatch:
    rows, *lengths = _ROWS_HEAD.unpack_from(payload)
    # Check the numbers before using them: every row takes more than a byte, and Arrow's offsets have 32 bits.
    if rows > len(payload) or any(length > len(payload) for length in lengths):
        raise malformed("a frame of rows is shorter than its columns")
    cut = _Cutter(payload, _ROWS_HEAD.size)
    buffers = {name: cut.next(8 * rows) for name in _WIDE}
    buffers |= {name: cut.next(4 * rows) for name in _NARROW}
    tree_numbers = cut.next(4 * rows)
    types = cut.next(rows)
    valid = {name: cut.next((rows + 7) // 8) for name in _NULLABLE}
    columns: dict[str, pa.Array[Any]] = {}
    for name, length in zip(_VARIABLE, lengths, strict=True):
        offsets = cut.next(4 * (rows + 1))
        columns[name] = pa.Array.from_buffers(pa.binary(), rows, [valid.get(name), offsets, cut.next(length)])
        columns[name].validate(full=True)
    cut.finish()
    for name in (*_WIDE, *_NARROW):
        columns[name] = pa.Array.from_buffers(catalog_files.ROW_SCHEMA.field(name).type, rows, [None, buffers[name]])
    numbers = pa.Array.from_buffers(pa.int32(), rows, [valid["tree"], tree_numbers])
    # Not by the method `take`, which loads all of pyarrow.compute first: 60 ms of each scan.
    columns["tree"] = call_function("take", [pa.array(trees, type=pa.binary()), numbers])
    columns["type"] = call_function("take", [_TYPES, pa.Array.from_buffers(pa.uint8(), rows, [None, types])])
    columns["link_group"] = pa.Array.from_buffers(pa.uint64(), rows, [valid["link_group"], buffers["ino"]])
    columns["brick"] = pa.repeat(pa.scalar(brick, type=pa.string()), rows)
    columns["dev"] = pa.repeat(pa.scalar(dev, type=pa.uint64()), rows)
    return pa.RecordBatch.from_arrays(
        [columns[name] for name in catalog_files.ROW_SCHEMA.names], schema=catalog_files.ROW_SCHEMA
    )


_LISTINGS_HEAD = struct.Struct("<2Q")
LISTING_SCHEMA = Columns[object]("path:binary entries:uint64 names:uint64 brick:string").schema
"""`names` is the sum of the hashes of the names. A directory that was read in pieces has several rows."""


def decode_listings(payload: memoryview, *, brick: str | None) -> pa.RecordBatch:
    """Decode a frame of listings into a batch of LISTING_SCHEMA. Raises MigratorError."""
    try:
        rows, length = _LISTINGS_HEAD.unpack_from(payload)
        if rows > len(payload) or length > len(payload):
            raise malformed("a frame of listings is shorter than its columns")
        cut = _Cutter(payload, _LISTINGS_HEAD.size)
        pairs = pa.Array.from_buffers(
            pa.list_(pa.uint64(), 2),
            rows,
            [None],
            children=[pa.Array.from_buffers(pa.uint64(), 2 * rows, [None, cut.next(16 * rows)])],
        )
        paths = pa.Array.from_buffers(pa.binary(), rows, [None, cut.next(4 * (rows + 1)), cut.next(length)])
        paths.validate(full=True)
        cut.finish()
        entries, names = (call_function("list_element", [pairs, pa.scalar(place, pa.int32())]) for place in (0, 1))
        bricks = pa.repeat(pa.scalar(brick, type=pa.string()), rows)
        return pa.RecordBatch.from_arrays([paths, entries, names, bricks], schema=LISTING_SCHEMA)
    except (pa.ArrowException, struct.error, ValueError, IndexError) as error:
        raise malformed(f"its listings cannot be read: {error}") from error


class _Cutter:
    """Splits a payload into buffers, each of which begins at a multiple of 8 bytes."""

    def __init__(self, payload: memoryview, position: int) -> None:
        self._buffer = pa.py_buffer(payload)
        self._position = position

    def next(self, length: int) -> pa.Buffer:
        start, self._position = self._position, self._position + (length + 7) // 8 * 8
        if self._position > self._buffer.size:
            raise malformed("a frame of rows is shorter than its columns")
        return self._buffer.slice(start, length)

    def finish(self) -> None:
        if self._position != self._buffer.size:
            raise malformed("a frame of rows is longer than its columns")


class BrickEntry(NamedTuple):
    """An entry of a brick that is not a directory."""

    path: bytes
    type: EntryType
    size_bytes: int
    gfid: bytes
    link_count: int


def entries_of(payload: memoryview) -> list[BrickEntry]:
    """The entries in a block, without making a catalog. Raises MigratorError."""
    batch = decode_rows(payload, trees=(), brick="", dev=0)
    columns = [batch.column(name).to_pylist() for name in ("path", "type", "size", "gfid", "nlink")]
    return [
        BrickEntry(path, EntryType(kind), size, gfid or b"", nlink)
        for path, kind, size, gfid, nlink in zip(*columns, strict=True)
        if path is not None
    ]


def content_bytes_of(rows: pa.RecordBatch) -> int:
    """The sum of `Entry.content_bytes`."""
    sizes, blocks = rows.column("size"), rows.column("blocks")
    allocated = call_function("multiply", [blocks, pa.scalar(BLOCK_BYTES * LEAST_HOLES, pa.int64())])
    sparse = call_function(
        "and",
        [
            call_function("greater_equal", [sizes, pa.scalar(SPARSE_FROM_BYTES, pa.int64())]),
            call_function("less", [allocated, sizes]),
        ],
    )
    held = call_function(
        "multiply",
        [call_function("max_element_wise", [blocks, pa.scalar(1, pa.int64())]), pa.scalar(BLOCK_BYTES, pa.int64())],
    )
    is_file = call_function("equal", [rows.column("type"), pa.scalar(EntryType.FILE.value)])
    content = call_function("if_else", [sparse, held, sizes])
    return call_function("sum", [call_function("if_else", [is_file, content, pa.scalar(0, pa.int64())])]).as_py() or 0


def without_inodes(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a file system whose inode numbers do not last: each has a device of its own, so that no move is found by
    them, and no hard links.
    """
    devices = bytearray(os.urandom(8 * rows.num_rows))
    devices[7::8] = bytes(rows.num_rows)
    changed: dict[str, pa.Array[Any]] = {
        "dev": pa.Array.from_buffers(pa.uint64(), rows.num_rows, [None, pa.py_buffer(bytes(devices))]),
        "link_group": pa.nulls(rows.num_rows, pa.uint64()),
    }
    is_directory = call_function("equal", [rows.column("type"), pa.scalar(EntryType.DIRECTORY.value)])
    changed["nlink"] = call_function("if_else", [is_directory, rows.column("nlink"), pa.scalar(1, pa.uint32())])
    return pa.RecordBatch.from_arrays(
        [changed.get(name, rows.column(name)) for name in rows.schema.names], schema=rows.schema
    )
