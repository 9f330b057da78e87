"""Which failure of a drain or an addition is told, and by what it is known again."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import pytest

from migrator.bricks.add.model import AdditionRecord, AdditionSide, AdditionState, AdditionStep
from migrator.bricks.drain.model import UNTOUCHED_STATES, DrainStep
from migrator.bricks.drain.rules import audit_state
from migrator.bricks.shared import AttemptFailure, addition_failure, drain_failure
from migrator.core.errors import ExitCode
from migrator.hooks.model import HookState
from migrator.operations.model import StepRecord, StepResult
from tests.support.drain_looks import CLEAN, S, record


def Step(  # noqa: N802 - a record of one
    step_id: int, step: StrEnum, result: StepResult | None = StepResult.DONE, message: str = ""
) -> StepRecord[Any]:
    return StepRecord(
        id=step_id, operation_id=1, step=step, intended_at_s=1.0, ended_at_s=2.0, result=result, message=message
    )


@dataclass(frozen=True)
class Call:
    exit_code: ExitCode
    words: str = "it halted"
    reasons: tuple[str, ...] = ("gl3 is down", "gl4 is down")


STEPS = (Step(3, DrainStep.START), Step(4, DrainStep.GIVE_UP), Step(6, DrainStep.GIVE_UP), Step(7, DrainStep.RESTORE))
HALTED, STUCK, DONE = Call(ExitCode.REFUSED), Call(ExitCode.FAILED), Call(ExitCode.DONE)


@pytest.mark.parametrize("ended", [None, HALTED, STUCK])
def test_what_was_given_up_is_known_by_that_step_whoever_tells_it(ended: Call | None) -> None:
    failed = drain_failure(record(S.FAILED, "no room"), STEPS, ended)
    assert failed == AttemptFailure(step_id=6, reason="no room", certain=True)


@pytest.mark.parametrize("ended", [HALTED, STUCK])
def test_what_halts_under_way_is_known_by_its_last_step(ended: Call) -> None:
    for state in (S.DRAINING, S.COMMITTING, S.WIPING, S.STOPPING):
        failed = drain_failure(record(state, "of long ago"), STEPS, ended)
        assert failed == AttemptFailure(step_id=7, reason="it halted; gl3 is down; gl4 is down", certain=True)


def test_what_goes_well_or_has_not_begun_is_no_failure() -> None:
    assert drain_failure(record(S.COMMITTED, "of long ago"), STEPS, DONE) is None
    assert drain_failure(record(S.AUDITED), (), HALTED) is None
    for state in (S.AUDITED, S.COMMITTED):
        asked = drain_failure(record(state, "of long ago"), STEPS, HALTED, back=True)
        assert asked is None or not asked.certain
    stopping = drain_failure(record(S.STOPPING), STEPS, STUCK, back=True)
    assert stopping is not None
    assert stopping.certain
    for state in UNTOUCHED_STATES:
        assert drain_failure(record(state), STEPS, HALTED) is None


def test_at_the_beginning_of_a_call_it_is_not_known_whether_an_earlier_one_had_halted() -> None:
    early = drain_failure(record(S.DRAINING), STEPS, None)
    assert early is not None
    assert (early.step_id, early.certain) == (7, False)
    assert "`migrator status`" in early.reason
    last = Step(8, DrainStep.STOP, StepResult.FAILED, "gl3 tells nothing")
    assert drain_failure(record(S.STOPPING), (*STEPS, last), None) == AttemptFailure(
        step_id=8, reason="gl3 tells nothing", certain=False
    )


def test_an_addition_fails_by_the_same_rules_once_it_has_changed_something() -> None:
    adding = AdditionRecord(
        id=1,
        side=AdditionSide.SOURCE,
        volume="vol1",
        volume_id="v",
        bricks=("gl9:/b",),
        attempt=1,
        state=AdditionState.FAILED,
        times={},
        failure="the rebalance failed",
    )
    steps = (Step(2, AdditionStep.BALANCE), Step(5, AdditionStep.GIVE_UP))
    failed = AttemptFailure(step_id=5, reason="the rebalance failed", certain=True)
    assert addition_failure(adding, steps, HALTED) == addition_failure(adding, steps, None) == failed
    for state in AdditionState:
        found = addition_failure(replace(adding, state=state), steps[:1], STUCK)
        untouched = state in (AdditionState.PLANNED, AdditionState.PREPARING, AdditionState.PREPARED)
        assert (found is None) is untouched, state
    for state, certain in ((AdditionState.ADDED, False), (AdditionState.TAKING_BACK, True)):
        back = addition_failure(replace(adding, state=state), steps[:1], HALTED, back=True)
        assert back is not None
        assert back.certain is certain
    assert addition_failure(replace(adding, state=AdditionState.SETTLED), steps, Call(ExitCode.ATTENTION)) is None


def test_how_an_audit_ended() -> None:
    assert audit_state(CLEAN) is HookState.DONE
    for found in (replace(CLEAN, left=1), replace(CLEAN, unsure=1), replace(CLEAN, left=1, whole=False)):
        assert audit_state(found) is HookState.REFUSED
    assert audit_state(replace(CLEAN, whole=False)) is HookState.FAILED
