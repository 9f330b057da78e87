"""Backups of the target that somebody else makes."""

from collections.abc import Collection

from sqlalchemy import func, insert, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database

_backups = tables.target_backups


class SqliteTargetBackups:
    """Which user trees on the target were in a backup, and when."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, trees: Collection[bytes], *, at_s: float, note: str) -> None:
        """The backup of these trees has ended; `at_s` is when it began."""
        if not trees:
            return
        with self._database.write() as connection:
            connection.execute(insert(_backups), [{"tree": tree, "at_s": at_s, "note": note} for tree in sorted(trees)])

    def latest(self, tree: bytes) -> float | None:
        """When the newest backup of a tree began; None where none is recorded."""
        with self._database.read() as connection:
            found = connection.execute(select(func.max(_backups.c.at_s)).where(_backups.c.tree == tree)).scalar_one()
        return None if found is None else float(found)
