"""How full both sides were."""

from collections.abc import Sequence

from sqlalchemy import Integer, cast, func, insert, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database
from migrator.domain.capacity import CapacitySample, Side

_capacity = tables.capacity_samples


class SqliteCapacity:
    """How full both sides were."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, samples: Sequence[CapacitySample]) -> None:
        """Keep samples; one of the same side and time replaces the one before."""
        rows = [
            {
                "side": sample.side.value,
                "at_s": sample.at_s,
                "total_bytes": sample.total_bytes,
                "free_bytes": sample.free_bytes,
                "total_inodes": sample.total_inodes,
                "free_inodes": sample.free_inodes,
            }
            for sample in samples
        ]
        if rows:
            with self._database.write() as connection:
                connection.execute(insert(_capacity).prefix_with("OR REPLACE"), rows)

    def all(self, *, span_s: float = 0.0) -> Sequence[CapacitySample]:
        """In order of time; with `span_s` only the last one of each side in every span of this length."""
        query = select(_capacity).order_by(_capacity.c.at_s, _capacity.c.side)
        if span_s > 0:
            # A column beside max() is of the row that has the greatest value: SQLite promises that.
            span = cast(_capacity.c.at_s / span_s, Integer)
            query = (
                select(_capacity, func.max(_capacity.c.at_s))
                .group_by(_capacity.c.side, span)
                .order_by(_capacity.c.at_s, _capacity.c.side)
            )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [
            CapacitySample(
                side=Side(row.side),
                at_s=row.at_s,
                total_bytes=row.total_bytes,
                free_bytes=row.free_bytes,
                total_inodes=row.total_inodes,
                free_inodes=row.free_inodes,
            )
            for row in rows
        ]
