"""Finding what changed between two scans, and making a delta pass's lists of it."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from migrator.decide.packing import Listing
from migrator.domain.changes import Changes, Gone, Rename


class Comparison(Protocol):
    """Two catalogs that were compared, for some trees. Every query is out of core; one at a time. Blocking."""

    @property
    def changes(self) -> Changes:
        """What changed, tree by tree, counted."""

    def renames(self) -> Iterator[Rename]:
        """In an order in which none stands in another's way but for cycles; directories before what lies in them."""

    def gone(self) -> Iterator[Gone]:
        """The outermost paths that vanished, in order of path."""

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
    ) -> AbstractContextManager[Comparison]:
        """Compare two closed catalogs. `unsettled` are paths that are not known to have arrived, `unsettled_trees` trees
        of which nothing is: they are sent again whether they changed or not.

        Raises UsageError where there is no such catalog, Refused where one is damaged, or is not whole.
        """
