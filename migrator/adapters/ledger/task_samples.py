"""Gluster's counters over time, of a drain or an addition."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, Table, insert, select

from migrator.domain.drain import DrainSample
from migrator.domain.volume_tasks import TaskStatus


def keep_samples(
    connection: Connection, table: Table, owner: str, owner_id: int, samples: Sequence[DrainSample]
) -> None:
    """Those of the same task, time and host replace the ones before."""
    if samples:
        rows = [{**asdict(sample), owner: owner_id, "status": sample.status.value} for sample in samples]
        connection.execute(insert(table).prefix_with("OR REPLACE"), rows)


def read_samples(connection: Connection, table: Table, owner: str, owner_id: int) -> list[DrainSample]:
    """In order of time, then of host."""
    query = select(table).where(table.c[owner] == owner_id).order_by(table.c.at_s, table.c.host)
    return [_sample(row) for row in connection.execute(query)]


def _sample(row: Row[Any]) -> DrainSample:
    return DrainSample(
        task_id=row.task_id,
        at_s=row.at_s,
        host=row.host,
        files=row.files,
        size_bytes=row.size_bytes,
        lookups=row.lookups,
        failures=row.failures,
        skipped=row.skipped,
        status=TaskStatus(row.status),
        runtime_s=row.runtime_s,
    )
