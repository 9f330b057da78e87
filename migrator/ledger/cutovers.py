"""Cutovers in the ledger, with their steps, measurements of users' trees, backups of the target."""

import secrets
from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Row, Select, delete, func, insert, select

from migrator.core.entry import UserTree
from migrator.core.errors import LedgerCorrupt
from migrator.cutover.model import (
    CUTOVER_TRANSITIONS,
    ENDED_STATES,
    NO_CUTOVER_NOTES,
    SETTLED_STATES,
    UNDER_WAY_STATES,
    CutoverAct,
    CutoverNotes,
    CutoverRecord,
    CutoverState,
    CutoverStep,
    CutoverStepRecord,
    MeasuredTree,
    PurgeSum,
    TargetChanges,
    TreeMeasurement,
    TreeTest,
)
from migrator.fs.model import Side
from migrator.ledger import tables
from migrator.ledger.bricks import AttemptTables, encode_times, step_result
from migrator.ledger.database import Database

# ---
# Attempts to cut trees over, and every step of them.


_THAWED = (CutoverState.THAWED, CutoverState.REVERTED)
_KEEP_FAILURE = (CutoverStep.REVERT, CutoverStep.ROLLBACK_REVERT, CutoverStep.RETAIN)
"""Steps after which the reason of an earlier failure is still what people want to know."""

_TOPS = {CutoverState.FREEZING: "frozen_top", CutoverState.ROLLBACK_FREEZING: "frozen_target_top"}
"""What has to be known before a freeze, so that it can be thawed."""

_TOKEN_BYTES = 8

_cutovers = tables.cutovers
_rows = AttemptTables(
    attempts=_cutovers,
    steps=tables.cutover_steps,
    owner="cutover_id",
    what="cutover",
    a_what="a cutover",
    states=CutoverState,
    transitions=CUTOVER_TRANSITIONS,
)


class CutoverRecords:
    """Attempts to cut trees over, and every step of them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def plan(
        self, *, plan: str, batch: int, tree: UserTree, predicted_freeze_s: float | None, at_s: float
    ) -> CutoverRecord:
        """A new attempt; nothing is done yet. One of the same plan and batch that has not ended is returned as it is."""
        with self._database.write() as connection:
            newest = connection.execute(_newest(tree.path)).one_or_none()
            if newest is not None and CutoverState(newest.state) not in ENDED_STATES:
                if (newest.plan, newest.batch) != (plan, batch):
                    raise LedgerCorrupt(
                        f"a cutover of {tree.user} has begun already, by plan {newest.plan}, batch {newest.batch}",
                        cause="two programs worked on the same thing, or another plan was taken meanwhile",
                        hint="see `migrator status`, and go on with that one",
                    )
                return _record(newest)
            row = connection.execute(
                insert(_cutovers)
                .values(
                    plan=plan,
                    batch=batch,
                    tree=tree.path,
                    user=tree.user,
                    attempt=1 if newest is None else newest.attempt + 1,
                    token=secrets.token_hex(_TOKEN_BYTES),
                    state=CutoverState.PLANNED.value,
                    times=encode_times({CutoverState.PLANNED: at_s}),
                    predicted_freeze_s=predicted_freeze_s,
                    failure="",
                )
                .returning(_cutovers)
            ).one()
        return _record(row)

    def intend(self, cutover_id: int, act: CutoverAct, *, at_s: float, notes: CutoverNotes = NO_CUTOVER_NOTES) -> int:
        """Write down a step before it begins, with its intended state; returns its id."""
        with self._database.write() as connection:
            row = _rows.row(connection, cutover_id)
            values = _entering(row, act.intent, at_s) | _noted(notes)
            top = _TOPS.get(act.intent)
            for name in _TOPS.values():
                if name != top or "state" not in values:
                    values.pop(name, None)
            if top is not None and "state" in values and values.get(top) is None:
                raise LedgerCorrupt(
                    f"cutover {cutover_id} cannot be {act.intent.value}: how to thaw the user is not written down",
                    hint="this is an error in migrator: report it; nothing was frozen",
                )
            if act.reason:
                values["failure"] = act.reason
            elif act.intent is CutoverState.ROLLBACK_FREEZING and "state" in values:
                values["failure"] = ""
            _rows.change(connection, cutover_id, values)
            return _rows.begin(connection, cutover_id, act.step, at_s=at_s, reason=act.reason)

    def finish(
        self,
        step_id: int,
        state: CutoverState,
        *,
        at_s: float,
        notes: CutoverNotes = NO_CUTOVER_NOTES,
        message: str = "",
    ) -> CutoverRecord:
        """A step was done, and came to its state. The first end of a step counts."""

        def changes(row: Row[Any], step: Row[Any]) -> dict[str, Any]:
            values = _entering(row, state, at_s) | _noted(notes)
            for name in _TOPS.values():
                values.pop(name, None)
            return values if CutoverStep(step.step) in _KEEP_FAILURE else values | {"failure": ""}

        with self._database.write() as connection:
            return _record(_rows.finish(connection, step_id, changes, at_s=at_s, message=message))

    def fail(self, step_id: int, reason: str, *, at_s: float) -> CutoverRecord:
        """A step failed; the state stays that of the intent. The first end of a step counts."""
        with self._database.write() as connection:
            return _record(_rows.fail(connection, step_id, reason, at_s=at_s))

    def read(self, cutover_id: int) -> CutoverRecord:
        """One attempt. Raises LedgerCorrupt where there is none."""
        with self._database.read() as connection:
            return _record(_rows.row(connection, cutover_id))

    def latest(self, tree: bytes) -> CutoverRecord | None:
        """The newest attempt of a tree, of any plan."""
        with self._database.read() as connection:
            row = connection.execute(_newest(tree)).one_or_none()
        return None if row is None else _record(row)

    def of_plan(self, plan: str, batch: int | None = None) -> Sequence[CutoverRecord]:
        """Every attempt of a plan, or of one of its batches, oldest first."""
        query = select(_cutovers).where(_cutovers.c.plan == plan)
        return self._read(query if batch is None else query.where(_cutovers.c.batch == batch))

    def under_way(self) -> Sequence[CutoverRecord]:
        """Attempts of all plans whose users may be frozen, oldest first."""
        return self._read(select(_cutovers).where(_cutovers.c.state.in_([state.value for state in UNDER_WAY_STATES])))

    def steps(self, cutover_id: int) -> Sequence[CutoverStepRecord]:
        """The steps of an attempt, oldest first."""
        with self._database.read() as connection:
            return [_step(row) for row in _rows.step_rows(connection, cutover_id)]

    def _read(self, query: Select[Any]) -> Sequence[CutoverRecord]:
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(_cutovers.c.id)).all()
        return [_record(row) for row in rows]


def _newest(tree: bytes) -> Select[Any]:
    return select(_cutovers).where(_cutovers.c.tree == tree).order_by(_cutovers.c.attempt.desc()).limit(1)


def _entering(row: Row[Any], state: CutoverState, at_s: float) -> dict[str, Any]:
    """What entering a state changes; nothing where it is the state already. A user is frozen and thawed once."""
    values = _rows.entering(row, state, at_s)
    if not values:
        return {}
    if state is CutoverState.FREEZING:
        values["frozen_at_s"] = at_s
    if state in _THAWED and row.frozen_at_s is not None and row.thawed_at_s is None:
        values["thawed_at_s"] = at_s
    return values


def _noted(notes: CutoverNotes) -> dict[str, Any]:
    values: dict[str, Any] = {
        "frozen_top": notes.frozen_top,
        "frozen_target_top": notes.frozen_target_top,
        "link": notes.link,
        "link_before": notes.link_before,
        "link_after": notes.link_after,
        "passes_before": notes.passes_before,
        "proofs_before": notes.proofs_before,
        "final_pass_id": notes.final_pass_id,
        "verification_id": notes.verification_id,
        "manifest": notes.manifest,
    }
    if notes.target_changes is not None:
        values["changed_files"] = notes.target_changes.files
        values["changed_bytes"] = notes.target_changes.size_bytes
        values["changed_gone"] = notes.target_changes.gone
    if notes.purge is not None:
        values["purge_names"] = notes.purge.names
        values["purge_inodes"] = notes.purge.inodes
        values["purge_bytes"] = notes.purge.size_bytes
    return {name: value for name, value in values.items() if value is not None}


def _record(row: Row[Any]) -> CutoverRecord:
    return CutoverRecord(
        id=row.id,
        plan=row.plan,
        batch=row.batch,
        tree=UserTree(path=row.tree, user=row.user),
        attempt=row.attempt,
        token=row.token,
        state=CutoverState(row.state),
        times=_rows.times(row),
        predicted_freeze_s=row.predicted_freeze_s,
        frozen_at_s=row.frozen_at_s,
        thawed_at_s=row.thawed_at_s,
        failure=row.failure,
        notes=CutoverNotes(
            frozen_top=row.frozen_top,
            frozen_target_top=row.frozen_target_top,
            link=row.link,
            link_before=row.link_before,
            link_after=row.link_after,
            passes_before=row.passes_before,
            proofs_before=row.proofs_before,
            final_pass_id=row.final_pass_id,
            verification_id=row.verification_id,
            manifest=row.manifest,
            target_changes=None
            if row.changed_files is None
            else TargetChanges(files=row.changed_files, size_bytes=row.changed_bytes, gone=row.changed_gone),
            purge=None
            if row.purge_names is None
            else PurgeSum(names=row.purge_names, inodes=row.purge_inodes, size_bytes=row.purge_bytes),
        ),
    )


def _step(row: Row[Any]) -> CutoverStepRecord:
    return CutoverStepRecord(
        id=row.id,
        cutover_id=row.cutover_id,
        step=CutoverStep(row.step),
        intended_at_s=row.intended_at_s,
        ended_at_s=row.ended_at_s,
        result=step_result(row),
        message=row.message,
    )


# ---
# What was measured in users' trees around their cutovers.


_made = tables.tree_measurements
_KEY = ("cutover_id", "side", "run", "test")


class SpeedUpRecords:
    """Measurements in the ledger."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, cutover_id: int, measurements: Sequence[TreeMeasurement]) -> None:
        """Keep them."""
        rows = [
            {
                "cutover_id": cutover_id,
                "side": one.side.value,
                "run": one.run,
                "test": one.test.value,
                "at_s": one.at_s,
                "seconds": one.seconds,
                "amount": one.amount,
                "complete": int(one.complete),
                "cold": None if one.cold is None else int(one.cold),
                "failure": one.failure,
            }
            for one in measurements
        ]
        with self._database.write() as connection:
            for row in rows:
                same = [_made.c[name] == row[name] for name in _KEY]
                connection.execute(delete(_made).where(*same))
                connection.execute(insert(_made).values(**row))

    def forget(self, cutover_id: int, side: Side) -> None:
        """Remove what was measured on a side."""
        with self._database.write() as connection:
            connection.execute(delete(_made).where(_made.c.cutover_id == cutover_id, _made.c.side == side.value))

    def of(self, cutover_id: int) -> Sequence[TreeMeasurement]:
        """Those of one cutover."""
        query = select(_made).where(_made.c.cutover_id == cutover_id).order_by(*_order())
        with self._database.read() as connection:
            return [_measurement(row) for row in connection.execute(query)]

    def settled(self) -> Sequence[MeasuredTree]:
        """Those of users who work on the target."""
        newest = select(func.max(_cutovers.c.id)).group_by(_cutovers.c.tree)
        states = [state.value for state in SETTLED_STATES]
        query = (
            select(_made, _cutovers.c.tree, _cutovers.c.user, _cutovers.c.plan, _cutovers.c.batch)
            .join(_cutovers, _cutovers.c.id == _made.c.cutover_id)
            .where(_cutovers.c.id.in_(newest), _cutovers.c.state.in_(states))
            .order_by(_cutovers.c.tree, *_order())
        )
        found = []
        with self._database.read() as connection:
            for _, rows in groupby(connection.execute(query), key=lambda row: row.cutover_id):
                every = list(rows)
                first = every[0]
                found.append(
                    MeasuredTree(
                        tree=UserTree(path=first.tree, user=first.user),
                        plan=first.plan,
                        batch=first.batch,
                        measurements=tuple(_measurement(row) for row in every),
                    )
                )
        return found


def _order() -> tuple[Any, ...]:
    # By the alphabet the source comes before the target, which is the order of time too.
    return _made.c.side, _made.c.run, _made.c.at_s, _made.c.test


def _measurement(row: Row[Any]) -> TreeMeasurement:
    return TreeMeasurement(
        side=Side(row.side),
        run=row.run,
        test=TreeTest(row.test),
        at_s=row.at_s,
        seconds=row.seconds,
        amount=row.amount,
        complete=bool(row.complete),
        cold=None if row.cold is None else bool(row.cold),
        failure=row.failure,
    )


# ---
# Backups of the target that somebody else makes.


_backups = tables.target_backups


class BackupRecords:
    """Which user trees on the target were in a backup, and when."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, trees: Collection[bytes], *, at_s: float, note: str) -> None:
        """The backup of these trees has ended; `at_s` is when it began."""
        if not trees:
            return
        with self._database.write() as connection:
            connection.execute(insert(_backups), [{"tree": tree, "at_s": at_s, "note": note} for tree in sorted(trees)])

    def latest(self, tree: bytes) -> float | None:
        """When the newest backup of a tree began; None where none is recorded."""
        with self._database.read() as connection:
            found = connection.execute(select(func.max(_backups.c.at_s)).where(_backups.c.tree == tree)).scalar_one()
        return None if found is None else float(found)
