"""Sums over the ledger for `status` and `report`."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from sqlalchemy import Float, Integer, Row, case, cast, func, select

from migrator.core.entry import UserTree
from migrator.core.events import Event, Severity
from migrator.core.states import CONTENT_KINDS, AttemptState, BatchState, ChunkKind, ChunkState, PassKind
from migrator.ledger import tables
from migrator.ledger.calls import event_record, run_record
from migrator.ledger.chunks import file_problem
from migrator.ledger.database import Database, decode
from migrator.ledger.measures import ALL_STREAMS
from migrator.ledger.model import RunRecord
from migrator.ledger.passes import unsettled
from migrator.ledger.rows import record_of
from migrator.plan.model import CostSums, TransferCost
from migrator.report.model import (
    UPPER_BYTES,
    AttentionCount,
    AttentionFile,
    ChunkSum,
    DonePoint,
    EventGroup,
    PlanFacts,
    PlannedBatch,
    PlannedTree,
    SizeClass,
    StreamSum,
    ThroughputPoint,
)
from migrator.transfer.model import FileProblemKind

# For `status` and `report`.


class LedgerFacts:
    """Sums over the ledger."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def plan(self, name: str) -> tuple[PlanFacts, TransferCost] | None:
        """A plan, and the cost that its forecast is based on."""
        with self._database.read() as connection:
            row = connection.execute(select(tables.plans).where(tables.plans.c.name == name)).one_or_none()
        if row is None:
            return None
        cost = decode(row.cost, TransferCost)
        facts = PlanFacts(
            name=row.name,
            path=row.path,
            checksum=row.checksum,
            created_at_s=row.created_at_s,
            catalog=row.catalog,
            forecast_s=row.forecast_s,
            basis=cost.basis,
        )
        return facts, cost

    def batches(self, plan: str) -> Sequence[PlannedBatch]:
        """The batches of a plan, in order of number."""
        with self._database.read() as connection:
            rows = connection.execute(
                select(tables.batches).where(tables.batches.c.plan == plan).order_by(tables.batches.c.number)
            ).all()
        return [
            PlannedBatch(
                number=row.number,
                state=BatchState(row.state),
                size_bytes=row.size_bytes,
                files=row.files,
                directories=row.directories,
                chunks=row.chunks,
                forecast_s=row.forecast_s,
            )
            for row in rows
        ]

    def trees(self, plan: str) -> Sequence[PlannedTree]:
        """The user trees of a plan, in order of rank."""
        query = (
            select(tables.batch_trees)
            .where(tables.batch_trees.c.plan == plan)
            .order_by(tables.batch_trees.c.rank, tables.batch_trees.c.tree)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [
            PlannedTree(
                tree=UserTree(path=row.tree, user=row.user),
                batch=row.batch,
                rank=row.rank,
                size_bytes=row.size_bytes,
                files=row.files,
                directories=row.directories,
                reaped_bytes=row.reaped_bytes,
                reaped_files=row.reaped_files,
            )
            for row in rows
        ]

    def chunk_sums(self, pass_id: int) -> Sequence[ChunkSum]:
        """The chunks of a pass by tree, kind and state, including split ones. Answered from one index."""
        keys = (tables.chunks.c.tree, tables.chunks.c.kind, tables.chunks.c.state)
        query = (
            select(*keys, func.count(), func.sum(tables.chunks.c.files), func.sum(tables.chunks.c.size_bytes))
            .where(tables.chunks.c.pass_id == pass_id)
            .group_by(*keys)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [
            ChunkSum(
                tree=tree,
                kind=ChunkKind(kind),
                state=ChunkState(state),
                chunks=chunks,
                files=files,
                size_bytes=size_bytes,
            )
            for tree, kind, state, chunks, files, size_bytes in rows
        ]

    def attention_counts(self, plan: str) -> Mapping[int, AttentionCount]:
        """Files of a plan that did not arrive, by batch, from passes that no later one has settled."""
        query = (
            select(tables.passes.c.batch, tables.attention.c.kind, func.count(tables.attention.c.path.distinct()))
            .join(tables.passes, tables.passes.c.id == tables.attention.c.pass_id)
            .where(tables.passes.c.plan == plan, unsettled(tables.attention.c.path))
            .group_by(tables.passes.c.batch, tables.attention.c.kind)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        counts = {(batch, kind): count for batch, kind, count in rows}
        return {
            batch: AttentionCount(
                bad=counts.get((batch, FileProblemKind.BAD.value), 0),
                vanished=counts.get((batch, FileProblemKind.VANISHED.value), 0),
            )
            for batch in {batch for batch, _ in counts}
        }

    def attention(self, plan: str, limit: int) -> Sequence[AttentionFile]:
        """The first files of a plan that need attention, from passes that no later one has settled, in order of batch and path."""
        query = (
            # The row of the newest pass stands for a path: SQLite takes the other columns from the row with the maximum.
            select(tables.passes.c.batch, tables.attention, func.max(tables.attention.c.pass_id))
            .join(tables.passes, tables.passes.c.id == tables.attention.c.pass_id)
            .where(
                tables.passes.c.plan == plan,
                tables.attention.c.kind == FileProblemKind.BAD.value,
                unsettled(tables.attention.c.path),
            )
            .group_by(tables.passes.c.batch, tables.attention.c.path)
            .order_by(tables.passes.c.batch, tables.attention.c.path)
            .limit(limit)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [AttentionFile(batch=row.batch, problem=file_problem(row)) for row in rows]

    def sampled_span(self) -> tuple[float, float] | None:
        """When the first and the last sample of any pass were taken; None without samples."""
        at_s = tables.samples.c.at_s
        query = select(func.min(at_s), func.max(at_s)).where(
            # Pass by pass: the samples of single streams, which are most of the table, are not read.
            tables.samples.c.pass_id.in_(select(tables.passes.c.id)),
            tables.samples.c.attempt_id == ALL_STREAMS,
        )
        with self._database.read() as connection:
            first, last = connection.execute(query).one()
        return None if first is None else (first, last)

    def throughput(self, *, from_s: float, to_s: float, span_s: float) -> Sequence[ThroughputPoint]:
        """The samples of all passes, summed by spans, in order of time; idle spans are left out."""
        sample = tables.samples.c
        span = cast((sample.at_s - from_s) / span_s, Integer).label("span")
        query = (
            select(
                span,
                func.sum(sample.interval_s).label("busy_s"),
                func.sum(sample.streams * sample.interval_s).label("stream_s"),
                func.sum(sample.files).label("files"),
                func.sum(sample.size_bytes).label("size_bytes"),
            )
            .where(
                sample.pass_id.in_(select(tables.passes.c.id)),
                sample.attempt_id == ALL_STREAMS,
                sample.at_s >= from_s,
                sample.at_s <= to_s,
            )
            .group_by(span)
            .order_by(span)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [
            ThroughputPoint(
                at_s=from_s + (row.span + 1) * span_s,
                span_s=span_s,
                busy_s=row.busy_s,
                streams=row.stream_s / row.busy_s if row.busy_s > 0 else 0.0,
                files=row.files,
                size_bytes=row.size_bytes,
            )
            for row in rows
        ]

    def done(self, plan: str, *, span_s: float) -> Sequence[DonePoint]:
        """How much of a plan was done at the end of every span in which a chunk was finished, in order of time. Only seed
        passes count: later passes copy changes.
        """
        span = cast(tables.attempts.c.finished_at_s / span_s, Integer).label("span")
        query = (
            select(span, func.sum(tables.chunks.c.files), func.sum(tables.chunks.c.size_bytes))
            .select_from(
                tables.attempts.join(tables.chunks, tables.chunks.c.id == tables.attempts.c.chunk_id).join(
                    tables.passes, tables.passes.c.id == tables.chunks.c.pass_id
                )
            )
            .where(
                tables.passes.c.plan == plan,
                tables.passes.c.kind == PassKind.SEED.value,
                tables.attempts.c.state == AttemptState.SUCCEEDED.value,
                tables.chunks.c.state == ChunkState.DONE.value,
                tables.chunks.c.kind.in_(CONTENT_KINDS),
            )
            .group_by(span)
            .order_by(span)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        files = accumulate(row[1] for row in rows)
        size_bytes = accumulate(row[2] for row in rows)
        return [
            DonePoint(at_s=(row[0] + 1) * span_s, done_files=done_files, done_bytes=done_bytes)
            for row, done_files, done_bytes in zip(rows, files, size_bytes, strict=True)
        ]

    def runs(self, limit: int) -> Sequence[RunRecord]:
        """The newest runs, newest first."""
        with self._database.read() as connection:
            rows = connection.execute(select(tables.runs).order_by(tables.runs.c.id.desc()).limit(limit)).all()
        return [run_record(row) for row in rows]

    def incidents(self, limit: int) -> Sequence[Event]:
        """The newest events that are warnings or errors, newest first."""
        query = (
            select(tables.events)
            .where(tables.events.c.severity.in_([Severity.WARNING.value, Severity.ERROR.value]))
            .order_by(tables.events.c.id.desc())
            .limit(limit)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [event_record(row) for row in rows]


# For `report` alone.


COST_GROUPS = 20
"""Number of groups that attempts are divided into."""


class ReportSums:
    """Sums over the ledger, each from one query."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def copied(self, plan: str, *, span_s: float) -> Sequence[ThroughputPoint]:
        """What the seed passes of a plan have copied, by spans that begin at multiples of `span_s`, in order of time; idle spans
        are left out.
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
        """Attempts that succeeded, in arbitrary groups, of one plan or of all."""
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
        """What streams of all plans copied, by host, brick, engine and size class."""
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
        """Warnings and errors by kind and subject, the latest first."""
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
        """Events of these kinds, of any severity, by kind and subject."""
        query = _grouped().where(tables.events.c.kind.in_(list(kinds)))
        with self._database.read() as connection:
            return [_group(row) for row in connection.execute(query).all()]


def _grouped() -> Any:  # noqa: ANN401 - a query of eight columns
    event = tables.events.c
    # SQLite takes the columns without a function from the row with max(id): the newest event of the group.
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
    return record_of(row, EventGroup, count=row.times, last_at_s=row.at_s)
