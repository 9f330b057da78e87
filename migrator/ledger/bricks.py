"""Gluster's counters over time, of drains and additions."""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, func, insert, select

from migrator.bricks.drain.model import DrainSample
from migrator.ledger import tables
from migrator.ledger.rows import record_of

_samples = tables.operation_samples
_ROWS_AT_ONCE = 10_000
_TIMES_AT_ONCE = 500


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
    """The samples that sums and the rate of the last `recent_s` are computed from, in order of time, then host. A drain of weeks
    has a hundred times as many samples; only five columns of these are read.
    """
    kept = _telling(connection, operation_id, recent_s)
    times = sorted({at_s for at_s, _, _ in kept})
    found: list[DrainSample] = []
    for begin in range(0, len(times), _TIMES_AT_ONCE):
        query = (
            select(_samples)
            .where(_samples.c.operation_id == operation_id, _samples.c.at_s.in_(times[begin : begin + _TIMES_AT_ONCE]))
            .order_by(_samples.c.at_s, _samples.c.host)
        )
        rows = connection.execute(query)
        found += [record_of(row, DrainSample) for row in rows if (row.at_s, row.task_id, row.host) in kept]
    return found


def _telling(connection: Connection, operation_id: int, recent_s: float) -> set[tuple[float, str, str]]:
    """The keys (time, task, host) of these samples: the last of every task and host, those around every fall of counters, and of
    the newest task the recent ones and the last before them.
    """
    newest_task, from_s = _newest(connection, operation_id, recent_s)
    one = _samples.c
    query = (
        select(one.at_s, one.task_id, one.host, one.files, one.size_bytes)
        .where(one.operation_id == operation_id)
        .order_by(one.at_s, one.host)
    )
    kept: set[tuple[float, str, str]] = set()
    last: dict[tuple[str, str], tuple[float, int, int]] = {}
    earlier: dict[tuple[str, str], float] = {}
    fallen: set[tuple[str, str]] = set()
    for at_s, task_id, host, files, size_bytes in connection.execute(query).yield_per(_ROWS_AT_ONCE):
        key = task_id, host
        before = last.get(key)
        if before is not None and (files, size_bytes) < before[1:]:
            kept.add((before[0], *key))
            fallen.add(key)
        if key in fallen:
            kept.add((at_s, *key))
            if files:
                fallen.discard(key)
        if task_id == newest_task:
            if at_s >= from_s:
                kept.add((at_s, *key))
            else:
                earlier[key] = at_s
        last[key] = at_s, files, size_bytes
    kept.update((at_s, *key) for key, (at_s, _, _) in last.items())
    kept.update((at_s, *key) for key, at_s in earlier.items())
    return kept


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
