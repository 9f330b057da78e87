"""Sums over the ledger for `metrics`, and the values that `status --watch` polls."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, SQLColumnExpression, case, func, select

from migrator.bricks.add.model import ADDITIONS
from migrator.bricks.drain.model import DRAINS
from migrator.bricks.progress import last_counts
from migrator.bricks.samples import read_telling_samples
from migrator.bricks.tables import OperationSampleRow
from migrator.catalog.tables import VerificationRow
from migrator.core.events import Event, Severity
from migrator.core.states import AttemptState, PassKind
from migrator.cutover.records import CutoverRecords
from migrator.ledger.database import Database
from migrator.ledger.model import RunRecord
from migrator.ledger.rows import AnyRow, Records, record_of
from migrator.ledger.tables import EventRow, RunRow
from migrator.operations.tables import OperationRow
from migrator.report.model import Counts, StreamAtWork
from migrator.transfer.records_measures import ALL_STREAMS
from migrator.transfer.tables import UNFINISHED, AttemptRow, ChunkRow, PassRow, SampleRow

# Sums for `metrics`.


_ENDED = (AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.INTERRUPTED)


class MetricRecords(Records):
    """Sums over the whole ledger, all in one transaction."""

    def sums(self) -> Mapping[str, Counts]:
        """All sums as of one moment. Those of finished work never decrease."""
        event, run = EventRow, RunRow
        reported = event.severity.in_([Severity.WARNING.value, Severity.ERROR.value])
        with self._database.read() as connection:
            return {
                "events_total": _counted(connection, (event.kind, event.severity), reported),
                "runs_total": _counted(connection, (run.verb, run.exit_code), run.exit_code.is_not(None)),
                "streams": _streams(connection),
                **_passes(connection),
                **_attempts(connection),
                **_moved(connection),
                **_verified(connection),
                "freeze_seconds": _freezes(self._database, connection),
            }

    def newest_runs(self) -> Sequence[RunRecord]:
        """The newest run of every verb, in order of verb."""
        newest = select(func.max(RunRow.id)).group_by(RunRow.verb)
        query = select(RunRow).where(RunRow.id.in_(newest)).order_by(RunRow.verb)
        return self._all(RunRecord, query)


def _counted(
    connection: Connection, labels: Sequence[SQLColumnExpression[Any]], condition: ColumnElement[bool]
) -> Counts:
    query = select(func.count(), *labels).where(condition).group_by(*labels).order_by(*labels)
    return [(count, *map(str, texts)) for count, *texts in connection.execute(query)]


def _passes(connection: Connection) -> dict[str, Counts]:
    one, sample = PassRow, SampleRow
    query = (
        select(one.kind, func.sum(sample.size_bytes), func.sum(sample.files))
        # Pass by pass: the samples of single streams, which are most of the table, are not read.
        .join(SampleRow, sample.pass_id == one.id)
        .where(sample.attempt_id == ALL_STREAMS)
        .group_by(one.kind)
    )
    sums = {kind: values for kind, *values in connection.execute(query)}
    return {
        f"stream_{unit}_total": [(sums.get(kind, (0, 0))[place], kind.value) for kind in PassKind]
        for place, unit in enumerate(("bytes", "files"))
    }


def _attempts(connection: Connection) -> dict[str, Counts]:
    one = AttemptRow
    # Answered from one index, as the rows are long.
    query = (
        select(one.host, one.engine, one.state, func.count(), func.sum(one.size_bytes))
        .where(one.state.in_([state.value for state in _ENDED]))
        .group_by(one.host, one.engine, one.state)
        .order_by(one.host, one.engine, one.state)
    )
    rows = connection.execute(query).all()
    sizes = Counter[tuple[str, str]]()
    for host, engine, _, _, its_bytes in rows:
        sizes[host, engine] += its_bytes
    return {
        "attempts_total": [(attempts, host, engine, state) for host, engine, state, attempts, _ in rows],
        "attempt_bytes_total": [(count, *labels) for labels, count in sizes.items()],
    }


def _streams(connection: Connection) -> Counts:
    one, chunk = AttemptRow, ChunkRow
    source = case((chunk.brick.is_not(None), "brick"), else_="mount")
    query = (
        select(func.count(), one.host, source)
        .join(ChunkRow, chunk.id == one.chunk_id)
        # A subquery: the condition matches that of the index only without table names.
        .where(one.id.in_(select(one.id).where(UNFINISHED)))
        .group_by(one.host, source)
        .order_by(one.host, source)
    )
    return [(streams, host, name) for streams, host, name in connection.execute(query)]


def _moved(connection: Connection) -> dict[str, Counts]:
    """Counters of one task and host only rise, and a new task begins at 0. After a reboot of a host, a drain continues
    its task with new counters. Its sums include the files moved before the reboot, as the progress of the drain does.
    """
    one, operation = OperationSampleRow, OperationRow
    of_task = (
        select(operation.kind, one.host, func.max(one.size_bytes).label("size_bytes"))
        .join(OperationRow, operation.id == one.operation_id)
        .where(operation.kind.in_([DRAINS.name, ADDITIONS.name]))
        .group_by(one.operation_id, one.task_id, one.host)
        .subquery()
    )
    found = of_task.c
    query = (
        select(found.kind, found.host, func.sum(found.size_bytes))
        .group_by(found.kind, found.host)
        .order_by(found.kind.desc(), found.host)
    )
    rows = connection.execute(query).all()
    drained = _drained(connection)
    return {
        "gluster_moved_bytes_total": [
            (drained[host] if kind == DRAINS.name else size_bytes, kind, host) for kind, host, size_bytes in rows
        ]
    }


def _drained(connection: Connection) -> Counter[str]:
    """Bytes that drains moved, by host, over reboots."""
    sizes = Counter[str]()
    one = OperationRow
    drains = connection.execute(select(one.id).where(one.kind == DRAINS.name).order_by(one.id)).scalars().all()
    for drain_id in drains:
        for counts in last_counts(read_telling_samples(connection, drain_id, recent_s=0.0)):
            sizes[counts.host] += counts.size_bytes
    return sizes


def _verified(connection: Connection) -> dict[str, Counts]:
    one = VerificationRow
    query = select(func.coalesce(func.sum(one.digested_bytes), 0)).where(one.finished_at_s.is_not(None))
    return {"verification_read_bytes_total": [(connection.execute(query).scalar_one(),)]}


def _freezes(database: Database, connection: Connection) -> Counts:
    found = (one.freeze_s for one in CutoverRecords(database).every(connection))
    return [(seconds,) for seconds in found if seconds is not None]


# Streams in flight and new events, for `status --watch`.


class WatchRecords(Records):
    """Streams in flight and new events."""

    def streams(self, *, recent_s: float) -> Sequence[StreamAtWork]:
        """Every unfinished attempt, oldest first. Its rate covers the last `recent_s` before the newest sample of its pass."""
        attempts, chunks, passes = AttemptRow, ChunkRow, PassRow
        query = (
            # Not the whole rows: argv may be long.
            select(
                attempts.id.label("attempt_id"),
                attempts.host,
                chunks.pass_id,
                chunks.number.label("chunk"),
                chunks.tree,
                chunks.brick,
                chunks.files,
                chunks.size_bytes,
                passes.batch,
                passes.kind.label("pass_kind"),
                passes.number.label("pass_number"),
            )
            .join(ChunkRow, chunks.id == attempts.chunk_id)
            .join(PassRow, passes.id == chunks.pass_id)
            # A subquery: the condition matches that of the index only without table names.
            .where(attempts.id.in_(select(attempts.id).where(UNFINISHED)))
            .order_by(attempts.id)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            newest = {pass_id: _newest_sample(connection, pass_id) for pass_id in {row.pass_id for row in rows}}
            return [_stream(connection, row, newest[row.pass_id], recent_s) for row in rows]

    def last_event(self) -> int:
        """The number of the newest event, 0 if there is none."""
        return int(self._value(select(func.max(EventRow.id))) or 0)

    def events_after(self, number: int, limit: int) -> Sequence[tuple[int, Event]]:
        """At most `limit` events after one, the newest, with their numbers, oldest first."""
        events = EventRow
        query = select(EventRow).where(events.id > number).order_by(events.id.desc()).limit(limit)
        return [(row.id, record_of(row, Event)) for row in reversed(self._rows(query))]


def _newest_sample(connection: Connection, pass_id: int) -> float | None:
    sample = SampleRow
    query = select(func.max(sample.at_s)).where(sample.pass_id == pass_id, sample.attempt_id == ALL_STREAMS)
    newest: float | None = connection.execute(query).scalar_one()
    return newest


def _stream(connection: Connection, row: AnyRow, newest_s: float | None, recent_s: float) -> StreamAtWork:
    sample = SampleRow
    is_recent = sample.at_s > (newest_s or 0.0) - recent_s
    sums = {
        "done_files": sample.files,
        "done_bytes": sample.size_bytes,
        "recent_bytes": case((is_recent, sample.size_bytes), else_=0),
        "recent_s": case((is_recent, sample.interval_s), else_=0.0),
    }
    query = select(*(func.coalesce(func.sum(term), 0).label(name) for name, term in sums.items())).where(
        sample.pass_id == row.pass_id, sample.attempt_id == row.attempt_id
    )
    return record_of(row, StreamAtWork, **connection.execute(query).one()._asdict())
