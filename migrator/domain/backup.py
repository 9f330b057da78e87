"""Backups of the target that somebody else makes."""

from dataclasses import dataclass

from migrator.domain.tree import UserTree


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupTold:
    """What was told of one: the user trees in it, and when it began, in seconds since the epoch."""

    trees: tuple[UserTree, ...]
    began_at_s: float
    note: str
