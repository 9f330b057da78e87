"""Every state of a drain with every look at the world: what is done next on the way to the commit."""

from dataclasses import replace
from typing import Any

import pytest

from migrator.bricks.drain.model import (
    DRAIN_ENDED_STATES,
    DRAIN_TRANSITIONS,
    OUT_STATES,
    UNDER_WAY_STATES,
    UNTOUCHED_STATES,
    ChangedOption,
    DrainAct,
    DrainState,
    PlaceSeen,
    merged_options,
)
from migrator.bricks.drain.rules import (
    begin_again,
    begin_stop,
    commit_problems,
    may_start,
    next_step,
    silent_hosts,
    taken_back,
)
from migrator.gluster.model import Brick
from migrator.operations.model import Halt
from tests.support.drain_looks import (
    ADOPTED,
    AUDIT,
    BRICK,
    CLEAN,
    COMMIT,
    MOVING,
    OTHER,
    SETTLE,
    START,
    STATE,
    TASK,
    THROTTLE,
    UNDER_WAY,
    WATCH,
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
def test_the_way_forward(state: DrainState, changes: dict[str, Any], expected: DrainAct) -> None:
    assert next_step(record(state), seen(**changes)) == expected


@pytest.mark.parametrize("state", UNDER_WAY)
def test_a_drain_that_somebody_began_again_is_gone_on_with(state: DrainState) -> None:
    assert next_step(record(state), seen(tasks=(OTHER,))) == ADOPTED


@pytest.mark.parametrize("state", UNDER_WAY)
def test_a_drain_that_somebody_stopped_is_taken_back(state: DrainState) -> None:
    step = next_step(record(state), seen(tasks=(), progress=None))
    assert isinstance(step, DrainAct)
    assert (step.step, step.intent, step.seen_done) == (D.STOP, S.STOPPING, True)
    assert "outside of this program" in step.reason


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


def test_every_state_has_its_kind_and_every_act_a_way() -> None:
    assert set(DRAIN_TRANSITIONS) == set(S)
    assert {state for state, after in DRAIN_TRANSITIONS.items() if not after} == DRAIN_ENDED_STATES
    assert not UNDER_WAY_STATES & (DRAIN_ENDED_STATES | OUT_STATES | UNTOUCHED_STATES)
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
                if isinstance(step, DrainAct):
                    assert step.intent is state or step.intent in DRAIN_TRANSITIONS[state], (state, step)
                    assert step.result is step.intent or step.result in DRAIN_TRANSITIONS[step.intent], step


def test_options_that_are_added_up() -> None:
    first = ChangedOption(name="a", before=None, given=("1",))
    second = ChangedOption(name="a", before="1", given=("2", "1"))
    assert merged_options(None, None) is None
    assert merged_options((), None) == merged_options(None, ()) == ()
    assert merged_options((first,), (second,)) == (ChangedOption(name="a", before=None, given=("1", "2")),)
    assert merged_options((first,), (THROTTLE,)) == (first, THROTTLE)
