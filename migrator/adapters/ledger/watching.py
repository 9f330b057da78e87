"""What is at work and what is new, for `status --watch`."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, case, func, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.records import event_record
from migrator.adapters.ledger.samples import ALL_STREAMS
from migrator.domain.events import Event
from migrator.domain.states import ChunkKind, PassKind
from migrator.domain.watch import StreamAtWork


class SqliteWatching:
    """What is at work, and what is new."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def streams(self, *, recent_s: float) -> Sequence[StreamAtWork]:
        """Every attempt that has not ended, oldest first; its rate is of the last seconds in which its pass was sampled.
        What it has done comes from its own samples alone, by their key.
        """
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
            # A subquery: the index of unfinished attempts is found by its own words, in which columns have no table.
            .where(attempts.id.in_(select(attempts.id).where(tables.UNFINISHED)))
            .order_by(attempts.id)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
            newest = {pass_id: _newest_sample(connection, pass_id) for pass_id in {row.pass_id for row in rows}}
            return [_stream(connection, row, newest[row.pass_id], recent_s) for row in rows]

    def last_event(self) -> int:
        """The number of the newest event; 0 where there is none."""
        with self._database.read() as connection:
            return int(connection.execute(select(func.coalesce(func.max(tables.events.c.id), 0))).scalar_one())

    def events_after(self, number: int, limit: int) -> Sequence[tuple[int, Event]]:
        """The events after one, with their numbers, oldest first; of more than `limit` the newest ones."""
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
