"""What is not known to have arrived, by the passes that nothing later has settled."""

from sqlalchemy import ColumnElement, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database
from migrator.domain.states import ChunkKind, ChunkState, PassState
from migrator.domain.transfer import ListedChunk, NotArrived

_SETTLED_CHUNKS = (ChunkState.DONE.value, ChunkState.SPLIT.value)


class SqliteArrivals:
    """What has not arrived."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def not_arrived(self, plan: str, batch: int) -> NotArrived:
        """What is not known to have arrived: of the newest pass that has gone through and of all that followed it."""
        passes, chunks, attention = tables.passes.c, tables.chunks.c, tables.attention.c
        of_batch = (passes.plan == plan) & (passes.batch == batch)
        with self._database.read() as connection:
            found = connection.execute(
                select(passes.id, passes.state, passes.chunk_list).where(of_batch, unsettled())
            ).all()
            lists = {row.id: row.chunk_list for row in found}
            done = [row.id for row in found if row.state == PassState.DONE.value]
            in_batch = tables.batch_trees.c
            trees = set(
                connection.execute(
                    select(in_batch.tree).where(in_batch.plan == plan, in_batch.batch == batch)
                ).scalars()
            )
            in_chunks = select(chunks.tree).where(chunks.pass_id.in_(lists)).distinct()
            trees.update(connection.execute(in_chunks).scalars())
            paths = set(connection.execute(select(attention.path).where(attention.pass_id.in_(lists))).scalars())
            rows = connection.execute(
                select(chunks.pass_id, chunks.number, chunks.list_path).where(
                    chunks.pass_id.in_(done),
                    chunks.state.not_in(_SETTLED_CHUNKS),
                    # A driver's chunk has no list; the others go over its whole tree.
                    chunks.kind != ChunkKind.TREE.value,
                )
            ).all()
        listed = {(row.list_path or lists[row.pass_id], row.number) for row in rows}
        return NotArrived(
            paths=tuple(sorted(paths - trees)),
            chunks=tuple(ListedChunk(chunk_list=chunk_list, number=number) for chunk_list, number in sorted(listed)),
            trees=tuple(sorted(trees if len(done) < len(found) else paths & trees)),
        )


def unsettled() -> ColumnElement[bool]:
    """Of passes: that no later one over the same batch has gone through."""
    passes, later = tables.passes.c, tables.passes.alias().c
    gone_through = select(later.id).where(
        later.plan == passes.plan,
        later.batch == passes.batch,
        later.id > passes.id,
        later.state == PassState.DONE.value,
    )
    return ~gone_through.exists()
