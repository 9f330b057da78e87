"""The digests that hosts report for listed files, as columns of Arrow: no step of Python for each file."""

from binascii import hexlify, unhexlify
from collections.abc import Sequence
from itertools import compress
from typing import Any

import pyarrow as pa
from msgspec import Struct
from pyarrow._compute import SetLookupOptions, call_function

from migrator.catalog.columns import Columns
from migrator.catalog.copy_digests import DIGESTS_SCHEMA, one_batch
from migrator.catalog.manifest import READINGS_SCHEMA
from migrator.catalog.model import ContentReading
from migrator.fs.model import DigestPolicy
from migrator.fs.rules import is_sampled

_OF_FILE = "ino:uint64? size:int64? mtime_ns:int64? ctime_ns:int64? digest:binary?"
_REPORTED = Columns[object](f"path:binary? {_OF_FILE} source_clock_ns:int64? listed_bytes:int64?").schema
"""Digests are in hexadecimal."""
_FACTS = DIGESTS_SCHEMA.names[1:]


class Known(Struct, frozen=True):
    """Paths, each once; for each what is known of its content on the source (nulls: nothing); and the places of those that have
    to be read there: none if no other can have content. `size_bytes` are those that were to copy.
    """

    paths: Sequence[bytes]
    source: pa.RecordBatch
    unread: Sequence[int]
    size_bytes: int = 0


def proven(files: Sequence[tuple[bytes, int, int, int, int, bytes]]) -> Known:
    """Files of a manifest, whose content on the source needs no reading: path, inode, size, mtime, ctime and digest of each."""
    paths, *facts, digests = zip(*files, strict=True)
    columns = [*facts, [hexlify(digest) for digest in digests], [None] * len(files)]
    schema = pa.schema([_REPORTED.field(name) for name in (*_FACTS, "source_clock_ns")])
    rows = pa.RecordBatch.from_arrays(
        [pa.array(column, one.type) for column, one in zip(columns, schema, strict=True)], schema=schema
    )
    return Known(paths, rows, (), sum(facts[1]))


def reported_of(listed: pa.RecordBatch, digests: pa.RecordBatch, *, tree: bytes, clock_ns: int) -> pa.RecordBatch:
    """The rows of a chunk but the root of the tree, which is not in the list of a stream, with the `digests` that its stream reported
    (nulls: none). `clock_ns`: the source's before the stream began.
    """
    beneath = call_function("not_equal", [listed.column("path"), pa.scalar(tree, pa.binary())])
    listed = call_function("filter", [listed, beneath])
    rows = _rows(listed.num_rows, digests.column("place"))
    groups = listed.column("link_group")
    if groups.null_count < len(groups):
        # Of a file with several names, streams read only one.
        named = list(zip(groups.to_pylist(), rows.to_pylist(), strict=True))
        read = {group: row for group, row in named if group is not None and row is not None}
        rows = pa.array([read.get(group, row) for group, row in named], pa.int32())
    _, *facts = call_function("take", [digests, rows]).columns
    clock = pa.repeat(pa.scalar(clock_ns, pa.int64()), listed.num_rows)
    listed_bytes = call_function("coalesce", [listed.column("file_size"), listed.column("size")])
    return pa.RecordBatch.from_arrays([listed.column("path"), *facts, clock, listed_bytes], schema=_REPORTED)


def known_of(reported: Sequence[pa.RecordBatch], policy: DigestPolicy) -> Known:
    """The files whose content is compared; of a path that several chunks list, the last row counts."""
    every = one_batch(_REPORTED, reported)
    paths: list[Any] = every.column("path").to_pylist()
    if policy.share < 1.0:
        wanted = [is_sampled(path, policy) for path in paths]
        every, paths = call_function("filter", [every, pa.array(wanted, pa.bool_())]), list(compress(paths, wanted))
    last = dict(zip(paths, range(len(paths)), strict=True))
    if len(last) < len(paths):
        every, paths = call_function("take", [every, pa.array(last.values(), pa.int64())]), list(last)
    is_unread = call_function("is_null", [every.column("digest")])
    # Symlinks and the like are listed too, without a size.
    sizes = call_function("filter", [every.column("listed_bytes"), is_unread])
    unread = compress(range(len(paths)), is_unread.to_pylist()) if any(sizes.to_pylist()) else ()
    size_bytes = call_function("sum", [every.column("listed_bytes")]).as_py() or 0
    return Known(paths, every.select([*_FACTS, "source_clock_ns"]), tuple(unread), size_bytes)


def equal_readings(
    known: Known, read: pa.RecordBatch, target: pa.RecordBatch, reading: ContentReading
) -> pa.RecordBatch:
    """The files with the same size and digest on both sides, in columns of `READINGS_SCHEMA`. `read` has places in the list of
    the unread, `target` in that of all paths; both count as `reading`.
    """
    count = len(known.paths)
    of_unread = _rows(count, pa.array(known.unread, pa.int64()))
    read = call_function(
        "take", [read, call_function("take", [_rows(len(known.unread), read.column("place")), of_unread])]
    )
    target = call_function("take", [target, _rows(count, target.column("place"))])
    clock = call_function(
        "if_else",
        [
            call_function("is_valid", [of_unread]),
            pa.scalar(reading.source_clock_ns, pa.int64()),
            known.source.column("source_clock_ns"),
        ],
    )
    columns = {
        "path": pa.array(known.paths, pa.binary()),
        **{name: call_function("coalesce", [known.source.column(name), read.column(name)]) for name in _FACTS},
        "source_clock_ns": clock,
        **{f"target_{name}": target.column(name) for name in _FACTS},
        "read_by": pa.repeat(pa.scalar(reading.verification, pa.int64()), count),
        "target_clock_ns": pa.repeat(pa.scalar(reading.target_clock_ns, pa.int64()), count),
    }
    alike = [call_function("equal", [columns[name], target.column(name)]) for name in ("size", "digest")]
    equal = call_function("filter", [pa.RecordBatch.from_pydict(columns), call_function("and", alike)])
    digests: list[Any] = equal.column("digest").to_pylist()
    given = {"digest": pa.array(map(unhexlify, digests), pa.binary())}
    arrays = [given.get(name, equal.column(name)) for name in READINGS_SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=READINGS_SCHEMA)


def _rows(count: int, places: "pa.Array[Any]") -> "pa.Array[Any]":
    """For each place below `count`, the row that has it (null: none)."""
    every = pa.array(range(count), pa.int64())
    rows: pa.Array[Any] = call_function("index_in", [every], SetLookupOptions(value_set=places))
    return rows
