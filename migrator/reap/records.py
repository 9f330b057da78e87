"""The records of archives and released paths in the ledger."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace
from sqlalchemy import select

from migrator.ledger.rows import AnyRow, Records, States, columns_of, record_of
from migrator.plan.records import PlanLedger
from migrator.reap.model import ARCHIVE_TRANSITIONS, ArchiveRecord, ArchiveState, ReapRelease, WrittenArchive
from migrator.reap.tables import ArchiveRow, ReapReleaseRow

_ARCHIVE_STATES = States(ArchiveRow, ARCHIVE_TRANSITIONS, "id")


class ArchiveRecords(Records):
    """The archives of a site."""

    def add(
        self, *, plan: str, batch: int, tree: bytes, number: int, written: WrittenArchive, at_s: float
    ) -> ArchiveRecord:
        """Record an archive that is written. A number is used once per tree."""
        record = ArchiveRecord(
            id=0,
            plan=plan,
            batch=batch,
            tree=tree,
            number=number,
            written=written,
            state=ArchiveState.WRITTEN,
            at_s=at_s,
        )
        row = columns_of(ArchiveRow, record) | columns_of(ArchiveRow, written)
        return replace(record, id=self._add(ArchiveRow, **row))

    def enter(self, archive_id: int, state: ArchiveState, *, at_s: float, reason: str = "") -> None:
        """The archive was read back, or does not count for a reason. May be called again."""
        what = f"archive {archive_id}"
        with self._database.write() as connection:
            _ARCHIVE_STATES.enter(connection, [archive_id], state, what, at_s=at_s, reason=reason)

    def of_tree(self, tree: bytes) -> Sequence[ArchiveRecord]:
        """Every archive of a tree, oldest first."""
        query = select(ArchiveRow).where(ArchiveRow.tree == tree)
        return [_archive(row) for row in self._rows(query.order_by(ArchiveRow.number))]

    def of_plan(self, plan: str, batch: int | None = None) -> Sequence[ArchiveRecord]:
        """Every archive of a plan, or of one of its batches, oldest first."""
        query = select(ArchiveRow).where(ArchiveRow.plan == plan).order_by(ArchiveRow.id)
        rows = self._rows(query if batch is None else query.where(ArchiveRow.batch == batch))
        return [_archive(row) for row in rows]


def _archive(row: AnyRow) -> ArchiveRecord:
    return record_of(row, ArchiveRecord, written=record_of(row, WrittenArchive))


class ReleaseRecords(Records):
    """Skipped paths that were released for deletion with the source. Releases are never removed."""

    def add(self, releases: Sequence[ReapRelease]) -> None:
        """Record releases in one transaction."""
        self._put(ReapReleaseRow, [columns_of(ReapReleaseRow, release) for release in releases])

    def of_trees(self, trees: Collection[bytes]) -> Sequence[ReapRelease]:
        """The releases for some trees, in the order in which they were recorded."""
        found = self._all(ReapRelease, select(ReapReleaseRow).order_by(ReapReleaseRow.id))
        return [release for release in found if release.tree in trees]


class ReapLedger(PlanLedger):
    """The ledger with the records of archives and released paths."""

    archives: ArchiveRecords
    releases: ReleaseRecords
