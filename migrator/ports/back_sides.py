"""Both sides of one frozen user tree, as a rollback needs them, and what the target was at the switch."""

from collections.abc import Sequence
from typing import Protocol

from migrator.domain.entry import Entry
from migrator.domain.scan import CatalogRecord
from migrator.domain.verification import VerificationRecord
from migrator.ports.filesystem import SourceFileSystem, TargetFileSystem


class BackSide(SourceFileSystem, TargetFileSystem, Protocol):
    """One side of one user tree. The directory of archives in it, which is no data of the user's, does not show."""

    def top(self) -> Entry:
        """The tree's own directory as it really is, frozen or not. Raises OSError, also where there is none."""


class BackSource(BackSide, Protocol):
    """The source: what changed on the target is written here, below a top that stays as it is."""

    def flush(self, paths: Sequence[bytes]) -> None:
        """Sync these files and directories one by one, as far as they are there. Raises OSError."""


class SwitchedCatalogs(Protocol):
    """Makes the catalog of what a tree was on the target when its user was switched there."""

    def write(self, record: CatalogRecord, *, tree: bytes, proof: VerificationRecord, now: str) -> CatalogRecord:
        """Write it, from the manifest of the verification before the switch (`proof`) and from the catalog `now` of the
        target. What is what it was by inode, size, mtime and ctime has the same row in both; of anything else the row says
        what the manifest knows. Returns the closed record; may be called again for the same one. Blocking.

        Raises Refused where the manifest is missing, or is not the one that the verification left; OSError.
        """
