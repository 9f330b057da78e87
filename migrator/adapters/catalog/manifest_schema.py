"""The files and columns of a manifest and of what lies beside it."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from migrator.decide.expectations import Loss
from migrator.domain.entry import xattr_digest
from migrator.domain.verification import Difference
from migrator.ports.manifest import LinkedPath, VerifiedPath

MANIFEST_FILE = "manifest.parquet"
DIFFERENCES_FILE = "differences.parquet"
EXPECTED_FILE = "expected.parquet"

_MANIFEST_FIELDS: list["pa.Field[Any]"] = [
    pa.field("path", pa.binary(), nullable=False),
    pa.field("type", pa.string(), nullable=False),
    pa.field("size", pa.int64(), nullable=False),
    pa.field("mtime_ns", pa.int64(), nullable=False),
    pa.field("ctime_ns", pa.int64(), nullable=False),
    pa.field("ino", pa.uint64(), nullable=False),
    pa.field("uid", pa.uint32(), nullable=False),
    pa.field("gid", pa.uint32(), nullable=False),
    pa.field("mode", pa.int32(), nullable=False),
    pa.field("symlink_target", pa.binary()),
    pa.field("rdev", pa.uint64(), nullable=False),
    pa.field("link_group", pa.uint64()),
    pa.field("xattr_digest", pa.binary()),
    pa.field("digest", pa.binary()),
    pa.field("algorithm", pa.string()),
    pa.field("target_ino", pa.uint64()),
    pa.field("target_mtime_ns", pa.int64()),
    pa.field("target_ctime_ns", pa.int64()),
    pa.field("read_by", pa.int64()),
    pa.field("source_clock_ns", pa.int64()),
    pa.field("target_clock_ns", pa.int64()),
    pa.field("archive", pa.int64()),
]
MANIFEST_SCHEMA = pa.schema(_MANIFEST_FIELDS)
"""One row a path that arrived, with the attributes of the source (of the target what it cannot keep is in
`expected.parquet`). `digest` and `algorithm` are null where no content was compared. `target_*` is what the target's file
was when it was listed. `read_by` is the verification that really read the content; `*_clock_ns` what the clock of each side
showed before it was synced for that, null where it is not known. `archive` is the number of the archive (in the tree's archive
directory) that holds the path; such a path is not at its place on the target, and `target_*` are null."""

_DIFFERENCE_FIELDS: list["pa.Field[Any]"] = [
    pa.field("path", pa.binary(), nullable=False),
    pa.field("kind", pa.string(), nullable=False),
    pa.field("source", pa.string(), nullable=False),
    pa.field("target", pa.string(), nullable=False),
]
DIFFERENCE_SCHEMA = pa.schema(_DIFFERENCE_FIELDS)

_LOSS_FIELDS: list["pa.Field[Any]"] = [
    pa.field("path", pa.binary(), nullable=False),
    pa.field("kind", pa.string(), nullable=False),
    pa.field("detail", pa.string(), nullable=False),
]
LOSS_SCHEMA = pa.schema(_LOSS_FIELDS)

_LINK_FIELDS: list["pa.Field[Any]"] = [
    pa.field("path", pa.binary(), nullable=False),
    pa.field("source_ino", pa.uint64(), nullable=False),
    pa.field("source_nlink", pa.uint32(), nullable=False),
    pa.field("target_ino", pa.uint64()),
    pa.field("target_nlink", pa.uint32(), nullable=False),
]
LINK_SCHEMA = pa.schema(_LINK_FIELDS)


def manifest_rows(rows: Sequence[VerifiedPath], algorithm: str) -> pa.Table:
    """Paths that arrived."""
    entries = [row.source for row in rows]
    return _table(
        MANIFEST_SCHEMA,
        {
            "path": [entry.path for entry in entries],
            "type": [entry.type.value for entry in entries],
            "size": [entry.size_bytes for entry in entries],
            "mtime_ns": [entry.mtime_ns for entry in entries],
            "ctime_ns": [entry.ctime_ns for entry in entries],
            "ino": [entry.ino for entry in entries],
            "uid": [entry.uid for entry in entries],
            "gid": [entry.gid for entry in entries],
            "mode": [entry.mode for entry in entries],
            "symlink_target": [entry.symlink_target for entry in entries],
            "rdev": [entry.rdev for entry in entries],
            "link_group": [entry.link_group for entry in entries],
            "xattr_digest": [xattr_digest(entry.xattrs) for entry in entries],
            "digest": [row.archived.digest if row.archived else row.digest for row in rows],
            "algorithm": [_algorithm(row, algorithm) for row in rows],
            "target_ino": [None if row.target is None else row.target.ino for row in rows],
            "target_mtime_ns": [None if row.target is None else row.target.mtime_ns for row in rows],
            "target_ctime_ns": [None if row.target is None else row.target.ctime_ns for row in rows],
            "read_by": [None if row.reading is None else row.reading.verification for row in rows],
            "source_clock_ns": [None if row.reading is None else row.reading.source_clock_ns for row in rows],
            "target_clock_ns": [None if row.reading is None else row.reading.target_clock_ns for row in rows],
            "archive": [None if row.archived is None else row.archived.archive for row in rows],
        },
    )


def _algorithm(row: VerifiedPath, algorithm: str) -> str | None:
    """Members of archives were digested with what the site named then."""
    if row.archived is not None:
        return None if row.archived.digest is None else row.archived.algorithm
    return None if row.digest is None else algorithm


def difference_rows(rows: Sequence[Difference]) -> pa.Table:
    """What differs."""
    return _table(
        DIFFERENCE_SCHEMA,
        {
            "path": [row.path for row in rows],
            "kind": [row.kind.value for row in rows],
            "source": [row.source for row in rows],
            "target": [row.target for row in rows],
        },
    )


def loss_rows(rows: Sequence[Loss]) -> pa.Table:
    """What the target cannot keep."""
    return _table(
        LOSS_SCHEMA,
        {
            "path": [row.path for row in rows],
            "kind": [row.kind.value for row in rows],
            "detail": [row.detail for row in rows],
        },
    )


def link_rows(rows: Sequence[LinkedPath]) -> pa.Table:
    """Names of files with several."""
    return _table(
        LINK_SCHEMA,
        {
            "path": [row.path for row in rows],
            "source_ino": [row.source_ino for row in rows],
            "source_nlink": [row.source_nlink for row in rows],
            "target_ino": [row.target_ino for row in rows],
            "target_nlink": [row.target_nlink for row in rows],
        },
    )


def _table(schema: pa.Schema, columns: dict[str, Sequence[object]]) -> pa.Table:
    return pa.table([pa.array(columns[field.name], type=field.type) for field in schema], schema=schema)
