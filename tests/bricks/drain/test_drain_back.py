"""How a drain is taken back, and when options are put back."""

from dataclasses import replace

import pytest

from migrator.bricks.drain.model import OUT_STATES, UNTOUCHED_STATES, DrainAct, DrainState
from migrator.bricks.drain.rules import begin_stop, next_step
from migrator.gluster.model import TaskProgress
from migrator.operations.model import Finished, Halt
from tests.support.drain_looks import (
    OTHER,
    SETTLE,
    STATE,
    THROTTLE,
    UNDER_WAY,
    WITHOUT,
    D,
    S,
    T,
    act,
    counters,
    out,
    progress,
    record,
    seen,
)


@pytest.mark.parametrize("state", [S.STARTING, *UNDER_WAY, S.FAILED])
def test_a_drain_is_taken_back_from_everywhere(state: DrainState) -> None:
    step = begin_stop(record(state), seen())
    assert step == act(D.STOP, S.STOPPING, S.STOPPING, reason="it was asked for", task_id="t1")
    # One whose id nobody wrote down is stopped too.
    step = begin_stop(record(state), seen(tasks=(OTHER,)))
    assert isinstance(step, DrainAct)
    assert step.task_id == "t2"
    step = begin_stop(record(state), seen(tasks=(), progress=None))
    assert isinstance(step, DrainAct)
    assert (step.step, step.seen_done) == (D.STOP, True)


@pytest.mark.parametrize("state", sorted(UNTOUCHED_STATES))
def test_what_was_not_begun_is_given_up_without_a_look(state: DrainState) -> None:
    step = begin_stop(record(state), seen(state=None, tasks=None))
    assert isinstance(step, DrainAct)
    assert (step.intent, step.result, step.seen_done) == (S.STOPPED, S.STOPPED, True)
    assert isinstance(next_step(record(S.STOPPED), seen()), Finished)


@pytest.mark.parametrize("state", sorted(OUT_STATES))
def test_what_is_out_is_not_taken_back(state: DrainState) -> None:
    assert isinstance(begin_stop(record(state), out()), Halt)


def test_a_stop_does_not_end_what_somebody_else_began() -> None:
    step = next_step(record(S.STOPPING), seen(tasks=(OTHER,)))
    assert isinstance(step, Halt)
    assert "outside of this program" in step.words


def test_after_a_stop_the_layout_is_put_right() -> None:
    settling = record(S.SETTLING, layout_task_id="l1")
    assert next_step(settling, seen(tasks=())) == SETTLE
    done = counters(fix_layout=True)
    assert next_step(settling, seen(tasks=(), layout=progress(done, task_id="l1"))) == replace(SETTLE, seen_done=True)
    for layout in (
        progress(done, task_id="older"),
        progress(done, counters(status=T.IN_PROGRESS), task_id="l1"),
        progress(replace(done, failures=1), task_id="l1"),
        TaskProgress(task_id="l1", counters=()),
    ):
        assert next_step(settling, seen(tasks=(), layout=layout)) == SETTLE
    step = next_step(settling, seen(tasks=(replace(OTHER, bricks=("gl1:/b",)),)))
    assert isinstance(step, Halt)
    assert step.look_again


@pytest.mark.parametrize("state", [S.STOPPED, S.FAILED, S.COMMITTED])
def test_options_are_put_back_where_it_has_come_to_rest(state: DrainState) -> None:
    touched = record(state, options=(THROTTLE,))
    look = out if state is S.COMMITTED else seen
    base = WITHOUT if state is S.COMMITTED else STATE

    def step(value: str | None) -> object:
        options = () if value is None else ((THROTTLE.name, value),)
        return next_step(touched, look(state=replace(base, options=options)))

    for given in THROTTLE.given:
        assert step(given) == act(D.RESTORE, state, state)
    # As it was before, taken away, or changed by somebody else: that is not ours.
    for value in ("normal", None, "custom"):
        assert not isinstance(step(value), DrainAct)
    look_failed = next_step(touched, look(state=None, tasks=None))
    assert isinstance(look_failed, Halt)
