"""The sums that only reports ask for: each from one query."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Float, Integer, Row, case, cast, func, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.samples import ALL_STREAMS
from migrator.domain.cost import CostSums
from migrator.domain.events import EventKind, Severity
from migrator.domain.incidents import EventGroup
from migrator.domain.ledger_sums import ThroughputPoint
from migrator.domain.states import AttemptState, ChunkKind, PassKind
from migrator.domain.stream_sums import UPPER_BYTES, SizeClass, StreamSum

COST_GROUPS = 20
"""Attempts fall into so many groups, by their number."""


class SqliteReportSums:
    """Sums that only reports ask for."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def copied(self, plan: str, *, span_s: float) -> Sequence[ThroughputPoint]:
        """What the seed passes of a plan have copied, in spans of this length that begin at its multiples, in order of time;
        spans without any are left out.
        """
        sample = tables.samples.c
        span = cast(sample.at_s / span_s, Integer).label("span")
        seeds = select(tables.passes.c.id).where(
            tables.passes.c.plan == plan, tables.passes.c.kind == PassKind.SEED.value
        )
        query = (
            select(
                span,
                func.sum(sample.interval_s).label("busy_s"),
                func.sum(sample.streams * sample.interval_s).label("stream_s"),
                func.sum(sample.files).label("files"),
                func.sum(sample.size_bytes).label("size_bytes"),
            )
            .where(sample.pass_id.in_(seeds), sample.attempt_id == ALL_STREAMS)
            .group_by(span)
            .order_by(span)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [
            ThroughputPoint(
                at_s=(row.span + 1) * span_s,
                span_s=span_s,
                busy_s=row.busy_s,
                streams=row.stream_s / row.busy_s if row.busy_s > 0 else 0.0,
                files=row.files,
                size_bytes=row.size_bytes,
            )
            for row in rows
        ]

    def cost_groups(self, plan: str | None = None) -> Sequence[CostSums]:
        """The attempts that succeeded, in groups by chance, of one plan or of all."""
        attempt = tables.attempts.c
        files, size_bytes = cast(attempt.files, Float), cast(attempt.size_bytes, Float)
        seconds = attempt.finished_at_s - attempt.started_at_s
        terms = {
            "files": files,
            "size_bytes": size_bytes,
            "seconds": seconds,
            "files_files": files * files,
            "files_bytes": files * size_bytes,
            "bytes_bytes": size_bytes * size_bytes,
            "files_seconds": files * seconds,
            "bytes_seconds": size_bytes * seconds,
        }
        group = (attempt.chunk_id % COST_GROUPS).label("sample")
        query = (
            select(func.count().label("attempts"), *(func.sum(term).label(name) for name, term in terms.items()))
            .join(tables.chunks, tables.chunks.c.id == attempt.chunk_id)
            .where(
                attempt.state == AttemptState.SUCCEEDED.value,
                tables.chunks.c.kind.in_((ChunkKind.RANGES, ChunkKind.FILES, ChunkKind.RANGED_FILES)),
                seconds > 0,
            )
            .group_by(group)
            .order_by(group)
        )
        if plan is not None:
            passes = select(tables.passes.c.id).where(tables.passes.c.plan == plan)
            query = query.where(tables.chunks.c.pass_id.in_(passes))
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [CostSums(**row._mapping) for row in rows]  # noqa: SLF001 - SQLAlchemy's public name of it

    def stream_sums(self) -> Sequence[StreamSum]:
        """What streams of all plans brought, by host, brick, engine and size of files."""
        attempt, chunk = tables.attempts.c, tables.chunks.c
        mean_bytes = cast(chunk.size_bytes, Float) / chunk.files
        size_class = case(
            (chunk.kind == ChunkKind.RANGES.value, SizeClass.RANGES.value),
            *((mean_bytes < upper_bytes, name.value) for name, upper_bytes in UPPER_BYTES),
            else_=SizeClass.LARGE.value,
        ).label("size_class")
        seconds = attempt.finished_at_s - attempt.started_at_s
        columns = (attempt.host, chunk.brick, attempt.engine, size_class)
        query = (
            select(
                *columns,
                func.count().label("attempts"),
                func.sum(attempt.files).label("files"),
                func.sum(attempt.size_bytes).label("size_bytes"),
                func.sum(seconds).label("stream_s"),
            )
            .join(tables.chunks, chunk.id == attempt.chunk_id)
            .where(
                attempt.state == AttemptState.SUCCEEDED.value,
                chunk.kind.in_((ChunkKind.RANGES, ChunkKind.FILES)),
                seconds > 0,
            )
            .group_by(*columns)
            .order_by(*columns)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [
            StreamSum(
                host=row.host,
                brick=row.brick,
                engine=row.engine,
                size_class=SizeClass(row.size_class),
                attempts=row.attempts,
                files=row.files,
                size_bytes=row.size_bytes,
                stream_s=row.stream_s,
            )
            for row in rows
        ]

    def event_groups(self, limit: int) -> Sequence[EventGroup]:
        """Warnings and errors by kind and subject, those that happened last first."""
        event = tables.events.c
        query = (
            _grouped()
            .where(event.severity.in_([Severity.WARNING.value, Severity.ERROR.value]))
            .order_by(func.max(event.id).desc())
            .limit(limit)
        )
        with self._database.read() as connection:
            return [_group(row) for row in connection.execute(query).all()]

    def latest_events(self, kinds: Sequence[str]) -> Sequence[EventGroup]:
        """Events of these kinds, whatever their severity, by kind and subject."""
        query = _grouped().where(tables.events.c.kind.in_(list(kinds)))
        with self._database.read() as connection:
            return [_group(row) for row in connection.execute(query).all()]


def _grouped() -> Any:  # noqa: ANN401 - a query of eight columns
    event = tables.events.c
    # What stands beside max(id) is of the newest event of the group.
    return select(
        event.kind,
        event.subject,
        event.severity,
        event.message,
        func.count().label("times"),
        func.min(event.at_s).label("first_at_s"),
        func.max(event.id),
        event.at_s,
    ).group_by(event.kind, event.subject)


def _group(row: Row[Any]) -> EventGroup:
    return EventGroup(
        kind=EventKind(row.kind),
        severity=Severity(row.severity),
        subject=row.subject,
        count=row.times,
        first_at_s=row.first_at_s,
        last_at_s=row.at_s,
        message=row.message,
    )
