"""What was given up for deletion with the source."""

from collections.abc import Collection, Sequence

from sqlalchemy import insert, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database
from migrator.domain.reap import ReapRelease

_releases = tables.reap_releases


class SqliteReleases:
    """What was given up for deletion with the source."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, releases: Sequence[ReapRelease]) -> None:
        """Record them; all or none."""
        rows = [
            {
                "tree": release.tree,
                "pattern": release.pattern,
                "is_glob": int(release.is_glob),
                "by": release.by,
                "at_s": release.at_s,
            }
            for release in releases
        ]
        if rows:
            with self._database.write() as connection:
                connection.execute(insert(_releases), rows)

    def of_trees(self, trees: Collection[bytes]) -> Sequence[ReapRelease]:
        """Those of some trees, in the order in which they were recorded."""
        with self._database.read() as connection:
            rows = connection.execute(select(_releases).order_by(_releases.c.id)).all()
        wanted = frozenset(trees)
        return [
            ReapRelease(tree=row.tree, pattern=row.pattern, is_glob=bool(row.is_glob), by=row.by, at_s=row.at_s)
            for row in rows
            if row.tree in wanted
        ]
