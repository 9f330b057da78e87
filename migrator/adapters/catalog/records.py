"""The opening and the closing record of a catalog as JSON documents (bytes percent-escaped)."""

from pathlib import Path

import msgspec

from migrator.adapters.durable import write_durably
from migrator.domain.errors import MigratorError
from migrator.domain.paths import percent_escape, percent_unescape
from migrator.domain.scan import BrickWalk, CatalogRecord, ScanTimes, StrangeFiles
from migrator.domain.tree import UserTree

_FORMAT = "migrator-catalog/1"


class RecordUnreadable(MigratorError):
    """A record that is no record of a catalog, or of a catalog of another version of the program."""


class PartFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of rows: its size tells a torn file at the price of a stat."""

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
