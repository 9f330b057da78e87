"""The columns of catalogs, their files and records, and opening closed ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from migrator.catalog.model import BrickWalk, CatalogRecord, ScanProblem, ScanTimes, StrangeFiles
from migrator.core.durable import write_durably
from migrator.core.entry import Entry, UserTree, acl_entry_count, xattr_digest, xattr_kinds
from migrator.core.errors import MigratorError, Refused, UsageError
from migrator.core.paths import percent_escape, percent_unescape

# --- Columns and file names


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
"""Directories with rows in a part. If `complete` is false, the directory continues in a later part, and its rows in this one
are void unless a later part completes it."""

DONE_ROWS_KEY = b"migrator.rows"
"""Metadata key of a done-file: the number of rows of its part."""

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
    """The file with the problems that were found with a part."""
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


# --- Opening and closing records: JSON documents, bytes percent-escaped


_FORMAT = "migrator-catalog/1"


class RecordUnreadable(MigratorError):
    """The file is not the record of a catalog, or is of another version of the program."""


class PartFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of rows. Its size detects a torn file with a single stat."""

    name: str
    rows: int
    size_bytes: int


class _Tree(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str
    user: str


class _BrickWalk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    brick: str
    host: str
    rows: int
    directories: int
    elapsed_s: float
    whole: bool


class _Times(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    checks_s: float = 0.0
    walk_s: float = 0.0
    finish_s: float = 0.0


class _Strange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    brick: str
    files: int
    paths: list[str]


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    name: str
    scan_id: int
    site_id: str
    via: str
    trees: list[_Tree]
    parts: list[PartFacts]
    started_at_s: float
    finished_at_s: float | None
    whole: bool
    reasons: list[str]
    rows: int
    files: int
    directories: int
    size_bytes: int
    problems: int
    health_fingerprint: str = ""
    way_reasons: list[str] = []
    findings: list[str] = []
    bricks: list[_BrickWalk] = []
    times: _Times = _Times()
    scope: list[str] = []
    strange: list[_Strange] = []


def write_record(file: Path, record: CatalogRecord, parts: tuple[PartFacts, ...]) -> None:
    """Write a record durably. Raises OSError."""
    document = _Document(
        format=_FORMAT,
        name=record.name,
        scan_id=record.scan_id,
        site_id=record.site_id,
        via=record.via,
        trees=[_Tree(path=percent_escape(tree.path), user=tree.user) for tree in record.trees],
        parts=list(parts),
        started_at_s=record.started_at_s,
        finished_at_s=record.finished_at_s,
        whole=record.whole,
        reasons=list(record.reasons),
        rows=record.rows,
        files=record.files,
        directories=record.directories,
        size_bytes=record.size_bytes,
        problems=record.problems,
        health_fingerprint=record.health_fingerprint,
        way_reasons=list(record.way_reasons),
        findings=list(record.findings),
        bricks=[msgspec.convert(walk, _BrickWalk, from_attributes=True) for walk in record.bricks],
        times=msgspec.convert(record.times, _Times, from_attributes=True),
        scope=[percent_escape(tree) for tree in record.scope],
        strange=[
            _Strange(brick=one.brick, files=one.files, paths=[percent_escape(path) for path in one.paths])
            for one in record.strange
        ],
    )
    write_durably(file, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def read_record(file: Path) -> tuple[CatalogRecord, tuple[PartFacts, ...]]:
    """The record and the facts of its parts. Raises OSError, and RecordUnreadable."""
    try:
        document = msgspec.json.decode(file.read_bytes(), type=_Document)
    except msgspec.DecodeError as error:
        raise RecordUnreadable(f"{file} cannot be read as the record of a catalog: {error}") from error
    if document.format != _FORMAT:
        raise RecordUnreadable(f"{file} has format {document.format!r}; this version reads {_FORMAT!r}")
    record = CatalogRecord(
        name=document.name,
        scan_id=document.scan_id,
        site_id=document.site_id,
        via=document.via,
        trees=tuple(UserTree(path=percent_unescape(tree.path), user=tree.user) for tree in document.trees),
        parts=tuple(part.name for part in document.parts),
        started_at_s=document.started_at_s,
        finished_at_s=document.finished_at_s,
        whole=document.whole,
        reasons=tuple(document.reasons),
        rows=document.rows,
        files=document.files,
        directories=document.directories,
        size_bytes=document.size_bytes,
        problems=document.problems,
        health_fingerprint=document.health_fingerprint,
        way_reasons=tuple(document.way_reasons),
        findings=tuple(document.findings),
        bricks=tuple(msgspec.convert(walk, BrickWalk, from_attributes=True) for walk in document.bricks),
        times=msgspec.convert(document.times, ScanTimes, from_attributes=True),
        scope=tuple(percent_unescape(tree) for tree in document.scope),
        strange=tuple(
            StrangeFiles(brick=one.brick, files=one.files, paths=tuple(percent_unescape(path) for path in one.paths))
            for one in document.strange
        ),
    )
    return record, tuple(document.parts)


# --- Closed catalogs: half-written and torn ones are refused


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedCatalog:
    """A finished catalog. `part_files` and `problem_files` are for DuckDB's `read_parquet`."""

    directory: Path
    record: CatalogRecord
    part_files: tuple[Path, ...]
    problem_files: tuple[Path, ...]


def open_closed(directory: Path) -> ClosedCatalog:
    """Open the catalog in a directory. It need not be whole: check the record.

    Raises UsageError if there is none, Refused if it is half written (no closing record), or a part is missing or differs in
    size from the record.
    """
    if not directory.is_dir():
        raise UsageError(
            f"there is no catalog {directory.name!r}",
            cause=f"{directory} is missing: never scanned, or removed",
            hint="run `migrator scan`",
        )
    try:
        record, parts = read_record(directory / CLOSING_RECORD)
    except FileNotFoundError:
        raise Refused(
            f"catalog {directory.name!r} is half written: it has no closing record",
            cause="its scan was interrupted or is still running",
            hint="run `migrator scan` to resume it",
        ) from None
    for part in parts:
        file = directory / part.name
        size_bytes = file.stat().st_size if file.is_file() else None
        if size_bytes != part.size_bytes:
            found = "is missing" if size_bytes is None else f"has {size_bytes} bytes instead of {part.size_bytes}"
            raise Refused(
                f"catalog {directory.name!r} is damaged: {part.name} {found}",
                cause="a file of the catalog was removed, cut off or changed after the scan",
                hint="run `migrator scan --restart` for a new catalog",
            )
    return ClosedCatalog(
        directory=directory,
        record=record,
        part_files=tuple(directory / part.name for part in parts),
        problem_files=tuple(numbered(directory, "problems").values()),
    )
