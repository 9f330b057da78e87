"""Around cutovers: measurements of users' trees, and backups of the target."""

from collections.abc import Collection, Sequence

from sqlalchemy import delete, func, select

from migrator.cutover.model import SETTLED_STATES, CutoverRecord, TreeMeasurement
from migrator.fs.model import Side
from migrator.ledger import tables
from migrator.ledger.operations import CutoverRecords
from migrator.ledger.rows import Records, columns_of, record_of

# Measurements of users' trees around their cutovers.


_made = tables.tree_measurements.c
# "source" sorts before "target", which is also the order of time.
_in_order = select(tables.tree_measurements).order_by(_made.side, _made.run, _made.at_s, _made.test)


class SpeedUpRecords(Records):
    """Measurements of users' trees."""

    def add(self, cutover_id: int, measurements: Sequence[TreeMeasurement]) -> None:
        """Store measurements, replacing earlier ones of the same test and run."""
        rows = [columns_of(tables.tree_measurements, one, cutover_id=cutover_id) for one in measurements]
        self._put(tables.tree_measurements, rows)

    def forget(self, cutover_id: int, side: Side) -> None:
        """Remove the measurements on one side."""
        these = (_made.cutover_id == cutover_id, _made.side == side.value)
        with self._database.write() as connection:
            connection.execute(delete(tables.tree_measurements).where(*these))

    def of(self, cutover_id: int) -> Sequence[TreeMeasurement]:
        """The measurements of one cutover."""
        return self._all(TreeMeasurement, _in_order.where(_made.cutover_id == cutover_id))

    def settled(self) -> Sequence[tuple[CutoverRecord, Sequence[TreeMeasurement]]]:
        """The measurements of users who work on the target."""
        with self._database.read() as connection:
            newest = {one.tree.path: one for one in CutoverRecords(self._database).every(connection)}
            made: dict[int, list[TreeMeasurement]] = {}
            for row in connection.execute(_in_order):
                made.setdefault(row.cutover_id, []).append(record_of(row, TreeMeasurement))
        settled = (one for _, one in sorted(newest.items()) if one.state in SETTLED_STATES)
        return [(one, made[one.id]) for one in settled if one.id in made]


# Backups of the target.


_backups = tables.target_backups.c


class BackupRecords(Records):
    """Which user trees on the target were in a backup, and when."""

    def record(self, trees: Collection[bytes], *, at_s: float, note: str) -> None:
        """The backup of these trees has ended; `at_s` is when it began."""
        self._put(tables.target_backups, [{"tree": tree, "at_s": at_s, "note": note} for tree in sorted(trees)])

    def latest(self, tree: bytes) -> float | None:
        """The start of the newest backup of a tree; None if none is recorded."""
        found: float | None = self._value(select(func.max(_backups.at_s)).where(_backups.tree == tree))
        return found
