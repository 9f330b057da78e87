"""Throughput over time, and what streams were measured to cost."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Float, Row, cast, delete, func, insert, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database
from migrator.decide.sample_thinning import ATTEMPTS_AT_ONCE, SampledAttempt, due, thinned
from migrator.decide.transfer_cost import fit_cost
from migrator.domain.cost import CostSums
from migrator.domain.plan import TransferCost
from migrator.domain.states import AttemptState, ChunkKind
from migrator.domain.transfer import Sample

ALL_STREAMS = 0
"""In the column `attempt_id`: all streams together."""


class SqliteSamples:
    """Throughput over time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, pass_id: int, samples: Sequence[Sample]) -> None:
        """Keep samples; one of the same time and attempt replaces the one before."""
        if not samples:
            return
        with self._database.write() as connection:
            connection.execute(
                insert(tables.samples).prefix_with("OR REPLACE"),
                [_row(pass_id, sample) for sample in samples],
            )

    def whole(self, pass_id: int) -> Sequence[Sample]:
        """The samples of all streams together, in order of time."""
        with self._database.read() as connection:
            rows = connection.execute(
                select(tables.samples)
                .where(tables.samples.c.pass_id == pass_id, tables.samples.c.attempt_id == ALL_STREAMS)
                .order_by(tables.samples.c.at_s)
            ).all()
        return [sample_record(row) for row in rows]

    def measured_cost(self) -> TransferCost | None:
        """Cost per file and per byte, fitted from the attempts that succeeded; None before there are enough."""
        files = cast(tables.attempts.c.files, Float)
        size_bytes = cast(tables.attempts.c.size_bytes, Float)
        seconds = tables.attempts.c.finished_at_s - tables.attempts.c.started_at_s
        sums = (files, size_bytes, seconds, files * files, files * size_bytes, size_bytes * size_bytes)
        query = (
            select(
                func.count(),
                *(func.coalesce(func.sum(term), 0.0) for term in (*sums, files * seconds, size_bytes * seconds)),
            )
            .join(tables.chunks, tables.chunks.c.id == tables.attempts.c.chunk_id)
            .where(
                tables.attempts.c.state == AttemptState.SUCCEEDED.value,
                tables.chunks.c.kind.in_((ChunkKind.RANGES, ChunkKind.FILES, ChunkKind.RANGED_FILES)),
                seconds > 0,
            )
        )
        busy = select(
            func.coalesce(
                func.sum(tables.samples.c.streams * tables.samples.c.interval_s)
                / func.nullif(func.sum(tables.samples.c.interval_s), 0.0),
                1.0,
            )
        ).where(tables.samples.c.attempt_id == ALL_STREAMS, tables.samples.c.streams > 0)
        with self._database.read() as connection:
            count, *terms = connection.execute(query).one()
            streams = connection.execute(busy).scalar_one()
        return fit_cost(
            CostSums(
                attempts=count,
                files=terms[0],
                size_bytes=terms[1],
                seconds=terms[2],
                files_files=terms[3],
                files_bytes=terms[4],
                bytes_bytes=terms[5],
                files_seconds=terms[6],
                bytes_seconds=terms[7],
            ),
            round(streams),
        )

    def thin(self, *, now_s: float) -> bool:
        """Put samples of single streams that are old together by the hour, of a few attempts; whether there may be more."""
        with self._database.write() as connection:
            mark = connection.execute(select(tables.thinned_samples.c.attempt_id)).scalar_one_or_none()
            ended = due(_attempts_after(connection, mark or 0), now_s=now_s)
            for attempt in ended:
                _thin(connection, attempt)
            if ended:
                row = {"id": 1, "attempt_id": ended[-1].attempt_id}
                connection.execute(insert(tables.thinned_samples).prefix_with("OR REPLACE"), [row])
        return len(ended) == ATTEMPTS_AT_ONCE


def _attempts_after(connection: Connection, attempt_id: int) -> list[SampledAttempt]:
    attempt, chunk, sample = tables.attempts.c, tables.chunks.c, tables.samples.c
    last_sample = (
        select(func.max(sample.at_s))
        .where(sample.pass_id == chunk.pass_id, sample.attempt_id == attempt.id)
        .scalar_subquery()
    )
    query = (
        select(attempt.id, chunk.pass_id, func.coalesce(attempt.finished_at_s, last_sample, attempt.started_at_s))
        .join(tables.chunks, chunk.id == attempt.chunk_id)
        .where(attempt.id > attempt_id)
        .order_by(attempt.id)
        .limit(ATTEMPTS_AT_ONCE)
    )
    return [
        SampledAttempt(attempt_id=number, pass_id=pass_id, last_s=last_s)
        for number, pass_id, last_s in connection.execute(query)
    ]


def _thin(connection: Connection, attempt: SampledAttempt) -> None:
    sample = tables.samples.c
    of_attempt = (sample.pass_id == attempt.pass_id, sample.attempt_id == attempt.attempt_id)
    rows = connection.execute(select(tables.samples).where(*of_attempt).order_by(sample.at_s)).all()
    kept = thinned([sample_record(row) for row in rows])
    if len(kept) < len(rows):
        connection.execute(delete(tables.samples).where(*of_attempt))
        connection.execute(insert(tables.samples), [_row(attempt.pass_id, one) for one in kept])


def _row(pass_id: int, sample: Sample) -> dict[str, Any]:
    return {
        "pass_id": pass_id,
        "attempt_id": ALL_STREAMS if sample.attempt_id is None else sample.attempt_id,
        "at_s": sample.at_s,
        "interval_s": sample.interval_s,
        "streams": sample.streams,
        "files": sample.files,
        "size_bytes": sample.size_bytes,
    }


def sample_record(row: Row[Any]) -> Sample:
    """A sample, from its row."""
    return Sample(
        at_s=row.at_s,
        interval_s=row.interval_s,
        attempt_id=None if row.attempt_id == ALL_STREAMS else row.attempt_id,
        streams=row.streams,
        files=row.files,
        size_bytes=row.size_bytes,
    )
