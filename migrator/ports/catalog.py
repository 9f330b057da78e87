"""Catalogs, chunk lists and manifests."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from migrator.domain.entry import Entry
from migrator.domain.plan import Chunk, ListedPath
from migrator.domain.scan import CatalogRecord, ScanProblem


class CatalogWriter(Protocol):
    """Writes one catalog in parts. One thread at a time may call it.

    A directory counts as done only when it is in a part that is on disk; a scan that is killed goes on from there.
    """

    def add(self, tree: bytes | None, entries: Sequence[Entry]) -> None:
        """Take entries of one tree (None: outside every tree)."""

    def directory_done(self, path: bytes, problems: Sequence[ScanProblem]) -> None:
        """All entries of this directory have been added."""

    def note(self, problems: Sequence[ScanProblem]) -> None:
        """Take problems that belong to no directory: they are on disk with the next part."""

    def close(self, record: CatalogRecord) -> CatalogRecord:
        """Flush, fsync, and write the closing record; `parts` of the record is filled in."""

    def abandon(self) -> None:
        """Flush what is complete and leave the catalog open, to go on later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTotals:
    """What is in a catalog so far. `by_tree` holds rows and bytes of files; None is outside every tree."""

    rows: int = 0
    directories: int = 0
    size_bytes: int = 0
    problems: int = 0
    by_tree: Mapping[bytes | None, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCatalog:
    """A catalog that is being written: `record` as it was opened, `frontier` the directories still to be read."""

    record: CatalogRecord
    writer: CatalogWriter
    frontier: tuple[bytes, ...]
    totals: CatalogTotals


class Catalogs(Protocol):
    """The catalogs of a site."""

    def create(self, record: CatalogRecord) -> OpenCatalog:
        """A new catalog; the record's `finished_at_s` is None. Raises OSError."""

    def resume(self, name: str) -> OpenCatalog | None:
        """A catalog to go on with; None where it was never begun on disk. Raises Refused where it is damaged."""

    def closing_record(self, name: str) -> CatalogRecord | None:
        """The closing record of a catalog; None where it has none. Raises Refused where the catalog is damaged."""


class ChunkLists(Protocol):
    """The lists of paths beside a plan, and those of split chunks."""

    def chunks(self, chunk_list: str) -> Iterable[Chunk]:
        """Every chunk of a list file, in order of number."""

    def paths(self, chunk_list: str, number: int) -> Sequence[ListedPath]:
        """The paths of one chunk, in order."""

    def digest(self, chunk_list: str) -> str:
        """The digest of a list file's content, to compare with the plan's. Raises Refused where it is missing."""

    def write_split(self, pass_id: int, chunk: Chunk, paths: Sequence[ListedPath]) -> str:
        """Write the list of a half of a split chunk; returns where, for `paths`. May be called again."""
