"""Gluster's counters over time, of drains and additions."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Function, and_, func, insert, or_, select, tuple_

from migrator.bricks.drain.model import DrainSample
from migrator.ledger import tables
from migrator.ledger.rows import record_of

_samples = tables.operation_samples


def keep_samples(connection: Connection, operation_id: int, samples: Sequence[DrainSample]) -> None:
    """Store samples, replacing those of the same task, time and host."""
    if samples:
        rows = [{**asdict(sample), "operation_id": operation_id, "status": sample.status.value} for sample in samples]
        connection.execute(insert(_samples).prefix_with("OR REPLACE"), rows)


def read_samples(connection: Connection, operation_id: int) -> list[DrainSample]:
    """In order of time, then of host."""
    query = select(_samples).where(_samples.c.operation_id == operation_id).order_by(_samples.c.at_s, _samples.c.host)
    return [record_of(row, DrainSample) for row in connection.execute(query)]


def read_telling_samples(connection: Connection, operation_id: int, *, recent_s: float) -> list[DrainSample]:
    """The samples that sums and the rate of the last `recent_s` are computed from, in order of time, then host. A drain of weeks has
    a hundred times as many samples. Of every task and host: the last one, those around every fall of counters, the first that counts
    files again; and of the newest task the recent ones, with the last before them.
    """
    newest_task, from_s = _newest(connection, operation_id, recent_s)
    one = _samples.c
    counts = tuple_(one.files, one.size_bytes)

    def beside(shift: Callable[..., Function[Any]], column: ColumnElement[Any]) -> ColumnElement[Any]:
        return shift(column).over(partition_by=(one.task_id, one.host), order_by=one.at_s)

    before, after = partial(beside, func.lag), partial(beside, func.lead)
    query = select(
        _samples,
        after(one.at_s).label("next_at_s"),
        (counts < tuple_(before(one.files), before(one.size_bytes))).label("fell"),
        (tuple_(after(one.files), after(one.size_bytes)) < counts).label("falls"),
        and_(one.files > 0, before(one.files) == 0).label("rises"),
    )
    seen = query.where(one.operation_id == operation_id).subquery().c
    recent = and_(seen.task_id == newest_task, seen.next_at_s >= from_s)
    kept = or_(seen.next_at_s.is_(None), seen.fell, seen.falls, seen.rises, recent)
    rows = connection.execute(select(*seen).where(kept).order_by(seen.at_s, seen.host))
    return [record_of(row, DrainSample) for row in rows]


def _newest(connection: Connection, operation_id: int, recent_s: float) -> tuple[str | None, float]:
    """The newest task, and the time from which its samples are recent: at least the last two polls."""
    one = _samples.c
    mine = one.operation_id == operation_id
    newest = connection.execute(
        select(one.task_id, one.at_s).where(mine).order_by(one.at_s.desc(), one.host.desc()).limit(1)
    ).one_or_none()
    if newest is None:
        return None, 0.0
    before = connection.execute(
        select(func.max(one.at_s)).where(mine, one.task_id == newest.task_id, one.at_s < newest.at_s)
    ).scalar_one()
    return newest.task_id, min(newest.at_s - recent_s, newest.at_s if before is None else before)
