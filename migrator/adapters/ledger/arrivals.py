"""What is not known to have arrived, by the passes that nothing later has settled."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, func, or_, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database
from migrator.domain.states import ChunkKind, ChunkState, PassKind, PassState
from migrator.domain.transfer import ListedChunk, NotArrived

_SETTLED_CHUNKS = (ChunkState.DONE.value, ChunkState.SPLIT.value)

_Pass = Row[Any]


class SqliteArrivals:
    """What has not arrived."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def not_arrived(self, plan: str, batch: int, trees: Collection[bytes] | None = None) -> NotArrived:
        """What is not known to have arrived in these trees, or in all of the batch: tree by tree by the newest pass over
        it that has gone through, and by all that followed that one. Of paths outside every tree nobody can tell: they
        count.
        """
        passes, chunks, attention = tables.passes.c, tables.chunks.c, tables.attention.c
        with self._database.read() as connection:
            found = connection.execute(
                select(tables.passes).where(passes.plan == plan, passes.batch == batch).order_by(passes.id)
            ).all()
            known = _trees(connection, plan, batch, found)
            wanted = known if trees is None else set(trees)
            paths: set[bytes] = set()
            unknown: set[bytes] = set()
            listed: set[tuple[str, int]] = set()
            for one, unsettled_trees in _unsettled(found, _covered(connection, found), wanted):
                of_pass = connection.execute(select(attention.path).where(attention.pass_id == one.id)).scalars()
                settled_trees = known - unsettled_trees
                paths.update(path for path in of_pass if _tree_of(path, known) not in settled_trees)
                if _is_unknown(one):
                    unknown |= unsettled_trees
                    continue
                rows = connection.execute(
                    select(chunks.number, chunks.list_path).where(
                        chunks.pass_id == one.id,
                        chunks.state.not_in(_SETTLED_CHUNKS),
                        # A driver's chunk has no list; the others go over its whole tree.
                        chunks.kind != ChunkKind.TREE.value,
                        chunks.tree.in_(sorted(unsettled_trees)),
                    )
                ).all()
                listed.update((row.list_path or one.chunk_list, row.number) for row in rows)
        return NotArrived(
            paths=tuple(sorted(paths - known)),
            chunks=tuple(ListedChunk(chunk_list=chunk_list, number=number) for chunk_list, number in sorted(listed)),
            trees=tuple(sorted(unknown | (paths & known))),
        )


def unsettled(path: ColumnElement[bytes]) -> ColumnElement[bool]:
    """Of passes, and a path that one of them tells of: that no later one over the tree of the path has gone through."""
    passes, later = tables.passes.c, tables.passes.alias().c
    pass_trees = tables.pass_trees.alias()
    covered = pass_trees.c
    of_later = select(covered.tree).where(covered.pass_id == later.id).correlate_except(pass_trees)
    length = func.length(covered.tree)
    within = or_(
        path == covered.tree,
        and_(func.substr(path, 1, length) == covered.tree, func.substr(path, length + 1, 1) == b"/"),
    )
    gone_through = select(later.id).where(
        later.plan == passes.plan,
        later.batch == passes.batch,
        later.id > passes.id,
        later.state == PassState.DONE.value,
        or_(~of_later.exists(), of_later.where(within).exists()),
    )
    return ~gone_through.exists()


def _trees(connection: Connection, plan: str, batch: int, passes: Sequence[_Pass]) -> set[bytes]:
    """All that the batch ever had: those of the plan, and those of its chunks."""
    in_batch, chunks = tables.batch_trees.c, tables.chunks.c
    planned = select(in_batch.tree).where(in_batch.plan == plan, in_batch.batch == batch)
    in_chunks = select(chunks.tree).where(chunks.pass_id.in_([one.id for one in passes])).distinct()
    return {*connection.execute(planned).scalars(), *connection.execute(in_chunks).scalars()}


def _covered(connection: Connection, passes: Sequence[_Pass]) -> Mapping[int, set[bytes]]:
    """The trees of passes; those of which nothing was recorded went over all."""
    of_pass = tables.pass_trees.c
    covered: dict[int, set[bytes]] = defaultdict(set)
    query = select(of_pass.pass_id, of_pass.tree).where(of_pass.pass_id.in_([one.id for one in passes]))
    for pass_id, tree in connection.execute(query):
        covered[pass_id].add(tree)
    return covered


def _unsettled(
    passes: Sequence[_Pass], covered: Mapping[int, set[bytes]], trees: set[bytes]
) -> list[tuple[_Pass, set[bytes]]]:
    """The passes that say anything, oldest first, with the trees that they say it of."""
    found: list[tuple[_Pass, set[bytes]]] = []
    settled: set[bytes] = set()
    for one in reversed(passes):
        mine = covered.get(one.id, trees) & trees
        if left := mine - settled:
            found.append((one, left))
        if one.state == PassState.DONE.value:
            settled |= mine
    return found[::-1]


def _is_unknown(one: _Pass) -> bool:
    """Whether nothing is known of the trees of a pass: it was cut off before it had renamed and taken away what it had
    to, or it is a seed pass that is under way.
    """
    if one.state == PassState.DONE.value:
        return False
    return one.kind == PassKind.SEED.value or (one.move_list is not None and one.moved_at_s is None)


def _tree_of(path: bytes, trees: set[bytes]) -> bytes | None:
    """The tree that a path is, or lies in."""
    end = len(path)
    while end > 0:
        if path[:end] in trees:
            return path[:end]
        end = path.rfind(b"/", 0, end)
    return None
