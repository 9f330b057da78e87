"""Passes over batches, the changes before each, paths that did not arrive, and predictions."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, insert, or_, select, update

from migrator.core.errors import LedgerCorrupt
from migrator.core.paths import percent_escape, percent_unescape
from migrator.core.states import PASS_TRANSITIONS, ChunkKind, ChunkState, PassKind, PassState
from migrator.delta.model import ChangeKind, Changes, ChangeTally, TreeChanges
from migrator.ledger import tables
from migrator.ledger.chunks import content_sum, insert_chunks
from migrator.ledger.database import Database, check, expect_one, missing, state_of
from migrator.ledger.model import PassRecord
from migrator.ledger.rows import record_of
from migrator.plan.model import Chunk
from migrator.transfer.model import (
    ConvergenceOutcome,
    ConvergenceRecord,
    ListedChunk,
    NotArrived,
    Prediction,
    TreeChurn,
)

# Passes, and what changed before each.


class PassTable:
    """Passes. A batch has one seed, and any number of deltas and finals, each kind numbered from 1."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, plan: str, batch: int, kind: PassKind) -> PassRecord | None:
        """The latest pass of a kind over a batch."""
        passes = tables.passes.c
        query = (
            select(tables.passes)
            .where(passes.plan == plan, passes.batch == batch, passes.kind == kind.value)
            .order_by(passes.number.desc())
            .limit(1)
        )
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else pass_record(row)

    def start(
        self,
        *,
        plan: str,
        batch: int,
        kind: PassKind,
        number: int = 0,
        catalog: str,
        base_catalog: str | None = None,
        chunk_list: str,
        move_list: str | None = None,
        move_list_digest: str | None = None,
        scan_s: float | None = None,
        changes: Changes | None = None,
        chunks: Iterable[Chunk],
        at_s: float,
    ) -> PassRecord:
        """Record a pass, all its chunks and what changed in one transaction.

        Returns a pass that is already recorded. Raises LedgerCorrupt if that one has other chunks, changes, catalogs or
        lists, if the changes are of other catalogs than the pass, and for a number that its kind cannot have.
        """
        key = {"plan": plan, "batch": batch, "kind": kind.value, "number": number}
        made_from = {
            "catalog": catalog,
            "base_catalog": base_catalog,
            "chunk_list": chunk_list,
            "move_list": move_list,
            "move_list_digest": move_list_digest,
        }
        with self._database.write() as connection:
            there = connection.execute(select(tables.passes).filter_by(**key)).one_or_none()
            if there is not None:
                if content_sum(chunks) != (there.total_files, there.total_bytes):
                    raise _other(there, "with other chunks")
                if any(getattr(there, name) != value for name, value in made_from.items()):
                    raise _other(there, "by other catalogs or lists")
                if changes is not None:
                    _record_changes(connection, there, changes)
                return pass_record(there)
            row = connection.execute(
                insert(tables.passes)
                .values(
                    **key,
                    **made_from,
                    scan_s=scan_s,
                    state=PassState.RUNNING.value,
                    started_at_s=at_s,
                    total_files=0,
                    total_bytes=0,
                )
                .returning(tables.passes)
            ).one()
            files, size_bytes = insert_chunks(connection, row.id, chunks)
            if changes is not None:
                _record_changes(connection, row, changes)
            row = connection.execute(
                update(tables.passes)
                .where(tables.passes.c.id == row.id)
                .values(total_files=files, total_bytes=size_bytes)
                .returning(tables.passes)
            ).one()
        return pass_record(row)

    def read(self, pass_id: int) -> PassRecord:
        """One pass. Raises LedgerCorrupt if there is none."""
        with self._database.read() as connection:
            return pass_record(_row(connection, pass_id))

    def set_state(self, pass_id: int, state: PassState, at_s: float) -> None:
        """A pass stops, resumes or is done. Raises LedgerCorrupt for a change that the states do not allow."""
        what = f"pass {pass_id}"
        with self._database.write() as connection:
            old = state_of(connection, tables.passes, pass_id, PassState, what)
            if check(PASS_TRANSITIONS, old, state, what):
                connection.execute(
                    update(tables.passes)
                    .where(tables.passes.c.id == pass_id)
                    .values(state=state.value, finished_at_s=at_s if state is PassState.DONE else None)
                )

    def of_plan(self, plan: str) -> Sequence[PassRecord]:
        """Every pass of a plan, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(
                select(tables.passes).where(tables.passes.c.plan == plan).order_by(tables.passes.c.id)
            ).all()
        return [pass_record(row) for row in rows]

    def of_batch(self, plan: str, batch: int) -> Sequence[PassRecord]:
        """Every pass over a batch, of all kinds, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(
                select(tables.passes)
                .where(tables.passes.c.plan == plan, tables.passes.c.batch == batch)
                .order_by(tables.passes.c.id)
            ).all()
        return [pass_record(row) for row in rows]

    def over_tree(self, tree: bytes) -> Sequence[PassRecord]:
        """Every pass over a user tree, of any plan and batch, oldest first."""
        passes, in_batch, of_pass = tables.passes.c, tables.batch_trees.c, tables.pass_trees.c
        planned = select(in_batch.tree).where(
            in_batch.plan == passes.plan, in_batch.batch == passes.batch, in_batch.tree == tree
        )
        recorded = select(of_pass.tree).where(of_pass.pass_id == passes.id)
        # A pass without recorded trees went over its whole batch.
        over = or_(recorded.where(of_pass.tree == tree).exists(), and_(planned.exists(), ~recorded.exists()))
        with self._database.read() as connection:
            rows = connection.execute(select(tables.passes).where(over).order_by(passes.id)).all()
        return [pass_record(row) for row in rows]

    def moves_done(self, pass_id: int, at_s: float) -> None:
        """The renames and deletions of a pass are on the target's disks. The first call counts."""
        passes = tables.passes.c
        with self._database.write() as connection:
            row = _row(connection, pass_id)
            if row.moved_at_s is None:
                count = connection.execute(
                    update(tables.passes).where(passes.id == pass_id).values(moved_at_s=at_s)
                ).rowcount
                expect_one(count, f"pass {pass_id}")

    def changes(self, pass_id: int) -> Changes | None:
        """The recorded changes of a pass, trees in order of path; None if there are none."""
        with self._database.read() as connection:
            return _read_changes(connection, _row(connection, pass_id))


def _row(connection: Connection, pass_id: int) -> Row[Any]:
    row = connection.execute(select(tables.passes).where(tables.passes.c.id == pass_id)).one_or_none()
    if row is None:
        raise missing(f"pass {pass_id}")
    return row


def _record_changes(connection: Connection, row: Row[Any], changes: Changes) -> None:
    if (changes.base, changes.now) != (row.base_catalog, row.catalog):
        raise LedgerCorrupt(
            f"pass {row.id} was made from other catalogs than these changes",
            hint="run the same command again",
        )
    there = _read_changes(connection, row)
    wanted = _in_order(changes)
    if there is not None:
        if there != wanted:
            raise _other(row, "by other changes")
        return
    if not wanted.trees:
        return
    connection.execute(
        insert(tables.pass_trees),
        [
            {
                "pass_id": row.id,
                "tree": tree.tree,
                "names_before": tree.names_before,
                "bytes_before": tree.bytes_before,
            }
            for tree in wanted.trees
        ],
    )
    rows = [
        {
            "pass_id": row.id,
            "tree": tree.tree,
            "kind": kind.value,
            "paths": tally.paths,
            "directories": tally.directories,
            "size_bytes": tally.size_bytes,
        }
        for tree in wanted.trees
        for kind, tally in tree.by_kind.items()
    ]
    if rows:
        connection.execute(insert(tables.pass_changes), rows)


def _read_changes(connection: Connection, row: Row[Any]) -> Changes | None:
    trees, kinds = tables.pass_trees, tables.pass_changes
    of_trees = connection.execute(select(trees).where(trees.c.pass_id == row.id).order_by(trees.c.tree)).all()
    if not of_trees:
        return None
    found: dict[bytes, dict[ChangeKind, ChangeTally]] = {}
    for one in connection.execute(select(kinds).where(kinds.c.pass_id == row.id)):
        tally = ChangeTally(paths=one.paths, directories=one.directories, size_bytes=one.size_bytes)
        found.setdefault(one.tree, {})[ChangeKind(one.kind)] = tally
    return Changes(
        base=row.base_catalog or "",
        now=row.catalog,
        trees=tuple(
            TreeChanges(
                tree=one.tree,
                names_before=one.names_before,
                bytes_before=one.bytes_before,
                by_kind=found.get(one.tree, {}),
            )
            for one in of_trees
        ),
    )


def _in_order(changes: Changes) -> Changes:
    """In the form in which changes are read: trees in order of path, without empty kinds."""
    nothing = ChangeTally()
    return Changes(
        base=changes.base,
        now=changes.now,
        trees=tuple(
            TreeChanges(
                tree=tree.tree,
                names_before=tree.names_before,
                bytes_before=tree.bytes_before,
                by_kind={kind: tally for kind, tally in tree.by_kind.items() if tally != nothing},
            )
            for tree in sorted(changes.trees, key=lambda tree: tree.tree)
        ),
    )


def _other(row: Row[Any], how: str) -> LedgerCorrupt:
    which = row.kind if row.kind == PassKind.SEED.value else f"{row.kind} {row.number}"
    return LedgerCorrupt(
        f"the {which} pass over batch {row.batch} of plan {row.plan} is in the ledger {how}",
        cause="lists were changed after the pass had begun",
        hint="restore the plan's files, or make a new plan under another name",
    )


def pass_record(row: Row[Any]) -> PassRecord:
    """A pass, from its row."""
    return record_of(row, PassRecord)


# Paths that have not arrived.


_SETTLED_CHUNKS = (ChunkState.DONE.value, ChunkState.SPLIT.value)

_Pass = Row[Any]


class ArrivalTable:
    """Paths that have not arrived."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def not_arrived(self, plan: str, batch: int, trees: Collection[bytes] | None = None) -> NotArrived:
        """What is not known to have arrived in these trees, or in the whole batch. For each tree the newest pass that is done
        counts, and all later ones. Paths outside every tree count always.
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
    """The condition that no later pass over the tree of `path` is done."""
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
    """All trees of the batch: those of the plan, and those of its chunks."""
    in_batch, chunks = tables.batch_trees.c, tables.chunks.c
    planned = select(in_batch.tree).where(in_batch.plan == plan, in_batch.batch == batch)
    in_chunks = select(chunks.tree).where(chunks.pass_id.in_([one.id for one in passes])).distinct()
    return {*connection.execute(planned).scalars(), *connection.execute(in_chunks).scalars()}


def _covered(connection: Connection, passes: Sequence[_Pass]) -> Mapping[int, set[bytes]]:
    """The recorded trees of passes. A pass without any went over all trees."""
    of_pass = tables.pass_trees.c
    covered: dict[int, set[bytes]] = defaultdict(set)
    query = select(of_pass.pass_id, of_pass.tree).where(of_pass.pass_id.in_([one.id for one in passes]))
    for pass_id, tree in connection.execute(query):
        covered[pass_id].add(tree)
    return covered


def _unsettled(
    passes: Sequence[_Pass], covered: Mapping[int, set[bytes]], trees: set[bytes]
) -> list[tuple[_Pass, set[bytes]]]:
    """The passes that no later one has settled, oldest first, with the trees that this holds for."""
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
    """Whether nothing is known about the trees of a pass: its renames and deletions are unfinished, or it is an unfinished seed
    pass.
    """
    if one.state == PassState.DONE.value:
        return False
    return one.kind == PassKind.SEED.value or (one.move_list is not None and one.moved_at_s is None)


def _tree_of(path: bytes, trees: set[bytes]) -> bytes | None:
    """The tree that a path is or lies in."""
    end = len(path)
    while end > 0:
        if path[:end] in trees:
            return path[:end]
        end = path.rfind(b"/", 0, end)
    return None


# Predictions.


class PredictionRecords:
    """Predictions and decisions after delta passes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, record: ConvergenceRecord) -> None:
        """Store the prediction after a pass, replacing an earlier one."""
        found = record.prediction
        with self._database.write() as connection:
            connection.execute(
                insert(tables.predictions)
                .prefix_with("OR REPLACE")
                .values(
                    pass_id=record.pass_id,
                    at_s=record.at_s,
                    decision=record.outcome.value,
                    max_freeze_s=record.max_freeze_s,
                    next_pass_s=found.next_pass_s,
                    freeze_s=found.freeze_s,
                    least_freeze_s=found.least_freeze_s,
                    churn_files_per_h=found.churn_files_per_h,
                    churn_bytes_per_h=found.churn_bytes_per_h,
                    churn_of_trees=_encode_trees(found.trees),
                )
            )

    def of_batch(self, plan: str, batch: int) -> Sequence[ConvergenceRecord]:
        """The predictions of a batch, in the order of its passes."""
        return self._read(_of_plan(plan).where(tables.passes.c.batch == batch))

    def of_plan(self, plan: str) -> Sequence[ConvergenceRecord]:
        """The predictions of all batches of a plan, in the order of the passes."""
        return self._read(_of_plan(plan))

    def _read(self, query: Select[Any]) -> Sequence[ConvergenceRecord]:
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [_record(row) for row in rows]


def _of_plan(plan: str) -> Select[Any]:
    return (
        select(tables.passes.c.batch, tables.predictions)
        .join(tables.passes, tables.passes.c.id == tables.predictions.c.pass_id)
        .where(tables.passes.c.plan == plan)
        .order_by(tables.predictions.c.pass_id)
    )


def _record(row: Row[Any]) -> ConvergenceRecord:
    return record_of(
        row,
        ConvergenceRecord,
        outcome=ConvergenceOutcome(row.decision),
        prediction=record_of(row, Prediction, trees=_decode_trees(row.churn_of_trees)),
    )


def _encode_trees(trees: Sequence[TreeChurn]) -> str:
    return json.dumps([[percent_escape(tree.tree), tree.files_per_h, tree.bytes_per_h] for tree in trees])


def _decode_trees(text: str) -> tuple[TreeChurn, ...]:
    return tuple(
        TreeChurn(tree=percent_unescape(tree), files_per_h=files_per_h, bytes_per_h=bytes_per_h)
        for tree, files_per_h, bytes_per_h in json.loads(text)
    )
