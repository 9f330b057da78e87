"""Comparisons, move lists and extras as stages see them."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from migrator.catalog.rules_packing import Listing
from migrator.delta.model import Changes, Gone, Rename

# Comparison of two catalogs.


class Comparison(Protocol):
    """Two compared catalogs, for some trees. Queries are out of core, one at a time. Blocking."""

    @property
    def changes(self) -> Changes:
        """Counts by tree."""

    def renames(self) -> Iterator[Rename]:
        """Directories first, each after those that hold its new name. The caller takes all of them out of their old names
        before the first one gets its new name: chains and cycles need no order.
        """

    def gone(self) -> Iterator[Gone]:
        """The outermost vanished paths, in order of path, the content of a directory right after it. Another entry may have
        the name now: a directory became something else or the reverse, or another directory was renamed to it. Files that
        were replaced by other files are not included.
        """

    def listings(self, batches: Sequence[Sequence[bytes]]) -> Iterator[Listing]:
        """What to send of these trees, for packing, as for a plan (see `CatalogQueries.listings`).

        A changed file brings all names of its link group; a new, renamed or removed entry brings the directories that hold
        it, because their times change.
        """


class Comparisons(Protocol):
    """Compares the catalogs of a site."""

    def open(
        self,
        base: str,
        now: str,
        *,
        trees: Collection[bytes],
        unsettled: Collection[bytes] = (),
        unsettled_trees: Collection[bytes] = (),
        reap_list: Path | None = None,
    ) -> AbstractContextManager[Comparison]:
        """Compare two closed catalogs. `unsettled` are paths, and `unsettled_trees` whole trees, that are not known to have
        arrived: they are sent again whether they changed or not.

        Files of `reap_list` (see `ReapLists.checked`) are not on the target. They are not sent while they keep content and
        place, even in an unsettled tree; they are sent, never renamed, if they or a directory above were renamed.

        The roots of the trees are ignored: they stay closed until the cutover. Nothing is renamed in an unsettled tree.
        Raises UsageError if a catalog does not exist, Refused if one is damaged or does not cover the trees, or if `now`
        is not whole (paths that a base lacks are sent again).
        """


# Move lists.


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenMoves:
    """A move list on disk. `gone` counts the outermost vanished paths."""

    move_list: str
    digest: str
    renames: int
    gone: int


class MoveLists(Protocol):
    """The move lists of a site, one for each delta pass. At most some thousand rows are in memory.

    Reading raises Refused if a list is missing or damaged.
    """

    def write(self, name: str, renames: Iterable[Rename], gone: Iterable[Gone]) -> WrittenMoves:
        """Write a list durably, in the given order. Replaces a list of the same name by an interrupted pass."""

    def renames(self, move_list: str) -> Iterator[Rename]:
        """The renames of a list, in order."""

    def gone(self, move_list: str) -> Iterator[Gone]:
        """The vanished paths, in order."""

    def digest(self, move_list: str) -> str:
        """The digest of a list's content."""


# Extras: paths that the target has, the source has not, and no list of vanished paths names.


class ExtraOrigin(StrEnum):
    """How an extra was found.

    `earlier-plan`: an earlier plan copied it, and it was gone by the scan of the present plan. `verification`: the newest
    verification found it only on the target.
    """

    EARLIER_PLAN = "earlier-plan"
    VERIFICATION = "verification"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtrasOfTree:
    """Where to search for extras of one tree. `brought` are the catalogs of all passes over it: this program did not copy a
    path that none of them lists, so it is no extra. `earlier` are those of them since the last pass that removed extras.
    `manifest` is that of the verification whose findings count.
    """

    tree: bytes
    brought: tuple[str, ...]
    earlier: tuple[str, ...] = ()
    manifest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtrasTally:
    """Of one tree: `names_before` and `bytes_before` count the base, `names` and `size_bytes` the extras."""

    names_before: int
    bytes_before: int
    names: int
    size_bytes: int


class FoundExtras(Protocol):
    """Extras of some trees. Out of core; one query at a time. Blocking."""

    def tally(self, tree: bytes, origins: Collection[ExtraOrigin]) -> ExtrasTally:
        """How many extras of these origins a tree has."""

    def gone(self, origins: Collection[ExtraOrigin]) -> Iterator[Gone]:
        """The outermost extras of these origins, in order of path, without directories that are known to hold anything that
        this program did not copy.
        """


class Extras(Protocol):
    """Finds extras with the catalogs and manifests of a site."""

    def open(self, wanted: Sequence[ExtrasOfTree], *, base: str, now: str) -> AbstractContextManager[FoundExtras]:
        """Find paths that the catalog `now` no longer lists, or that changed from a directory to something else or the
        reverse, except those that vanished since `base`. Missing catalogs of `brought` and `earlier` are skipped: then less
        is found. Blocking. Raises UsageError and Refused as a comparison does, and Refused if the differences of the
        verification are missing.
        """
