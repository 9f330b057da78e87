"""Tracked operations: drains, additions, cutovers with their rollbacks and purges, retirements. Times in seconds since
the epoch.

All follow one pattern. The ledger has a record with a state. The program takes a snapshot of the world, and a pure
function of record and snapshot returns the next step (`Act`, `Halt` or `Finished`). The intent of a step is written
before it begins, and its result afterwards. After a kill the program resumes with another snapshot. The loop is in
`operations/engine.py`, the records in `operations/records.py`.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

State = TypeVar("State", bound=StrEnum)
Step = TypeVar("Step", bound=StrEnum)
Notes = TypeVar("Notes")


class StepResult(StrEnum):
    """The result of a step. `interrupted`: the result is unknown."""

    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class Operation(Struct, Generic[State, Notes], frozen=True, kw_only=True):
    """The record of one attempt. Steps add facts to `notes`. Each kind adds fields for its subject."""

    id: int
    attempt: int = 1
    state: State
    """Its state."""
    times: Mapping[State, float]
    """When each state was entered last."""
    failure: str = ""
    notes: Notes
    """What the steps recorded."""

    def subject(self) -> str:
        """The subject of its events, and of its entries in the journal."""
        raise NotImplementedError

    @property
    def since_s(self) -> float:
        """When it entered its state."""
        return self.times[self.state]


class StepRecord(Struct, Generic[Step], frozen=True, kw_only=True):
    """One step of an operation: the time of its intent, its result (None: it has not ended), and a message
    for people.
    """

    id: int
    operation_id: int
    step: Step
    intended_at_s: float
    ended_at_s: float | None
    result: StepResult | None
    message: str


class Act(Struct, Generic[Step, State], frozen=True, kw_only=True):
    """Write `intent`, perform the step, write `result`. With `seen_done` the snapshot shows the step done, and only
    hooks may remain. `reason` says why the operation is aborted or rolled back; it is empty otherwise.

    The ledger records two tasks of Gluster with the intent: `task_id` belongs to the record, `task_before` was listed
    when another task was started (empty: none).
    """

    step: Step
    intent: State
    result: State
    seen_done: bool = False
    reason: str = ""
    task_id: str | None = None
    task_before: str | None = None


class Halt(Struct, frozen=True, kw_only=True):
    """Change nothing. `words` say what was found, `reasons` list every problem, and `hint` says what to do.
    `look_again`: the problem may disappear by itself, so other snapshots are taken first.
    """

    words: str
    hint: str
    reasons: tuple[str, ...] = ()
    look_again: bool = False


class Finished(Struct, frozen=True, kw_only=True):
    """Nothing is left to do."""

    state: StrEnum
    words: str


def added(known: Notes, more: Notes, *, once: tuple[str, ...] = ()) -> Notes:
    """Return the notes (a struct) with the fields of `more` that are not None. A known field of `once` is not replaced."""
    values: dict[str, Any] = {}
    for name in more.__struct_fields__:  # type: ignore[attr-defined]
        value = getattr(more, name)
        if value is not None and not (name in once and getattr(known, name) is not None):
            values[name] = value
    return replace(known, **values)  # type: ignore[type-var]


Record = TypeVar("Record", bound=Operation[Any, Any])


class OperationKind(Struct, Generic[Record, State, Step, Notes], frozen=True, kw_only=True):
    """One kind of operation, as the ledger stores it. `article` precedes its name in messages. In states of `under_way`
    something outside the ledger may have changed. A step of `keeps_failure` does not clear the reason for an earlier
    failure.

    `noted` merges notes into known ones. `intended` makes further changes with an intent. Its arguments are the record
    before, the same with its new state, failure and notes, the act, and the given notes. It raises LedgerCorrupt if a
    fact is missing that a rollback needs. `finished` makes further changes at the end of a step, from both records.
    """

    name: str
    article: str = "a"
    record: type[Record]
    states: type[State]
    steps: type[Step]
    transitions: Mapping[State, frozenset[State]]
    under_way: frozenset[State]
    keeps_failure: frozenset[Step] = frozenset()
    noted: Callable[[Notes, Notes], Notes] = added
    intended: Callable[[Record, Record, Act[Step, State], Notes | None], Record] = lambda _, after, __, ___: after
    finished: Callable[[Record, Record], Record] = lambda _, after: after
