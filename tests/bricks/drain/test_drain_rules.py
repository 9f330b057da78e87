"""The next step of a drain in states that the simulated volume of `test_drain_killed` never reaches, or must never reach."""

from typing import Any

import pytest
from msgspec.structs import replace

from migrator.bricks.drain import model as drain
from migrator.bricks.drain import rules
from migrator.bricks.drain.model import DrainSnapshot
from migrator.bricks.drain.model_audit import DrainAudit
from migrator.bricks.drain.rules import begin_again, begin_stop, next_step
from migrator.gluster.model import PlaceSeen, TaskCounters, TaskProgress, TaskStatus
from migrator.operations.model import Act, Finished, Halt
from tests.support.making import made
from tests.support.volumes import brick, remove_brick, volume

S, D, T = drain.DrainState, drain.DrainStep, TaskStatus
BRICK = "gl3:/b"

UNDER_WAY = (S.STARTED, S.DRAINING, S.DRAINED, S.AUDITING, S.AUDITED, S.COMMITTING)
CLEAN = DrainAudit(started_at_s=60.0, whole=True, left=0, unsure=0)


def record(
    state: drain.DrainState, failure: str = "", *, times: dict[drain.DrainState, float] | None = None, **notes: Any
) -> drain.DrainRecord:
    return made(
        drain.DrainRecord,
        volume="vol1",
        volume_id="v",
        bricks=(BRICK,),
        state=state,
        times={S.STARTED: 40.0, S.AUDITING: 50.0, S.COMMITTED: 55.0, state: 50.0, **(times or {})},
        failure=failure,
        notes=drain.DrainNotes(**{"options": (), "task_id": "t1", **notes}),
    )


def counters(**changes: Any) -> TaskCounters:
    done = {"host": "gl3", "host_id": "3", "files": 7, "size_bytes": 70, "lookups": 9, "runtime_s": 5.0}
    return made(TaskCounters, **{**done, "status": T.COMPLETED, **changes})


def progress(*found: TaskCounters, task_id: str = "t1") -> TaskProgress:
    return TaskProgress(task_id=task_id, counters=found or (counters(),))


TASK = remove_brick(BRICK, status=T.COMPLETED)
STATE = volume("gl1:/b", "gl2:/b", BRICK, volume_id="v", peers_down=())
WITHOUT = replace(STATE, bricks=STATE.bricks[:2])
MOVING = progress(counters(status=T.IN_PROGRESS))


def seen(**changes: Any) -> DrainSnapshot:
    """As Gluster leaves it when it has moved everything, audited; nothing speaks against a start."""
    whole = {"state": STATE, "tasks": (TASK,), "progress": progress(), "preflight": (), "audit": CLEAN}
    return DrainSnapshot(**{**whole, "places": {BRICK: PlaceSeen.BRICK}, **changes})


def out(**changes: Any) -> DrainSnapshot:
    return seen(**{"state": WITHOUT, "tasks": (), "progress": None, **changes})


def act(step: drain.DrainStep, intent: drain.DrainState, result: drain.DrainState) -> drain.DrainAct:
    return Act(step=step, intent=intent, result=result)


AUDIT = act(D.AUDIT, S.AUDITING, S.AUDITED)
COMMIT = act(D.COMMIT, S.COMMITTING, S.COMMITTED)
START = act(D.START, S.STARTING, S.STARTED)
WATCH = act(D.WATCH, S.DRAINING, S.DRAINED)
ADOPTED = replace(START, seen_done=True, task_id="t2")
SETTLE = act(D.SETTLE, S.SETTLING, S.STOPPED)
OTHER = replace(TASK, id="t2")
WIPE = act(D.WIPE, S.WIPING, S.WIPED)
LEFT = replace(CLEAN, left=1, examples=(b"a\xff",))
NOT_WHOLE = replace(CLEAN, whole=False, reasons=("gl3 is lost",))
FAILED = progress(counters(failures=21))
GIVE_UP = act(D.GIVE_UP, S.FAILED, S.FAILED)


def seen_done(one: drain.DrainAct) -> drain.DrainAct:
    return replace(one, seen_done=True)


def halted(step: drain.Step, words: str = "", *, look_again: bool | None = None) -> None:
    assert isinstance(step, Halt), step
    assert words in "; ".join((step.words, *step.reasons, step.hint))
    assert look_again in (None, step.look_again)


def given_up(step: drain.Step, *words: str) -> None:
    assert isinstance(step, Act), step
    assert replace(step, reason="") == GIVE_UP
    assert all(one in step.reason for one in words), step.reason


# What is not known, and what other people did.


@pytest.mark.parametrize("state", sorted(drain.UNDER_WAY_STATES | drain.UNTOUCHED_STATES))
@pytest.mark.parametrize(
    "changes",
    [
        {"state": None},
        {"state": replace(STATE, started=False)},
        {"state": replace(STATE, volume_id="another")},
    ],
)
def test_nothing_is_done_to_an_unknown_volume_or_another_one(state: drain.DrainState, changes: dict[str, Any]) -> None:
    halted(next_step(record(state), seen(**changes)))


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
def test_missing_counters_and_missing_parts_are_waited_for(state: drain.DrainState, changes: dict[str, Any]) -> None:
    step = next_step(record(state), seen(**changes))
    if "progress" in changes and state in (S.STARTED, S.DRAINING):
        # Everything is up: it is watched until that host reports.
        assert step == WATCH
    else:
        halted(step, look_again=True)
    assert rules.commit_problems(record(state), seen(**changes))


def test_a_replica_set_has_counters_of_every_host() -> None:
    bricks = tuple(brick(f"gl{n}:/b") for n in range(1, 7))
    state = replace(STATE, bricks=bricks, replica_count=3)
    names = tuple(one.name for one in bricks[3:])
    of_set = replace(record(S.DRAINING), bricks=names)
    hosts = [counters(host=one.host) for one in bricks[3:]]
    whole = seen(state=state, tasks=(replace(TASK, bricks=names),), progress=progress(*hosts))
    assert next_step(of_set, whole) == seen_done(WATCH)
    two = replace(whole, progress=progress(counters(host="localhost"), counters(host="gl5")))
    assert rules.silent_hosts(of_set, whole) == ()
    # The host that was asked is listed as `localhost`.
    assert rules.silent_hosts(of_set, two) == ("gl4", "gl6")
    assert rules.silent_hosts(of_set, replace(two, state=replace(state, peers_down=("gl6",)))) == ()
    assert rules.silent_hosts(of_set, replace(two, tasks=())) == ()
    assert next_step(of_set, two) == WATCH
    halted(next_step(replace(of_set, state=S.DRAINED), two))
    one_moves = progress(*hosts[:2], counters(status=T.IN_PROGRESS))
    assert next_step(of_set, replace(whole, progress=one_moves)) == WATCH
    halted(next_step(of_set, replace(whole, state=replace(state, bricks=bricks[:5]))), "only some of")


@pytest.mark.parametrize("state", [*UNDER_WAY, S.STARTING, S.STOPPING])
def test_a_drain_of_more_bricks_belongs_to_someone_else(state: drain.DrainState) -> None:
    look = seen(tasks=(replace(OTHER, bricks=(BRICK, "gl2:/b")),))
    for ask in (next_step, begin_stop):
        halted(ask(record(state), look), "gl2:/b together")


@pytest.mark.parametrize("state", [S.STARTING, *UNDER_WAY, S.FAILED, S.STOPPING])
def test_bricks_that_were_taken_out_by_hand_are_audited_first(state: drain.DrainState) -> None:
    assert next_step(record(state), out(audit=None)) == AUDIT
    if state in (S.AUDITING, S.AUDITED):
        halted(next_step(record(state), out(audit=LEFT)), "files are left on it")
        halted(next_step(record(state), out(audit=NOT_WHOLE)))
        assert next_step(record(state), out()) == seen_done(AUDIT if state is S.AUDITING else COMMIT)


# Starting, and the commit.


@pytest.mark.parametrize("state", [S.PREFLIGHT, S.STARTING])
def test_a_failed_or_missing_check_prevents_the_start(state: drain.DrainState) -> None:
    halted(next_step(record(state), seen(tasks=(), preflight=None)), look_again=True)
    step = next_step(record(state), seen(tasks=(), preflight=("no room",)))
    if state is S.PREFLIGHT:
        halted(step, "no room")
    else:
        given_up(step, "no room")
    assert rules.may_start(record(state))


def test_a_new_start_is_distinguished_from_the_drain_it_ends() -> None:
    begun = record(S.STARTING, task_before="t1")
    assert next_step(begun, seen()) == replace(START, task_before="t1")
    assert next_step(begun, seen(tasks=(OTHER,))) == ADOPTED
    assert next_step(begun, seen(tasks=())) == START
    # It works again, and is continued, unless it stands still.
    assert next_step(begun, seen(progress=MOVING)) == replace(ADOPTED, task_id="t1")
    for still in ({"lost": "gl3"}, {"stalled": "gl3"}):
        assert next_step(begun, seen(progress=MOVING, **still)) == replace(START, task_before="t1")


@pytest.mark.parametrize(
    "changes",
    [
        {"audit": None},
        {"audit": replace(CLEAN, started_at_s=1.0)},
        {"audit": LEFT},
        {"audit": NOT_WHOLE},
        {"audit": replace(CLEAN, unsure=1)},
        {"progress": progress(counters(failures=1))},
        {"progress": progress(counters(skipped=1))},
        {"tasks": ()},
        {"tasks": (OTHER,)},
        {"tasks": (replace(TASK, bricks=(BRICK, "gl2:/b")),)},
        {"state": None},
        {"state": replace(STATE, bricks=STATE.bricks[2:])},
    ],
)
def test_a_commit_needs_every_proof(changes: dict[str, Any]) -> None:
    assert rules.commit_problems(record(S.AUDITED), seen()) == ()
    assert rules.commit_problems(record(S.AUDITED), seen(**changes))


# Failures, leftovers and another attempt.


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
def test_a_failure_is_given_up_also_while_a_brick_is_down(
    state: drain.DrainState, found: TaskCounters, words: str
) -> None:
    given_up(next_step(record(state), seen(progress=progress(found))), words)
    if found.status is T.UNKNOWN:
        return
    down = replace(STATE, bricks=(*STATE.bricks[:2], replace(STATE.bricks[2], online=False)))
    causes = tuple(f"brick {number} is down" for number in range(5))
    step = next_step(record(state), seen(state=down, progress=progress(found), causes=causes))
    given_up(step, words, "brick 0 is down; brick 1 is down; brick 2 is down; and 2 more")
    # Counters of another task prove nothing, and while any host moves files nothing has ended.
    for other in (progress(found, task_id="t0"), progress(found, counters(host="gl1", status=T.IN_PROGRESS))):
        halted(next_step(record(state), seen(state=down, progress=other)))


@pytest.mark.parametrize(
    ("found", "few", "broke"),
    [
        ((counters(files=100_000, failures=100),), True, False),
        ((counters(files=100_000, failures=111),), False, False),
        ((counters(failures=21),), False, False),
        ((counters(failures=3), counters(host="gl2")), True, False),
        ((counters(status=T.FAILED), counters(host="gl4")), False, True),
        ((counters(status=T.FAILED), counters(host="gl4", status=T.IN_PROGRESS)), False, False),
        ((counters(status=T.FAILED), counters(host="gl4", status=T.STOPPED)), False, False),
        ((counters(status=T.FAILED, skipped=1),), False, False),
    ],
)
def test_few_failures_and_a_broken_off_drain_are_no_plain_failure(
    found: tuple[TaskCounters, ...], few: bool, broke: bool
) -> None:
    look = seen(progress=progress(*found))
    assert (rules.only_few_failed(look), rules.broke_off(look)) == (few, broke)
    assert not rules.only_few_failed(seen(progress=None))
    assert not rules.broke_off(seen(progress=None))


@pytest.mark.parametrize("state", [S.AUDITING, S.AUDITED, S.COMMITTING])
@pytest.mark.parametrize("audit", [LEFT, replace(CLEAN, unsure=2)], ids=["left", "unsure"])
def test_leftovers_stop_the_commit(state: drain.DrainState, audit: DrainAudit) -> None:
    given_up(next_step(record(state), seen(audit=audit)))
    # After a failure, and audited again without another result: only Gluster can move them.
    again = record(state, times={S.FAILED: 45.0})
    assert rules.may_start(again) is (state is not S.COMMITTING)
    assert next_step(again, seen(audit=audit)) == replace(START, task_before="t1")
    # An incomplete audit proves nothing.
    halted(next_step(record(state), seen(audit=NOT_WHOLE)), "gl3 is lost", look_again=True)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, AUDIT),
        ({"progress": FAILED}, replace(START, task_before="t1")),
        ({"progress": None}, replace(ADOPTED, task_id="t1")),
        ({"progress": None, "silent": "for 6 h"}, replace(START, task_before="t1")),
        ({"progress": MOVING}, replace(ADOPTED, task_id="t1")),
        ({"progress": MOVING, "stalled": "dead"}, replace(START, task_before="t1")),
        ({"progress": MOVING, "lost": "gl3"}, replace(START, task_before="t1")),
    ],
)
def test_a_failed_drain_waits_until_it_is_asked_for_again(changes: dict[str, Any], expected: drain.DrainAct) -> None:
    failed = record(S.FAILED, "21 failures")
    halted(next_step(failed, seen(**changes)), "21 failures")
    assert begin_again(failed, seen(**changes)) == expected


# The way back.


@pytest.mark.parametrize("state", sorted(drain.UNTOUCHED_STATES | drain.OUT_STATES))
def test_a_stop_aborts_an_unstarted_drain_and_refuses_a_committed_one(state: drain.DrainState) -> None:
    step = begin_stop(record(state), seen(state=None, tasks=()))
    if state in drain.OUT_STATES:
        halted(step)
    else:
        assert isinstance(step, Act)
        assert (step.intent, step.result, step.seen_done) == (S.STOPPED, S.STOPPED, True)
        assert isinstance(next_step(record(S.STOPPED), seen()), Finished)


def test_after_a_stop_the_layout_is_repaired() -> None:
    settling = record(S.SETTLING, layout_task_id="l1")
    done = counters(fix_layout=True)
    assert next_step(settling, seen(tasks=(), layout=progress(done, task_id="l1"))) == seen_done(SETTLE)
    for layout in (
        progress(done, task_id="older"),
        progress(done, counters(status=T.IN_PROGRESS), task_id="l1"),
        progress(replace(done, failures=1), task_id="l1"),
        TaskProgress(task_id="l1", counters=()),
    ):
        assert next_step(settling, seen(tasks=(), layout=layout)) == SETTLE
    halted(next_step(settling, seen(tasks=(replace(OTHER, bricks=("gl1:/b",)),))), look_again=True)


# Bricks that are out of the volume.


def test_drains_explain_the_change_that_they_have_recorded_and_no_other() -> None:
    noted = ((20.0, "f2", "f3"), (10.0, "f1", "f2"), (30.0, None, None))
    drains = [
        record(S.WIPED, times={S.COMMITTED: at_s}, volume_before=before, volume_after=after)
        for at_s, before, after in noted
    ]
    for before, after, since_s in (("f1", "f2", 5.0), ("f1", "f3", 5.0), ("f2", "f3", 15.0)):
        assert drain.is_drained(drains, before, after, since_s=since_s)
    for before, after, since_s in (("f1", "f3", 15.0), ("f1", "f4", 5.0), ("f2", "f1", 5.0), ("", "f2", 5.0)):
        assert not drain.is_drained(drains, before, after, since_s=since_s)


@pytest.mark.parametrize("state", [S.COMMITTED, S.WIPING])
def test_a_brick_is_wiped_only_after_a_fresh_clean_audit(state: drain.DrainState) -> None:
    def step(place: PlaceSeen | None = PlaceSeen.BRICK, audit: DrainAudit | None = CLEAN, **changes: Any) -> drain.Step:
        places = None if place is None else {BRICK: place}
        return next_step(record(state), out(places=places, audit=audit, **changes), hand_over=True)

    assert step() == WIPE
    for old in (None, replace(CLEAN, started_at_s=49.0)):
        assert step(audit=old) == act(D.AUDIT, state, state)
    for bad in (LEFT, replace(CLEAN, unsure=1), NOT_WHOLE):
        halted(step(audit=bad))
    assert step(PlaceSeen.EMPTY, None) == seen_done(WIPE)
    for place in (PlaceSeen.OTHER, PlaceSeen.UNKNOWN, None):
        halted(step(place))
    unmounted = step(PlaceSeen.UNMOUNTED)
    assert unmounted == WIPE if state is S.WIPING else isinstance(unmounted, Halt)


@pytest.mark.parametrize("state", [S.COMMITTED, S.WIPING, S.WIPED])
@pytest.mark.parametrize("hand_over", [True, False])
def test_a_brick_that_is_in_a_volume_again_is_not_wiped(*, state: drain.DrainState, hand_over: bool) -> None:
    halted(next_step(record(state), seen(tasks=()), hand_over=hand_over), "in the volume again")
    halted(next_step(record(state), out(state=None), hand_over=True))
