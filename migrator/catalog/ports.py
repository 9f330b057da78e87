"""Interfaces of catalogs, chunk lists and manifests, without DuckDB and pyarrow."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from migrator.catalog.model import BrickFindings, CatalogRecord, ScanProblem
from migrator.core.entry import Entry
from migrator.fs.rules import Loss
from migrator.plan.model import Chunk, ListedPath
from migrator.reap.model import ArchivedMember
from migrator.verify.model import ContentReading, Difference, ReadContent

# --- Catalogs and chunk lists


class CatalogWriter(Protocol):
    """Writes one catalog in parts. One thread at a time may call it.

    A directory is done once it is in a part on disk; a killed scan resumes from there.
    """

    def add(self, tree: bytes | None, entries: Sequence[Entry]) -> None:
        """Add entries of one tree (None: outside every tree)."""

    def directory_done(self, path: bytes, problems: Sequence[ScanProblem]) -> None:
        """Complete a directory, after all its entries were added."""

    def note(self, problems: Sequence[ScanProblem]) -> None:
        """Add problems that belong to no directory; they are written with the next part."""

    def close(self, record: CatalogRecord) -> CatalogRecord:
        """Flush, fsync, and write the closing record; `parts` of the record is filled in."""

    def abandon(self) -> None:
        """Flush what is complete, and leave the catalog open for a later resume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTotals:
    """Totals of a catalog."""

    rows: int = 0
    directories: int = 0
    size_bytes: int = 0
    problems: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCatalog:
    """A catalog in progress: `record` is its opening record, `frontier` the directories still to be read."""

    record: CatalogRecord
    writer: CatalogWriter
    frontier: tuple[bytes, ...]
    totals: CatalogTotals


class BrickCatalogWriter(Protocol):
    """Writes a catalog from the blocks that walks of bricks send. It cannot be resumed.

    `add_rows`, `add_directories` and `brick_done` may be called by one thread per brick at the same time, everything else
    by a single thread. All raise OSError.
    """

    def add_rows(self, brick: str, device: int, payload: memoryview) -> CatalogTotals:
        """Add a block of entries without directories, and return its totals. `brick` and `device` apply to all rows.
        Raises MigratorError for a malformed block.
        """

    def add_directories(self, brick: str, device: int, payload: memoryview) -> CatalogTotals:
        """Add a block of a brick's directories, which `unite` merges. Raises MigratorError for a malformed block."""

    def note(self, problems: Sequence[ScanProblem]) -> None:
        """Add problems."""

    def brick_done(self, brick: str) -> None:
        """Write the pending rows of a brick that has ended."""

    def unite(self, *, bricks: int, limit: int) -> BrickFindings:
        """Merge directories into one row each, and find what cannot be in a quiet volume. `bricks` is their number."""

    def replace(self, rows: Mapping[bytes, tuple[bytes | None, Entry] | None]) -> None:
        """After `unite`: replace the rows of these paths by what the mount shows: a tree and an entry, or nothing."""

    def lacks(self, paths: Sequence[bytes]) -> Sequence[bytes]:
        """After `unite`: the paths that have no row."""

    def totals(self) -> CatalogTotals:
        """After `unite`: the totals of the catalog."""

    def close(self, record: CatalogRecord) -> CatalogRecord:
        """Flush, fsync, and write the closing record; `parts` of the record is filled in."""


class Catalogs(Protocol):
    """The catalogs of a site."""

    def create_from_bricks(self, record: CatalogRecord, *, bricks: int) -> BrickCatalogWriter:
        """Create a catalog for the walks of so many bricks. Raises OSError."""

    def discard(self, name: str) -> None:
        """Remove a catalog that was never closed; it may be gone already. Raises OSError."""

    def create(self, record: CatalogRecord) -> OpenCatalog:
        """Create a catalog; the record's `finished_at_s` is None. Raises OSError."""

    def resume(self, name: str) -> OpenCatalog | None:
        """Resume a catalog; None if it was never begun on disk. Raises Refused if it is damaged or closed."""

    def closing_record(self, name: str) -> CatalogRecord | None:
        """The closing record of a catalog; None if it has none. Raises Refused if the catalog is damaged."""


class ChunkLists(Protocol):
    """The chunk lists of plans, of later passes, and of split chunks."""

    def chunks(self, chunk_list: str) -> Iterable[Chunk]:
        """The chunks of a list, in order of number."""

    def paths(self, chunk_list: str, number: int) -> Sequence[ListedPath]:
        """The paths of one chunk, in order."""

    def digest(self, chunk_list: str) -> str:
        """The digest of a list, to compare with the plan's. Raises Refused if it is missing."""

    def write_split(self, pass_id: int, chunk: Chunk, paths: Sequence[ListedPath]) -> str:
        """Write the list of one half of a split chunk; return its name. May be called again for the same half."""


# --- Manifests


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPath:
    """A verified path: the attributes of both sides and, if its content was compared, the digest and the verification that
    read it.

    `archived`: it is in an archive instead of at its own path, so `target` is None; the digest is the member's.
    """

    source: Entry
    target: Entry | None
    digest: bytes | None = None
    reading: ContentReading | None = None
    archived: ArchivedMember | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedPath:
    """A path of a file with several names on either side. `target_ino` is None if it is not on the target."""

    path: bytes
    source_ino: int
    source_nlink: int
    target_ino: int | None
    target_nlink: int


class LinkFindingKind(StrEnum):
    """What is wrong with a link group.

    `split`: names of one source file belong to several files on the target. `merged`: names of several source files belong
    to one. `outside`: a file of the target has names outside the batch. `broken`: a file of the source has names outside
    the batch, which become copies; one finding per file.
    """

    SPLIT = "split"
    MERGED = "merged"
    OUTSIDE = "outside"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFinding:
    """One path whose hard links differ from the source's; `other` is the name that it is compared with."""

    path: bytes
    kind: LinkFindingKind
    other: bytes
    names: int
    nlink: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedManifest:
    """A manifest on disk: the file, its BLAKE2b digest in hexadecimal, its number of paths, and the file that lists all
    differences.
    """

    file: str
    digest: str
    rows: int
    differences_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Some differences and expected losses of each kind."""

    differences: tuple[Difference, ...]
    losses: tuple[Loss, ...]


class ManifestDraft(Protocol):
    """A manifest in progress. `add` may be called by several threads; after `abandon` it does nothing."""

    def add(
        self,
        *,
        verified: Sequence[VerifiedPath] = (),
        differences: Sequence[Difference] = (),
        losses: Sequence[Loss] = (),
        links: Sequence[LinkedPath] = (),
    ) -> None:
        """Add results. A path with a difference may be added as verified too: it is left out of the manifest. Raises OSError."""

    def link_findings(self) -> Iterator[LinkFinding]:
        """Compare the hard links of all added paths. While this is read, differences and losses may be added, but no links."""

    def catalog_problems(self, catalogs: Sequence[str]) -> tuple[str, ...]:
        """Why earlier catalogs cannot be queried, as sentences. A catalog that was never begun on disk is no problem."""

    def unaccounted(self, catalogs: Sequence[str], trees: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """The paths of the trees that are in any of the catalogs but were not added, in order, in blocks. More may be added
        while this is read.
        """

    def close(self) -> ClosedManifest:
        """Write manifest, differences and expected losses durably, in order of path. Raises OSError."""

    def abandon(self) -> None:
        """Interrupt a running query and remove what was written. May be called again; after `close` it does nothing."""


class EarlierManifest(Protocol):
    """The content readings of an earlier verification. Thread-safe; constant memory."""

    def find(self, paths: Sequence[bytes]) -> Mapping[bytes, ReadContent]:
        """The readings of these paths. Unknown paths, and those where the manifest has become unreadable, are left out. Fast for
        neighbouring paths. Never raises OSError.
        """

    def close(self) -> None:
        """Release the file; `find` then returns nothing. May be called again."""


class Differing(Protocol):
    """The differences that verifications found."""

    def differing(self, manifest: str) -> Iterator[bytes]:
        """The paths of the source that differ on the target or are missing there, from the list beside a manifest, in order.
        Raises Refused if the list is missing.
        """


class Manifests(Differing, Protocol):
    """The manifests of a site."""

    def create(self, name: str, *, algorithm: str) -> ManifestDraft:
        """Begin a manifest, after removing the leftovers of a killed one of the same name. Raises OSError."""

    def examples(self, manifest: str, *, per_kind: int = 5) -> Examples:
        """Some findings of each kind, from the files beside a manifest. Raises Refused if they are missing."""

    def digest(self, manifest: str) -> str:
        """The digest of the manifest's file, to compare with the ledger's. Raises Refused if it is missing."""

    def open_earlier(self, manifest: str, *, digest: str) -> EarlierManifest:
        """Open the manifest of an earlier verification. Raises Refused if it is missing or unreadable, or its digest differs."""
