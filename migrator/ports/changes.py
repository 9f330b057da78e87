"""Finding what changed between two scans, and making a delta pass's lists of it."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from migrator.decide.packing import Listing
from migrator.domain.changes import Changes, Gone, Rename


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
