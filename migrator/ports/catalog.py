"""Catalogs, chunk lists and manifests."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from migrator.domain.entry import Entry
from migrator.domain.plan import Chunk, ListedPath
from migrator.domain.scan import CatalogRecord, ScanProblem


class CatalogWriter(Protocol):
    """Writes one catalog in parts. One thread at a time may call it.

    A directory counts as done only when it is in a part that is on disk; a scan that is killed goes on from there.
    """

    @property
    def finished_parts(self) -> int:
        """How many parts are on disk."""

    def add(self, tree: bytes | None, entries: Sequence[Entry]) -> None:
        """Take entries of one tree (None: outside every tree)."""

    def directory_done(self, path: bytes, problems: Sequence[ScanProblem]) -> None:
        """All entries of this directory have been added."""

    def close(self, record: CatalogRecord) -> CatalogRecord:
        """Flush, fsync, and write the closing record; `parts` of the record is filled in."""

    def abandon(self) -> None:
        """Flush what is complete and leave the catalog open, to go on later."""


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
