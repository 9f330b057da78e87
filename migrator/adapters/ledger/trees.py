"""Chunks of whole trees, which drivers copy."""

from collections.abc import Mapping, Sequence

from sqlalchemy import func, insert, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.chunks import chunk_record
from migrator.adapters.ledger.database import Database
from migrator.domain.site import Need
from migrator.domain.states import ChunkKind, ChunkState
from migrator.domain.transfer import ChunkRecord, StreamCounters


class SqliteTrees:
    """Chunks of whole trees. They are made when a driver is asked for, beside those of the plan."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_trees(self, pass_id: int, trees: Mapping[bytes, Need]) -> Sequence[ChunkRecord]:
        """One chunk for each tree, in the order given; those that the pass has already stay as they are."""
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
        """What the attempts after this one have brought, those at whole trees aside."""
        attempts, chunks = tables.attempts.c, tables.chunks.c
        with self._database.read() as connection:
            files, size_bytes = connection.execute(
                select(func.coalesce(func.sum(attempts.files), 0), func.coalesce(func.sum(attempts.size_bytes), 0))
                .join(tables.chunks, chunks.id == attempts.chunk_id)
                .where(chunks.pass_id == pass_id, chunks.kind != ChunkKind.TREE.value, attempts.id > attempt_id)
            ).one()
        return StreamCounters(files=files, size_bytes=size_bytes)
