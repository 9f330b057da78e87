"""The records around cutovers in the ledger: backups of the target, announcements, measurements of trees."""

from collections.abc import Collection, Sequence

from sqlalchemy import delete, func, select

from migrator.cutover.model import SETTLED_STATES, AnnouncementRecord, CutoverRecord, TreeMeasurement
from migrator.cutover.tables import AnnouncementRow, TargetBackupRow, TreeMeasurementRow
from migrator.fs.model import Side
from migrator.ledger.operations import CutoverRecords
from migrator.ledger.rows import Records, columns_of, record_of

# "source" sorts before "target", which is also the order of time.
_in_order = select(TreeMeasurementRow).order_by(
    TreeMeasurementRow.side, TreeMeasurementRow.run, TreeMeasurementRow.at_s, TreeMeasurementRow.test
)


class BackupRecords(Records):
    """Which user trees on the target were in a backup, and when."""

    def record(self, trees: Collection[bytes], *, at_s: float, note: str) -> None:
        """The backup of these trees has ended; `at_s` is when it began."""
        self._put(TargetBackupRow, [{"tree": tree, "at_s": at_s, "note": note} for tree in sorted(trees)])

    def lack(self, tree: bytes, *, since_s: float | None) -> bool:
        """Whether no backup of a tree began since then; with None, none counts."""
        newest_s: float | None = self._value(select(func.max(TargetBackupRow.at_s)).where(TargetBackupRow.tree == tree))
        return newest_s is None or since_s is None or newest_s < since_s


class AnnouncementRecords(Records):
    """The times of announced cutovers."""

    def record(self, announced: AnnouncementRecord) -> None:
        self._put(AnnouncementRow, [columns_of(AnnouncementRow, announced)])

    def all(self) -> Sequence[AnnouncementRecord]:
        """All of them, over all plans, oldest first."""
        return self._all(AnnouncementRecord, select(AnnouncementRow).order_by(AnnouncementRow.id))


class SpeedUpRecords(Records):
    """Measurements of users' trees."""

    def add(self, cutover_id: int, measurements: Sequence[TreeMeasurement]) -> None:
        """Store measurements, replacing earlier ones of the same test and run."""
        rows = [columns_of(TreeMeasurementRow, one, cutover_id=cutover_id) for one in measurements]
        self._put(TreeMeasurementRow, rows)

    def forget(self, cutover_id: int, side: Side) -> None:
        """Remove the measurements on one side."""
        these = (TreeMeasurementRow.cutover_id == cutover_id, TreeMeasurementRow.side == side.value)
        with self._database.write() as connection:
            connection.execute(delete(TreeMeasurementRow).where(*these))

    def of(self, cutover_id: int) -> Sequence[TreeMeasurement]:
        """The measurements of one cutover."""
        return self._all(TreeMeasurement, _in_order.where(TreeMeasurementRow.cutover_id == cutover_id))

    def settled(self) -> Sequence[tuple[CutoverRecord, Sequence[TreeMeasurement]]]:
        """The measurements of users who work on the target."""
        with self._database.read() as connection:
            newest = {one.tree.path: one for one in CutoverRecords(self._database).every(connection)}
            made: dict[int, list[TreeMeasurement]] = {}
            for row in connection.execute(_in_order):
                made.setdefault(row.cutover_id, []).append(record_of(row, TreeMeasurement))
        settled = (one for _, one in sorted(newest.items()) if one.state in SETTLED_STATES)
        return [(one, made[one.id]) for one in settled if one.id in made]
