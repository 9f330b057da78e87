"""What was measured in users' trees around their cutovers."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Row, delete, func, insert, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database
from migrator.domain.capacity import Side
from migrator.domain.cutover import SETTLED_STATES
from migrator.domain.speed_up import MeasuredTree, TreeMeasurement, TreeTest
from migrator.domain.tree import UserTree

_made = tables.tree_measurements
_cutovers = tables.cutovers
_KEY = ("cutover_id", "side", "run", "test")


class SqliteSpeedUps:
    """The `SpeedUpRecords` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, cutover_id: int, measurements: Sequence[TreeMeasurement]) -> None:
        """Keep them."""
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
        """Remove what was measured on a side."""
        with self._database.write() as connection:
            connection.execute(delete(_made).where(_made.c.cutover_id == cutover_id, _made.c.side == side.value))

    def of(self, cutover_id: int) -> Sequence[TreeMeasurement]:
        """Those of one cutover."""
        query = select(_made).where(_made.c.cutover_id == cutover_id).order_by(*_order())
        with self._database.read() as connection:
            return [_measurement(row) for row in connection.execute(query)]

    def settled(self) -> Sequence[MeasuredTree]:
        """Those of users who work on the target."""
        newest = select(func.max(_cutovers.c.id)).group_by(_cutovers.c.tree)
        states = [state.value for state in SETTLED_STATES]
        query = (
            select(_made, _cutovers.c.tree, _cutovers.c.user, _cutovers.c.plan, _cutovers.c.batch)
            .join(_cutovers, _cutovers.c.id == _made.c.cutover_id)
            .where(_cutovers.c.id.in_(newest), _cutovers.c.state.in_(states))
            .order_by(_cutovers.c.tree, *_order())
        )
        found = []
        with self._database.read() as connection:
            for _, rows in groupby(connection.execute(query), key=lambda row: row.cutover_id):
                every = list(rows)
                first = every[0]
                found.append(
                    MeasuredTree(
                        tree=UserTree(path=first.tree, user=first.user),
                        plan=first.plan,
                        batch=first.batch,
                        measurements=tuple(_measurement(row) for row in every),
                    )
                )
        return found


def _order() -> tuple[Any, ...]:
    # By the alphabet the source comes before the target, which is the order of time too.
    return _made.c.side, _made.c.run, _made.c.at_s, _made.c.test


def _measurement(row: Row[Any]) -> TreeMeasurement:
    return TreeMeasurement(
        side=Side(row.side),
        run=row.run,
        test=TreeTest(row.test),
        at_s=row.at_s,
        seconds=row.seconds,
        amount=row.amount,
        complete=bool(row.complete),
        cold=None if row.cold is None else bool(row.cold),
        failure=row.failure,
    )
