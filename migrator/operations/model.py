"""Tracked operations: drains, additions, cutovers with their rollbacks and purges, retirements. Times in seconds since the epoch.

All follow one pattern. The ledger has a record with a state. The program takes a snapshot of the world, a pure function decides by
record and snapshot what is done next (`Act`, `Halt` or `Finished`), the intent of a step is written before it begins and its
result afterwards. So a killed program resumes by taking another snapshot. See `operations/engine.py` for the loop, and
`ledger/operations.py` for the ledger's part.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

State = TypeVar("State", bound=StrEnum)
Step = TypeVar("Step", bound=StrEnum)
Notes = TypeVar("Notes")


class StepResult(StrEnum):
    """How a step ended; `interrupted`: nobody saw its end."""

    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[State, Notes]):
    """The record of one attempt; `attempt` counts from 1 for the same subject. `times` says when each state was entered, the last
    time. `failure` is the reason of the last failure. `notes` are facts that steps add. Each kind adds what it is about.
    """

    id: int
    attempt: int = 1
    state: State
    times: Mapping[State, float]
    failure: str = ""
    notes: Notes

    @property
    def since_s(self) -> float:
        """When it entered its state."""
        return self.times[self.state]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord(Generic[Step]):
    """One step of an operation: when it was intended, how it ended (None: it has not), and a message for people."""

    id: int
    operation_id: int
    step: Step
    intended_at_s: float
    ended_at_s: float | None
    result: StepResult | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Act(Generic[Step, State]):
    """Write `intent`, carry the step out, write `result`. `seen_done`: the world shows it done already, only hooks may be
    owed. `reason` says why the operation is given up or reverted; it is empty on the way forward.

    `task_id` is the task of Gluster that the record takes for its own, `task_before` the one that is listed when another is
    begun (empty: none): the ledger notes both with the intent.
    """

    step: Step
    intent: State
    result: State
    seen_done: bool = False
    reason: str = ""
    task_id: str | None = None
    task_before: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """Nothing is touched. `words` say what was found, `reasons` each thing that speaks against going on, `hint` what people
    do about it. `look_again`: the next snapshot may say something else by itself, so that it is waited for at first.
    """

    words: str
    hint: str
    reasons: tuple[str, ...] = ()
    look_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """There is nothing left to do."""

    state: StrEnum
    words: str


def added(known: Notes, more: Notes, *, once: tuple[str, ...] = ()) -> Notes:
    """Notes (a dataclass) with those of `more` that are not None; fields of `once` stand when they are known."""
    values: dict[str, Any] = {}
    for one in fields(more):  # type: ignore[arg-type]
        value = getattr(more, one.name)
        if value is not None and not (one.name in once and getattr(known, one.name) is not None):
            values[one.name] = value
    return replace(known, **values)  # type: ignore[type-var]


Record = TypeVar("Record", bound=Operation[Any, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[Record, State, Step, Notes]):
    """One kind of operation, as the ledger keeps it. `article` stands before its name. `under_way`: states in which the world may
    have been touched. After a step of `keeps_failure` the reason of an earlier failure is still what people want to know.

    `noted` adds notes to known ones. `intended` is what an intent changes besides the state, given the record before, the same
    with its new state, failure and notes, the act, and the notes that were given with it; it raises LedgerCorrupt where a fact is
    missing that the way back needs.
    `finished` is what the end of a step changes besides, given both records.
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
