"""Which failure of a drain or an addition people are told of by hooks, each once. Pure.

A pager is rung by it: what a call puts right by itself is none. So it is asked at the beginning of a call, for what an earlier
one was killed before it could tell, and at its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from migrator.decide.drain import taken_back
from migrator.domain.addition import AdditionRecord, AdditionState
from migrator.domain.cutover import StepResult
from migrator.domain.drain import UNTOUCHED_STATES, DrainRecord, DrainState, DrainStep
from migrator.domain.errors import ExitCode

_ADDING_BEGINS = frozenset({AdditionState.PLANNED, AdditionState.PREPARING, AdditionState.PREPARED})
"""Neither the volume nor the target was changed yet."""


class AttemptStep(Protocol):
    """A step of an attempt, as the ledger has it."""

    @property
    def id(self) -> int: ...
    @property
    def step(self) -> StrEnum: ...
    @property
    def result(self) -> StepResult | None: ...
    @property
    def message(self) -> str: ...


class Ended(Protocol):
    """How a call ended."""

    @property
    def exit_code(self) -> ExitCode: ...
    @property
    def words(self) -> str: ...
    @property
    def reasons(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailure:
    """Why people have to look. `step_id` is the step of the attempt by which it is known again: what is found once more without
    a step since is no other failure. `certain` False: only where telling it was begun, it is known to have been one.
    """

    step_id: int
    reason: str
    certain: bool


def drain_failure(
    record: DrainRecord, steps: Sequence[AttemptStep], ended: Ended | None, *, back: bool = False
) -> AttemptFailure | None:
    """What is to be told of a drain, given how a call ended (None: it begins, or ended by an exception). `steps` are all of the
    attempt, oldest first; `back`: it was to be taken back. Where guards speak against a beginning, nothing has failed, and neither
    where somebody asks to take back what cannot be.
    """
    if record.state in UNTOUCHED_STATES:
        return None
    if back and not taken_back(record.state):
        ended = None
    return _failure(steps, record.failure if record.state is DrainState.FAILED else None, ended)


def addition_failure(
    record: AdditionRecord, steps: Sequence[AttemptStep], ended: Ended | None, *, back: bool = False
) -> AttemptFailure | None:
    """The same of an addition. A disk that is to be exchanged by hand now is waited for, and has not failed."""
    if record.state in _ADDING_BEGINS:
        return None
    if back and record.state is not AdditionState.TAKING_BACK:
        ended = None
    return _failure(steps, record.failure if record.state is AdditionState.FAILED else None, ended)


def _failure(steps: Sequence[AttemptStep], failure: str | None, ended: Ended | None) -> AttemptFailure | None:
    """`failure` None: the attempt was not given up. The step that gives up has one name in drains and in additions."""
    given_up = [step.id for step in steps if step.step == DrainStep.GIVE_UP.value]
    if failure is not None and given_up:
        return AttemptFailure(step_id=given_up[-1], reason=failure, certain=True)
    if not steps:
        return None
    last = steps[-1]
    if ended is not None:
        if ended.exit_code not in (ExitCode.REFUSED, ExitCode.FAILED):
            return None
        return AttemptFailure(step_id=last.id, reason="; ".join((ended.words, *ended.reasons)), certain=True)
    failed = last.message if last.result is StepResult.FAILED else ""
    reason = failed or "an earlier call has halted; `migrator status` has its last words"
    return AttemptFailure(step_id=last.id, reason=reason, certain=False)
