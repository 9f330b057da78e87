"""Catalogs, chunk lists and manifests as stages see them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from migrator.catalog.model import CatalogRecord, ScanProblem
from migrator.core.entry import Entry
from migrator.fs.rules import Loss
from migrator.plan.model import Chunk, ListedPath
from migrator.reap.model import ArchivedMember
from migrator.verify.model import ContentReading, Difference, ReadContent

# --- Catalogs and chunk lists


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PathFinding:
    """Paths of which something is to be said: how many, and the first of them in order."""

    count: int = 0
    paths: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickFindings:
    """What only shows when the rows of all bricks lie together.

    `doubled_paths` have more than one row, `doubled_inodes` are names of files that lie on two bricks at once;
    `conflicting` are directories that are different ones on different bricks; `differing` those whose owner, mode, ACLs
    or attributes differ; `incomplete` those that some brick lacks. The lists are cut at the limit that was given.
    """

    doubled_paths: PathFinding = PathFinding()
    doubled_inodes: PathFinding = PathFinding()
    conflicting: PathFinding = PathFinding()
    differing: PathFinding = PathFinding()
    incomplete: PathFinding = PathFinding()


class BrickCatalogWriter(Protocol):
    """Writes a catalog from the blocks that walks of bricks send. It cannot be gone on with later.

    `add_rows`, `add_directories` and `brick_done` may be called by several threads at once, one for each brick at most;
    everything else by one thread alone. All raise OSError.
    """

    def add_rows(self, brick: str, device: int, payload: memoryview) -> CatalogTotals:
        """Take a block of entries that are no directories, and return what is in it. `brick` and `device` are those of
        all its rows. Raises MigratorError for a bad one.
        """

    def add_directories(self, brick: str, device: int, payload: memoryview) -> CatalogTotals:
        """Take a block of a brick's directories; they are united later. Raises MigratorError for a bad one."""

    def note(self, problems: Sequence[ScanProblem]) -> None:
        """Take problems."""

    def brick_done(self, brick: str) -> None:
        """Nothing more comes of this brick: write what waits."""

    def unite(self, *, bricks: int, limit: int) -> BrickFindings:
        """Make one row of every directory, and look for what cannot be in a quiet volume; `bricks` were walked."""

    def replace(self, rows: Mapping[bytes, tuple[bytes | None, Entry] | None]) -> None:
        """After `unite`: put what the mount says in the place of the rows of these paths: a tree and an entry, or
        nothing.
        """

    def lacks(self, paths: Sequence[bytes]) -> Sequence[bytes]:
        """After `unite`: those of the paths that have no row."""

    def totals(self) -> CatalogTotals:
        """After `unite`: what is in the catalog now."""

    def close(self, record: CatalogRecord) -> CatalogRecord:
        """Flush, fsync, and write the closing record; `parts` of the record is filled in."""


class Catalogs(Protocol):
    """The catalogs of a site."""

    def create_from_bricks(self, record: CatalogRecord, *, bricks: int) -> BrickCatalogWriter:
        """A new catalog for the walks of so many bricks. Raises OSError."""

    def discard(self, name: str) -> None:
        """Remove a catalog that was never closed and cannot be gone on with. Raises OSError; it may be gone already."""

    def create(self, record: CatalogRecord) -> OpenCatalog:
        """A new catalog; the record's `finished_at_s` is None. Raises OSError."""

    def resume(self, name: str) -> OpenCatalog | None:
        """A catalog to go on with; None where it was never begun on disk. Raises Refused where it is damaged."""

    def closing_record(self, name: str) -> CatalogRecord | None:
        """The closing record of a catalog; None where it has none. Raises Refused where the catalog is damaged."""


class ChunkLists(Protocol):
    """The lists of paths beside a plan, those of later passes, and those of split chunks."""

    def chunks(self, chunk_list: str) -> Iterable[Chunk]:
        """Every chunk of a list file, in order of number."""

    def paths(self, chunk_list: str, number: int) -> Sequence[ListedPath]:
        """The paths of one chunk, in order."""

    def digest(self, chunk_list: str) -> str:
        """The digest of a list file's content, to compare with the plan's. Raises Refused where it is missing."""

    def write_split(self, pass_id: int, chunk: Chunk, paths: Sequence[ListedPath]) -> str:
        """Write the list of a half of a split chunk; returns where, for `paths`. May be called again."""


# --- Manifests


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPath:
    """A path that arrived: the attributes of both sides, and the digest of its content where that was compared, with
    who really read it.

    `archived`: it lies in an archive, and not under its own path, so `target` is None; the digest is the member's.
    """

    source: Entry
    target: Entry | None
    digest: bytes | None = None
    reading: ContentReading | None = None
    archived: ArchivedMember | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedPath:
    """A path that has several names on either side. `target_ino` is None where it is not on the target."""

    path: bytes
    source_ino: int
    source_nlink: int
    target_ino: int | None
    target_nlink: int


class LinkFindingKind(StrEnum):
    """What is wrong with a link group.

    `split`: names of one file of the source are several files on the target. `merged`: names of several files are
    one. `outside`: a file of the target has names that are not in the batch. `broken`: a file of the source has names
    outside the batch, which become copies of their own; one finding a file.
    """

    SPLIT = "split"
    MERGED = "merged"
    OUTSIDE = "outside"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFinding:
    """One path and why its hard links are not the source's; `other` is the name it is compared with."""

    path: bytes
    kind: LinkFindingKind
    other: bytes
    names: int
    nlink: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedManifest:
    """A manifest on disk: the file, its BLAKE2b digest in hexadecimal digits, and how many paths it holds. The list of
    all differences lies in a file of its own.
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
    """A manifest that is being written. `add` may be called by several threads; after `abandon` it does nothing."""

    def add(
        self,
        *,
        verified: Sequence[VerifiedPath] = (),
        differences: Sequence[Difference] = (),
        losses: Sequence[Loss] = (),
        links: Sequence[LinkedPath] = (),
    ) -> None:
        """Take what was found. A path with a difference may be added as verified too: it does not get into the
        manifest. Raises OSError.
        """

    def link_findings(self) -> Iterator[LinkFinding]:
        """Compare the hard links of all paths that were added. Differences and losses may be added while it is read, links not."""

    def catalog_problems(self, catalogs: Sequence[str]) -> tuple[str, ...]:
        """Why earlier catalogs cannot be asked, as sentences. A catalog that was never begun on disk has none."""

    def unaccounted(self, catalogs: Sequence[str], trees: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """The paths that any of the catalogs saw in the trees and that were not added, in pieces, in order. More may
        be added while it is read.
        """

    def close(self) -> ClosedManifest:
        """Write manifest, differences and expected losses durably, in order of path. Raises OSError."""

    def abandon(self) -> None:
        """Stop what is under way and remove what was written. May be called again, and after `close`: then it does
        nothing.
        """


class EarlierManifest(Protocol):
    """The manifest of an earlier verification, to ask what content it says was read. Thread-safe; memory is flat."""

    def find(self, paths: Sequence[bytes]) -> Mapping[bytes, ReadContent]:
        """What is known of the content of these paths; those of which nothing is known are left out, and so are those
        where the manifest cannot be read any more. Fast for paths that lie close together. Never raises OSError.
        """

    def close(self) -> None:
        """Release the file; nothing is found any more. May be called again."""


class Differing(Protocol):
    """What verifications found to differ."""

    def differing(self, manifest: str) -> Iterator[bytes]:
        """The paths of the source that differ on the target, or are missing there, by the list beside a manifest, in order.
        Raises Refused where that is missing.
        """


class Manifests(Differing, Protocol):
    """The manifests of a site."""

    def create(self, name: str, *, algorithm: str) -> ManifestDraft:
        """Begin a manifest; the leftovers of a killed one of the same name are removed. Raises OSError."""

    def examples(self, manifest: str, *, per_kind: int = 5) -> Examples:
        """Some findings of each kind that lie beside a manifest. Raises Refused where they are missing."""

    def digest(self, manifest: str) -> str:
        """The digest of the manifest's file, to compare with the ledger's. Raises Refused where it is missing."""

    def open_earlier(self, manifest: str, *, digest: str) -> EarlierManifest:
        """Open the manifest of an earlier verification. Raises Refused where it is missing, is not the one that the ledger
        has the digest of, or cannot be read.
        """
