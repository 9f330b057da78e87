"""Attempts, and what became of the files that did not arrive."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.chunks import change_chunk
from migrator.adapters.ledger.codec import decode_words, encode_argv
from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.transitions import check, state_of
from migrator.domain.errors import LedgerCorrupt
from migrator.domain.states import ATTEMPT_TRANSITIONS, AttemptState, ChunkState
from migrator.domain.transfer import (
    AttemptRecord,
    FileProblem,
    FileProblemKind,
    ProcessIdentity,
    StreamCounters,
)

_PATHS_AT_ONCE = 500


class SqliteAttempts:
    """Attempts. A chunk's `tries` are its attempts without those that were interrupted."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def intend(self, *, chunk_id: int, token: str, host: str, engine: str, argv: Sequence[str], at_s: float) -> int:
        """Write down an attempt before its process starts; the chunk becomes running. The same token gives the same
        attempt. Raises LedgerCorrupt where the chunk does not wait, or has an attempt under way.
        """
        with self._database.write() as connection:
            there = connection.execute(
                select(tables.attempts.c.id).where(tables.attempts.c.token == token)
            ).scalar_one_or_none()
            if there is not None:
                return int(there)
            busy = connection.execute(
                select(func.count()).where(tables.attempts.c.chunk_id == chunk_id, tables.UNFINISHED)
            ).scalar_one()
            if busy:
                raise LedgerCorrupt(
                    f"chunk {chunk_id} has an attempt that has not ended",
                    cause="a stream of an earlier run may still be at work",
                    hint="run the same command again: it ends what is left of earlier streams first",
                )
            change_chunk(connection, chunk_id, ChunkState.RUNNING)
            connection.execute(
                update(tables.chunks).where(tables.chunks.c.id == chunk_id).values(tries=tables.chunks.c.tries + 1)
            )
            number = connection.execute(
                select(func.coalesce(func.max(tables.attempts.c.number), 0) + 1).where(
                    tables.attempts.c.chunk_id == chunk_id
                )
            ).scalar_one()
            row = connection.execute(
                insert(tables.attempts)
                .values(
                    chunk_id=chunk_id,
                    number=number,
                    token=token,
                    host=host,
                    engine=engine,
                    state=AttemptState.INTENDED.value,
                    argv=encode_argv(argv),
                    started_at_s=at_s,
                    files=0,
                    size_bytes=0,
                    stderr_tail=b"",
                )
                .returning(tables.attempts.c.id)
            ).one()
        return int(row.id)

    def started(self, attempt_id: int, process: ProcessIdentity) -> None:
        """The process of an attempt lives."""
        with self._database.write() as connection:
            _change_attempt(connection, attempt_id, AttemptState.RUNNING)
            connection.execute(
                update(tables.attempts)
                .where(tables.attempts.c.id == attempt_id)
                .values(pid=process.pid, start_ticks=process.start_ticks, boot_id=process.boot_id)
            )

    def finish(
        self,
        attempt_id: int,
        *,
        at_s: float,
        state: str,
        exit_code: int | None,
        counters: StreamCounters,
        stderr_tail: bytes,
        chunk_state: ChunkState,
        problems: Sequence[FileProblem],
    ) -> None:
        """The result of an attempt, of its chunk and of its files, in one transaction. May be called again.

        A chunk that becomes done has exactly these problems: what earlier attempts at it said is forgotten. An
        interrupted attempt leaves a chunk alone that was split already.
        """
        new = AttemptState(state)
        with self._database.write() as connection:
            if not _change_attempt(connection, attempt_id, new):
                return
            chunk_id: int = connection.execute(
                update(tables.attempts)
                .where(tables.attempts.c.id == attempt_id)
                .values(
                    finished_at_s=at_s,
                    exit_code=exit_code,
                    files=counters.files,
                    size_bytes=counters.size_bytes,
                    stderr_tail=stderr_tail,
                )
                .returning(tables.attempts.c.chunk_id)
            ).scalar_one()
            chunk = connection.execute(select(tables.chunks).where(tables.chunks.c.id == chunk_id)).one()
            if new is AttemptState.INTERRUPTED:
                connection.execute(
                    update(tables.chunks)
                    .where(tables.chunks.c.id == chunk_id, tables.chunks.c.tries > 0)
                    .values(tries=tables.chunks.c.tries - 1)
                )
            if not (new is AttemptState.INTERRUPTED and chunk.state == ChunkState.SPLIT.value):
                change_chunk(connection, chunk_id, chunk_state)
            if chunk_state is ChunkState.DONE:
                connection.execute(delete(tables.attention).where(tables.attention.c.chunk_id == chunk_id))
            _record_problems(connection, chunk.pass_id, chunk_id, problems, at_s)

    def unfinished_attempts(self, pass_id: int | None = None) -> Sequence[AttemptRecord]:
        """Attempts that a crash left intended or running, oldest first."""
        query = select(tables.attempts).where(tables.UNFINISHED).order_by(tables.attempts.c.id)
        if pass_id is not None:
            of_pass = select(tables.chunks.c.id).where(
                tables.chunks.c.id == tables.attempts.c.chunk_id, tables.chunks.c.pass_id == pass_id
            )
            query = query.where(of_pass.exists())
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [attempt_record(row) for row in rows]

    def attempts_of_chunk(self, chunk_id: int) -> Sequence[AttemptRecord]:
        """Every attempt at a chunk, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(
                select(tables.attempts).where(tables.attempts.c.chunk_id == chunk_id).order_by(tables.attempts.c.number)
            ).all()
        return [attempt_record(row) for row in rows]

    def attention(self, pass_id: int, kind: FileProblemKind = FileProblemKind.BAD) -> Sequence[FileProblem]:
        """The bad files of a pass that no later attempt brought over, or those of another kind, in order of path."""
        with self._database.read() as connection:
            rows = connection.execute(
                select(tables.attention)
                .where(tables.attention.c.pass_id == pass_id, tables.attention.c.kind == kind.value)
                .order_by(tables.attention.c.path)
            ).all()
        return [file_problem(row) for row in rows]

    def vanished_count(self, pass_id: int) -> int:
        """How many listed files were gone when their turn came."""
        with self._database.read() as connection:
            return int(
                connection.execute(
                    select(func.count()).where(
                        tables.attention.c.pass_id == pass_id,
                        tables.attention.c.kind == FileProblemKind.VANISHED.value,
                    )
                ).scalar_one()
            )

    def problem_counts(self, pass_id: int) -> Mapping[FileProblemKind, int]:
        """How many files of a pass have which problem now; kinds without any are left out."""
        kind = tables.attention.c.kind
        query = select(kind, func.count()).where(tables.attention.c.pass_id == pass_id).group_by(kind)
        with self._database.read() as connection:
            return {FileProblemKind(found): count for found, count in connection.execute(query)}

    def note(self, pass_id: int, problems: Sequence[FileProblem], at_s: float) -> None:
        """What a pass found out of files outside its chunks. May be called again."""
        with self._database.write() as connection:
            _record_problems(connection, pass_id, None, problems, at_s)

    def clear_attention(self, pass_id: int, paths: Sequence[bytes]) -> None:
        """These files need no attention any more."""
        with self._database.write() as connection:
            for first in range(0, len(paths), _PATHS_AT_ONCE):
                connection.execute(
                    delete(tables.attention).where(
                        tables.attention.c.pass_id == pass_id,
                        tables.attention.c.path.in_(paths[first : first + _PATHS_AT_ONCE]),
                    )
                )


def _change_attempt(connection: Connection, attempt_id: int, state: AttemptState) -> bool:
    what = f"attempt {attempt_id}"
    old = state_of(connection, tables.attempts, attempt_id, AttemptState, what)
    changes = check(ATTEMPT_TRANSITIONS, old, state, what)
    if changes:
        connection.execute(update(tables.attempts).where(tables.attempts.c.id == attempt_id).values(state=state.value))
    return changes


def _record_problems(
    connection: Connection, pass_id: int, chunk_id: int | None, problems: Sequence[FileProblem], at_s: float
) -> None:
    if not problems:
        return
    statement = upsert(tables.attention)
    replaced = {key: statement.excluded[key] for key in ("chunk_id", "kind", "errno", "reason", "at_s")}
    connection.execute(
        statement.on_conflict_do_update(index_elements=["pass_id", "path"], set_=replaced),
        [
            {
                "pass_id": pass_id,
                "path": problem.path,
                "chunk_id": chunk_id,
                "kind": problem.kind.value,
                "errno": problem.errno,
                "reason": problem.reason,
                "at_s": at_s,
            }
            for problem in problems
        ],
    )


def file_problem(row: Row[Any]) -> FileProblem:
    """A file's problem, from its row."""
    return FileProblem(path=row.path, kind=FileProblemKind(row.kind), errno=row.errno, reason=row.reason)


def attempt_record(row: Row[Any]) -> AttemptRecord:
    """An attempt, from its row."""
    process = None
    if row.pid is not None:
        process = ProcessIdentity(pid=row.pid, start_ticks=row.start_ticks, boot_id=row.boot_id)
    return AttemptRecord(
        id=row.id,
        chunk_id=row.chunk_id,
        number=row.number,
        token=row.token,
        host=row.host,
        engine=row.engine,
        state=AttemptState(row.state),
        process=process,
        argv=decode_words(row.argv),
        started_at_s=row.started_at_s,
        finished_at_s=row.finished_at_s,
        exit_code=row.exit_code,
        counters=StreamCounters(files=row.files, size_bytes=row.size_bytes),
        stderr_tail=row.stderr_tail,
    )
