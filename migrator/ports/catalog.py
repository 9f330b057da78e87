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
