"""Archives of old and tiny files: reading what goes into them, and what the ledger has of them.

All blocking; errors of the kernel are OSError. Digests of content are of the algorithm that [verify] names.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from migrator.domain.archives import (
    ArchiveRecord,
    LeftOut,
    WrittenArchive,
)
from migrator.domain.entry import Entry
from migrator.domain.reap import ReapRow


class OpenMember(Protocol):
    """A path of the source that is about to be archived. `finish` or `close` once, after the content was taken."""

    @property
    def entry(self) -> Entry:
        """What a look saw before the content was read."""

    @property
    def is_checked(self) -> bool:
        """Whether the content lies in memory already and is known to be whole: then `finish` gives a digest."""

    def pieces(self) -> Iterator[bytes]:
        """The content, no more of it than the look saw; nothing for what is no regular file. Raises OSError."""

    def finish(self) -> bytes | LeftOut | None:
        """The digest of the content, None for what is no regular file, or why it cannot be archived: it changed."""

    def close(self) -> None:
        """Release it. May be called again."""


class MemberSource(Protocol):
    """The source, for archiving. Thread-safe."""

    def open(self, row: ReapRow, *, settled_before_ns: int) -> OpenMember | LeftOut:
        """Look at a path, and read it at once where it is small. Left out: what is gone, is not as the reap list has it,
        changed since `settled_before_ns`, cannot be read, or cannot be in a tar (a socket). Never raises OSError.
        """


class ArchiveRecords(Protocol):
    """The archives of a site in the ledger."""

    def add(
        self, *, plan: str, batch: int, tree: bytes, number: int, written: WrittenArchive, at_s: float
    ) -> ArchiveRecord:
        """An archive whose files are on the disks, before they get their names."""

    def prove(self, archive_id: int, *, at_s: float) -> None:
        """It was read back, and is as it has to be. May be called again."""

    def void(self, archive_id: int, reason: str, *, at_s: float) -> None:
        """It does not count, and its files go. May be called again."""

    def of_tree(self, tree: bytes) -> Sequence[ArchiveRecord]:
        """Every archive of a tree, of any plan, oldest first."""

    def of_plan(self, plan: str, batch: int | None = None) -> Sequence[ArchiveRecord]:
        """Every archive that was made for a plan, or one of its batches, oldest first."""
