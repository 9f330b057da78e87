"""Around cutovers: measurements of users' trees, and backups of the target."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import delete, func, insert, select

from migrator.cutover.model import SETTLED_STATES, MeasuredTree, TreeMeasurement
from migrator.fs.model import Side
from migrator.ledger import tables
from migrator.ledger.database import Database
from migrator.ledger.operations import CutoverRecords
from migrator.ledger.rows import record_of

# Measurements of users' trees around their cutovers.


_made = tables.tree_measurements
_KEY = ("cutover_id", "side", "run", "test")


class SpeedUpRecords:
    """Measurements of users' trees."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, cutover_id: int, measurements: Sequence[TreeMeasurement]) -> None:
        """Store measurements, replacing earlier ones of the same test and run."""
        rows = [
            {
                "cutover_id": cutover_id,
                "side": one.side.value,
                "run": one.run,
                "test": one.test.value,
                "at_s": one.at_s,
                "seconds": one.seconds,
                "amount": one.amount,
                "complete": int(one.complete),
                "cold": None if one.cold is None else int(one.cold),
                "failure": one.failure,
            }
            for one in measurements
        ]
        with self._database.write() as connection:
            for row in rows:
                same = [_made.c[name] == row[name] for name in _KEY]
                connection.execute(delete(_made).where(*same))
                connection.execute(insert(_made).values(**row))

    def forget(self, cutover_id: int, side: Side) -> None:
        """Remove the measurements on one side."""
        with self._database.write() as connection:
            connection.execute(delete(_made).where(_made.c.cutover_id == cutover_id, _made.c.side == side.value))

    def of(self, cutover_id: int) -> Sequence[TreeMeasurement]:
        """The measurements of one cutover."""
        query = select(_made).where(_made.c.cutover_id == cutover_id).order_by(*_order())
        with self._database.read() as connection:
            return [record_of(row, TreeMeasurement) for row in connection.execute(query)]

    def settled(self) -> Sequence[MeasuredTree]:
        """The measurements of users who work on the target."""
        found = []
        with self._database.read() as connection:
            newest = {one.tree.path: one for one in CutoverRecords(self._database).every(connection)}
            made: dict[int, list[TreeMeasurement]] = {}
            for row in connection.execute(select(_made).order_by(*_order())):
                made.setdefault(row.cutover_id, []).append(record_of(row, TreeMeasurement))
        for _, one in sorted(newest.items()):
            if one.state in SETTLED_STATES and one.id in made:
                measured = tuple(made[one.id])
                found.append(MeasuredTree(tree=one.tree, plan=one.plan, batch=one.batch, measurements=measured))
        return found


def _order() -> tuple[Any, ...]:
    # "source" sorts before "target", which is also the order of time.
    return _made.c.side, _made.c.run, _made.c.at_s, _made.c.test


# Backups of the target.


_backups = tables.target_backups


class BackupRecords:
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
        """When the newest backup of a tree began; None if none is recorded."""
        with self._database.read() as connection:
            found = connection.execute(select(func.max(_backups.c.at_s)).where(_backups.c.tree == tree)).scalar_one()
        return None if found is None else float(found)
