"""Values of catalogs in progress and of manifests, without DuckDB and pyarrow."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from migrator.catalog.model import ArchivedMember, CatalogRecord, ContentReading
from migrator.core.entry import Entry
from migrator.fs.model import Difference
from migrator.fs.rules import ExpectedLoss

if TYPE_CHECKING:
    from migrator.catalog.writer import PartsWriter

# --- Catalogs in progress


class Scratch(Struct, frozen=True):
    """The directory where queries spill, and the memory of each query. None is a quarter of this machine's memory; the
    minimum is 512 MiB.
    """

    directory: Path
    memory_bytes: int | None = None


class CatalogTotals(Struct, frozen=True, kw_only=True):
    """Totals of a catalog."""

    rows: int = 0
    directories: int = 0
    size_bytes: int = 0
    problems: int = 0


class OpenCatalog(Struct, frozen=True, kw_only=True):
    """A catalog in progress: `record` is its opening record, `frontier` the directories still to be read."""

    record: CatalogRecord
    writer: "PartsWriter"
    frontier: tuple[bytes, ...]
    totals: CatalogTotals


# --- Manifests


class VerifiedPath(Struct, frozen=True, kw_only=True):
    """A verified path: the attributes of both sides and, if its content was compared, the digest and the verification
    that read it.

    `archived`: it is in an archive instead of at its own path, so `target` is None; the digest is the member's.
    """

    source: Entry
    target: Entry | None
    digest: bytes | None = None
    reading: ContentReading | None = None
    archived: ArchivedMember | None = None


class LinkedPath(Struct, frozen=True, kw_only=True):
    """A path of a file with several names on either side. `target_ino` is None if it is not on the target."""

    path: bytes
    source_ino: int
    source_nlink: int
    target_ino: int | None
    target_nlink: int


class LinkFindingKind(StrEnum):
    """A wrong link group.

    `split`: names of one source file belong to several files on the target. `merged`: names of several source files
    belong to one. `outside`: a file of the target has names outside the batch. `in-trash`: a file of the target has names
    in its trash. `broken`: a file of the source has names outside the batch, which become copies. The last three are one
    finding per file.
    """

    SPLIT = "split"
    MERGED = "merged"
    OUTSIDE = "outside"
    IN_TRASH = "in-trash"
    BROKEN = "broken"


class LinkFinding(Struct, frozen=True, kw_only=True):
    """One path whose hard links differ from the source's; `other` is the name that it is compared with."""

    path: bytes
    kind: LinkFindingKind
    other: bytes
    names: int
    nlink: int


class ClosedManifest(Struct, frozen=True, kw_only=True):
    """A manifest on disk: the file, its BLAKE2b digest in hexadecimal, its number of paths, and the file that lists all
    differences, with its digest.
    """

    file: str
    digest: str
    rows: int
    differences_file: str | None = None
    differences_digest: str | None = None


class Examples(Struct, frozen=True, kw_only=True):
    """Some differences and expected losses of each kind."""

    differences: tuple[Difference, ...] = ()
    losses: tuple[ExpectedLoss, ...] = ()
