"""Every state of a drain with every look at the world: what is done next."""

from dataclasses import replace
from typing import Any

import pytest

from migrator.decide.drain import begin_again, begin_stop, commit_problems, may_start, next_step, taken_back
from migrator.decide.drain_facts import broke_off, only_few_failed
from migrator.decide.drain_silence import silent_hosts
from migrator.domain.brick import Brick, VolumeState
from migrator.domain.drain import (
    DRAIN_TRANSITIONS,
    ENDED_STATES,
    OUT_STATES,
    UNDER_WAY_STATES,
    UNTOUCHED_STATES,
    ChangedOption,
    DrainNotes,
    DrainRecord,
    DrainState,
    DrainStep,
    merged_options,
)
from migrator.domain.drain_seen import Act, AuditSeen, DrainSeen, Finished, Halt, PlaceSeen
from migrator.domain.volume_tasks import TaskCounters, TaskKind, TaskProgress, TaskStatus, VolumeTask

S, D, T = DrainState, DrainStep, TaskStatus
BRICK = "gl3:/b"
UNDER_WAY = (S.STARTED, S.DRAINING, S.DRAINED, S.AUDITING, S.AUDITED, S.COMMITTING)
PROVEN = (S.AUDITED, S.COMMITTING)
CLEAN = AuditSeen(started_at_s=60.0, whole=True, left=0, unsure=0)
THROTTLE = ChangedOption(name="cluster.rebal-throttle", before="normal", given=("lazy", "aggressive"))


def record(
    state: DrainState, failure: str = "", *, times: dict[DrainState, float] | None = None, **notes: Any
) -> DrainRecord:
    return DrainRecord(
        id=1,
        volume="vol1",
        volume_id="v",
        bricks=(BRICK,),
        attempt=1,
        state=state,
        times={S.STARTED: 40.0, S.AUDITING: 50.0, S.COMMITTED: 55.0, state: 50.0, **(times or {})},
        failure=failure,
        notes=DrainNotes(**{"options": (), "task_id": "t1", **notes}),
    )


def counters(**changes: Any) -> TaskCounters:
    done = TaskCounters(
        host="gl3",
        host_id="3",
        files=7,
        size_bytes=70,
        lookups=9,
        failures=0,
        skipped=0,
        status=T.COMPLETED,
        fix_layout=False,
        runtime_s=5.0,
    )
    return replace(done, **changes)


def progress(*found: TaskCounters, task_id: str = "t1") -> TaskProgress:
    return TaskProgress(task_id=task_id, counters=found or (counters(),))


TASK = VolumeTask(kind=TaskKind.REMOVE_BRICK, name="Remove brick", id="t1", status=T.COMPLETED, bricks=(BRICK,))
STATE = VolumeState(
    volume="vol1",
    volume_id="v",
    type="Distribute",
    started=True,
    bricks=tuple(Brick(name=f"gl{n}:/b", host=f"gl{n}", path=b"/b", online=True) for n in (1, 2, 3)),
    options=(),
    tasks=(),
    peers_down=(),
)
WITHOUT = replace(STATE, bricks=STATE.bricks[:2])
MOVING = progress(counters(status=T.IN_PROGRESS))


def seen(**changes: Any) -> DrainSeen:
    """As Gluster leaves it when it has moved everything, audited; nothing speaks against a start."""
    whole = DrainSeen(
        state=STATE,
        tasks=(TASK,),
        progress=progress(),
        preflight=(),
        audit=CLEAN,
        places={BRICK: PlaceSeen.BRICK},
    )
    return replace(whole, **changes)


def out(**changes: Any) -> DrainSeen:
    return seen(**{"state": WITHOUT, "tasks": (), "progress": None, **changes})


def act(step: DrainStep, intent: DrainState, result: DrainState, **more: Any) -> Act:
    return Act(step=step, intent=intent, result=result, **more)


AUDIT = act(D.AUDIT, S.AUDITING, S.AUDITED)
COMMIT = act(D.COMMIT, S.COMMITTING, S.COMMITTED)
START = act(D.START, S.STARTING, S.STARTED)
WATCH = act(D.WATCH, S.DRAINING, S.DRAINED)
SETTLE = act(D.SETTLE, S.SETTLING, S.STOPPED)
ADOPTED = replace(START, seen_done=True, task_id="t2")
OTHER = replace(TASK, id="t2")


@pytest.mark.parametrize(
    ("state", "changes", "expected"),
    [
        (S.PLANNED, {"tasks": ()}, act(D.CHECK, S.PREFLIGHT, S.PREFLIGHT)),
        (S.PREFLIGHT, {"tasks": ()}, START),
        (S.STARTING, {"tasks": ()}, START),
        (S.STARTING, {}, replace(START, seen_done=True, task_id="t1")),
        (S.STARTED, {"progress": MOVING}, WATCH),
        (S.DRAINING, {"progress": MOVING}, WATCH),
        (S.DRAINING, {"progress": progress(counters(status=T.NOT_STARTED))}, WATCH),
        (S.STARTED, {}, replace(WATCH, seen_done=True)),
        (S.DRAINING, {}, replace(WATCH, seen_done=True)),
        (S.DRAINED, {}, AUDIT),
        (S.DRAINED, {"audit": None}, AUDIT),
        (S.AUDITING, {"audit": None}, AUDIT),
        (S.AUDITING, {}, replace(AUDIT, seen_done=True)),
        (S.AUDITED, {}, COMMIT),
        (S.AUDITED, {"audit": None}, AUDIT),
        (S.AUDITED, {"audit": replace(CLEAN, started_at_s=49.0)}, AUDIT),
        (S.COMMITTING, {}, COMMIT),
        (S.COMMITTING, {"audit": None}, AUDIT),
        # What moves again was not at its end.
        (S.DRAINED, {"progress": MOVING}, replace(ADOPTED, task_id="t1")),
        (S.AUDITED, {"progress": MOVING}, replace(ADOPTED, task_id="t1")),
        (S.STOPPING, {"tasks": ()}, SETTLE),
        (S.STOPPING, {}, act(D.STOP, S.STOPPING, S.STOPPING, task_id="t1")),
        (S.SETTLING, {"tasks": ()}, SETTLE),
    ],
)
def test_the_way_forward(state: DrainState, changes: dict[str, Any], expected: Act) -> None:
    assert next_step(record(state), seen(**changes)) == expected


@pytest.mark.parametrize("state", UNDER_WAY)
def test_a_drain_that_somebody_began_again_is_gone_on_with(state: DrainState) -> None:
    assert next_step(record(state), seen(tasks=(OTHER,))) == ADOPTED


@pytest.mark.parametrize("state", UNDER_WAY)
def test_a_drain_that_somebody_stopped_is_taken_back(state: DrainState) -> None:
    step = next_step(record(state), seen(tasks=(), progress=None))
    assert isinstance(step, Act)
    assert (step.step, step.intent, step.seen_done) == (D.STOP, S.STOPPING, True)
    assert "somebody else" in step.reason


@pytest.mark.parametrize("state", [*UNDER_WAY, S.STARTING, S.STOPPING])
@pytest.mark.parametrize("peers_down", [("gl3",), None])
def test_a_drain_that_not_every_host_could_tell_of_is_not_gone(
    state: DrainState, peers_down: tuple[str, ...] | None
) -> None:
    step = next_step(record(state), seen(tasks=(), progress=None, state=replace(STATE, peers_down=peers_down)))
    assert isinstance(step, Halt)
    assert step.look_again


@pytest.mark.parametrize("state", sorted(UNDER_WAY_STATES | UNTOUCHED_STATES))
@pytest.mark.parametrize(
    "changes",
    [
        {"state": None},
        {"tasks": None},
        {"state": replace(STATE, started=False)},
        {"state": replace(STATE, volume_id="another")},
    ],
)
def test_nothing_is_done_to_a_volume_that_is_not_known_or_another(state: DrainState, changes: dict[str, Any]) -> None:
    assert isinstance(next_step(record(state), seen(**changes)), Halt)


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
    assert isinstance(step, Act)
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
        assert isinstance(step, Act)
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
    assert isinstance(step, Act)
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


def test_a_replica_set_has_counters_of_every_host() -> None:
    bricks = tuple(Brick(name=f"gl{n}:/b", host=f"gl{n}", path=b"/b", online=True) for n in range(1, 7))
    state = replace(STATE, bricks=bricks, replica_count=3)
    names = tuple(brick.name for brick in bricks[3:])
    drain = replace(record(S.DRAINING), bricks=names)
    hosts = [counters(host=brick.host) for brick in bricks[3:]]
    tasks = (replace(TASK, bricks=names),)
    whole = seen(state=state, tasks=tasks, progress=progress(*hosts))
    assert next_step(drain, whole) == replace(WATCH, seen_done=True)
    two = replace(whole, progress=progress(counters(host="localhost"), counters(host="gl5")))
    assert silent_hosts(drain, whole) == ()
    # The host that was asked is told as `localhost`.
    assert silent_hosts(drain, two) == ("gl4", "gl6")
    assert silent_hosts(drain, replace(two, progress=None)) == ("gl4", "gl5", "gl6")
    assert silent_hosts(drain, replace(two, state=replace(state, peers_down=("gl6",)))) == ()
    assert silent_hosts(drain, replace(two, tasks=())) == ()
    assert next_step(drain, two) == WATCH
    assert isinstance(next_step(replace(drain, state=S.DRAINED), two), Halt)
    one_moves = progress(*hosts[:2], counters(status=T.IN_PROGRESS))
    assert next_step(drain, replace(whole, progress=one_moves)) == WATCH
    partly = replace(whole, state=replace(state, bricks=bricks[:5]))
    step = next_step(drain, partly)
    assert isinstance(step, Halt)
    assert "some of" in step.words


def test_a_drain_that_stands_still_is_given_up() -> None:
    step = next_step(record(S.DRAINING), seen(progress=MOVING, stalled="no file was moved for 2 h"))
    assert isinstance(step, Act)
    assert step.step is D.GIVE_UP
    assert "for 2 h" in step.reason


@pytest.mark.parametrize("state", [S.AUDITING, S.AUDITED, S.COMMITTING])
@pytest.mark.parametrize(
    "audit", [replace(CLEAN, left=1, examples=(b"a\xff",)), replace(CLEAN, unsure=2)], ids=["left", "unsure"]
)
def test_what_is_left_stops_the_commit(state: DrainState, audit: AuditSeen) -> None:
    step = next_step(record(state), seen(audit=audit))
    assert isinstance(step, Act)
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


def test_a_commit_needs_every_proof() -> None:
    good = record(S.AUDITED)
    assert commit_problems(good, seen()) == ()
    for changes in (
        {"audit": None},
        {"audit": replace(CLEAN, started_at_s=1.0)},
        {"audit": replace(CLEAN, left=1)},
        {"audit": replace(CLEAN, whole=False)},
        {"audit": replace(CLEAN, unsure=1)},
        {"progress": None},
        {"progress": progress(counters(failures=1))},
        {"progress": progress(counters(skipped=1))},
        {"tasks": ()},
        {"tasks": (OTHER,)},
        {"tasks": (replace(TASK, bricks=(BRICK, "gl2:/b")),)},
        {"state": None},
        {"state": replace(STATE, bricks=STATE.bricks[2:])},
        {"state": replace(STATE, peers_down=("gl1",))},
    ):
        assert commit_problems(good, seen(**changes)), changes


def test_the_last_subvolume_is_never_drained() -> None:
    last = replace(STATE, bricks=STATE.bricks[2:])
    step = next_step(record(S.PREFLIGHT), seen(state=last, tasks=()))
    assert isinstance(step, Halt)
    assert "the last subvolume" in step.reasons[0]
    # Others were taken out meanwhile: it may not be committed either.
    step = next_step(record(S.AUDITED), seen(state=last))
    assert isinstance(step, Halt)
    assert "the last subvolume" in step.reasons[0]


@pytest.mark.parametrize("state", [S.PREFLIGHT, S.STARTING])
def test_guards_that_were_not_looked_at_count_as_tripped(state: DrainState) -> None:
    step = next_step(record(state), seen(tasks=(), preflight=None))
    assert isinstance(step, Halt)
    assert step.look_again
    assert may_start(record(state))


def test_a_guard_stops_a_start_before_anything_was_touched_and_gives_up_one_that_was_begun() -> None:
    step = next_step(record(S.PREFLIGHT), seen(tasks=(), preflight=("no room", "gl2 is down")))
    assert isinstance(step, Halt)
    assert step.reasons == ("no room", "gl2 is down")
    step = next_step(record(S.STARTING), seen(tasks=(), preflight=("no room",)))
    assert step == act(D.GIVE_UP, S.FAILED, S.FAILED, reason="no room")


def test_a_new_start_is_told_from_the_drain_that_it_ends() -> None:
    begun = record(S.STARTING, task_before="t1")
    assert next_step(begun, seen()) == replace(START, task_before="t1")
    assert next_step(begun, seen(tasks=(OTHER,))) == ADOPTED
    assert next_step(begun, seen(tasks=())) == START


@pytest.mark.parametrize("state", [*UNDER_WAY, S.STARTING, S.STOPPING])
def test_a_drain_of_more_bricks_is_somebody_elses(state: DrainState) -> None:
    more = replace(OTHER, bricks=(BRICK, "gl2:/b"))
    for ask in (next_step, begin_stop):
        step = ask(record(state), seen(tasks=(more,)))
        assert isinstance(step, Halt)
        assert "gl2:/b together" in step.words


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
def test_a_failed_drain_that_is_asked_for_again(changes: dict[str, Any], expected: Act) -> None:
    assert begin_again(record(S.FAILED, "why"), seen(**changes)) == expected


def test_asked_for_again_in_every_other_state_it_goes_on() -> None:
    for state in set(S) - {S.FAILED}:
        assert begin_again(record(state), seen()) == next_step(record(state), seen())
    assert isinstance(begin_again(record(S.FAILED), seen(state=None)), Halt)


@pytest.mark.parametrize("state", [S.STARTING, *UNDER_WAY, S.FAILED])
def test_a_drain_is_taken_back_from_everywhere(state: DrainState) -> None:
    step = begin_stop(record(state), seen())
    assert step == act(D.STOP, S.STOPPING, S.STOPPING, reason="it was asked for", task_id="t1")
    # One whose id nobody wrote down is stopped too.
    step = begin_stop(record(state), seen(tasks=(OTHER,)))
    assert isinstance(step, Act)
    assert step.task_id == "t2"
    step = begin_stop(record(state), seen(tasks=(), progress=None))
    assert isinstance(step, Act)
    assert (step.step, step.seen_done) == (D.STOP, True)


@pytest.mark.parametrize("state", sorted(UNTOUCHED_STATES))
def test_what_was_not_begun_is_given_up_without_a_look(state: DrainState) -> None:
    step = begin_stop(record(state), seen(state=None, tasks=None))
    assert isinstance(step, Act)
    assert (step.intent, step.result, step.seen_done) == (S.STOPPED, S.STOPPED, True)
    assert isinstance(next_step(record(S.STOPPED), seen()), Finished)


@pytest.mark.parametrize("state", sorted(OUT_STATES))
def test_what_is_out_is_not_taken_back(state: DrainState) -> None:
    assert isinstance(begin_stop(record(state), out()), Halt)


def test_a_stop_does_not_end_what_somebody_else_began() -> None:
    step = next_step(record(S.STOPPING), seen(tasks=(OTHER,)))
    assert isinstance(step, Halt)
    assert "somebody else" in step.words


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
        assert not isinstance(step(value), Act)
    look_failed = next_step(touched, look(state=None, tasks=None))
    assert isinstance(look_failed, Halt)


@pytest.mark.parametrize("state", [S.STARTING, *UNDER_WAY, S.FAILED, S.STOPPING])
def test_bricks_that_somebody_took_out_are_looked_at_first(state: DrainState) -> None:
    if state is S.COMMITTING:
        assert next_step(record(state), out()) == replace(COMMIT, seen_done=True)
        return
    if state not in (S.AUDITING, S.AUDITED):
        assert next_step(record(state), out()) == AUDIT
        return
    assert next_step(record(state), out(audit=None)) == AUDIT
    step = next_step(record(state), out(audit=replace(CLEAN, left=8)))
    assert isinstance(step, Halt)
    assert "files are left on it" in step.words
    assert isinstance(next_step(record(state), out(audit=replace(CLEAN, whole=False))), Halt)
    done = replace(AUDIT, seen_done=True) if state is S.AUDITING else replace(COMMIT, seen_done=True)
    assert next_step(record(state), out()) == done


@pytest.mark.parametrize("state", sorted(UNTOUCHED_STATES))
def test_a_brick_that_the_volume_has_not_is_not_drained(state: DrainState) -> None:
    step = next_step(record(state), out())
    assert isinstance(step, Halt)
    assert "has no brick" in step.reasons[0]


WIPE = act(D.WIPE, S.WIPING, S.WIPED)
HAND_OVER = act(D.HAND_OVER, S.HANDING_OVER, S.HANDED_OVER)


@pytest.mark.parametrize("state", sorted(OUT_STATES))
def test_without_a_hand_over_it_ends_at_the_commit(state: DrainState) -> None:
    assert isinstance(next_step(record(state), out()), Finished)


@pytest.mark.parametrize("state", [S.COMMITTED, S.WIPING])
def test_a_brick_is_wiped_only_when_a_fresh_audit_found_nothing(state: DrainState) -> None:
    def step(place: PlaceSeen | None = PlaceSeen.BRICK, audit: AuditSeen | None = CLEAN) -> object:
        places = None if place is None else {BRICK: place}
        return next_step(record(state), out(places=places, audit=audit), hand_over=True)

    assert step() == WIPE
    again = act(D.AUDIT, state, state)
    assert step(audit=None) == again
    assert step(audit=replace(CLEAN, started_at_s=49.0)) == again
    for bad in (replace(CLEAN, left=1), replace(CLEAN, unsure=1), replace(CLEAN, whole=False)):
        assert isinstance(step(audit=bad), Halt)
    assert step(PlaceSeen.EMPTY, None) == replace(WIPE, seen_done=True)
    for place in (PlaceSeen.OTHER, PlaceSeen.UNKNOWN, None):
        assert isinstance(step(place), Halt)
    unmounted = step(PlaceSeen.UNMOUNTED)
    assert unmounted == WIPE if state is S.WIPING else isinstance(unmounted, Halt)


@pytest.mark.parametrize("state", [S.COMMITTED, S.WIPING, S.WIPED])
@pytest.mark.parametrize("hand_over", [True, False])
def test_nothing_is_wiped_or_given_away_that_is_in_a_volume_again(*, state: DrainState, hand_over: bool) -> None:
    step = next_step(record(state), seen(tasks=()), hand_over=hand_over)
    assert isinstance(step, Halt)
    assert "in the volume again" in step.words
    assert isinstance(next_step(record(state), out(state=None), hand_over=True), Halt)


def test_the_hand_over() -> None:
    assert next_step(record(S.WIPED), out(), hand_over=True) == HAND_OVER
    assert next_step(record(S.HANDING_OVER), out(), hand_over=True) == HAND_OVER
    again = next_step(record(S.HANDING_OVER), seen(tasks=()), hand_over=True)
    assert again == replace(HAND_OVER, seen_done=True)
    for look in (out(), seen(tasks=())):
        assert isinstance(next_step(record(S.HANDED_OVER), look, hand_over=True), Finished)


def test_every_state_has_its_kind_and_every_act_a_way() -> None:
    assert set(DRAIN_TRANSITIONS) == set(S)
    assert {state for state, after in DRAIN_TRANSITIONS.items() if not after} == ENDED_STATES
    assert not UNDER_WAY_STATES & (ENDED_STATES | OUT_STATES | UNTOUCHED_STATES)
    assert {state for state in S if taken_back(state)} == {S.STOPPING, S.SETTLING, S.STOPPED}
    looks = (
        seen(),
        seen(tasks=()),
        seen(tasks=(OTHER,)),
        seen(progress=MOVING),
        seen(audit=None),
        seen(progress=progress(counters(failures=1))),
        out(),
        out(audit=None),
        out(places={BRICK: PlaceSeen.EMPTY}),
    )
    for state in S:
        for look in looks:
            for step in (
                next_step(record(state), look, hand_over=True),
                begin_again(record(state), look),
                begin_stop(record(state), look),
            ):
                if isinstance(step, Act):
                    assert step.intent is state or step.intent in DRAIN_TRANSITIONS[state], (state, step)
                    assert step.result is step.intent or step.result in DRAIN_TRANSITIONS[step.intent], step


def test_options_that_are_added_up() -> None:
    first = ChangedOption(name="a", before=None, given=("1",))
    second = ChangedOption(name="a", before="1", given=("2", "1"))
    assert merged_options(None, None) is None
    assert merged_options((), None) == merged_options(None, ()) == ()
    assert merged_options((first,), (second,)) == (ChangedOption(name="a", before=None, given=("1", "2")),)
    assert merged_options((first,), (THROTTLE,)) == (first, THROTTLE)
