"""The records of chunks of passes, attempts at them, and files that need attention."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, func, or_, select, true, update
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.orm import aliased

from migrator.core import states
from migrator.core.errors import LedgerCorrupt
from migrator.core.states import AttemptState, ChunkKind, ChunkState
from migrator.fs.model import Need
from migrator.hosts.model import ProcessIdentity
from migrator.ledger.database import missing
from migrator.ledger.model import RunRecord
from migrator.ledger.rows import AnyRow, Records, States, add, change, columns_of, record_of
from migrator.ledger.tables import RunRow
from migrator.plan.model import Chunk
from migrator.transfer import tables
from migrator.transfer.model import (
    AttemptRecord,
    ChunkRecord,
    CopiedChunk,
    FileProblem,
    FileProblemKind,
    PassTotals,
    StreamCounters,
)

# Chunks.


_TAKING_ROOM = (ChunkKind.DIRECTORIES, ChunkKind.RANGES, ChunkKind.FILES, ChunkKind.RANGED_FILES)
_INSERT_ROWS = 10_000
_INSERT_CHUNK = (
    "INSERT INTO chunks (pass_id, number, kind, tree, files, size_bytes, brick, state) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, 'pending')"
)

_chunks, _attempts, _attention = tables.ChunkRow, tables.AttemptRow, tables.AttentionRow


class ChunkTable(Records):
    """Chunks. Sums of files and bytes do not include chunks of directories."""

    def chunk(self, chunk_id: int) -> ChunkRecord:
        """One chunk. Raises LedgerCorrupt if there is none."""
        found = self._first(ChunkRecord, select(tables.ChunkRow).where(_chunks.id == chunk_id))
        if found is None:
            raise missing(f"chunk {chunk_id}")
        return found

    def retry_failed(self, pass_id: int, *, but_trees: Collection[bytes] = ()) -> int:
        """Make the failed chunks of a pass pending again, except those of `but_trees`; return their number. Files that
        arrive in a directory change its times, so the times are set again in the trees of those chunks.
        """
        counts = []
        with self._database.write() as connection:
            for these in (_times_to_set_again(pass_id), _failed(pass_id)):
                pending = update(tables.ChunkRow).where(these, _but(but_trees)).values(state="pending")
                counts.append(connection.execute(pending).rowcount)
        return counts[-1]

    def to_retry(self, pass_id: int) -> Sequence[ChunkRecord]:
        """The chunks that `retry_failed` would make pending, in order of number."""
        return self._in_order(_failed(pass_id) | _times_to_set_again(pass_id))

    def pending(
        self,
        pass_id: int,
        kind: str,
        limit: int,
        *,
        bricks: Collection[str | None] | None = None,
        but_trees: Collection[bytes] = (),
    ) -> Sequence[ChunkRecord]:
        """Pending chunks of one kind, the largest first, then in order of number. `bricks` limits them to some bricks
        (None among these: chunks of no brick); chunks of `but_trees` are left out.
        """
        these = (_chunks.pass_id == pass_id, _chunks.kind == kind, _chunks.state == ChunkState.PENDING)
        query = select(tables.ChunkRow).where(*these, _of_bricks(bricks), _but(but_trees))
        return self._all(ChunkRecord, query.order_by(_chunks.size_bytes.desc(), _chunks.number).limit(limit))

    def bricks(self, pass_id: int) -> frozenset[str | None]:
        """The bricks that the chunks of a pass are read from, including done chunks; None is the mount."""
        rows = self._rows(select(_chunks.brick).where(_chunks.pass_id == pass_id).distinct())
        return frozenset(brick for (brick,) in rows)

    def copied(self, pass_id: int, kinds: Collection[ChunkKind]) -> Sequence[CopiedChunk]:
        """Chunks of these kinds that were not split, each with the last attempt that succeeded, in order of number."""
        succeeded = (_attempts.chunk_id == _chunks.id, _attempts.state == AttemptState.SUCCEEDED)
        last = select(func.max(_attempts.id)).where(*succeeded).correlate(tables.ChunkRow).scalar_subquery()
        rows = self._rows(
            select(tables.ChunkRow, _attempts.token)
            .outerjoin(tables.AttemptRow, _attempts.id == last)
            .where(
                _chunks.pass_id == pass_id,
                _chunks.kind.in_(kinds),
                _chunks.state != ChunkState.SPLIT,
            )
            .order_by(_chunks.number)
        )
        return [record_of(row, CopiedChunk, chunk=record_of(row, ChunkRecord)) for row in rows]

    def failed(self, pass_id: int) -> Sequence[ChunkRecord]:
        """Chunks that failed, of all kinds, in order of number."""
        return self._in_order(_failed(pass_id))

    def totals(self, pass_id: int) -> PassTotals:
        """Chunks of all kinds by state; files and bytes of those that hold files or links."""
        keys = (_chunks.kind, _chunks.state)
        sums = (func.count(), func.sum(_chunks.files), func.sum(_chunks.size_bytes))
        chunks: dict[ChunkState, int] = {}
        done_files = done_bytes = all_files = all_bytes = 0
        rows = self._rows(select(*keys, *sums).where(_chunks.pass_id == pass_id).group_by(*keys))
        for kind, state, count, files, size_bytes in rows:
            chunks[state] = chunks.get(state, 0) + count
            if state == ChunkState.SPLIT or kind not in states.CONTENT_KINDS:
                continue
            all_files += files
            all_bytes += size_bytes
            if state == ChunkState.DONE:
                done_files += files
                done_bytes += size_bytes
        return PassTotals(
            chunks=chunks, done_files=done_files, done_bytes=done_bytes, files=all_files, size_bytes=all_bytes
        )

    def arrived(self, *, before_plan: str) -> Mapping[bytes, Need]:
        """The usage that other plans have copied, by tree. Files and directories count as one inode each."""
        passes = tables.PassRow
        done = (_chunks.state == ChunkState.DONE, _chunks.kind.in_(_TAKING_ROOM))
        query = (
            select(_chunks.tree, func.sum(_chunks.size_bytes), func.sum(_chunks.files))
            .join(tables.PassRow, passes.id == _chunks.pass_id)
            .where(passes.plan != before_plan, *done)
            .group_by(_chunks.pass_id, _chunks.tree)
        )
        most: dict[bytes, Need] = {}
        for tree, size_bytes, inodes in self._rows(query):
            known = most.get(tree, Need())
            most[tree] = Need(size_bytes=max(known.size_bytes, size_bytes), inodes=max(known.inodes, inodes))
        return most

    def split(self, chunk_id: int, halves: Sequence[tuple[Chunk, str]]) -> Sequence[ChunkRecord]:
        """Replace a pending or running chunk by its halves and number these. Called again for a split chunk, it returns
        the existing halves. Problems of files that attempts at the chunk reported are dropped: the halves report them
        again.
        """
        with self._database.write() as connection:
            made = select(tables.ChunkRow).where(_chunks.parent_id == chunk_id).order_by(_chunks.number)
            rows = connection.execute(made).all()
            if not rows:
                if not halves:
                    raise LedgerCorrupt(f"chunk {chunk_id} cannot be split into nothing")
                _enter_chunk(connection, chunk_id, ChunkState.SPLIT)
                pass_id = connection.execute(select(_chunks.pass_id).where(_chunks.id == chunk_id)).scalar_one()
                for number, (half, list_path) in enumerate(halves, _next_number(connection, pass_id)):
                    _add_chunk(connection, half, pass_id, number=number, list_path=list_path, parent_id=chunk_id)
                connection.execute(delete(tables.AttentionRow).where(_attention.chunk_id == chunk_id))
                rows = connection.execute(made).all()
        return [record_of(row, ChunkRecord) for row in rows]

    def next_chunk_number(self, pass_id: int) -> int:
        """The first number that no chunk of the pass has."""
        with self._database.read() as connection:
            return _next_number(connection, pass_id)

    def add_trees(self, pass_id: int, trees: Mapping[bytes, Need]) -> Sequence[ChunkRecord]:
        """One chunk for each whole tree, which a driver copies, in the given order. Existing chunks are not changed."""
        of_pass = (_chunks.pass_id == pass_id) & (_chunks.kind == ChunkKind.TREE)
        with self._database.write() as connection:
            there = set(connection.execute(select(_chunks.tree).where(of_pass)).scalars())
            added = [tree for tree in trees if tree not in there]
            for number, tree in enumerate(added, _next_number(connection, pass_id)):
                need = trees[tree]
                chunk = Chunk(
                    number=number, kind=ChunkKind.TREE, tree=tree, files=need.inodes, size_bytes=need.size_bytes
                )
                _add_chunk(connection, chunk, pass_id)
            rows = connection.execute(select(tables.ChunkRow).where(of_pass)).all()
        found = {row.tree: record_of(row, ChunkRecord) for row in rows}
        return [found[tree] for tree in trees]

    def _in_order(self, *these: ColumnElement[bool]) -> Sequence[ChunkRecord]:
        return self._all(ChunkRecord, select(tables.ChunkRow).where(*these).order_by(_chunks.number))


def insert_chunks(connection: Connection, pass_id: int, chunks: Iterable[Chunk]) -> tuple[int, int]:
    """Record the chunks of a new pass inside a transaction, all pending; return their files and bytes."""
    files = size_bytes = 0
    waiting = iter(chunks)
    while some := list(islice(waiting, _INSERT_ROWS)):
        rows = [(pass_id, one.number, one.kind.value, one.tree, one.files, one.size_bytes, one.brick) for one in some]
        connection.exec_driver_sql(_INSERT_CHUNK, rows)
        some_files, some_bytes = content_sum(some)
        files, size_bytes = files + some_files, size_bytes + some_bytes
    return files, size_bytes


def content_sum(chunks: Iterable[Chunk]) -> tuple[int, int]:
    """Files and bytes of the chunks that count in sums."""
    files = size_bytes = 0
    for chunk in chunks:
        if chunk.kind in states.CONTENT_KINDS:
            files += chunk.files
            size_bytes += chunk.size_bytes
    return files, size_bytes


def _add_chunk(connection: Connection, chunk: Chunk, pass_id: int, **given: object) -> None:
    given = {"pass_id": pass_id, "state": ChunkState.PENDING, **given}
    add(connection, tables.ChunkRow, **columns_of(tables.ChunkRow, chunk, **given))


_CHUNK_STATES = States(tables.ChunkRow, states.CHUNK_TRANSITIONS, "id")


def _enter_chunk(connection: Connection, chunk_id: int, state: ChunkState) -> bool:
    return _CHUNK_STATES.enter(connection, [chunk_id], state, f"chunk {chunk_id}")


def _failed(pass_id: int) -> ColumnElement[bool]:
    return and_(_chunks.pass_id == pass_id, _chunks.state == ChunkState.FAILED)


def _but(trees: Collection[bytes]) -> ColumnElement[bool]:
    return _chunks.tree.not_in(sorted(trees)) if trees else true()


def _of_bricks(bricks: Collection[str | None] | None) -> ColumnElement[bool]:
    if bricks is None:
        return true()
    named = _chunks.brick.in_(sorted(brick for brick in bricks if brick is not None))
    return or_(named, _chunks.brick.is_(None)) if None in bricks else named


def _times_to_set_again(pass_id: int) -> ColumnElement[bool]:
    """Done chunks of directories' times, in trees in which another chunk failed."""
    other = aliased(tables.ChunkRow)
    times = ChunkKind.DIRECTORY_TIMES
    failed = (other.pass_id == pass_id, other.state == ChunkState.FAILED, other.kind != times)
    return and_(
        _chunks.pass_id == pass_id,
        _chunks.kind == times,
        _chunks.state == ChunkState.DONE,
        _chunks.tree.in_(select(other.tree).where(*failed)),
    )


def _next_number(connection: Connection, pass_id: int) -> int:
    highest = select(func.coalesce(func.max(_chunks.number), 0) + 1).where(_chunks.pass_id == pass_id)
    return int(connection.execute(highest).scalar_one())


# Attempts, and files that did not arrive.


# Made once: what every stream asks several times.
_OF_CHUNK = _attempts.chunk_id == bindparam("chunk_id")
_BY_TOKEN = select(_attempts.id).where(_attempts.token == bindparam("token"))
_UNFINISHED_OF_CHUNK = select(func.count()).where(_OF_CHUNK, tables.UNFINISHED)
_NEXT_ATTEMPT = select(func.coalesce(func.max(_attempts.number), 0) + 1).where(_OF_CHUNK)
_CHUNK_OF_ATTEMPT = select(tables.ChunkRow).where(
    _chunks.id == select(_attempts.chunk_id).where(_attempts.id == bindparam("attempt_id")).scalar_subquery()
)
_FORGET_SAMPLES = delete(tables.SampleRow).where(
    tables.SampleRow.pass_id == bindparam("pass_id"), tables.SampleRow.attempt_id == bindparam("attempt_id")
)
_FORGET_PROBLEMS = delete(tables.AttentionRow).where(_attention.chunk_id == bindparam("chunk_id"))


class AttemptTable(Records):
    """Attempts at chunks, and files that did not arrive."""

    def intend(
        self, *, chunk_id: int, run_id: int, token: str, host: str, engine: str, argv: Sequence[str], at_s: float
    ) -> int:
        """Record an attempt before its process starts; the chunk becomes running. The same token gives the same
        attempt. Raises LedgerCorrupt if the chunk is not pending, or has an unfinished attempt.
        """
        this = {"chunk_id": chunk_id}
        with self._database.write() as connection:
            there = connection.execute(_BY_TOKEN, {"token": token}).scalar()
            if there is not None:
                return int(there)
            if connection.execute(_UNFINISHED_OF_CHUNK, this).scalar_one():
                raise LedgerCorrupt(
                    f"chunk {chunk_id} has an attempt that has not ended",
                    cause="a stream of an earlier run may still run",
                    hint="run the same command again: it ends what is left of earlier streams first",
                )
            _enter_chunk(connection, chunk_id, ChunkState.RUNNING)
            return add(
                connection,
                tables.AttemptRow,
                chunk_id=chunk_id,
                run_id=run_id,
                number=connection.execute(_NEXT_ATTEMPT, this).scalar_one(),
                token=token,
                host=host,
                engine=engine,
                state=AttemptState.INTENDED,
                argv=argv,
                started_at_s=at_s,
                files=0,
                size_bytes=0,
                stderr_tail=b"",
            )

    def started(self, attempt_id: int, process: ProcessIdentity) -> None:
        """The process of an attempt has started."""
        with self._database.write() as connection:
            identity = columns_of(tables.AttemptRow, process)
            if not _enter_attempt(connection, attempt_id, AttemptState.RUNNING, **identity):
                change(connection, tables.AttemptRow, attempt_id, f"attempt {attempt_id}", **identity)

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

        A chunk that becomes done has exactly these problems: those of earlier attempts are dropped. An interrupted
        attempt does not change a chunk that is already split.
        """
        new = AttemptState(state)
        ended = columns_of(
            tables.AttemptRow, counters, finished_at_s=at_s, exit_code=exit_code, stderr_tail=stderr_tail
        )
        with self._database.write() as connection:
            if not _enter_attempt(connection, attempt_id, new, **ended):
                return
            chunk = connection.execute(_CHUNK_OF_ATTEMPT, {"attempt_id": attempt_id}).one()
            keeps_state = new is AttemptState.INTERRUPTED and chunk.state == ChunkState.SPLIT
            if not keeps_state and _enter_chunk(connection, chunk.id, chunk_state) and chunk_state is ChunkState.SPLIT:
                raise LedgerCorrupt(f"chunk {chunk.id} cannot be split without its halves")
            # `watch` alone reads the samples of a single stream, while it runs.
            connection.execute(_FORGET_SAMPLES, {"pass_id": chunk.pass_id, "attempt_id": attempt_id})
            if chunk_state is ChunkState.DONE:
                connection.execute(_FORGET_PROBLEMS, {"chunk_id": chunk.id})
            _record_problems(connection, chunk.pass_id, chunk.id, problems, at_s)

    def unfinished_attempts(self, *, pass_id: int | None = None, run_id: int | None = None) -> Sequence[AttemptRecord]:
        """Attempts that are intended or running, oldest first."""
        query = select(tables.AttemptRow).where(tables.UNFINISHED).order_by(_attempts.id)
        if pass_id is not None:
            of_pass = select(_chunks.id).where(_chunks.id == _attempts.chunk_id, _chunks.pass_id == pass_id)
            query = query.where(of_pass.exists())
        if run_id is not None:
            query = query.where(_attempts.run_id == run_id)
        return [_attempt(row) for row in self._rows(query)]

    def runs_with_attempts(self) -> Sequence[RunRecord]:
        """The runs with unfinished attempts, oldest first: runs at work, and those that were killed."""
        ids = select(_attempts.run_id).where(tables.UNFINISHED)
        return self._all(RunRecord, select(RunRow).where(RunRow.id.in_(ids)).order_by(RunRow.id))

    def attempts_of_chunk(self, chunk_id: int) -> Sequence[AttemptRecord]:
        """Every attempt at a chunk, oldest first."""
        query = select(tables.AttemptRow).where(_attempts.chunk_id == chunk_id).order_by(_attempts.number)
        return [_attempt(row) for row in self._rows(query)]

    def attention(self, pass_id: int, kind: FileProblemKind = FileProblemKind.BAD) -> Sequence[FileProblem]:
        """Files of a pass with a problem that no later attempt settled, in order of path."""
        query = select(tables.AttentionRow).where(_attention.pass_id == pass_id, _attention.kind == kind)
        return self._all(FileProblem, query.order_by(_attention.path))

    def vanished_count(self, pass_id: int) -> int:
        """The number of listed files that vanished before they were copied."""
        return self.problem_counts(pass_id).get(FileProblemKind.VANISHED, 0)

    def problem_counts(self, pass_id: int) -> Mapping[FileProblemKind, int]:
        """Files of a pass by problem; kinds without files are left out."""
        kind = _attention.kind
        counted = select(kind, func.count().label("files")).where(_attention.pass_id == pass_id).group_by(kind)
        return {row.kind: row.files for row in self._rows(counted)}

    def note(self, pass_id: int, problems: Sequence[FileProblem], at_s: float) -> None:
        """Record problems of files outside the chunks of a pass. May be called again."""
        with self._database.write() as connection:
            _record_problems(connection, pass_id, None, problems, at_s)


def _attempt(row: AnyRow) -> AttemptRecord:
    process = None if row.pid is None else record_of(row, ProcessIdentity)
    return record_of(row, AttemptRecord, process=process, counters=record_of(row, StreamCounters))


_ATTEMPT_STATES = States(tables.AttemptRow, states.ATTEMPT_TRANSITIONS, "id")


def _enter_attempt(connection: Connection, attempt_id: int, state: AttemptState, **values: object) -> bool:
    return _ATTEMPT_STATES.enter(connection, [attempt_id], state, f"attempt {attempt_id}", **values)


def _record_problems(
    connection: Connection, pass_id: int, chunk_id: int | None, problems: Sequence[FileProblem], at_s: float
) -> None:
    if not problems:
        return
    statement = upsert(tables.AttentionRow)
    replaced = {key: statement.excluded[key] for key in ("chunk_id", "kind", "errno", "reason", "at_s")}
    connection.execute(
        statement.on_conflict_do_update(index_elements=["pass_id", "path"], set_=replaced),
        [
            columns_of(tables.AttentionRow, problem, pass_id=pass_id, chunk_id=chunk_id, at_s=at_s)
            for problem in problems
        ],
    )
