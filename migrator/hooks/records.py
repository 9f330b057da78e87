"""The records of steps with hooks, and of calls of hooks."""

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, select, update

from migrator.hooks.model import Hook, HookCallRecord, HookOutcome, HookStage, HookStep, HookStepRecord
from migrator.hooks.tables import HookCallRow, HookStepRow
from migrator.ledger.database import expect_one
from migrator.ledger.ledger import Ledger
from migrator.ledger.rows import Records, add, record_of
from migrator.ledger.tables import RunRow

_BEGUN_ANEW = "begun-anew"

_steps, _calls = HookStepRow, HookCallRow


class HookRecords(Records):
    """Steps with hooks around them, and every call. `subject` is the batch, pass or brick of a step."""

    def open_step(self, *, run_id: int, step: HookStep, subject: str, at_s: float) -> HookStepRecord:
        """Record that a step begins, and close an earlier one that was left open."""
        left_open = (*_same(step, subject), _steps.closed_at_s.is_(None))
        closed = {"closed_at_s": at_s, "state": _BEGUN_ANEW}
        new = {"run_id": run_id, "step": step, "subject": subject, "opened_at_s": at_s}
        with self._database.write() as connection:
            connection.execute(update(HookStepRow).where(*left_open).values(closed))
            number = add(connection, HookStepRow, **new)
            row = connection.execute(select(HookStepRow).where(_steps.id == number)).one()
        return record_of(row, HookStepRecord, state="")

    def open_since(self, step: HookStep, subject: str) -> HookStepRecord | None:
        """The step that an earlier run left open."""
        return self._newest(*_same(step, subject), _steps.closed_at_s.is_(None))

    def latest(self, step: HookStep, subject: str) -> HookStepRecord | None:
        """The newest such step, open or closed."""
        return self._newest(*_same(step, subject))

    def may_have_worked(self, step: HookStep, subject: str, stage: HookStage) -> bool:
        """True if a hook of this stage was called for such a step, and did not skip or refuse it by its exit code."""
        said_no = _calls.outcome.in_((HookOutcome.SKIP, HookOutcome.REFUSE))
        by_itself = _calls.exit_code.is_(None) | (_calls.exit_code >= 0)
        worked = _calls.outcome.is_(None) | ~(said_no & by_itself)
        query = select(_calls.id).join(HookStepRow, _steps.id == _calls.step_id)
        return bool(self._rows(query.where(*_same(step, subject), _calls.stage == stage.name, worked).limit(1)))

    def _newest(self, *these: ColumnElement[bool]) -> HookStepRecord | None:
        rows = self._rows(select(HookStepRow).where(*these).order_by(_steps.id.desc()).limit(1))
        return next((record_of(row, HookStepRecord, state=row.state or "") for row in rows), None)

    def close_step(self, step_id: int, *, state: str, at_s: float) -> None:
        """The `post` hooks of the step were called. May be called again."""
        self._change(HookStepRow, step_id, f"step {step_id} with hooks", closed_at_s=at_s, state=state)

    def intend(self, *, step_id: int, hook: Hook, token: str, at_s: float) -> int:
        """Record a call before the hook starts; return its id."""
        called = {"stage": hook.stage.name, "name": hook.name, "token": token, "started_at_s": at_s}
        return self._add(HookCallRow, step_id=step_id, **called, output=b"")

    def finish(self, call_id: int, *, at_s: float, exit_code: int | None, outcome: HookOutcome, output: bytes) -> None:
        """Record the result of a call. The first result counts."""
        result = {"finished_at_s": at_s, "exit_code": exit_code, "outcome": outcome, "output": output}
        with self._database.write() as connection:
            there = connection.execute(select(_calls.finished_at_s).where(_calls.id == call_id)).one_or_none()
            expect_one(int(there is not None), f"call {call_id} of a hook")
            unfinished = (_calls.id == call_id, _calls.finished_at_s.is_(None))
            connection.execute(update(HookCallRow).where(*unfinished).values(result))

    def unfinished(self, steps: Collection[HookStep]) -> Sequence[tuple[str, HookCallRecord]]:
        """Calls around these steps without a result, each with the directory of its run: of runs at work, and of those
        that were killed.
        """
        query = (
            select(HookCallRow, RunRow.directory)
            .join(HookStepRow, _steps.id == _calls.step_id)
            .join(RunRow, RunRow.id == _steps.run_id)
            .where(_calls.finished_at_s.is_(None), _steps.step.in_(steps))
            .order_by(_calls.id)
        )
        return [(row.directory, record_of(row, HookCallRecord)) for row in self._rows(query)]

    def of_step(self, step_id: int) -> Sequence[HookCallRecord]:
        """The calls of a step, oldest first."""
        query = select(HookCallRow).where(_calls.step_id == step_id).order_by(_calls.id)
        return self._all(HookCallRecord, query)


def _same(step: HookStep, subject: str) -> tuple[ColumnElement[bool], ...]:
    return _steps.step == step, _steps.subject == subject


class HookLedger(Ledger):
    """The ledger with the records of hooks."""

    hooks: HookRecords
