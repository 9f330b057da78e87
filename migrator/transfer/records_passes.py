"""The records of passes over batches, the changes before each, paths that did not arrive, and predictions."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace
from sqlalchemy import ColumnElement, Connection, SQLColumnExpression, and_, func, insert, or_, select
from sqlalchemy.orm import aliased

from migrator.core.errors import LedgerCorrupt
from migrator.core.paths import tree_of
from migrator.core.states import PASS_TRANSITIONS, ChunkKind, ChunkState, PassKind, PassState
from migrator.ledger.database import missing
from migrator.ledger.rows import AnyRow, AnySelect, Records, States, add, change, columns_of, record_of
from migrator.plan.model import Chunk
from migrator.plan.tables import BatchTreeRow
from migrator.transfer import tables
from migrator.transfer.delta.model import ChangeKind, Changes, ChangeTally, TreeChanges
from migrator.transfer.model import ListedChunk, NotArrived, PassRecord
from migrator.transfer.model_convergence import ConvergenceRecord, Prediction
from migrator.transfer.records_chunks import content_sum, insert_chunks

# Passes, and the changes before each.


_passes = tables.PassRow
_STATES = States(tables.PassRow, PASS_TRANSITIONS, "id")


class PassTable(Records):
    """Passes. A batch has one seed, and any number of deltas and finals, each kind numbered from 1."""

    def find(self, plan: str, batch: int, kind: PassKind) -> PassRecord | None:
        """The latest pass of a kind over a batch."""
        these = (_passes.plan == plan, _passes.batch == batch, _passes.kind == kind)
        return self._first(PassRecord, select(tables.PassRow).where(*these).order_by(_passes.number.desc()))

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
        """Record a pass, all its chunks and its changes in one transaction.

        If the pass is already recorded, return that record. Raises LedgerCorrupt if the record has other chunks,
        changes, catalogs or lists, if the changes are of other catalogs than the pass, or if its kind cannot have the
        number.
        """
        key = {"plan": plan, "batch": batch, "kind": kind, "number": number}
        made_from = {
            "catalog": catalog,
            "base_catalog": base_catalog,
            "chunk_list": chunk_list,
            "move_list": move_list,
            "move_list_digest": move_list_digest,
        }
        state = PassState.RUNNING
        with self._database.write() as connection:
            there = connection.execute(select(tables.PassRow).filter_by(**key)).one_or_none()
            if there is not None:
                if content_sum(chunks) != (there.total_files, there.total_bytes):
                    raise _other(there, "with other chunks")
                if any(getattr(there, name) != value for name, value in made_from.items()):
                    raise _other(there, "by other catalogs or lists")
                pass_id = there.id
            else:
                new = {**key, **made_from, "scan_s": scan_s, "state": state, "started_at_s": at_s}
                pass_id = add(connection, tables.PassRow, **new, total_files=0, total_bytes=0)
                files, size_bytes = insert_chunks(connection, pass_id, chunks)
                what = f"pass {pass_id}"
                change(connection, tables.PassRow, pass_id, what, total_files=files, total_bytes=size_bytes)
            row = _row(connection, pass_id)
            if changes is not None:
                _record_changes(connection, row, changes)
        return record_of(row, PassRecord)

    def read(self, pass_id: int) -> PassRecord:
        """One pass. Raises LedgerCorrupt if there is none."""
        with self._database.read() as connection:
            return record_of(_row(connection, pass_id), PassRecord)

    def set_state(self, pass_id: int, state: PassState, at_s: float) -> None:
        """A pass stops, resumes or is done. Raises LedgerCorrupt for a change that the states do not allow."""
        finished_at_s = at_s if state is PassState.DONE else None
        with self._database.write() as connection:
            _STATES.enter(connection, [pass_id], state, f"pass {pass_id}", finished_at_s=finished_at_s)

    def of_plan(self, plan: str) -> Sequence[PassRecord]:
        """Every pass of a plan, oldest first."""
        return self._oldest_first(_passes.plan == plan)

    def of_batch(self, plan: str, batch: int) -> Sequence[PassRecord]:
        """Every pass over a batch, of all kinds, oldest first."""
        return self._oldest_first(_passes.plan == plan, _passes.batch == batch)

    def over_tree(self, tree: bytes) -> Sequence[PassRecord]:
        """Every pass over a user tree, of any plan and batch, oldest first."""
        in_batch, of_pass = BatchTreeRow, tables.PassTreeRow
        planned = select(in_batch.tree).where(
            in_batch.plan == _passes.plan, in_batch.batch == _passes.batch, in_batch.tree == tree
        )
        recorded = select(of_pass.tree).where(of_pass.pass_id == _passes.id)
        # A pass without recorded trees went over its whole batch.
        return self._oldest_first(
            or_(recorded.where(of_pass.tree == tree).exists(), and_(planned.exists(), ~recorded.exists()))
        )

    def _oldest_first(self, *these: ColumnElement[bool]) -> Sequence[PassRecord]:
        return self._all(PassRecord, select(tables.PassRow).where(*these).order_by(_passes.id))

    def moves_done(self, pass_id: int, at_s: float) -> None:
        """The renames and deletions of a pass are on the target's disks. The first call counts."""
        with self._database.write() as connection:
            if _row(connection, pass_id).moved_at_s is None:
                change(connection, tables.PassRow, pass_id, f"pass {pass_id}", moved_at_s=at_s)

    def changes(self, pass_id: int) -> Changes | None:
        """The recorded changes of a pass, trees in order of path; None if there are none."""
        with self._database.read() as connection:
            return _read_changes(connection, _passes.id == pass_id).get(_row(connection, pass_id).id)

    def changes_of_plan(self, plan: str) -> Mapping[int, Changes]:
        """The recorded changes of the passes of a plan, by pass."""
        with self._database.read() as connection:
            return _read_changes(connection, _passes.plan == plan)


def _row(connection: Connection, pass_id: int) -> AnyRow:
    row = connection.execute(select(tables.PassRow).where(_passes.id == pass_id)).one_or_none()
    if row is None:
        raise missing(f"pass {pass_id}")
    return row


def _record_changes(connection: Connection, row: AnyRow, changes: Changes) -> None:
    if (changes.base, changes.now) != (row.base_catalog, row.catalog):
        raise LedgerCorrupt(
            f"pass {row.id} was made from other catalogs than these changes",
            hint="run the same command again",
        )
    there = _read_changes(connection, _passes.id == row.id).get(row.id)
    wanted = _in_order(changes)
    if there not in (None, wanted):
        raise _other(row, "by other changes")
    if there is not None:
        return
    for tree in wanted.trees:
        add_tree = columns_of(tables.PassTreeRow, tree, pass_id=row.id)
        connection.execute(insert(tables.PassTreeRow).values(add_tree))
        for kind, tally in tree.by_kind.items():
            of_kind = {"pass_id": row.id, "tree": tree.tree, "kind": kind}
            connection.execute(insert(tables.PassChangeRow).values(columns_of(tables.PassChangeRow, tally, **of_kind)))


def _read_changes(connection: Connection, these: ColumnElement[bool]) -> Mapping[int, Changes]:
    """The recorded changes of these passes."""
    trees, kinds, own = tables.PassTreeRow, tables.PassChangeRow, select(_passes.id).where(these)
    by_kind: dict[tuple[int, bytes], dict[ChangeKind, ChangeTally]] = defaultdict(dict)
    for one in connection.execute(select(kinds).where(kinds.pass_id.in_(own))):
        by_kind[one.pass_id, one.tree][one.kind] = record_of(one, ChangeTally)
    by_tree: dict[int, list[TreeChanges]] = defaultdict(list)
    for row in connection.execute(select(trees).where(trees.pass_id.in_(own)).order_by(trees.tree)):
        by_tree[row.pass_id].append(record_of(row, TreeChanges, by_kind=by_kind[row.pass_id, row.tree]))
    return {
        one.id: Changes(base=one.base_catalog or "", now=one.catalog, trees=tuple(by_tree[one.id]))
        for one in connection.execute(select(tables.PassRow).where(these))
        if one.id in by_tree
    }


def _in_order(changes: Changes) -> Changes:
    """In the form in which changes are read: trees in order of path, without empty kinds."""
    nothing = ChangeTally()
    trees = tuple(
        replace(tree, by_kind={kind: tally for kind, tally in tree.by_kind.items() if tally != nothing})
        for tree in sorted(changes.trees, key=lambda tree: tree.tree)
    )
    return replace(changes, trees=trees)


def _other(row: AnyRow, how: str) -> LedgerCorrupt:
    which = row.kind if row.kind == PassKind.SEED else f"{row.kind} {row.number}"
    return LedgerCorrupt(
        f"the {which} pass over batch {row.batch} of plan {row.plan} is in the ledger {how}",
        cause="lists were changed after the pass had begun",
        hint="restore the plan's files, or make a new plan under another name",
    )


# Paths that have not arrived.


_SETTLED_CHUNKS = (ChunkState.DONE, ChunkState.SPLIT)

_Pass = AnyRow


class ArrivalTable(Records):
    """Paths that have not arrived."""

    def not_arrived(self, plan: str, batch: int, trees: Collection[bytes] | None = None) -> NotArrived:
        """Paths and trees that are not known to have arrived, of these trees or of the whole batch. For each tree, the
        newest pass that is done counts, and all later ones. Paths outside every tree always count.
        """
        passes, chunks, attention = tables.PassRow, tables.ChunkRow, tables.AttentionRow
        with self._database.read() as connection:
            found = connection.execute(
                select(tables.PassRow).where(passes.plan == plan, passes.batch == batch).order_by(passes.id)
            ).all()
            known = _trees(connection, plan, batch, found)
            wanted = known if trees is None else set(trees)
            paths: set[bytes] = set()
            unknown: set[bytes] = set()
            listed: set[tuple[str, int]] = set()
            for one, unsettled_trees in _unsettled(found, _covered(connection, found), wanted):
                of_pass = connection.execute(select(attention.path).where(attention.pass_id == one.id)).scalars()
                settled_trees = known - unsettled_trees
                paths.update(path for path in of_pass if tree_of(path, known) not in settled_trees)
                if _is_unknown(one):
                    unknown |= unsettled_trees
                    continue
                rows = connection.execute(
                    select(chunks.number, chunks.list_path).where(
                        chunks.pass_id == one.id,
                        chunks.state.not_in(_SETTLED_CHUNKS),
                        # A driver's chunk has no list; the others go over its whole tree.
                        chunks.kind != ChunkKind.TREE,
                        chunks.tree.in_(sorted(unsettled_trees)),
                    )
                ).all()
                listed.update((row.list_path or one.chunk_list, row.number) for row in rows)
        return NotArrived(
            paths=tuple(sorted(paths - known)),
            chunks=tuple(ListedChunk(chunk_list=chunk_list, number=number) for chunk_list, number in sorted(listed)),
            trees=tuple(sorted(unknown | (paths & known))),
        )


def unsettled(path: SQLColumnExpression[bytes]) -> ColumnElement[bool]:
    """The condition that no later pass over the tree of `path` is done."""
    passes, later = tables.PassRow, aliased(tables.PassRow)
    covered = aliased(tables.PassTreeRow)
    of_later = select(covered.tree).where(covered.pass_id == later.id).correlate_except(covered)
    length = func.length(covered.tree)
    within = or_(
        path == covered.tree,
        and_(func.substr(path, 1, length) == covered.tree, func.substr(path, length + 1, 1) == b"/"),
    )
    gone_through = select(later.id).where(
        later.plan == passes.plan,
        later.batch == passes.batch,
        later.id > passes.id,
        later.state == PassState.DONE,
        or_(~of_later.exists(), of_later.where(within).exists()),
    )
    return ~gone_through.exists()


def _trees(connection: Connection, plan: str, batch: int, passes: Sequence[_Pass]) -> set[bytes]:
    """All trees of the batch: those of the plan, and those of its chunks."""
    in_batch, chunks = BatchTreeRow, tables.ChunkRow
    planned = select(in_batch.tree).where(in_batch.plan == plan, in_batch.batch == batch)
    in_chunks = select(chunks.tree).where(chunks.pass_id.in_([one.id for one in passes])).distinct()
    return {*connection.execute(planned).scalars(), *connection.execute(in_chunks).scalars()}


def _covered(connection: Connection, passes: Sequence[_Pass]) -> Mapping[int, set[bytes]]:
    """The recorded trees of passes. A pass without any went over all trees."""
    of_pass = tables.PassTreeRow
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
        if one.state == PassState.DONE:
            settled |= mine
    return found[::-1]


def _is_unknown(one: _Pass) -> bool:
    """Whether the state of the trees of a pass is unknown: the renames and deletions of the pass are unfinished, or it
    is an unfinished seed pass.
    """
    if one.state == PassState.DONE:
        return False
    return one.kind == PassKind.SEED or (one.move_list is not None and one.moved_at_s is None)


# Predictions.


class PredictionRecords(Records):
    """Predictions and decisions after delta passes."""

    def record(self, record: ConvergenceRecord) -> None:
        """Store the prediction after a pass, replacing an earlier one."""
        table, found = tables.PredictionRow, record.prediction
        row = columns_of(table, found, churn_of_trees=found.trees) | columns_of(table, record, decision=record.outcome)
        self._put(table, [row])

    def of_batch(self, plan: str, batch: int) -> Sequence[ConvergenceRecord]:
        """The predictions of a batch, in the order of its passes."""
        return [_prediction(row) for row in self._rows(_of_plan(plan).where(_passes.batch == batch))]

    def of_plan(self, plan: str) -> Sequence[ConvergenceRecord]:
        """The predictions of all batches of a plan, in the order of the passes."""
        return [_prediction(row) for row in self._rows(_of_plan(plan))]


def _prediction(row: AnyRow) -> ConvergenceRecord:
    prediction = record_of(row, Prediction, trees=row.churn_of_trees)
    return record_of(row, ConvergenceRecord, outcome=row.decision, prediction=prediction)


def _of_plan(plan: str) -> AnySelect:
    found = tables.PredictionRow
    return (
        select(_passes.batch, tables.PredictionRow)
        .join(tables.PassRow, _passes.id == found.pass_id)
        .where(_passes.plan == plan)
        .order_by(found.pass_id)
    )
