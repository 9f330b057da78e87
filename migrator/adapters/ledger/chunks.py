"""The chunks of passes."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, func, insert, or_, select, true, update

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.transitions import check, missing, state_of
from migrator.domain.errors import LedgerCorrupt
from migrator.domain.plan import Chunk
from migrator.domain.site import Need
from migrator.domain.states import CHUNK_TRANSITIONS, CONTENT_KINDS, ChunkKind, ChunkState
from migrator.domain.transfer import ChunkRecord
from migrator.ports.chunks import PassTotals

_TAKING_ROOM = (ChunkKind.DIRECTORIES, ChunkKind.RANGES, ChunkKind.FILES, ChunkKind.RANGED_FILES)
_INSERT_ROWS = 10_000
_INSERT_CHUNK = (
    "INSERT INTO chunks (pass_id, number, kind, tree, files, size_bytes, brick, state, tries) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', 0)"
)


class SqliteChunks:
    """Chunks. Sums of files and bytes leave chunks of directories out."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def chunk(self, chunk_id: int) -> ChunkRecord:
        """One chunk. Raises LedgerCorrupt where there is none."""
        with self._database.read() as connection:
            row = connection.execute(select(tables.chunks).where(tables.chunks.c.id == chunk_id)).one_or_none()
        if row is None:
            raise missing(f"chunk {chunk_id}")
        return chunk_record(row)

    def retry_failed(self, pass_id: int, *, but_trees: Collection[bytes] = ()) -> int:
        """Let the failed chunks of a pass wait again, with all their tries, but for those of some trees; returns how many
        there were. What comes into a directory changes its times: they are set anew in the trees of those chunks.
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
        """The chunks that `retry_failed` would let wait again, in order of number."""
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
        """Chunks of one kind that wait, the largest first, then in order of number; with `bricks` only those of these
        (None among them: those of no brick), and none of `but_trees`.
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
        """Where the chunks of a pass are to be read (None: through the mount), those that are done too."""
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
        """How many chunks of all kinds are in which state; files and bytes of those that hold files or links."""
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
        """What other plans have brought over, by tree; a file counts as an inode, and so does a directory."""
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
        """Replace a running chunk by its halves, whose numbers are given out here. Called again for a chunk that is
        split, it returns the halves that there are. What the chunk's attempts said of its files is forgotten: its
        halves say it anew.
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
    """Record the chunks of a new pass inside a transaction, all waiting; their files and bytes."""
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
    """Files and bytes of those chunks that count in sums."""
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
    return ChunkRecord(
        id=row.id,
        pass_id=row.pass_id,
        number=row.number,
        kind=ChunkKind(row.kind),
        tree=row.tree,
        files=row.files,
        size_bytes=row.size_bytes,
        state=ChunkState(row.state),
        tries=row.tries,
        list_path=row.list_path,
        brick=row.brick,
    )


def _but(trees: Collection[bytes]) -> ColumnElement[bool]:
    return tables.chunks.c.tree.not_in(sorted(trees)) if trees else true()


def _of_bricks(bricks: Collection[str | None] | None) -> ColumnElement[bool]:
    if bricks is None:
        return true()
    named = tables.chunks.c.brick.in_(sorted(brick for brick in bricks if brick is not None))
    return or_(named, tables.chunks.c.brick.is_(None)) if None in bricks else named


def _times_to_set_again(pass_id: int) -> ColumnElement[bool]:
    """The chunks of directories' times that are done, in trees where another chunk failed."""
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
