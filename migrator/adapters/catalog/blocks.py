"""The rows that a walk of a brick writes, in columns as Arrow lays them out, as batches of a catalog.

The bytes come from another machine. Whatever is wrong with them raises MigratorError and nothing else.
"""

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from migrator.adapters.catalog.schema import ROW_SCHEMA
from migrator.domain.entry import EntryType
from migrator.domain.errors import MigratorError

_ROWS_HEAD = struct.Struct("<5Q")

_WIDE = ("size", "blocks", "mtime_ns", "atime_ns", "ctime_ns", "rdev", "ino")
_NARROW = ("uid", "gid", "mode", "nlink", "xattr_largest_bytes", "xattr_kinds", "acl_entries")
_NULLABLE = ("tree", "gfid", "link_group", "symlink_target", "xattr_digest")
_VARIABLE = ("path", "gfid", "symlink_target", "xattr_digest")
_TYPES = pa.array([kind.value for kind in EntryType], type=pa.string())
"""In the order of the walkers' numbers, which is that of `EntryType`."""


def decode_rows(payload: memoryview, *, trees: Sequence[bytes], brick: str, dev: int) -> pa.RecordBatch:
    """A frame of rows as a batch of ROW_SCHEMA, without a look at each row; it keeps the payload.

    `trees` are those that the walk was given, in that order; `brick` and `dev` are the same for all rows. Raises
    MigratorError.
    """
    try:
        return _decode_rows(payload, trees, brick, dev)
    except (pa.ArrowException, struct.error, ValueError, IndexError) as error:
        raise _malformed(f"its rows cannot be read: {error}") from error


def _decode_rows(payload: memoryview, trees: Sequence[bytes], brick: str, dev: int) -> pa.RecordBatch:
    rows, *lengths = _ROWS_HEAD.unpack_from(payload)
    # Before anything is computed with them: every row takes more than a byte, and Arrow's offsets have 32 bits.
    if rows > len(payload) or any(length > len(payload) for length in lengths):
        raise _malformed("a frame of rows is shorter than its columns")
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
        columns[name] = pa.Array.from_buffers(ROW_SCHEMA.field(name).type, rows, [None, buffers[name]])
    numbers = pa.Array.from_buffers(pa.int32(), rows, [valid["tree"], tree_numbers])
    columns["tree"] = pa.array(trees, type=pa.binary()).take(numbers)
    columns["type"] = _TYPES.take(pa.Array.from_buffers(pa.uint8(), rows, [None, types]))
    columns["link_group"] = pa.Array.from_buffers(pa.uint64(), rows, [valid["link_group"], buffers["ino"]])
    columns["brick"] = pa.repeat(pa.scalar(brick, type=pa.string()), rows)
    columns["dev"] = pa.repeat(pa.scalar(dev, type=pa.uint64()), rows)
    return pa.RecordBatch.from_arrays([columns[name] for name in ROW_SCHEMA.names], schema=ROW_SCHEMA)


class _Cutter:
    """Takes one buffer after the other off a payload; each begins at a multiple of 8 bytes."""

    def __init__(self, payload: memoryview, position: int) -> None:
        self._buffer = pa.py_buffer(payload)
        self._position = position

    def next(self, length: int) -> pa.Buffer:
        start, self._position = self._position, self._position + (length + 7) // 8 * 8
        if self._position > self._buffer.size:
            raise _malformed("a frame of rows is shorter than its columns")
        return self._buffer.slice(start, length)

    def finish(self) -> None:
        if self._position != self._buffer.size:
            raise _malformed("a frame of rows is longer than its columns")


def _malformed(what: str) -> MigratorError:
    return MigratorError(
        f"what the walk of a brick wrote cannot be understood: {what}",
        cause="the connection was cut, or something else on that host writes to the same output (a login script)",
        hint="log in to the host by hand without a terminal and see whether anything but your command's output comes",
    )
