"""The records of drains and additions of bricks, with Gluster's counters over time."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic

import sqlalchemy as sa

from migrator.bricks.progress import TaskSample
from migrator.bricks.tables import OperationSampleRow
from migrator.ledger.rows import columns_of, record_of
from migrator.operations.model import Notes, Record, State, Step
from migrator.operations.records import OperationStore

_samples = OperationSampleRow


class BrickOperationStore(OperationStore[Record, State, Step, Notes], Generic[Record, State, Step, Notes]):
    """Operations on bricks of one kind, their steps, and Gluster's counters over time."""

    def add_samples(self, operation_id: int, samples: Sequence[TaskSample]) -> None:
        """Store counters, replacing those of the same task, time and host."""
        self._put(_samples, [columns_of(_samples, sample, operation_id=operation_id) for sample in samples])

    def samples(self, operation_id: int) -> Sequence[TaskSample]:
        """All samples, in order of time, then host."""
        query = sa.select(_samples).where(_samples.operation_id == operation_id)
        return self._all(TaskSample, query.order_by(_samples.at_s, _samples.host))

    def telling_samples(self, operation_id: int, *, recent_s: float) -> Sequence[TaskSample]:
        """The few samples that the progress of the operation is computed from, in order of time, then host."""
        with self._database.read() as connection:
            return read_telling_samples(connection, operation_id, recent_s=recent_s)


def bricks_subject(volume_id: str, bricks: Sequence[str], side: str = "") -> bytes:
    """Bricks of a volume, in whatever order."""
    return "\0".join((volume_id, side, *sorted(bricks))).encode("utf-8", "surrogateescape")


def read_telling_samples(connection: sa.Connection, operation_id: int, *, recent_s: float) -> list[TaskSample]:
    """The samples that sums and the rate of the last `recent_s` are computed from, in order of time, then host. A drain
    of weeks has a hundred times as many samples. Of every task and host: the last one, those around every fall of
    counters, the first that counts files again; and of the newest task the recent ones, with the last before them.
    """
    newest_task, from_s = _newest_task(connection, operation_id, recent_s)
    one = _samples
    counts = sa.tuple_(one.files, one.size_bytes)

    def beside(shift: Callable[..., sa.Function[Any]], column: sa.SQLColumnExpression[Any]) -> sa.ColumnElement[Any]:
        return shift(column).over(partition_by=(one.task_id, one.host), order_by=one.at_s)

    before, after = partial(beside, sa.func.lag), partial(beside, sa.func.lead)
    query = sa.select(
        _samples,
        after(one.at_s).label("next_at_s"),
        (counts < sa.tuple_(before(one.files), before(one.size_bytes))).label("fell"),
        (sa.tuple_(after(one.files), after(one.size_bytes)) < counts).label("falls"),
        sa.and_(one.files > 0, before(one.files) == 0).label("rises"),
    )
    seen = query.where(one.operation_id == operation_id).subquery().c
    recent = sa.and_(seen.task_id == newest_task, seen.next_at_s >= from_s)
    kept = sa.or_(seen.next_at_s.is_(None), seen.fell, seen.falls, seen.rises, recent)
    rows = connection.execute(sa.select(*seen).where(kept).order_by(seen.at_s, seen.host))
    return [record_of(row, TaskSample) for row in rows]


def _newest_task(connection: sa.Connection, operation_id: int, recent_s: float) -> tuple[str | None, float]:
    """The newest task, and the time from which its samples are recent: at least the last two polls."""
    one = _samples
    mine = one.operation_id == operation_id
    newest = connection.execute(
        sa.select(one.task_id, one.at_s).where(mine).order_by(one.at_s.desc(), one.host.desc()).limit(1)
    ).one_or_none()
    if newest is None:
        return None, 0.0
    before = connection.execute(
        sa.select(sa.func.max(one.at_s)).where(mine, one.task_id == newest.task_id, one.at_s < newest.at_s)
    ).scalar()
    return newest.task_id, min(newest.at_s - recent_s, newest.at_s if before is None else before)
