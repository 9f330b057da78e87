"""Passes over batches, and what changed up to each of them."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, insert, or_, select, update

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.chunks import content_sum, insert_chunks
from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.transitions import check, expect_one, missing, state_of
from migrator.domain.changes import ChangeKind, Changes, ChangeTally, TreeChanges
from migrator.domain.errors import LedgerCorrupt
from migrator.domain.plan import Chunk
from migrator.domain.states import PASS_TRANSITIONS, PassKind, PassState
from migrator.ports.passes import PassRecord


class SqlitePassRecords:
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

        Where it is recorded already it is returned as it is. Raises LedgerCorrupt where that one has other chunks or
        changes or was made from something else, where the changes are of other catalogs than the pass, and for a number
        that its kind cannot have.
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
        """One pass. Raises LedgerCorrupt where there is none."""
        with self._database.read() as connection:
            return pass_record(_row(connection, pass_id))

    def set_state(self, pass_id: int, state: PassState, at_s: float) -> None:
        """A pass stops, goes on or is done. Raises LedgerCorrupt for a change that the states do not allow."""
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
        """Every pass that went over a user tree, of whatever plan and batch, oldest first."""
        passes, in_batch, of_pass = tables.passes.c, tables.batch_trees.c, tables.pass_trees.c
        planned = select(in_batch.tree).where(
            in_batch.plan == passes.plan, in_batch.batch == passes.batch, in_batch.tree == tree
        )
        recorded = select(of_pass.tree).where(of_pass.pass_id == passes.id)
        # A pass of which no trees are recorded went over all of its batch.
        over = or_(recorded.where(of_pass.tree == tree).exists(), and_(planned.exists(), ~recorded.exists()))
        with self._database.read() as connection:
            rows = connection.execute(select(tables.passes).where(over).order_by(passes.id)).all()
        return [pass_record(row) for row in rows]

    def moves_done(self, pass_id: int, at_s: float) -> None:
        """The renames and deletions of a pass are made and on the target's disks. The first time that is said stays."""
        passes = tables.passes.c
        with self._database.write() as connection:
            row = _row(connection, pass_id)
            if row.moved_at_s is None:
                count = connection.execute(
                    update(tables.passes).where(passes.id == pass_id).values(moved_at_s=at_s)
                ).rowcount
                expect_one(count, f"pass {pass_id}")

    def changes(self, pass_id: int) -> Changes | None:
        """What was recorded of a pass, its trees in order of path; None where nothing was."""
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
    """As it is read: trees in order of path, kinds without anything left out."""
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
    return PassRecord(
        id=row.id,
        plan=row.plan,
        batch=row.batch,
        kind=PassKind(row.kind),
        number=row.number,
        state=PassState(row.state),
        catalog=row.catalog,
        base_catalog=row.base_catalog,
        chunk_list=row.chunk_list,
        move_list=row.move_list,
        move_list_digest=row.move_list_digest,
        moved_at_s=row.moved_at_s,
        scan_s=row.scan_s,
        started_at_s=row.started_at_s,
        finished_at_s=row.finished_at_s,
        total_files=row.total_files,
        total_bytes=row.total_bytes,
    )
