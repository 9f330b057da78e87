"""What the ledger keeps of scans. Synchronous, short transactions; times in seconds since the epoch."""

from collections.abc import Sequence
from typing import Protocol

from migrator.domain.scan import CatalogRecord


class ScanRecords(Protocol):
    """Scans, by the closing record of their catalog. What asks for the newest one means one of the whole source."""

    def start(self, *, catalog: str, via: str, at_s: float, scope: Sequence[bytes] = ()) -> int:
        """A scan begins, of these user trees alone or (empty) of the whole source; returns its id."""

    def finish(self, record: CatalogRecord) -> None:
        """The closing facts of a scan, in the place of whatever was there. Raises LedgerCorrupt where there is no such scan."""

    def unfinished(self) -> CatalogRecord | None:
        """The newest scan of the whole source, where it has not ended: to go on with."""

    def latest(self, *, finished: bool = True) -> CatalogRecord | None:
        """The newest scan of the whole source that has ended; with `finished=False` the newest of these."""

    def of_bricks(self) -> CatalogRecord | None:
        """The newest scan of the whole source that has read the bricks and ended, whole or not."""

    def unfinished_of_trees(self) -> Sequence[CatalogRecord]:
        """Scans of some user trees alone that have not ended, oldest first: nothing goes on with them."""

    def all(self) -> Sequence[CatalogRecord]:
        """Every scan, also those of some user trees alone, oldest first."""
