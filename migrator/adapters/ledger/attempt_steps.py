"""What attempts have in common whose steps are written down before they begin: drains, additions, cutovers.

An attempt is a row with a state, the time at which it entered each (JSON), and the reason of its last failure. Every step of it
is a row with an intent and an end.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Row, Table, insert, select, update

from migrator.adapters.ledger.transitions import check, expect_one, missing
from migrator.domain.cutover import StepResult

State = TypeVar("State", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptTables(Generic[State]):
    """The rows of one kind of attempt. `owner` is the column of a step that names its attempt, `what` and `a_what` are the kind,
    without and with its article, for people.
    """

    attempts: Table
    steps: Table
    owner: str
    what: str
    a_what: str
    states: type[State]
    transitions: Mapping[State, frozenset[State]]

    def row(self, connection: Connection, attempt_id: int) -> Row[Any]:
        """One attempt. Raises LedgerCorrupt where there is none."""
        row = connection.execute(select(self.attempts).where(self.attempts.c.id == attempt_id)).one_or_none()
        if row is None:
            raise missing(f"{self.what} {attempt_id}")
        return row

    def step_rows(self, connection: Connection, attempt_id: int) -> Sequence[Row[Any]]:
        """The steps of an attempt, oldest first."""
        query = select(self.steps).where(self.steps.c[self.owner] == attempt_id).order_by(self.steps.c.id)
        return connection.execute(query).all()

    def entering(self, row: Row[Any], state: State, at_s: float) -> dict[str, Any]:
        """What entering a state changes; nothing where it is the state already. Raises LedgerCorrupt where it may not follow."""
        if not check(self.transitions, self.states(row.state), state, f"{self.what} {row.id}"):
            return {}
        return {"state": state.value, "times": encode_times({**self.times(row), state: at_s})}

    def times(self, row: Row[Any]) -> dict[State, float]:
        """When each state was entered."""
        return {self.states(state): float(at_s) for state, at_s in json.loads(row.times).items()}

    def change(self, connection: Connection, attempt_id: int, values: Mapping[str, Any]) -> None:
        """Change columns of an attempt, if any."""
        if values:
            connection.execute(update(self.attempts).where(self.attempts.c.id == attempt_id).values(values))

    def begin(self, connection: Connection, attempt_id: int, step: StrEnum, *, at_s: float, reason: str) -> int:
        """Write down a step before it begins, and return its id. Steps without an end are said to be interrupted."""
        steps, owner = self.steps, self.steps.c[self.owner]
        connection.execute(
            update(steps)
            .where(owner == attempt_id, steps.c.result.is_(None))
            .values(ended_at_s=at_s, result=StepResult.INTERRUPTED.value)
        )
        made = connection.execute(
            insert(steps)
            .values({self.owner: attempt_id, "step": step.value, "intended_at_s": at_s, "message": reason})
            .returning(steps.c.id)
        ).one()
        return int(made.id)

    def finish(
        self,
        connection: Connection,
        step_id: int,
        changes: Callable[[Row[Any], Row[Any]], Mapping[str, Any]],
        *,
        at_s: float,
        message: str,
    ) -> Row[Any]:
        """A step was done: what `changes` makes of the attempt and the step is written. The first end of a step counts."""
        step = self._step(connection, step_id)
        row = self.row(connection, getattr(step, self.owner))
        if step.result is not None:
            return row
        self.change(connection, row.id, changes(row, step))
        self._end(connection, step, StepResult.DONE, at_s, message)
        return self.row(connection, row.id)

    def fail(self, connection: Connection, step_id: int, reason: str, *, at_s: float) -> Row[Any]:
        """A step failed; the state stays that of the intent. The first end of a step counts."""
        step = self._step(connection, step_id)
        attempt_id = getattr(step, self.owner)
        if step.result is None:
            done = connection.execute(
                update(self.attempts).where(self.attempts.c.id == attempt_id).values(failure=reason)
            )
            expect_one(done.rowcount, f"{self.what} {attempt_id}")
            self._end(connection, step, StepResult.FAILED, at_s, reason)
        return self.row(connection, attempt_id)

    def _step(self, connection: Connection, step_id: int) -> Row[Any]:
        row = connection.execute(select(self.steps).where(self.steps.c.id == step_id)).one_or_none()
        if row is None:
            raise missing(f"step {step_id} of {self.a_what}")
        return row

    def _end(self, connection: Connection, step: Row[Any], result: StepResult, at_s: float, message: str) -> None:
        connection.execute(
            update(self.steps)
            .where(self.steps.c.id == step.id)
            .values(ended_at_s=at_s, result=result.value, message=message or step.message)
        )


def encode_times(times: Mapping[State, float]) -> str:
    """As they stand in the row of an attempt."""
    return json.dumps({state.value: at_s for state, at_s in times.items()})


def step_result(row: Row[Any]) -> StepResult | None:
    """How a step ended; None where it has not."""
    return None if row.result is None else StepResult(row.result)
