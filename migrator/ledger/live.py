"""Sums over the ledger for `metrics`, and what `status --watch` polls."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, case, func, select

from migrator.bricks.add.model import ADDITIONS
from migrator.bricks.drain.model import DRAINS, last_counts
from migrator.core.events import Event, EventKind, Severity
from migrator.core.states import AttemptState, ChunkKind, PassKind
from migrator.ledger import tables
from migrator.ledger.bricks import read_telling_samples
from migrator.ledger.calls import event_record, run_record
from migrator.ledger.database import Database
from migrator.ledger.measures import ALL_STREAMS
from migrator.ledger.model import RunRecord
from migrator.ledger.operations import CutoverRecords
from migrator.report.model import (
    AttemptSum,
    EventCount,
    HookCount,
    MetricSums,
    MovedSum,
    PassKindSum,
    RunCount,
    StreamAtWork,
    StreamCount,
    VerifySum,
)

# Sums for `metrics`.


_ENDED = (AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.INTERRUPTED)


class MetricRecords:
    """Sums over the whole ledger, all in one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def sums(self) -> MetricSums:
        """All sums as of one moment. Those of finished work never decrease."""
        with self._database.read() as connection:
            return MetricSums(
                passes=_passes(connection),
                attempts=_attempts(connection),
                streams=_streams(connection),
                events=_events(connection),
                runs=_runs(connection),
                hooks=_hooks(connection),
                moved=(*_moved(connection, DRAINS.name), *_moved(connection, ADDITIONS.name)),
                verified=_verified(connection),
                freezes_s=_freezes(self._database, connection),
            )

    def newest_runs(self) -> Sequence[RunRecord]:
        """The newest run of every verb, in order of verb."""
        newest = select(func.max(tables.runs.c.id)).group_by(tables.runs.c.verb)
        query = select(tables.runs).where(tables.runs.c.id.in_(newest)).order_by(tables.runs.c.verb)
        with self._database.read() as connection:
            return [run_record(row) for row in connection.execute(query)]


def _passes(connection: Connection) -> tuple[PassKindSum, ...]:
    one, sample = tables.passes.c, tables.samples.c
    begun = {kind: count for kind, count in connection.execute(select(one.kind, func.count()).group_by(one.kind))}  # noqa: C416 - rows are no pairs to mypy
    query = (
        select(
            one.kind,
            func.sum(sample.files).label("files"),
            func.sum(sample.size_bytes).label("size_bytes"),
            func.sum(sample.streams * sample.interval_s).label("stream_s"),
        )
        # Pass by pass: the samples of single streams, which are most of the table, are not read.
        .join(tables.samples, sample.pass_id == one.id)
        .where(sample.attempt_id == ALL_STREAMS)
        .group_by(one.kind)
    )
    sums = {row.kind: row for row in connection.execute(query)}
    return tuple(
        PassKindSum(
            kind=kind,
            passes=begun.get(kind.value, 0),
            files=sums[kind.value].files if kind.value in sums else 0,
            size_bytes=sums[kind.value].size_bytes if kind.value in sums else 0,
            stream_s=sums[kind.value].stream_s if kind.value in sums else 0.0,
        )
        for kind in PassKind
    )


def _attempts(connection: Connection) -> tuple[AttemptSum, ...]:
    one = tables.attempts.c
    # Answered from one index, as the rows are long.
    query = (
        select(one.host, one.engine, one.state, func.count(), func.sum(one.files), func.sum(one.size_bytes))
        .where(one.state.in_([state.value for state in _ENDED]))
        .group_by(one.host, one.engine, one.state)
        .order_by(one.host, one.engine, one.state)
    )
    return tuple(
        AttemptSum(
            host=host, engine=engine, state=AttemptState(state), attempts=attempts, files=files, size_bytes=size_bytes
        )
        for host, engine, state, attempts, files, size_bytes in connection.execute(query)
    )


def _streams(connection: Connection) -> tuple[StreamCount, ...]:
    one, chunk = tables.attempts.c, tables.chunks.c
    from_brick = chunk.brick.is_not(None)
    query = (
        select(one.host, from_brick, func.count())
        .join(tables.chunks, chunk.id == one.chunk_id)
        # A subquery: the condition matches that of the index only without table names.
        .where(one.id.in_(select(one.id).where(tables.UNFINISHED)))
        .group_by(one.host, from_brick)
        .order_by(one.host, from_brick)
    )
    return tuple(
        StreamCount(host=host, from_brick=bool(brick), streams=streams)
        for host, brick, streams in connection.execute(query)
    )


def _events(connection: Connection) -> tuple[EventCount, ...]:
    one = tables.events.c
    query = (
        select(one.kind, one.severity, func.count())
        .where(one.severity.in_([Severity.WARNING.value, Severity.ERROR.value]))
        .group_by(one.kind, one.severity)
        .order_by(one.kind, one.severity)
    )
    return tuple(
        EventCount(kind=EventKind(kind), severity=Severity(severity), count=count)
        for kind, severity, count in connection.execute(query)
    )


def _runs(connection: Connection) -> tuple[RunCount, ...]:
    one = tables.runs.c
    query = (
        select(one.verb, one.exit_code, func.count())
        .where(one.exit_code.is_not(None))
        .group_by(one.verb, one.exit_code)
        .order_by(one.verb, one.exit_code)
    )
    return tuple(RunCount(verb=verb, exit_code=code, count=count) for verb, code, count in connection.execute(query))


def _hooks(connection: Connection) -> tuple[HookCount, ...]:
    one = tables.hook_calls.c
    query = (
        select(one.stage, one.outcome, func.count())
        .where(one.outcome.is_not(None))
        .group_by(one.stage, one.outcome)
        .order_by(one.stage, one.outcome)
    )
    return tuple(
        HookCount(stage=stage, outcome=outcome, count=count) for stage, outcome, count in connection.execute(query)
    )


def _moved(connection: Connection, kind: str) -> tuple[MovedSum, ...]:
    """Counters of one task and host only rise, and a new task begins at 0. After a reboot of a host a drain continues its task with
    new counters: its sums include what it had moved before, as the progress of the drain does.
    """
    one = tables.operation_samples.c
    of_task = (
        select(
            one.host,
            func.max(one.files).label("files"),
            func.max(one.size_bytes).label("size_bytes"),
            func.max(one.failures).label("failures"),
        )
        .join(tables.operations, tables.operations.c.id == one.operation_id)
        .where(tables.operations.c.kind == kind)
        .group_by(one.operation_id, one.task_id, one.host)
        .subquery()
    )
    found = of_task.c
    query = (
        select(found.host, func.sum(found.files), func.sum(found.size_bytes), func.sum(found.failures))
        .group_by(found.host)
        .order_by(found.host)
    )
    sums = tuple(
        MovedSum(task=kind, host=host, files=files, size_bytes=size_bytes, failures=failures)
        for host, files, size_bytes, failures in connection.execute(query)
    )
    return _over_reboots(connection, sums) if kind == DRAINS.name else sums


def _over_reboots(connection: Connection, sums: Sequence[MovedSum]) -> tuple[MovedSum, ...]:
    files: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    one = tables.operations.c
    drain_ids = connection.execute(select(one.id).where(one.kind == DRAINS.name).order_by(one.id)).scalars().all()
    for drain_id in drain_ids:
        told = read_telling_samples(connection, drain_id, recent_s=0.0)
        for counts in last_counts(told):
            files[counts.host] += counts.files
            sizes[counts.host] += counts.size_bytes
    return tuple(replace(one, files=files[one.host], size_bytes=sizes[one.host]) for one in sums)


def _verified(connection: Connection) -> VerifySum:
    one = tables.verifications.c
    query = (
        select(one.whole, func.count(), func.sum(one.digested_files), func.sum(one.digested_bytes))
        .where(one.finished_at_s.is_not(None))
        .group_by(one.whole)
    )
    rows = [(bool(whole), count, files, size) for whole, count, files, size in connection.execute(query)]
    return VerifySum(
        whole=sum(count for whole, count, _, _ in rows if whole),
        not_whole=sum(count for whole, count, _, _ in rows if not whole),
        read_files=sum(files for _, _, files, _ in rows),
        read_bytes=sum(size for _, _, _, size in rows),
    )


def _freezes(database: Database, connection: Connection) -> tuple[float, ...]:
    found = (one.freeze_s for one in CutoverRecords(database).every(connection))
    return tuple(seconds for seconds in found if seconds is not None)


# Streams in flight and new events, for `status --watch`.


class WatchRecords:
    """Streams in flight and new events."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def streams(self, *, recent_s: float) -> Sequence[StreamAtWork]:
        """Every unfinished attempt, oldest first. Its rate covers the last `recent_s` before the newest sample of its pass."""
        attempts, chunks, passes = tables.attempts.c, tables.chunks.c, tables.passes.c
        query = (
            # Not the whole rows: argv may be long.
            select(
                attempts.id,
                attempts.host,
                attempts.started_at_s,
                chunks.pass_id,
                chunks.number.label("chunk"),
                chunks.kind,
                chunks.tree,
                chunks.brick,
                chunks.files,
                chunks.size_bytes,
                passes.batch,
                passes.kind.label("pass_kind"),
                passes.number.label("pass_number"),
            )
            .join(tables.chunks, chunks.id == attempts.chunk_id)
            .join(tables.passes, passes.id == chunks.pass_id)
            # A subquery: the condition matches that of the index only without table names.
            .where(attempts.id.in_(select(attempts.id).where(tables.UNFINISHED)))
            .order_by(attempts.id)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            newest = {pass_id: _newest_sample(connection, pass_id) for pass_id in {row.pass_id for row in rows}}
            return [_stream(connection, row, newest[row.pass_id], recent_s) for row in rows]

    def last_event(self) -> int:
        """The number of the newest event, 0 if there is none."""
        with self._database.read() as connection:
            return int(connection.execute(select(func.coalesce(func.max(tables.events.c.id), 0))).scalar_one())

    def events_after(self, number: int, limit: int) -> Sequence[tuple[int, Event]]:
        """At most `limit` events after one, the newest, with their numbers, oldest first."""
        query = (
            select(tables.events).where(tables.events.c.id > number).order_by(tables.events.c.id.desc()).limit(limit)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [(row.id, event_record(row)) for row in reversed(rows)]


def _newest_sample(connection: Connection, pass_id: int) -> float | None:
    sample = tables.samples.c
    query = select(func.max(sample.at_s)).where(sample.pass_id == pass_id, sample.attempt_id == ALL_STREAMS)
    newest: float | None = connection.execute(query).scalar_one()
    return newest


def _stream(
    connection: Connection, row: Row[*tuple[Any, ...]], newest_s: float | None, recent_s: float
) -> StreamAtWork:
    sample = tables.samples.c
    is_recent = sample.at_s > (newest_s or 0.0) - recent_s
    sums = (
        sample.files,
        sample.size_bytes,
        case((is_recent, sample.files), else_=0),
        case((is_recent, sample.size_bytes), else_=0),
        case((is_recent, sample.interval_s), else_=0.0),
    )
    query = select(func.max(sample.at_s), *(func.coalesce(func.sum(term), 0) for term in sums)).where(
        sample.pass_id == row.pass_id, sample.attempt_id == row.id
    )
    sampled_at_s, files, size_bytes, recent_files, recent_bytes, over_s = connection.execute(query).one()
    return StreamAtWork(
        attempt_id=row.id,
        host=row.host,
        batch=row.batch,
        pass_kind=PassKind(row.pass_kind),
        pass_number=row.pass_number,
        chunk=row.chunk,
        kind=ChunkKind(row.kind),
        tree=row.tree,
        brick=row.brick,
        files=row.files,
        size_bytes=row.size_bytes,
        started_at_s=row.started_at_s,
        done_files=files,
        done_bytes=size_bytes,
        recent_files=recent_files,
        recent_bytes=recent_bytes,
        recent_s=over_s,
        sampled_at_s=sampled_at_s,
        pass_sampled_at_s=newest_s,
    )
