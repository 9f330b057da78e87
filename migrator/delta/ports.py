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
    """Two catalogs that were compared, for some trees. Every query is out of core; one at a time. Blocking."""

    @property
    def changes(self) -> Changes:
        """What changed, tree by tree, counted."""

    def renames(self) -> Iterator[Rename]:
        """Directories first, each behind those that its new name lies in. They are meant to be taken out of their old
        names all together before the first one gets its new name: chains and cycles need no order.
        """

    def gone(self) -> Iterator[Gone]:
        """The outermost paths that vanished, in order of path, what lies in a directory right behind it. Another thing may
        have the name now: where a directory became something else, or something else a directory, or where another
        directory was renamed to it. Files that were replaced by other files are not among them.
        """

    def listings(self, batches: Sequence[Sequence[bytes]]) -> Iterator[Listing]:
        """What is to be sent of these trees, for packing, as for a plan (see `CatalogQueries.listings`).

        With every file that changed come all names of its link group; with everything that is made, renamed or taken away
        come the directories that hold it, whose times change by that.
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
        """Compare two closed catalogs. `unsettled` are paths that are not known to have arrived, `unsettled_trees` trees
        of which nothing is: they are sent again whether they changed or not.

        What `reap_list` (see `ReapLists.checked`) names is not on the target: it is not sent as long as it is what and
        where it was, also in an unsettled tree, and it is sent, never renamed, where it was renamed or moved along with
        a directory.

        The roots of the trees count for nothing here: they stay closed until the cutover. Of an unsettled tree nothing is
        renamed. Raises UsageError where there is no such catalog, Refused where one is damaged or does not cover the
        trees, or `now` is not whole (what a base does not list is sent again).
        """


# Move lists.


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenMoves:
    """A move list that is on disk. `gone` counts the outermost paths that vanished."""

    move_list: str
    digest: str
    renames: int
    gone: int


class MoveLists(Protocol):
    """The move lists of a site, one for each delta pass. Out of core: nothing is held but some thousand rows.

    Reading raises Refused where a list is missing or damaged.
    """

    def write(self, name: str, renames: Iterable[Rename], gone: Iterable[Gone]) -> WrittenMoves:
        """Write a list durably, in the order that is given. Replaces what an interrupted pass left under the name."""

    def renames(self, move_list: str) -> Iterator[Rename]:
        """The renames of a list, in order."""

    def gone(self, move_list: str) -> Iterator[Gone]:
        """What vanished, in order."""

    def digest(self, move_list: str) -> str:
        """The digest of a list's content."""


# Extras: paths that the target has, the source has not, and no list of vanished paths names.


class ExtraOrigin(StrEnum):
    """How an extra is known.

    `earlier-plan`: an earlier plan has brought it, and it was gone when the catalog was made that the present plan begins
    from. `verification`: the newest verification has found it on the target alone.
    """

    EARLIER_PLAN = "earlier-plan"
    VERIFICATION = "verification"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtrasOfTree:
    """Where extras of one tree are looked for. `brought` are the catalogs of all passes that went over it: what none of them
    lists was not brought by this program, and is no extra. `earlier` are those of them that an earlier plan left last.
    `manifest` is that of the verification whose findings count; None: none.
    """

    tree: bytes
    brought: tuple[str, ...]
    earlier: tuple[str, ...] = ()
    manifest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtrasTally:
    """Of one tree: `names_before` and `bytes_before` are what the base lists of it, `names` and `size_bytes` the extras."""

    names_before: int
    bytes_before: int
    names: int
    size_bytes: int


class FoundExtras(Protocol):
    """Extras of some trees. Out of core; one query at a time. Blocking."""

    def tally(self, tree: bytes, origins: Collection[ExtraOrigin]) -> ExtrasTally:
        """How many extras of these origins a tree has."""

    def gone(self, origins: Collection[ExtraOrigin]) -> Iterator[Gone]:
        """The outermost extras of these origins, in order of path. A directory that is known to hold something that this
        program did not bring is not among them.
        """


class Extras(Protocol):
    """Finds extras with the catalogs and manifests of a site."""

    def open(self, wanted: Sequence[ExtrasOfTree], *, base: str, now: str) -> AbstractContextManager[FoundExtras]:
        """Find what the catalog `now` does not list any more, or lists as something else than a directory where one was, or
        the other way round; what vanished since `base` is none of it. Catalogs of `brought` and `earlier` that are not there
        any more are left out: then less is found. Blocking. Raises UsageError and Refused as a comparison does, and Refused
        where the findings of the verification are missing.
        """
