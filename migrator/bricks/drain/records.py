"""The records of drains."""

from collections.abc import Sequence

import sqlalchemy as sa

from migrator.bricks.drain import model as drain
from migrator.bricks.drain.model import DrainNotes, DrainRecord, DrainState, DrainStep
from migrator.bricks.samples import BrickOperationStore, bricks_subject
from migrator.bricks.tables import OperationSampleRow
from migrator.gluster.model import TaskStatus
from migrator.ledger.database import Database
from migrator.operations.records import begun_already
from migrator.operations.tables import OperationRow
from migrator.plan.schedule.model import CopyTally, DrainCopying
from migrator.transfer.records_measures import ALL_STREAMS
from migrator.transfer.tables import SampleRow

_IN, _OUTSIDE = 1, 0


class DrainRecords(BrickOperationStore[DrainRecord, DrainState, DrainStep, DrainNotes]):
    """Attempts to drain bricks."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, drain.DRAINS)

    def plan(self, record: DrainRecord, *, anew: bool = False) -> DrainRecord:
        """Begin this attempt, or return an unfinished one of the same bricks."""
        volume_id, bricks = record.volume_id, record.bricks
        subject = bricks_subject(volume_id, bricks)
        with self._database.write() as connection:
            newest = self._newest(connection, subject)
            over = drain.DRAIN_ENDED_STATES | drain.OUT_STATES
            for one in self.every(connection):
                others = set(one.bricks) != set(bricks) and one.volume_id == volume_id and one.state not in over
                if others and set(one.bricks) & set(bricks):
                    hint = "finish that one, or stop it with `migrator brick stop`"
                    raise begun_already(f"a drain of {one.shown_bricks}", hint)
            begins = anew and newest is not None and newest.state in drain.OUT_STATES
            if newest is not None and newest.state not in drain.DRAIN_ENDED_STATES and not begins:
                return newest
            return self._begin(connection, subject, record, newest)

    def latest(self, volume_id: str, bricks: Sequence[str]) -> DrainRecord | None:
        """The newest attempt at exactly these bricks, in any order."""
        with self._database.read() as connection:
            return self._newest(connection, bricks_subject(volume_id, bricks))

    def any_committed(self, *, since_s: float) -> bool:
        """True if a drain is being committed, or was committed since then."""
        return any(
            drain.is_committing(one) or one.times.get(DrainState.COMMITTED, since_s) > since_s for one in self.all()
        )

    def taken_out(self, volume_id: str, *, since_s: float) -> frozenset[str]:
        """Bricks that drains have committed since then, or are committing."""
        return drain.taken_out(self.all(), volume_id, since_s=since_s)

    def explain(self, before: str, after: str, *, since_s: float) -> bool:
        """True if drains that were committed since then, and nothing else, explain this change of the volume's fingerprint."""
        return drain.is_drained(self.all(), before, after, since_s=since_s)

    def tallies(self) -> Sequence[CopyTally]:
        """The files that each drain moved whose moving has ended."""
        return [drain.drain_tally(self.samples(one.id)) for one in self.all() if one.state in drain.MOVED_STATES]

    def copying(self) -> DrainCopying:
        """Throughput of streams while drains moved files, and at other times."""
        with self._database.read() as connection:
            return _copying(connection)


def _copying(connection: sa.Connection) -> DrainCopying:
    """Over all passes. A drain moves files from the first to the last sample of a task that was in progress. Throughput
    samples that overlap only part of that time are left out.
    """
    samples = SampleRow
    begins_s = samples.at_s - samples.interval_s
    inside: list[sa.ColumnElement[bool]] = []
    touched: list[sa.ColumnElement[bool]] = []
    for first_s, last_s in _moving(connection):
        inside.append(sa.and_(begins_s >= first_s, samples.at_s <= last_s))
        touched.append(sa.and_(begins_s < last_s, samples.at_s > first_s))
    side = sa.case((sa.or_(sa.false(), *inside), _IN), (sa.or_(sa.false(), *touched), None), else_=_OUTSIDE).label(
        "side"
    )
    rows = connection.execute(
        sa.select(
            side,
            sa.func.sum(samples.files).label("files"),
            sa.func.sum(samples.size_bytes).label("size_bytes"),
            sa.func.sum(samples.interval_s).label("busy_s"),
        )
        .where(samples.attempt_id == ALL_STREAMS, samples.streams > 0)
        .group_by(side)
    )
    found = {row.side: CopyTally(files=row.files, size_bytes=row.size_bytes, busy_s=row.busy_s) for row in rows}
    return DrainCopying(in_drains=found.get(_IN, CopyTally()), outside=found.get(_OUTSIDE, CopyTally()))


def _moving(connection: sa.Connection) -> list[tuple[float, float]]:
    seen, one = OperationSampleRow, OperationRow
    rows = connection.execute(
        sa.select(sa.func.min(seen.at_s), sa.func.max(seen.at_s))
        .join(OperationRow, one.id == seen.operation_id)
        .where(one.kind == drain.DRAINS.name, seen.status == TaskStatus.IN_PROGRESS)
        .group_by(seen.operation_id, seen.task_id)
    )
    return [(first_s, last_s) for first_s, last_s in rows]
