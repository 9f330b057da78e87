"""Chunks of passes, attempts at them, and files that need attention."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, func, insert, or_, select, true, update
from sqlalchemy.dialects.sqlite import insert as upsert

from migrator.core.errors import LedgerCorrupt
from migrator.core.states import (
    ATTEMPT_TRANSITIONS,
    CHUNK_TRANSITIONS,
    CONTENT_KINDS,
    AttemptState,
    ChunkKind,
    ChunkState,
)
from migrator.fs.model import Need
from migrator.hosts.model import ProcessIdentity
from migrator.ledger import tables
from migrator.ledger.database import Database, check, encode_words, missing, state_of
from migrator.ledger.model import PassTotals
from migrator.ledger.rows import record_of
from migrator.plan.model import Chunk
from migrator.transfer.model import AttemptRecord, ChunkRecord, FileProblem, FileProblemKind, StreamCounters

# Chunks.


_TAKING_ROOM = (ChunkKind.DIRECTORIES, ChunkKind.RANGES, ChunkKind.FILES, ChunkKind.RANGED_FILES)
_INSERT_ROWS = 10_000
_INSERT_CHUNK = (
    "INSERT INTO chunks (pass_id, number, kind, tree, files, size_bytes, brick, state, tries) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', 0)"
)


class ChunkTable:
    """Chunks. Sums of files and bytes do not include chunks of directories."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def chunk(self, chunk_id: int) -> ChunkRecord:
        """One chunk. Raises LedgerCorrupt if there is none."""
        with self._database.read() as connection:
            row = connection.execute(select(tables.chunks).where(tables.chunks.c.id == chunk_id)).one_or_none()
        if row is None:
            raise missing(f"chunk {chunk_id}")
        return chunk_record(row)

    def retry_failed(self, pass_id: int, *, but_trees: Collection[bytes] = ()) -> int:
        """Make the failed chunks of a pass pending again, with no tries used, except those of `but_trees`; return their number.
        Files that arrive in a directory change its times, so the times are set again in the trees of those chunks.
        """
        with self._database.write() as connection:
            connection.execute(
                update(tables.chunks)
                .where(_times_to_set_again(pass_id), _but(but_trees))
                .values(state=ChunkState.PENDING.value, tries=0)
            )
            return connection.execute(
                update(tables.chunks)
                .where(
                    tables.chunks.c.pass_id == pass_id,
                    tables.chunks.c.state == ChunkState.FAILED.value,
                    _but(but_trees),
                )
                .values(state=ChunkState.PENDING.value, tries=0)
            ).rowcount

    def to_retry(self, pass_id: int, *, but_trees: Collection[bytes] = ()) -> Sequence[ChunkRecord]:
        """The chunks that `retry_failed` would make pending, in order of number."""
        failed = (tables.chunks.c.pass_id == pass_id) & (tables.chunks.c.state == ChunkState.FAILED.value)
        with self._database.read() as connection:
            rows = connection.execute(
                select(tables.chunks)
                .where(failed | _times_to_set_again(pass_id), _but(but_trees))
                .order_by(tables.chunks.c.number)
            ).all()
        return [chunk_record(row) for row in rows]

    def pending(
        self,
        pass_id: int,
        kind: str,
        limit: int,
        *,
        bricks: Collection[str | None] | None = None,
        but_trees: Collection[bytes] = (),
    ) -> Sequence[ChunkRecord]:
        """Pending chunks of one kind, the largest first, then in order of number. `bricks` limits them to some bricks (None
        among these: chunks of no brick); chunks of `but_trees` are left out.
        """
        with self._database.read() as connection:
            rows = connection.execute(
                select(tables.chunks)
                .where(
                    tables.chunks.c.pass_id == pass_id,
                    tables.chunks.c.kind == str(kind),
                    tables.chunks.c.state == ChunkState.PENDING.value,
                    _of_bricks(bricks),
                    _but(but_trees),
                )
                .order_by(tables.chunks.c.size_bytes.desc(), tables.chunks.c.number)
                .limit(limit)
            ).all()
        return [chunk_record(row) for row in rows]

    def bricks(self, pass_id: int) -> frozenset[str | None]:
        """The bricks that the chunks of a pass are read from, including done chunks; None stands for the mount."""
        with self._database.read() as connection:
            query = select(tables.chunks.c.brick).where(tables.chunks.c.pass_id == pass_id).distinct()
            return frozenset(connection.execute(query).scalars())

    def failed(self, pass_id: int) -> Sequence[ChunkRecord]:
        """Chunks that failed, of all kinds, in order of number."""
        with self._database.read() as connection:
            rows = connection.execute(
                select(tables.chunks)
                .where(tables.chunks.c.pass_id == pass_id, tables.chunks.c.state == ChunkState.FAILED.value)
                .order_by(tables.chunks.c.number)
            ).all()
        return [chunk_record(row) for row in rows]

    def totals(self, pass_id: int) -> PassTotals:
        """Chunks of all kinds by state; files and bytes of those that hold files or links."""
        with self._database.read() as connection:
            rows = connection.execute(
                select(
                    tables.chunks.c.kind,
                    tables.chunks.c.state,
                    func.count(),
                    func.sum(tables.chunks.c.files),
                    func.sum(tables.chunks.c.size_bytes),
                )
                .where(tables.chunks.c.pass_id == pass_id)
                .group_by(tables.chunks.c.kind, tables.chunks.c.state)
            ).all()
        chunks: dict[ChunkState, int] = {}
        done_files = done_bytes = all_files = all_bytes = 0
        for kind, state, count, files, size_bytes in rows:
            chunks[ChunkState(state)] = chunks.get(ChunkState(state), 0) + count
            if state == ChunkState.SPLIT.value or kind not in CONTENT_KINDS:
                continue
            all_files += files
            all_bytes += size_bytes
            if state == ChunkState.DONE.value:
                done_files += files
                done_bytes += size_bytes
        return PassTotals(
            chunks=chunks, done_files=done_files, done_bytes=done_bytes, files=all_files, size_bytes=all_bytes
        )

    def arrived(self, *, before_plan: str) -> Mapping[bytes, Need]:
        """What other plans have copied, by tree. A file counts as an inode, and so does a directory."""
        chunks, passes = tables.chunks.c, tables.passes.c
        with self._database.read() as connection:
            rows = connection.execute(
                select(chunks.tree, func.sum(chunks.size_bytes), func.sum(chunks.files))
                .join(tables.passes, passes.id == chunks.pass_id)
                .where(
                    passes.plan != before_plan,
                    chunks.state == ChunkState.DONE.value,
                    chunks.kind.in_(_TAKING_ROOM),
                )
                .group_by(chunks.pass_id, chunks.tree)
            ).all()
        most: dict[bytes, Need] = {}
        for tree, size_bytes, inodes in rows:
            known = most.get(tree, Need())
            most[tree] = Need(size_bytes=max(known.size_bytes, size_bytes), inodes=max(known.inodes, inodes))
        return most

    def split(self, chunk_id: int, halves: Sequence[tuple[Chunk, str]]) -> Sequence[ChunkRecord]:
        """Replace a running chunk by its halves and number these. Called again for a split chunk, it returns the existing
        halves. Problems of files that attempts at the chunk reported are dropped: the halves report them again.
        """
        with self._database.write() as connection:
            there = _halves(connection, chunk_id)
            if there:
                return there
            what = f"chunk {chunk_id}"
            if not halves:
                raise LedgerCorrupt(f"{what} cannot be split into nothing")
            old = state_of(connection, tables.chunks, chunk_id, ChunkState, what)
            check(CHUNK_TRANSITIONS, old, ChunkState.SPLIT, what)
            parent = connection.execute(
                update(tables.chunks)
                .where(tables.chunks.c.id == chunk_id)
                .values(state=ChunkState.SPLIT.value)
                .returning(tables.chunks)
            ).one()
            first = _next_number(connection, parent.pass_id)
            connection.execute(
                insert(tables.chunks),
                [
                    {
                        "pass_id": parent.pass_id,
                        "number": first + offset,
                        "kind": half.kind.value,
                        "tree": half.tree,
                        "files": half.files,
                        "size_bytes": half.size_bytes,
                        "brick": half.brick,
                        "state": ChunkState.PENDING.value,
                        "tries": 0,
                        "list_path": list_path,
                        "parent_id": chunk_id,
                    }
                    for offset, (half, list_path) in enumerate(halves)
                ],
            )
            connection.execute(delete(tables.attention).where(tables.attention.c.chunk_id == chunk_id))
            return _halves(connection, chunk_id)

    def next_chunk_number(self, pass_id: int) -> int:
        """The first number that no chunk of the pass has."""
        with self._database.read() as connection:
            return _next_number(connection, pass_id)


def insert_chunks(connection: Connection, pass_id: int, chunks: Iterable[Chunk]) -> tuple[int, int]:
    """Record the chunks of a new pass inside a transaction, all pending; return their files and bytes."""
    files = size_bytes = 0
    waiting = iter(chunks)
    while some := list(islice(waiting, _INSERT_ROWS)):
        connection.exec_driver_sql(
            _INSERT_CHUNK,
            [
                (pass_id, chunk.number, chunk.kind.value, chunk.tree, chunk.files, chunk.size_bytes, chunk.brick)
                for chunk in some
            ],
        )
        some_files, some_bytes = content_sum(some)
        files, size_bytes = files + some_files, size_bytes + some_bytes
    return files, size_bytes


def content_sum(chunks: Iterable[Chunk]) -> tuple[int, int]:
    """Files and bytes of the chunks that count in sums."""
    files = size_bytes = 0
    for chunk in chunks:
        if chunk.kind in CONTENT_KINDS:
            files += chunk.files
            size_bytes += chunk.size_bytes
    return files, size_bytes


def change_chunk(connection: Connection, chunk_id: int, state: ChunkState) -> None:
    """Change a chunk's state inside a transaction."""
    what = f"chunk {chunk_id}"
    old = state_of(connection, tables.chunks, chunk_id, ChunkState, what)
    if check(CHUNK_TRANSITIONS, old, state, what):
        if state is ChunkState.SPLIT:
            raise LedgerCorrupt(f"{what} cannot be split without its halves")
        connection.execute(update(tables.chunks).where(tables.chunks.c.id == chunk_id).values(state=state.value))


def chunk_record(row: Row[Any]) -> ChunkRecord:
    """A chunk, from its row."""
    return record_of(row, ChunkRecord)


def _but(trees: Collection[bytes]) -> ColumnElement[bool]:
    return tables.chunks.c.tree.not_in(sorted(trees)) if trees else true()


def _of_bricks(bricks: Collection[str | None] | None) -> ColumnElement[bool]:
    if bricks is None:
        return true()
    named = tables.chunks.c.brick.in_(sorted(brick for brick in bricks if brick is not None))
    return or_(named, tables.chunks.c.brick.is_(None)) if None in bricks else named


def _times_to_set_again(pass_id: int) -> ColumnElement[bool]:
    """Done chunks of directories' times, in trees in which another chunk failed."""
    other = tables.chunks.alias()
    trees = select(other.c.tree).where(
        other.c.pass_id == pass_id,
        other.c.state == ChunkState.FAILED.value,
        other.c.kind != ChunkKind.DIRECTORY_TIMES.value,
    )
    return and_(
        tables.chunks.c.pass_id == pass_id,
        tables.chunks.c.kind == ChunkKind.DIRECTORY_TIMES.value,
        tables.chunks.c.state == ChunkState.DONE.value,
        tables.chunks.c.tree.in_(trees),
    )


def _halves(connection: Connection, chunk_id: int) -> list[ChunkRecord]:
    rows = connection.execute(
        select(tables.chunks).where(tables.chunks.c.parent_id == chunk_id).order_by(tables.chunks.c.number)
    ).all()
    return [chunk_record(row) for row in rows]


def _next_number(connection: Connection, pass_id: int) -> int:
    highest = connection.execute(
        select(func.max(tables.chunks.c.number)).where(tables.chunks.c.pass_id == pass_id)
    ).scalar()
    return 1 if highest is None else int(highest) + 1


# Attempts, and files that did not arrive.


_PATHS_AT_ONCE = 500


class AttemptTable:
    """Attempts. `tries` of a chunk does not count interrupted attempts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def intend(self, *, chunk_id: int, token: str, host: str, engine: str, argv: Sequence[str], at_s: float) -> int:
        """Record an attempt before its process starts; the chunk becomes running. The same token gives the same attempt.
        Raises LedgerCorrupt if the chunk is not pending, or has an unfinished attempt.
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
                    argv=encode_words(argv),
                    started_at_s=at_s,
                    files=0,
                    size_bytes=0,
                    stderr_tail=b"",
                )
                .returning(tables.attempts.c.id)
            ).one()
        return int(row.id)

    def started(self, attempt_id: int, process: ProcessIdentity) -> None:
        """The process of an attempt has started."""
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

        A chunk that becomes done has exactly these problems: those of earlier attempts are dropped. An interrupted
        attempt does not change a chunk that is already split.
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
        """Files of a pass with a problem that no later attempt settled, in order of path."""
        with self._database.read() as connection:
            rows = connection.execute(
                select(tables.attention)
                .where(tables.attention.c.pass_id == pass_id, tables.attention.c.kind == kind.value)
                .order_by(tables.attention.c.path)
            ).all()
        return [file_problem(row) for row in rows]

    def vanished_count(self, pass_id: int) -> int:
        """How many listed files had vanished before they were copied."""
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
        """Files of a pass by problem; kinds without files are left out."""
        kind = tables.attention.c.kind
        query = select(kind, func.count()).where(tables.attention.c.pass_id == pass_id).group_by(kind)
        with self._database.read() as connection:
            return {FileProblemKind(found): count for found, count in connection.execute(query)}

    def note(self, pass_id: int, problems: Sequence[FileProblem], at_s: float) -> None:
        """Record problems of files outside the chunks of a pass. May be called again."""
        with self._database.write() as connection:
            _record_problems(connection, pass_id, None, problems, at_s)

    def clear_attention(self, pass_id: int, paths: Sequence[bytes]) -> None:
        """These files no longer need attention."""
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
    return record_of(row, FileProblem)


def attempt_record(row: Row[Any]) -> AttemptRecord:
    """An attempt, from its row."""
    return record_of(
        row,
        AttemptRecord,
        process=None if row.pid is None else record_of(row, ProcessIdentity),
        counters=record_of(row, StreamCounters),
    )


# Chunks of whole trees, which drivers copy.


class TreeTable:
    """Chunks of whole trees, made for a driver in addition to those of the plan."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_trees(self, pass_id: int, trees: Mapping[bytes, Need]) -> Sequence[ChunkRecord]:
        """One chunk for each tree, in the given order. Existing chunks are not changed."""
        chunks = tables.chunks.c
        of_pass = (chunks.pass_id == pass_id) & (chunks.kind == ChunkKind.TREE.value)
        with self._database.write() as connection:
            there = set(connection.execute(select(chunks.tree).where(of_pass)).scalars())
            highest = connection.execute(select(func.max(chunks.number)).where(chunks.pass_id == pass_id)).scalar()
            missing = [tree for tree in trees if tree not in there]
            if missing:
                connection.execute(
                    insert(tables.chunks),
                    [
                        {
                            "pass_id": pass_id,
                            "number": (highest or 0) + place,
                            "kind": ChunkKind.TREE.value,
                            "tree": tree,
                            "files": trees[tree].inodes,
                            "size_bytes": trees[tree].size_bytes,
                            "state": ChunkState.PENDING.value,
                            "tries": 0,
                        }
                        for place, tree in enumerate(missing, start=1)
                    ],
                )
            rows = connection.execute(select(tables.chunks).where(of_pass)).all()
        found = {row.tree: chunk_record(row) for row in rows}
        return [found[tree] for tree in trees]

    def sent_since(self, pass_id: int, attempt_id: int) -> StreamCounters:
        """What later attempts have copied, without those at whole trees."""
        attempts, chunks = tables.attempts.c, tables.chunks.c
        with self._database.read() as connection:
            files, size_bytes = connection.execute(
                select(func.coalesce(func.sum(attempts.files), 0), func.coalesce(func.sum(attempts.size_bytes), 0))
                .join(tables.chunks, chunks.id == attempts.chunk_id)
                .where(chunks.pass_id == pass_id, chunks.kind != ChunkKind.TREE.value, attempts.id > attempt_id)
            ).one()
        return StreamCounters(files=files, size_bytes=size_bytes)
