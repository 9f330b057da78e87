"""Archives of old and tiny files in the ledger."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, Select, insert, select, update

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.transitions import check, state_of
from migrator.domain.archives import ARCHIVE_TRANSITIONS, ArchiveRecord, ArchiveState, WrittenArchive

_archives = tables.archives


class SqliteArchives:
    """Archives of old and tiny files."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, *, plan: str, batch: int, tree: bytes, number: int, written: WrittenArchive, at_s: float
    ) -> ArchiveRecord:
        """An archive that is written; a number is taken once in a tree."""
        with self._database.write() as connection:
            row = connection.execute(
                insert(_archives)
                .values(
                    plan=plan,
                    batch=batch,
                    tree=tree,
                    number=number,
                    members=written.members,
                    content_bytes=written.content_bytes,
                    archive_bytes=written.archive_bytes,
                    index_bytes=written.index_bytes,
                    archive_digest=written.archive_digest,
                    index_digest=written.index_digest,
                    state=ArchiveState.WRITTEN.value,
                    at_s=at_s,
                    reason="",
                )
                .returning(_archives)
            ).one()
        return _record(row)

    def prove(self, archive_id: int, *, at_s: float) -> None:
        """It was read back. May be called again."""
        self._set(archive_id, ArchiveState.PROVEN, at_s, "")

    def void(self, archive_id: int, reason: str, *, at_s: float) -> None:
        """It does not count. May be called again."""
        self._set(archive_id, ArchiveState.VOID, at_s, reason)

    def of_tree(self, tree: bytes) -> Sequence[ArchiveRecord]:
        """Every archive of a tree, oldest first."""
        return self._read(select(_archives).where(_archives.c.tree == tree).order_by(_archives.c.number))

    def of_plan(self, plan: str, batch: int | None = None) -> Sequence[ArchiveRecord]:
        """Every archive of a plan, or of one of its batches, oldest first."""
        query = select(_archives).where(_archives.c.plan == plan)
        return self._read(
            (query if batch is None else query.where(_archives.c.batch == batch)).order_by(_archives.c.id)
        )

    def _set(self, archive_id: int, state: ArchiveState, at_s: float, reason: str) -> None:
        what = f"archive {archive_id}"
        with self._database.write() as connection:
            old = state_of(connection, _archives, archive_id, ArchiveState, what)
            if check(ARCHIVE_TRANSITIONS, old, state, what):
                connection.execute(
                    update(_archives)
                    .where(_archives.c.id == archive_id)
                    .values(state=state.value, at_s=at_s, reason=reason)
                )

    def _read(self, query: Select[Any]) -> Sequence[ArchiveRecord]:
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [_record(row) for row in rows]


def _record(row: Row[Any]) -> ArchiveRecord:
    return ArchiveRecord(
        id=row.id,
        plan=row.plan,
        batch=row.batch,
        tree=row.tree,
        number=row.number,
        written=WrittenArchive(
            members=row.members,
            content_bytes=row.content_bytes,
            archive_bytes=row.archive_bytes,
            index_bytes=row.index_bytes,
            archive_digest=row.archive_digest,
            index_digest=row.index_digest,
        ),
        state=ArchiveState(row.state),
        at_s=row.at_s,
        reason=row.reason,
    )
