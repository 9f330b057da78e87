"""What streams have brought while drains moved files, and otherwise: sums of the samples."""

from sqlalchemy import ColumnElement, Connection, and_, case, false, func, or_, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.samples import ALL_STREAMS
from migrator.domain.drain_copying import CopyTally, DrainCopying
from migrator.domain.volume_tasks import TaskStatus

_IN, _OUTSIDE = 1, 0


def read_copying(connection: Connection) -> DrainCopying:
    """Over all passes. A drain moves files from the first to the last look at a task that was in progress. A sample that lies
    partly in that time counts for neither.
    """
    samples = tables.samples.c
    begins_s = samples.at_s - samples.interval_s
    inside: list[ColumnElement[bool]] = []
    touched: list[ColumnElement[bool]] = []
    for first_s, last_s in _moving(connection):
        inside.append(and_(begins_s >= first_s, samples.at_s <= last_s))
        touched.append(and_(begins_s < last_s, samples.at_s > first_s))
    side = case((or_(false(), *inside), _IN), (or_(false(), *touched), None), else_=_OUTSIDE).label("side")
    rows = connection.execute(
        select(
            side,
            func.sum(samples.files).label("files"),
            func.sum(samples.size_bytes).label("size_bytes"),
            func.sum(samples.interval_s).label("busy_s"),
        )
        .where(samples.attempt_id == ALL_STREAMS, samples.streams > 0)
        .group_by(side)
    )
    found = {row.side: CopyTally(files=row.files, size_bytes=row.size_bytes, busy_s=row.busy_s) for row in rows}
    return DrainCopying(in_drains=found.get(_IN, CopyTally()), outside=found.get(_OUTSIDE, CopyTally()))


def _moving(connection: Connection) -> list[tuple[float, float]]:
    seen = tables.drain_samples.c
    rows = connection.execute(
        select(func.min(seen.at_s), func.max(seen.at_s))
        .where(seen.status == TaskStatus.IN_PROGRESS.value)
        .group_by(seen.drain_id, seen.task_id)
    )
    return [(first_s, last_s) for first_s, last_s in rows]
