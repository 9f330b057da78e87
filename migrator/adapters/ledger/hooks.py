"""Steps that hooks are called around, and the calls."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Row, insert, select, update

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.transitions import expect_one
from migrator.domain.hooks import Hook, HookOutcome, HookStep
from migrator.ports.hooks import HookCallRecord, HookStepRecord

_BEGUN_ANEW = "begun-anew"

_steps, _calls = tables.hook_steps, tables.hook_calls


class SqliteHooks:
    """Steps that hooks are called around, and the calls."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open_step(self, *, run_id: int, step: HookStep, subject: str, at_s: float) -> HookStepRecord:
        """Write down that a step begins; what was left open of it is closed."""
        with self._database.write() as connection:
            connection.execute(
                update(_steps)
                .where(_steps.c.step == step.value, _steps.c.subject == subject, _steps.c.closed_at_s.is_(None))
                .values(closed_at_s=at_s, state=_BEGUN_ANEW)
            )
            row = connection.execute(
                insert(_steps)
                .values(run_id=run_id, step=step.value, subject=subject, opened_at_s=at_s)
                .returning(_steps)
            ).one()
        return _step(row)

    def open_since(self, step: HookStep, subject: str) -> HookStepRecord | None:
        """The step that an earlier run left open."""
        query = select(_steps).where(
            _steps.c.step == step.value, _steps.c.subject == subject, _steps.c.closed_at_s.is_(None)
        )
        with self._database.read() as connection:
            row = connection.execute(query.order_by(_steps.c.id.desc()).limit(1)).one_or_none()
        return None if row is None else _step(row)

    def latest(self, step: HookStep, subject: str) -> HookStepRecord | None:
        """The step as it was begun last, open or not."""
        query = select(_steps).where(_steps.c.step == step.value, _steps.c.subject == subject)
        with self._database.read() as connection:
            row = connection.execute(query.order_by(_steps.c.id.desc()).limit(1)).one_or_none()
        return None if row is None else _step(row)

    def close_step(self, step_id: int, *, state: str, at_s: float) -> None:
        """Its `post` hooks were called. May be recorded again."""
        with self._database.write() as connection:
            done = connection.execute(
                update(_steps).where(_steps.c.id == step_id).values(closed_at_s=at_s, state=state)
            )
            expect_one(done.rowcount, f"step {step_id} with hooks")

    def intend(self, *, step_id: int, hook: Hook, token: str, at_s: float) -> int:
        """Write a call down before the hook is started; returns its id."""
        with self._database.write() as connection:
            row = connection.execute(
                insert(_calls)
                .values(
                    step_id=step_id,
                    stage=hook.stage.name,
                    name=hook.name,
                    token=token,
                    started_at_s=at_s,
                    output=b"",
                )
                .returning(_calls.c.id)
            ).one()
        return int(row.id)

    def finish(self, call_id: int, *, at_s: float, exit_code: int | None, outcome: HookOutcome, output: bytes) -> None:
        """How a call ended. The first result counts."""
        with self._database.write() as connection:
            there = connection.execute(select(_calls.c.finished_at_s).where(_calls.c.id == call_id)).one_or_none()
            expect_one(int(there is not None), f"call {call_id} of a hook")
            connection.execute(
                update(_calls)
                .where(_calls.c.id == call_id, _calls.c.finished_at_s.is_(None))
                .values(finished_at_s=at_s, exit_code=exit_code, outcome=outcome.value, output=output)
            )

    def unfinished(self, steps: Collection[HookStep]) -> Sequence[HookCallRecord]:
        """Calls around these steps that a crash left without a result."""
        query = (
            select(_calls)
            .join(_steps, _steps.c.id == _calls.c.step_id)
            .where(_calls.c.finished_at_s.is_(None), _steps.c.step.in_([step.value for step in steps]))
            .order_by(_calls.c.id)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [_call(row) for row in rows]

    def of_step(self, step_id: int) -> Sequence[HookCallRecord]:
        """The calls of a step, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(select(_calls).where(_calls.c.step_id == step_id).order_by(_calls.c.id)).all()
        return [_call(row) for row in rows]


def _step(row: Row[Any]) -> HookStepRecord:
    return HookStepRecord(
        id=row.id,
        step=HookStep(row.step),
        subject=row.subject,
        opened_at_s=row.opened_at_s,
        state=row.state or "",
    )


def _call(row: Row[Any]) -> HookCallRecord:
    return HookCallRecord(
        id=row.id,
        step_id=row.step_id,
        stage=row.stage,
        name=row.name,
        token=row.token,
        started_at_s=row.started_at_s,
        finished_at_s=row.finished_at_s,
        exit_code=row.exit_code,
        outcome=None if row.outcome is None else HookOutcome(row.outcome),
        output=row.output,
    )
