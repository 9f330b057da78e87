"""The records of tracked operations of every kind: attempts and their steps.

A row has the state, the time at which the operation entered each state, and the reason for its last failure. All other
fields of the record are in one column of JSON (`facts`), because they are only read together. Attempts at one `subject`
are numbered.
"""

import json
from collections.abc import Sequence
from typing import Any, Generic

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace

from migrator.core.errors import LedgerCorrupt
from migrator.ledger.database import Database, check, missing
from migrator.ledger.rows import Records, add, record_of
from migrator.operations.model import Act, Notes, OperationKind, Record, State, Step, StepRecord, StepResult
from migrator.operations.tables import OperationRow, OperationStepRow

_operations, _steps = OperationRow, OperationStepRow
_COLUMNS = ("id", "attempt", "state", "times", "failure")


class OperationStore(Records, Generic[Record, State, Step, Notes]):
    """Operations of one kind and their steps."""

    def __init__(self, database: Database, kind: OperationKind[Record, State, Step, Notes]) -> None:
        super().__init__(database)
        self._kind = kind

    def intend(self, operation_id: int, act: Act[Step, State], *, at_s: float, notes: Notes | None = None) -> int:
        """Write down a step before it begins, with its intended state and the tasks that the act names; return its id.
        Steps without an end are marked as interrupted. The `reason` of an act becomes the failure of the record.

        Raises LedgerCorrupt for a state that may not follow, and if a fact is missing that the way back needs: see
        `OperationKind.intended`.
        """
        with self._database.write() as connection:
            before = self._one(connection, operation_id)
            entered = self._changed(before, act.intent, at_s, notes, failure=act.reason or before.failure)
            self._write(connection, before, self._kind.intended(before, entered, act, notes))
            connection.execute(
                sa.update(_steps)
                .where(_steps.operation_id == operation_id, _steps.result.is_(None))
                .values(ended_at_s=at_s, result=StepResult.INTERRUPTED)
            )
            intent = {"operation_id": operation_id, "step": act.step.value, "intended_at_s": at_s}
            return add(connection, _steps, **intent, message=act.reason)

    def note(self, operation_id: int, notes: Notes) -> Record:
        """Record facts before the step ends: an option that is about to change, a task that has begun."""
        with self._database.write() as connection:
            before = self._one(connection, operation_id)
            return self._write(connection, before, replace(before, notes=self._kind.noted(before.notes, notes)))

    def finish(
        self, step_id: int, state: State, *, at_s: float, notes: Notes | None = None, message: str = ""
    ) -> Record:
        """A step is done and its state is reached. The first end of a step counts."""
        with self._database.write() as connection:
            step, before = self._step(connection, step_id)
            if step.result is not None:
                return before
            failure = before.failure if self._kind.steps(step.step) in self._kind.keeps_failure else ""
            after = self._changed(before, state, at_s, notes, failure=failure)
            _end(connection, step, StepResult.DONE, at_s, message)
            return self._write(connection, before, self._kind.finished(before, after))

    def fail(self, step_id: int, reason: str, *, at_s: float) -> Record:
        """A step failed; the state stays that of the intent. The first end of a step counts."""
        with self._database.write() as connection:
            step, before = self._step(connection, step_id)
            if step.result is not None:
                return before
            _end(connection, step, StepResult.FAILED, at_s, reason)
            return self._write(connection, before, replace(before, failure=reason))

    def read(self, operation_id: int) -> Record:
        """One operation. Raises LedgerCorrupt if there is none."""
        with self._database.read() as connection:
            return self._one(connection, operation_id)

    def all(self) -> Sequence[Record]:
        """Every operation of the kind, oldest first."""
        with self._database.read() as connection:
            return self.every(connection)

    def under_way(self) -> Sequence[Record]:
        """Operations that may have changed something outside the ledger and have not ended, oldest first."""
        states = [state.value for state in self._kind.under_way]
        with self._database.read() as connection:
            return self._some(connection, self._query().where(_operations.state.in_(states)))

    def steps(self, operation_id: int) -> Sequence[StepRecord[Step]]:
        """The steps of an operation, oldest first."""
        query = sa.select(_steps).where(_steps.operation_id == operation_id).order_by(_steps.id)
        return [record_of(row, StepRecord, step=self._kind.steps(row.step)) for row in self._rows(query)]

    def _newest(self, connection: sa.Connection, subject: bytes) -> Record | None:
        found = self._some(connection, self._query().where(_operations.subject == subject))
        return found[-1] if found else None

    def _begin(self, connection: sa.Connection, subject: bytes, record: Record, newest: Record | None) -> Record:
        """Insert a new attempt at a subject. The id of `record` is ignored."""
        record = replace(record, attempt=1 if newest is None else newest.attempt + 1)
        values = {"kind": self._kind.name, "subject": subject, "attempt": record.attempt} | _columns(record)
        return self._one(connection, add(connection, _operations, **values))

    def _changed(self, record: Record, state: State, at_s: float, notes: Notes | None, *, failure: str) -> Record:
        """The record in a new state. Raises LedgerCorrupt if the state may not follow."""
        what = f"{self._kind.name} {record.id}"
        if check(self._kind.transitions, record.state, state, what):
            record = replace(record, state=state, times={**record.times, state: at_s})
        noted = record.notes if notes is None else self._kind.noted(record.notes, notes)
        return replace(record, notes=noted, failure=failure)

    def _write(self, connection: sa.Connection, before: Record, after: Record) -> Record:
        if after != before:
            connection.execute(sa.update(_operations).where(_operations.id == before.id).values(_columns(after)))
        return after

    def _query(self) -> sa.Select[Any]:
        return sa.select(_operations).where(_operations.kind == self._kind.name).order_by(_operations.id)

    def every(self, connection: sa.Connection) -> list[Record]:
        """`all`, as part of a transaction."""
        return self._some(connection, self._query())

    def _some(self, connection: sa.Connection, query: sa.Select[Any]) -> list[Record]:
        return [self._record(row) for row in connection.execute(query)]

    def _one(self, connection: sa.Connection, operation_id: int) -> Record:
        row = connection.execute(self._query().where(_operations.id == operation_id)).one_or_none()
        if row is None:
            raise missing(f"{self._kind.name} {operation_id}")
        return self._record(row)

    def _step(self, connection: sa.Connection, step_id: int) -> tuple[sa.Row[Any], Record]:
        row = connection.execute(sa.select(_steps).where(_steps.id == step_id)).one_or_none()
        if row is None:
            raise missing(f"step {step_id} of {self._kind.article} {self._kind.name}")
        return row, self._one(connection, row.operation_id)

    def _record(self, row: sa.Row[Any]) -> Record:
        columns = {name: getattr(row, name) for name in _COLUMNS} | {"times": json.loads(row.times)}
        record: Record = msgspec.convert(json.loads(row.facts) | columns, self._kind.record, str_keys=True)
        return record


def _columns(record: Any) -> dict[str, Any]:  # noqa: ANN401 - a record of any kind
    facts = msgspec.to_builtins(record, str_keys=True)
    return {
        "state": record.state.value,
        "times": json.dumps(facts["times"]),
        "failure": record.failure,
        "facts": json.dumps({name: value for name, value in facts.items() if name not in _COLUMNS}),
    }


def _end(connection: sa.Connection, step: sa.Row[Any], result: StepResult, at_s: float, message: str) -> None:
    connection.execute(
        sa.update(_steps)
        .where(_steps.id == step.id)
        .values(ended_at_s=at_s, result=result, message=message or step.message)
    )


def begun_already(what: str, hint: str) -> LedgerCorrupt:
    """The error for a second attempt at what another operation works on."""
    return LedgerCorrupt(
        f"{what} has begun already, and has not ended",
        cause="two programs worked on the same thing, or it was named otherwise the first time",
        hint=hint,
    )
