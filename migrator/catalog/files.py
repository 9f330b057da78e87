"""The columns of catalogs, their files and records, and opening closed ones."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.columns import Columns
from migrator.catalog.model import CatalogRecord
from migrator.core.documents import decode, encode, plain
from migrator.core.durable import file_digest, write_durably
from migrator.core.entry import Entry, acl_entry_count, xattr_digest, xattr_kinds
from migrator.core.errors import MigratorError, Refused, UsageError
from migrator.core.version import version_and_commit
from migrator.fs.model import ScanProblem

# --- Columns and file names


CLOSING_RECORD = "catalog.json"
OPENING_RECORD = "opening.json"

_ROWS: Columns[Entry] = Columns(
    """
    path:binary tree:binary? brick:string? type:string size:int64=size_bytes blocks:int64 uid:uint32 gid:uint32 mode:int32
    mtime_ns:int64 atime_ns:int64 ctime_ns:int64 dev:uint64 rdev:uint64 ino:uint64 gfid:binary? nlink:uint32
    link_group:uint64? symlink_target:binary? xattr_digest:binary? xattr_largest_bytes:int32 xattr_kinds:int32
    acl_entries:int32
    """,
    xattr_digest=lambda entry: xattr_digest(entry.xattrs) if entry.xattrs else None,
    xattr_largest_bytes=lambda entry: max(map(len, entry.xattrs.values())) if entry.xattrs else 0,
    xattr_kinds=lambda entry: int(xattr_kinds(entry.xattrs)) if entry.xattrs else 0,
    acl_entries=lambda entry: acl_entry_count(entry.xattrs) if entry.xattrs else 0,
)
ROW_SCHEMA = _ROWS.schema
"""One row per path. `tree` is null outside every tree; `link_group` is null if a file has only one name."""

DONE_SCHEMA = Columns[object]("path:binary complete:bool").schema
"""Directories that became complete with a part. Rows of others in the part are void unless a later part completes them.
Earlier versions also listed those, with `complete` false."""

DONE_ROWS_KEY = b"migrator.rows"
"""Metadata key of a done-file: the number of rows of its part."""

_PROBLEMS: Columns[ScanProblem] = Columns("path:binary operation:string errno:int32? reason:string")


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
    return _ROWS.batch(entries, tree=[tree] * len(entries))


def problem_rows(problems: Sequence[ScanProblem]) -> pa.Table:
    """Problems as rows."""
    return pa.Table.from_batches([_PROBLEMS.batch(problems)])


# --- Opening and closing records


_FORMAT = "migrator-catalog/%d"
_FIRST, _NEWEST = 3, 3
"""The formats of all releases: each one is read, the newest is written (docs/upgrading.md)."""
_SCAN_AGAIN = "run `migrator scan --restart` for a new catalog"


class RecordUnreadable(MigratorError):
    """The file is not the record of a catalog, or is of another version of the program."""


class PartFacts(Struct, frozen=True, kw_only=True):
    """One file of rows. Its size detects a torn file with a single stat, its digest a changed one."""

    name: str
    size_bytes: int
    digest: str


class _Document(Struct, frozen=True, kw_only=True):
    """`digest` is that of the document without it. It is the digest of the record, too."""

    format: str
    record: CatalogRecord
    files: tuple[PartFacts, ...]
    digest: str = ""


def write_record(file: Path, record: CatalogRecord, parts: Sequence[PartFacts] = ()) -> CatalogRecord:
    """Write a record durably. Returns it with the digest of the file. Raises OSError."""
    document = _Document(format=_FORMAT % _NEWEST, record=replace(record, digest=""), files=tuple(parts))
    document = replace(document, digest=_document_digest(plain(document)))
    write_durably(file, encode(document, indent=1).encode("ascii") + b"\n")
    return replace(record, digest=document.digest)


def close_catalog(directory: Path, record: CatalogRecord, parts: Sequence[str]) -> CatalogRecord:
    """Write the closing record over these parts, which are on disk. Returns it as written. Raises OSError."""
    with ThreadPoolExecutor() as threads:
        facts = tuple(threads.map(lambda name: _facts_of(directory / name), parts))
    return write_record(directory / CLOSING_RECORD, replace(record, parts=tuple(parts)), facts)


def read_record(file: Path) -> tuple[CatalogRecord, tuple[PartFacts, ...]]:
    """The record and the facts of its parts. Raises OSError, and RecordUnreadable."""
    try:
        content = json.loads(file.read_bytes())
        if isinstance(content, dict):
            _require_known(file, content.get("format"))
        document: _Document = decode(_Document, content, "the record")
    except ValueError as error:
        raise RecordUnreadable(
            f"{file} cannot be read as the record of a catalog: {error}", hint=_SCAN_AGAIN
        ) from error
    if _document_digest(content) != document.digest:
        raise RecordUnreadable(f"{file} was changed or damaged since it was written", hint=_SCAN_AGAIN)
    return replace(document.record, digest=document.digest), document.files


def _require_known(file: Path, found: object) -> None:
    if found in {_FORMAT % number for number in range(_FIRST, _NEWEST + 1)}:
        return
    raise RecordUnreadable(
        f"{file} has format {found!r}, and migrator {version_and_commit()} reads up to {_FORMAT % _NEWEST!r}",
        cause="another version of migrator wrote it: a later one, or one before the first release",
        hint=f"use the version that wrote it, or {_SCAN_AGAIN}",
    )


def _document_digest(content: Mapping[str, object]) -> str:
    """Of the keys as they were written: an earlier release wrote fewer."""
    text = encode({**content, "digest": ""})
    return hashlib.blake2b(text.encode("ascii"), digest_size=16).hexdigest()


def _facts_of(file: Path) -> PartFacts:
    facts = file.stat()
    return PartFacts(
        name=file.name, size_bytes=facts.st_size, digest=_digest(str(file), facts.st_size, facts.st_mtime_ns)
    )


@lru_cache(maxsize=1 << 16)
def _digest(file: str, size_bytes: int, mtime_ns: int) -> str:
    """Once in a process for the same size and time."""
    del size_bytes, mtime_ns
    return file_digest(Path(file))


def read_problems(directory: Path) -> Iterator[ScanProblem]:
    """The problems that were written so far."""
    for file in numbered(directory, "problems").values():
        for batch in pq.ParquetFile(file).iter_batches():
            yield from (ScanProblem(**row) for row in batch.to_pylist())


# --- Closed catalogs: half-written and torn ones are refused


class ClosedCatalog(Struct, frozen=True, kw_only=True):
    """A finished catalog. `part_files` and `problem_files` are for DuckDB's `read_parquet`."""

    directory: Path
    record: CatalogRecord
    part_files: tuple[Path, ...]
    problem_files: tuple[Path, ...]


class ClosedCatalogs(Struct, frozen=True):
    """The closed catalogs in a directory. `recorded` returns the ledger's record of a catalog."""

    directory: Path
    recorded: Callable[[str], CatalogRecord | None]

    def open(self, name: str) -> ClosedCatalog:
        """As `open_closed`. Raises Refused, too, if it is not the one in the ledger."""
        catalog = open_closed(self.directory / name)
        recorded = self.recorded(name)
        if recorded is None or recorded.digest != catalog.record.digest:
            raise _damaged(name, f"{CLOSING_RECORD} is not the one that the ledger knows")
        return catalog


def open_closed(directory: Path) -> ClosedCatalog:
    """Open the catalog in a directory. It may be incomplete: the caller checks the record. Every part is read once,
    for its digest.

    Raises UsageError if there is none. Raises Refused if it has no closing record (half written), or if the record or
    a part is missing or was changed.
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
    if problem := _damage(directory, parts):
        raise _damaged(directory.name, problem)
    return ClosedCatalog(
        directory=directory,
        record=record,
        part_files=tuple(directory / part.name for part in parts),
        problem_files=tuple(numbered(directory, "problems").values()),
    )


def _damaged(name: str, problem: str) -> Refused:
    return Refused(
        f"catalog {name!r} is damaged: {problem}",
        cause="a file of the catalog was removed, cut off or changed after the scan, or its disk is bad",
        hint=_SCAN_AGAIN,
    )


def _damage(directory: Path, parts: Sequence[PartFacts]) -> str:
    """A description of the first missing or changed part; empty if all are as written."""
    for part in parts:
        file = directory / part.name
        size_bytes = file.stat().st_size if file.is_file() else None
        if size_bytes != part.size_bytes:
            found = "is missing" if size_bytes is None else f"has {size_bytes} bytes instead of {part.size_bytes}"
            return f"{part.name} {found}"
    with ThreadPoolExecutor() as threads:
        found_now = threads.map(lambda part: _facts_of(directory / part.name), parts)
        changed = [part.name for part, now in zip(parts, found_now, strict=True) if now != part]
    return f"{changed[0]} has another content" if changed else ""
