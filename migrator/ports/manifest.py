"""What a verification leaves behind: the manifest of what arrived, what differs, and what the target cannot keep."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from migrator.decide.expectations import Loss
from migrator.domain.archives import ArchivedMember
from migrator.domain.entry import Entry
from migrator.domain.verification import ContentReading, Difference, ReadContent


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
