"""Sums over the whole ledger, for `metrics`: each from one query, all in one transaction."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, Table, func, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.records import run_record
from migrator.adapters.ledger.samples import ALL_STREAMS
from migrator.adapters.ledger.task_samples import read_telling_samples
from migrator.decide.drain_progress import last_counts
from migrator.domain.events import EventKind, Severity
from migrator.domain.metrics import (
    AttemptSum,
    EventCount,
    HookCount,
    MetricSums,
    MovedSum,
    PassKindSum,
    RunCount,
    StreamCount,
    VerifySum,
)
from migrator.domain.states import AttemptState, PassKind
from migrator.ports.site import RunRecord

_ENDED = (AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.INTERRUPTED)


class SqliteMetricSums:
    """The `MetricRecords` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def sums(self) -> MetricSums:
        """All of them, as of one moment. Sums of what has ended never go down."""
        with self._database.read() as connection:
            return MetricSums(
                passes=_passes(connection),
                attempts=_attempts(connection),
                streams=_streams(connection),
                events=_events(connection),
                runs=_runs(connection),
                hooks=_hooks(connection),
                moved=(
                    *_moved(connection, "drain", tables.drain_samples, "drain_id"),
                    *_moved(connection, "addition", tables.addition_samples, "addition_id"),
                ),
                verified=_verified(connection),
                freezes_s=_freezes(connection),
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
        # A subquery: the index of unfinished attempts is found by its own words, in which columns have no table.
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


def _moved(connection: Connection, task: str, samples: Table, owner: str) -> tuple[MovedSum, ...]:
    """Counters of one task and host only rise; a new task begins at none. A drain goes on with the same task after a reboot of a
    host, which counts anew: what it had moved before is told as the standing of the drain tells it.
    """
    one = samples.c
    of_task = (
        select(
            one.host,
            func.max(one.files).label("files"),
            func.max(one.size_bytes).label("size_bytes"),
            func.max(one.failures).label("failures"),
        )
        .group_by(one[owner], one.task_id, one.host)
        .subquery()
    )
    found = of_task.c
    query = (
        select(found.host, func.sum(found.files), func.sum(found.size_bytes), func.sum(found.failures))
        .group_by(found.host)
        .order_by(found.host)
    )
    sums = tuple(
        MovedSum(task=task, host=host, files=files, size_bytes=size_bytes, failures=failures)
        for host, files, size_bytes, failures in connection.execute(query)
    )
    return _over_reboots(connection, sums) if samples is tables.drain_samples else sums


def _over_reboots(connection: Connection, sums: Sequence[MovedSum]) -> tuple[MovedSum, ...]:
    files: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    drain_ids = connection.execute(select(tables.drains.c.id).order_by(tables.drains.c.id)).scalars().all()
    for drain_id in drain_ids:
        told = read_telling_samples(connection, tables.drain_samples, "drain_id", drain_id, recent_s=0.0)
        for one in last_counts(told):
            files[one.host] += one.files
            sizes[one.host] += one.size_bytes
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


def _freezes(connection: Connection) -> tuple[float, ...]:
    one = tables.cutovers.c
    query = select(one.thawed_at_s - one.frozen_at_s).where(one.frozen_at_s.is_not(None), one.thawed_at_s.is_not(None))
    return tuple(max(seconds, 0.0) for (seconds,) in connection.execute(query.order_by(one.id)))
