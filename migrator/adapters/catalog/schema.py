"""The columns of a catalog and the names of its files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from migrator.domain.entry import Entry, acl_entry_count, xattr_digest, xattr_kinds
from migrator.domain.scan import ScanProblem

CLOSING_RECORD = "catalog.json"
OPENING_RECORD = "opening.json"

_ROW_FIELDS: list["pa.Field[Any]"] = [
    pa.field("path", pa.binary(), nullable=False),
    pa.field("tree", pa.binary()),
    pa.field("brick", pa.string()),
    pa.field("type", pa.string(), nullable=False),
    pa.field("size", pa.int64(), nullable=False),
    pa.field("blocks", pa.int64(), nullable=False),
    pa.field("uid", pa.uint32(), nullable=False),
    pa.field("gid", pa.uint32(), nullable=False),
    pa.field("mode", pa.int32(), nullable=False),
    pa.field("mtime_ns", pa.int64(), nullable=False),
    pa.field("atime_ns", pa.int64(), nullable=False),
    pa.field("ctime_ns", pa.int64(), nullable=False),
    pa.field("dev", pa.uint64(), nullable=False),
    pa.field("rdev", pa.uint64(), nullable=False),
    pa.field("ino", pa.uint64(), nullable=False),
    pa.field("gfid", pa.binary()),
    pa.field("nlink", pa.uint32(), nullable=False),
    pa.field("link_group", pa.uint64()),
    pa.field("symlink_target", pa.binary()),
    pa.field("xattr_digest", pa.binary()),
    pa.field("xattr_largest_bytes", pa.int32(), nullable=False),
    pa.field("xattr_kinds", pa.int32(), nullable=False),
    pa.field("acl_entries", pa.int32(), nullable=False),
]
ROW_SCHEMA = pa.schema(_ROW_FIELDS)
"""One row a path. `tree` is null outside every tree, `link_group` where a file has one name."""

_DONE_FIELDS: list["pa.Field[Any]"] = [
    pa.field("path", pa.binary(), nullable=False),
    pa.field("complete", pa.bool_(), nullable=False),
]
DONE_SCHEMA = pa.schema(_DONE_FIELDS)
"""Directories with rows in a part, and those that became complete with it. `complete` false: the directory goes on in a
later part, and its rows in this one count for nothing unless a later part says that it is complete."""

DONE_ROWS_KEY = b"migrator.rows"
"""In the metadata of a done-file: how many rows its part has."""

_PROBLEM_FIELDS: list["pa.Field[Any]"] = [
    pa.field("path", pa.binary(), nullable=False),
    pa.field("operation", pa.string(), nullable=False),
    pa.field("errno", pa.int32()),
    pa.field("reason", pa.string(), nullable=False),
]
PROBLEM_SCHEMA = pa.schema(_PROBLEM_FIELDS)


def part_name(number: int) -> str:
    """The file with the rows of a part."""
    return f"part-{number:06d}.parquet"


def done_name(number: int) -> str:
    """The file that commits a part; renamed last."""
    return f"done-{number:06d}.parquet"


def problems_name(number: int) -> str:
    """What could not be read, as far as it came with this part."""
    return f"problems-{number:06d}.parquet"


def numbered(directory: Path, prefix: str) -> dict[int, Path]:
    """The files `PREFIX-NNNNNN.parquet` of a catalog by number, in order."""
    found = {int(file.stem.removeprefix(f"{prefix}-")): file for file in directory.glob(f"{prefix}-??????.parquet")}
    return dict(sorted(found.items()))


def rows_of(tree: bytes | None, entries: Sequence[Entry]) -> pa.RecordBatch:
    """Entries of one tree as rows."""
    xattrs = [entry.xattrs for entry in entries]
    columns: dict[str, Sequence[object]] = {
        "path": [entry.path for entry in entries],
        "tree": [tree] * len(entries),
        "brick": [entry.brick for entry in entries],
        "type": [entry.type.value for entry in entries],
        "size": [entry.size_bytes for entry in entries],
        "blocks": [entry.blocks for entry in entries],
        "uid": [entry.uid for entry in entries],
        "gid": [entry.gid for entry in entries],
        "mode": [entry.mode for entry in entries],
        "mtime_ns": [entry.mtime_ns for entry in entries],
        "atime_ns": [entry.atime_ns for entry in entries],
        "ctime_ns": [entry.ctime_ns for entry in entries],
        "dev": [entry.dev for entry in entries],
        "rdev": [entry.rdev for entry in entries],
        "ino": [entry.ino for entry in entries],
        "gfid": [entry.gfid for entry in entries],
        "nlink": [entry.nlink for entry in entries],
        "link_group": [entry.link_group for entry in entries],
        "symlink_target": [entry.symlink_target for entry in entries],
        "xattr_digest": [xattr_digest(held) if held else None for held in xattrs],
        "xattr_largest_bytes": [max(map(len, held.values())) if held else 0 for held in xattrs],
        "xattr_kinds": [int(xattr_kinds(held)) if held else 0 for held in xattrs],
        "acl_entries": [acl_entry_count(held) if held else 0 for held in xattrs],
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], type=field.type) for field in ROW_SCHEMA], schema=ROW_SCHEMA
    )


def problem_rows(problems: Sequence[ScanProblem]) -> pa.Table:
    """Problems as rows."""
    columns: dict[str, Sequence[object]] = {
        "path": [problem.path for problem in problems],
        "operation": [problem.operation for problem in problems],
        "errno": [problem.errno for problem in problems],
        "reason": [problem.reason for problem in problems],
    }
    return pa.table([pa.array(columns[field.name], type=field.type) for field in PROBLEM_SCHEMA], schema=PROBLEM_SCHEMA)
