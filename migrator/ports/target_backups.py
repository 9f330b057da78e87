"""Backups of the target that somebody else makes, as the ledger knows of them."""

from collections.abc import Collection
from typing import Protocol


class BackupRecords(Protocol):
    """Which user trees on the target were in a backup, and when."""

    def record(self, trees: Collection[bytes], *, at_s: float, note: str) -> None:
        """The backup of these trees has ended; `at_s` is when it began: what came later is not in it."""

    def latest(self, tree: bytes) -> float | None:
        """When the newest backup of a tree began, in seconds since the epoch; None where none is recorded."""
