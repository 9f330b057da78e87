"""When a drain has failed, when it is waited for, and what it begins with when it is asked for again."""

from dataclasses import replace
from typing import Any

import pytest

from migrator.bricks.drain.model import AuditSeen, DrainAct, DrainState
from migrator.bricks.drain.rules import begin_again, broke_off, commit_problems, may_start, next_step, only_few_failed
from migrator.gluster.model import TaskCounters, TaskProgress
from migrator.operations.model import Halt
from tests.support.drain_looks import (
    ADOPTED,
    AUDIT,
    CLEAN,
    MOVING,
    OTHER,
    START,
    STATE,
    UNDER_WAY,
    WATCH,
    D,
    S,
    T,
    counters,
    progress,
    record,
    seen,
)


@pytest.mark.parametrize("state", UNDER_WAY)
@pytest.mark.parametrize(
    ("found", "words"),
    [
        (counters(failures=21), "21 files could not be moved"),
        (counters(skipped=1), "1 file were skipped"),
        (counters(status=T.FAILED), "failed, not completed"),
        (counters(status=T.STOPPED), "stopped, not completed"),
        (counters(status=T.UNKNOWN), "unknown, not completed"),
    ],
)
def test_completed_is_not_drained(state: DrainState, found: TaskCounters, words: str) -> None:
    step = next_step(record(state), seen(progress=progress(found)))
    assert isinstance(step, DrainAct)
    assert (step.step, step.intent) == (D.GIVE_UP, S.FAILED)
    assert words in step.reason


@pytest.mark.parametrize("state", UNDER_WAY)
@pytest.mark.parametrize(
    "changes",
    [
        {"progress": None},
        {"progress": TaskProgress(task_id="t1", counters=())},
        {"progress": progress(task_id="t9")},
        {"state": replace(STATE, peers_down=("gl2",))},
        {"state": replace(STATE, peers_down=None)},
        {"state": replace(STATE, bricks=(replace(STATE.bricks[0], online=False), *STATE.bricks[1:]))},
        {"state": replace(STATE, bricks=(replace(STATE.bricks[0], online=None), *STATE.bricks[1:]))},
    ],
)
def test_what_not_every_host_tells_is_waited_for(state: DrainState, changes: dict[str, Any]) -> None:
    """With the glusterd of the brick's host down the aggregate says `not started`, without failures."""
    step = next_step(record(state), seen(**changes))
    if "progress" in changes and state in (S.STARTED, S.DRAINING):
        # Everything is up: it is watched until that host tells.
        assert step == WATCH
    else:
        assert isinstance(step, Halt)
        assert step.look_again
    assert commit_problems(record(state), seen(**changes))


@pytest.mark.parametrize("state", UNDER_WAY)
def test_who_is_up_and_silent_for_long_needs_people_and_the_command_is_told(state: DrainState) -> None:
    answered = TaskProgress(task_id="t1", counters=())
    for found in (None, answered):
        step = next_step(record(state), seen(progress=found, silent="nothing is told by gl3 for 6 h"))
        assert isinstance(step, DrainAct)
        assert step.step is D.GIVE_UP
        assert "by gl3 for 6 h" in step.reason
        assert "on gl3" in step.reason
        assert "`rm -f /var/lib/glusterd/vols/vol1/rebalance/*.pid && systemctl restart glusterd`" in step.reason
    step = next_step(record(S.DRAINED), seen(progress=None))
    assert isinstance(step, Halt)
    assert "systemctl restart glusterd" in step.hint


@pytest.mark.parametrize("state", UNDER_WAY)
@pytest.mark.parametrize("found", [counters(status=T.FAILED), counters(failures=4)], ids=["failed", "failures"])
def test_what_has_failed_is_given_up_also_while_a_brick_is_down(state: DrainState, found: TaskCounters) -> None:
    """Otherwise the same command, given when the brick is back, would only write down that it has failed."""
    down = replace(STATE, bricks=(*STATE.bricks[:2], replace(STATE.bricks[2], online=False)))
    causes = tuple(f"brick {number} is down" for number in range(5))
    step = next_step(record(state), seen(state=down, progress=progress(found), causes=causes))
    assert isinstance(step, DrainAct)
    assert (step.step, step.result) == (D.GIVE_UP, S.FAILED)
    assert "brick 0 is down; brick 1 is down; brick 2 is down; and 2 more" in step.reason
    # Counters of another task say nothing, and while any host moves files nothing has ended.
    for other in (progress(found, task_id="t0"), progress(found, counters(host="gl1", status=T.IN_PROGRESS))):
        assert isinstance(next_step(record(state), seen(state=down, progress=other)), Halt)


def test_few_failures_are_told_from_a_failure() -> None:
    def few(*found: TaskCounters) -> bool:
        return only_few_failed(seen(progress=progress(*found)))

    assert few(counters(failures=1))
    assert few(counters(files=100_000, failures=100))
    assert few(counters(failures=3), counters(host="gl2"))
    assert not few(counters())
    assert not few(counters(failures=21))
    assert not few(counters(files=100_000, failures=111))
    assert not few(counters(failures=1, skipped=1))
    assert not few(counters(failures=1), counters(host="gl2", status=T.FAILED))
    assert not few(counters(failures=1), counters(host="gl2", status=T.IN_PROGRESS))
    assert not only_few_failed(seen(progress=None))


def test_what_broke_off_is_told_from_what_could_not_be_moved_and_from_what_was_stopped() -> None:
    failed = counters(status=T.FAILED)

    def broke(*found: TaskCounters) -> bool:
        return broke_off(seen(progress=progress(*found)))

    assert broke(failed)
    assert broke(failed, counters(host="gl4"))
    assert not broke(counters())
    assert not broke(failed, counters(host="gl4", status=T.IN_PROGRESS))
    assert not broke(failed, counters(host="gl4", status=T.STOPPED))
    assert not broke(replace(failed, failures=11))
    assert not broke(replace(failed, skipped=1))
    assert not broke_off(seen(progress=None))


def test_a_drain_that_stands_still_is_given_up() -> None:
    step = next_step(record(S.DRAINING), seen(progress=MOVING, stalled="no file was moved for 2 h"))
    assert isinstance(step, DrainAct)
    assert step.step is D.GIVE_UP
    assert "for 2 h" in step.reason


@pytest.mark.parametrize("state", [S.AUDITING, S.AUDITED, S.COMMITTING])
@pytest.mark.parametrize(
    "audit", [replace(CLEAN, left=1, examples=(b"a\xff",)), replace(CLEAN, unsure=2)], ids=["left", "unsure"]
)
def test_what_is_left_stops_the_commit(state: DrainState, audit: AuditSeen) -> None:
    step = next_step(record(state), seen(audit=audit))
    assert isinstance(step, DrainAct)
    assert (step.step, step.intent) == (D.GIVE_UP, S.FAILED)
    # Asked for again, and looked at again without another outcome: only Gluster can move it.
    again = record(state, times={S.FAILED: 45.0})
    assert may_start(again) is (state is not S.COMMITTING)
    assert next_step(again, seen(audit=audit)) == replace(START, task_before="t1")


@pytest.mark.parametrize("state", [S.AUDITING, S.AUDITED, S.COMMITTING])
def test_an_audit_that_is_not_whole_says_nothing(state: DrainState) -> None:
    step = next_step(record(state), seen(audit=replace(CLEAN, whole=False, reasons=("gl3 is lost",))))
    assert isinstance(step, Halt)
    assert step.look_again
    assert any("gl3 is lost" in reason for reason in step.reasons)


def test_a_failed_drain_waits_for_people() -> None:
    failed = record(S.FAILED, "21 failures")
    step = next_step(failed, seen())
    assert isinstance(step, Halt)
    assert "21 failures" in step.words
    assert may_start(failed)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, AUDIT),
        ({"progress": progress(counters(failures=1))}, replace(START, task_before="t1")),
        ({"progress": None}, replace(ADOPTED, task_id="t1")),
        ({"progress": None, "silent": "for 6 h"}, replace(START, task_before="t1")),
        ({"tasks": ()}, START),
        ({"tasks": (OTHER,)}, ADOPTED),
        ({"progress": MOVING}, replace(ADOPTED, task_id="t1")),
        ({"progress": MOVING, "stalled": "dead"}, replace(START, task_before="t1")),
    ],
)
def test_a_failed_drain_that_is_asked_for_again(changes: dict[str, Any], expected: DrainAct) -> None:
    assert begin_again(record(S.FAILED, "why"), seen(**changes)) == expected


def test_asked_for_again_in_every_other_state_it_goes_on() -> None:
    for state in set(S) - {S.FAILED}:
        assert begin_again(record(state), seen()) == next_step(record(state), seen())
    assert isinstance(begin_again(record(S.FAILED), seen(state=None)), Halt)
