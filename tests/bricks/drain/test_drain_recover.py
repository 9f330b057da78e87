"""When a drain brings back what Gluster has left: once in a call, while nothing moves, and never instead of a proof."""

from dataclasses import replace

import pytest

from migrator.bricks.drain.model import AuditSeen, DrainAct, DrainSeen, DrainState, DrainStep
from migrator.bricks.drain.rules import begin_again, commit_problems, next_step
from tests.support.drain_looks import CLEAN, MOVING, counters, out, progress, record, seen

S, D = DrainState, DrainStep
LEFT = replace(CLEAN, left=1, examples=(b"a",))
UNSURE = replace(CLEAN, whole=False, reasons=("1 path could not be read",))
FAILED = progress(counters(failures=2))


def step_of(state: DrainState, found: DrainSeen, *, again: bool = False) -> tuple[DrainStep, DrainState]:
    step = (begin_again if again else next_step)(record(state), found)
    assert isinstance(step, DrainAct), step
    return step.step, step.intent


@pytest.mark.parametrize("audit", [LEFT, UNSURE], ids=["left", "not whole"])
@pytest.mark.parametrize("state", [S.AUDITING, S.AUDITED])
def test_what_an_audit_finds_is_brought_back_where_that_was_asked_for(state: DrainState, audit: AuditSeen) -> None:
    assert step_of(state, seen(audit=audit, may_recover=True)) == (D.RECOVER, state)
    assert step_of(state, seen(audit=LEFT)) == (D.GIVE_UP, S.FAILED)


def test_what_has_failed_is_brought_back_before_it_is_begun_again() -> None:
    asked = seen(progress=FAILED, audit=None, may_recover=True)
    assert step_of(S.FAILED, asked, again=True) == (D.RECOVER, S.FAILED)
    # Afterwards the counters decide, which only a new task can change.
    assert step_of(S.FAILED, replace(asked, may_recover=False), again=True) == (D.START, S.STARTING)
    without_failures = replace(asked, progress=progress(), may_recover=False)
    assert step_of(S.FAILED, without_failures, again=True) == (D.AUDIT, S.AUDITING)


def test_nothing_is_brought_back_while_gluster_moves_files() -> None:
    assert step_of(S.FAILED, seen(progress=MOVING, may_recover=True), again=True)[0] is D.START
    assert step_of(S.DRAINING, seen(progress=MOVING, may_recover=True)) == (D.WATCH, S.DRAINING)
    # On another host the task may go on.
    for lost in (
        seen(progress=MOVING, may_recover=True, lost="gl3"),
        seen(progress=MOVING, may_recover=True, stalled="gl3"),
    ):
        assert step_of(S.FAILED, replace(lost, preflight=()), again=True) == (D.START, S.STARTING)


def test_what_was_to_be_ended_and_works_again_is_gone_on_with() -> None:
    """The start failed, as its host did not answer, and people have put that right."""
    starting = record(S.STARTING, task_id=None, task_before="t1")
    step = next_step(starting, seen(progress=MOVING, preflight=()))
    assert isinstance(step, DrainAct)
    assert (step.step, step.seen_done, step.task_id) == (D.START, True, "t1")
    for still in (seen(progress=MOVING, preflight=(), lost="gl3"), seen(progress=MOVING, preflight=(), stalled="gl3")):
        step = next_step(starting, still)
        assert isinstance(step, DrainAct)
        assert (step.step, step.seen_done, step.task_before) == (D.START, False, "t1")


def test_failures_are_given_up_first_and_never_committed() -> None:
    asked = seen(progress=FAILED, may_recover=True)
    assert step_of(S.DRAINING, asked) == (D.GIVE_UP, S.FAILED)
    assert commit_problems(record(S.AUDITED), asked)


def test_an_audit_that_explains_what_is_left_is_clean_and_the_commit_follows() -> None:
    explained = replace(CLEAN, explained=3)
    assert step_of(S.AUDITED, seen(audit=explained, may_recover=True))[0] is D.COMMIT


@pytest.mark.parametrize("audit", [LEFT, UNSURE], ids=["left", "not whole"])
def test_what_somebody_took_out_with_files_on_it_is_brought_back(audit: AuditSeen) -> None:
    assert step_of(S.AUDITING, out(audit=audit, may_recover=True)) == (D.RECOVER, S.AUDITING)


def test_before_a_brick_is_wiped_what_is_left_on_it_is_brought_back() -> None:
    step = next_step(record(S.COMMITTED), out(audit=LEFT, may_recover=True), hand_over=True)
    assert isinstance(step, DrainAct)
    assert (step.step, step.intent) == (D.RECOVER, S.COMMITTED)
