"""The next step of a drain, by its state and a snapshot of the volume."""

from dataclasses import replace
from typing import Any

import pytest

from migrator.bricks.drain import model as drain_model
from migrator.bricks.drain import rules as drain_rules
from migrator.gluster.model import Brick, TaskCounters, TaskProgress
from migrator.operations.model import Finished, Halt
from tests.support import drain_looks

LEFT = replace(drain_looks.CLEAN, left=1, examples=(b"a\xff",))
NOT_WHOLE = replace(drain_looks.CLEAN, whole=False, reasons=("gl3 is lost",))
FAILED = drain_looks.progress(drain_looks.counters(failures=21))
GIVE_UP = drain_looks.act(drain_looks.D.GIVE_UP, drain_looks.S.FAILED, drain_looks.S.FAILED)


def seen_done(one: drain_model.DrainAct) -> drain_model.DrainAct:
    return replace(one, seen_done=True)


def halted(step: drain_model.Step, words: str = "", *, look_again: bool | None = None) -> None:
    assert isinstance(step, Halt), step
    assert words in "; ".join((step.words, *step.reasons, step.hint))
    assert look_again in (None, step.look_again)


def given_up(step: drain_model.Step, *words: str) -> None:
    assert isinstance(step, drain_model.DrainAct), step
    assert replace(step, reason="") == GIVE_UP
    assert all(one in step.reason for one in words), step.reason


@pytest.mark.parametrize(
    ("state", "changes", "expected"),
    [
        (
            drain_looks.S.PLANNED,
            {"tasks": ()},
            drain_looks.act(drain_looks.D.CHECK, drain_looks.S.PREFLIGHT, drain_looks.S.PREFLIGHT),
        ),
        (drain_looks.S.PREFLIGHT, {"tasks": ()}, drain_looks.START),
        (drain_looks.S.STARTING, {"tasks": ()}, drain_looks.START),
        (drain_looks.S.STARTING, {}, replace(drain_looks.START, seen_done=True, task_id="t1")),
        (drain_looks.S.STARTED, {"progress": drain_looks.MOVING}, drain_looks.WATCH),
        (drain_looks.S.DRAINING, {"progress": drain_looks.MOVING}, drain_looks.WATCH),
        (
            drain_looks.S.DRAINING,
            {"progress": drain_looks.progress(drain_looks.counters(status=drain_looks.T.NOT_STARTED))},
            drain_looks.WATCH,
        ),
        (drain_looks.S.STARTED, {}, seen_done(drain_looks.WATCH)),
        (drain_looks.S.DRAINING, {}, seen_done(drain_looks.WATCH)),
        (drain_looks.S.DRAINED, {}, drain_looks.AUDIT),
        (drain_looks.S.DRAINED, {"audit": None}, drain_looks.AUDIT),
        (drain_looks.S.AUDITING, {"audit": None}, drain_looks.AUDIT),
        (drain_looks.S.AUDITING, {}, seen_done(drain_looks.AUDIT)),
        (drain_looks.S.AUDITED, {}, drain_looks.COMMIT),
        (drain_looks.S.AUDITED, {"audit": None}, drain_looks.AUDIT),
        (drain_looks.S.AUDITED, {"audit": replace(drain_looks.CLEAN, started_at_s=49.0)}, drain_looks.AUDIT),
        (
            drain_looks.S.AUDITED,
            {"audit": replace(drain_looks.CLEAN, explained=3), "may_recover": True},
            drain_looks.COMMIT,
        ),
        (drain_looks.S.COMMITTING, {}, drain_looks.COMMIT),
        (drain_looks.S.COMMITTING, {"audit": None}, drain_looks.AUDIT),
        # A task that moves files again had not ended.
        (drain_looks.S.DRAINED, {"progress": drain_looks.MOVING}, replace(drain_looks.ADOPTED, task_id="t1")),
        (drain_looks.S.AUDITED, {"progress": drain_looks.MOVING}, replace(drain_looks.ADOPTED, task_id="t1")),
        (drain_looks.S.STOPPING, {"tasks": ()}, drain_looks.SETTLE),
        (
            drain_looks.S.STOPPING,
            {},
            drain_looks.act(drain_looks.D.STOP, drain_looks.S.STOPPING, drain_looks.S.STOPPING, task_id="t1"),
        ),
        (drain_looks.S.SETTLING, {"tasks": ()}, drain_looks.SETTLE),
        *((state, {"tasks": (drain_looks.OTHER,)}, drain_looks.ADOPTED) for state in drain_looks.UNDER_WAY),
    ],
)
def test_the_next_step(state: drain_model.DrainState, changes: dict[str, Any], expected: drain_model.DrainAct) -> None:
    assert drain_rules.next_step(drain_looks.record(state), drain_looks.seen(**changes)) == expected


def test_every_act_follows_the_table_of_transitions() -> None:
    assert set(drain_model.DRAIN_TRANSITIONS) == set(drain_looks.S)
    assert {
        state for state, after in drain_model.DRAIN_TRANSITIONS.items() if not after
    } == drain_model.DRAIN_ENDED_STATES
    snapshots = (
        drain_looks.seen(),
        drain_looks.seen(tasks=()),
        drain_looks.seen(tasks=(drain_looks.OTHER,)),
        drain_looks.seen(progress=drain_looks.MOVING),
        drain_looks.seen(audit=None),
        drain_looks.seen(progress=FAILED),
        drain_looks.out(),
        drain_looks.out(audit=None),
        drain_looks.out(places={drain_looks.BRICK: drain_model.PlaceSeen.EMPTY}),
    )
    for state in drain_looks.S:
        for look in snapshots:
            steps = (
                drain_rules.next_step(drain_looks.record(state), look, hand_over=True),
                drain_rules.begin_again(drain_looks.record(state), look),
            )
            for step in (*steps, drain_rules.begin_stop(drain_looks.record(state), look)):
                if isinstance(step, drain_model.DrainAct):
                    assert step.intent is state or step.intent in drain_model.DRAIN_TRANSITIONS[state], (state, step)
                    assert step.result is step.intent or step.result in drain_model.DRAIN_TRANSITIONS[step.intent], step


# What is not known, and what other people did.


@pytest.mark.parametrize("state", sorted(drain_model.UNDER_WAY_STATES | drain_model.UNTOUCHED_STATES))
@pytest.mark.parametrize(
    "changes",
    [
        {"state": None},
        {"tasks": None},
        {"state": replace(drain_looks.STATE, started=False)},
        {"state": replace(drain_looks.STATE, volume_id="another")},
    ],
)
def test_nothing_is_done_to_an_unknown_volume_or_another_one(
    state: drain_model.DrainState, changes: dict[str, Any]
) -> None:
    halted(drain_rules.next_step(drain_looks.record(state), drain_looks.seen(**changes)))


@pytest.mark.parametrize("state", [*drain_looks.UNDER_WAY, drain_looks.S.STARTING, drain_looks.S.STOPPING])
@pytest.mark.parametrize("peers_down", [("gl3",), None])
def test_a_task_is_gone_only_if_every_host_could_list_it(
    state: drain_model.DrainState, peers_down: tuple[str, ...] | None
) -> None:
    look = drain_looks.seen(tasks=(), progress=None, state=replace(drain_looks.STATE, peers_down=peers_down))
    halted(drain_rules.next_step(drain_looks.record(state), look), look_again=True)


@pytest.mark.parametrize("state", drain_looks.UNDER_WAY)
@pytest.mark.parametrize(
    "changes",
    [
        {"progress": None},
        {"progress": TaskProgress(task_id="t1", counters=())},
        {"progress": drain_looks.progress(task_id="t9")},
        {"state": replace(drain_looks.STATE, peers_down=("gl2",))},
        {"state": replace(drain_looks.STATE, peers_down=None)},
        {
            "state": replace(
                drain_looks.STATE,
                bricks=(replace(drain_looks.STATE.bricks[0], online=False), *drain_looks.STATE.bricks[1:]),
            )
        },
        {
            "state": replace(
                drain_looks.STATE,
                bricks=(replace(drain_looks.STATE.bricks[0], online=None), *drain_looks.STATE.bricks[1:]),
            )
        },
    ],
)
def test_missing_counters_and_missing_parts_are_waited_for(
    state: drain_model.DrainState, changes: dict[str, Any]
) -> None:
    step = drain_rules.next_step(drain_looks.record(state), drain_looks.seen(**changes))
    if "progress" in changes and state in (drain_looks.S.STARTED, drain_looks.S.DRAINING):
        # Everything is up: it is watched until that host reports.
        assert step == drain_looks.WATCH
    else:
        halted(step, look_again=True)
    assert drain_rules.commit_problems(drain_looks.record(state), drain_looks.seen(**changes))


@pytest.mark.parametrize("state", drain_looks.UNDER_WAY)
def test_a_host_that_is_silent_for_long_needs_an_admin(state: drain_model.DrainState) -> None:
    for found in (None, TaskProgress(task_id="t1", counters=())):
        step = drain_rules.next_step(
            drain_looks.record(state), drain_looks.seen(progress=found, silent="gl3 is silent for 6 h")
        )
        remedy = "`rm -f /var/lib/glusterd/vols/vol1/rebalance/*.pid && systemctl restart glusterd`"
        given_up(step, "gl3 is silent for 6 h", "on gl3", remedy)
    halted(
        drain_rules.next_step(drain_looks.record(drain_looks.S.DRAINED), drain_looks.seen(progress=None)),
        "systemctl restart glusterd",
    )


def test_a_replica_set_has_counters_of_every_host() -> None:
    bricks = tuple(Brick(name=f"gl{n}:/b", host=f"gl{n}", path=b"/b", online=True) for n in range(1, 7))
    state = replace(drain_looks.STATE, bricks=bricks, replica_count=3)
    names = tuple(brick.name for brick in bricks[3:])
    drain = replace(drain_looks.record(drain_looks.S.DRAINING), bricks=names)
    hosts = [drain_looks.counters(host=brick.host) for brick in bricks[3:]]
    whole = drain_looks.seen(
        state=state, tasks=(replace(drain_looks.TASK, bricks=names),), progress=drain_looks.progress(*hosts)
    )
    assert drain_rules.next_step(drain, whole) == seen_done(drain_looks.WATCH)
    two = replace(
        whole, progress=drain_looks.progress(drain_looks.counters(host="localhost"), drain_looks.counters(host="gl5"))
    )
    assert drain_rules.silent_hosts(drain, whole) == ()
    # The host that was asked is listed as `localhost`.
    assert drain_rules.silent_hosts(drain, two) == ("gl4", "gl6")
    assert drain_rules.silent_hosts(drain, replace(two, state=replace(state, peers_down=("gl6",)))) == ()
    assert drain_rules.silent_hosts(drain, replace(two, tasks=())) == ()
    assert drain_rules.next_step(drain, two) == drain_looks.WATCH
    halted(drain_rules.next_step(replace(drain, state=drain_looks.S.DRAINED), two))
    one_moves = drain_looks.progress(*hosts[:2], drain_looks.counters(status=drain_looks.T.IN_PROGRESS))
    assert drain_rules.next_step(drain, replace(whole, progress=one_moves)) == drain_looks.WATCH
    halted(drain_rules.next_step(drain, replace(whole, state=replace(state, bricks=bricks[:5]))), "only some of")


@pytest.mark.parametrize("state", [*drain_looks.UNDER_WAY, drain_looks.S.STARTING, drain_looks.S.STOPPING])
def test_a_drain_of_more_bricks_belongs_to_someone_else(state: drain_model.DrainState) -> None:
    look = drain_looks.seen(tasks=(replace(drain_looks.OTHER, bricks=(drain_looks.BRICK, "gl2:/b")),))
    for ask in (drain_rules.next_step, drain_rules.begin_stop):
        halted(ask(drain_looks.record(state), look), "gl2:/b together")


@pytest.mark.parametrize("state", drain_looks.UNDER_WAY)
def test_a_drain_that_was_stopped_by_hand_is_taken_back(state: drain_model.DrainState) -> None:
    step = drain_rules.next_step(drain_looks.record(state), drain_looks.seen(tasks=(), progress=None))
    assert isinstance(step, drain_model.DrainAct)
    assert (step.step, step.intent, step.seen_done) == (drain_looks.D.STOP, drain_looks.S.STOPPING, True)


@pytest.mark.parametrize(
    "state", [drain_looks.S.STARTING, *drain_looks.UNDER_WAY, drain_looks.S.FAILED, drain_looks.S.STOPPING]
)
def test_bricks_that_were_taken_out_by_hand_are_audited_first(state: drain_model.DrainState) -> None:
    if state is drain_looks.S.COMMITTING:
        assert drain_rules.next_step(drain_looks.record(state), drain_looks.out()) == seen_done(drain_looks.COMMIT)
        return
    assert drain_rules.next_step(drain_looks.record(state), drain_looks.out(audit=None)) == drain_looks.AUDIT
    if state in (drain_looks.S.AUDITING, drain_looks.S.AUDITED):
        halted(drain_rules.next_step(drain_looks.record(state), drain_looks.out(audit=LEFT)), "files are left on it")
        halted(drain_rules.next_step(drain_looks.record(state), drain_looks.out(audit=NOT_WHOLE)))
        for audit in (LEFT, NOT_WHOLE):
            assert drain_rules.next_step(
                drain_looks.record(state), drain_looks.out(audit=audit, may_recover=True)
            ) == drain_looks.act(drain_looks.D.RECOVER, state, state)
        assert drain_rules.next_step(drain_looks.record(state), drain_looks.out()) == seen_done(
            drain_looks.AUDIT if state is drain_looks.S.AUDITING else drain_looks.COMMIT
        )


@pytest.mark.parametrize("state", sorted(drain_model.UNTOUCHED_STATES))
def test_a_brick_that_the_volume_lacks_is_not_drained(state: drain_model.DrainState) -> None:
    halted(drain_rules.next_step(drain_looks.record(state), drain_looks.out()), "has no brick")


# Starting, and the commit.


@pytest.mark.parametrize("state", [drain_looks.S.PREFLIGHT, drain_looks.S.STARTING])
def test_a_failed_or_missing_check_prevents_the_start(state: drain_model.DrainState) -> None:
    halted(
        drain_rules.next_step(drain_looks.record(state), drain_looks.seen(tasks=(), preflight=None)), look_again=True
    )
    step = drain_rules.next_step(drain_looks.record(state), drain_looks.seen(tasks=(), preflight=("no room",)))
    if state is drain_looks.S.PREFLIGHT:
        halted(step, "no room")
    else:
        given_up(step, "no room")
    assert drain_rules.may_start(drain_looks.record(state))


def test_a_new_start_is_told_from_the_drain_that_it_ends() -> None:
    begun = drain_looks.record(drain_looks.S.STARTING, task_before="t1")
    assert drain_rules.next_step(begun, drain_looks.seen()) == replace(drain_looks.START, task_before="t1")
    assert drain_rules.next_step(begun, drain_looks.seen(tasks=(drain_looks.OTHER,))) == drain_looks.ADOPTED
    assert drain_rules.next_step(begun, drain_looks.seen(tasks=())) == drain_looks.START
    # It works again, and is continued, unless it stands still.
    assert drain_rules.next_step(begun, drain_looks.seen(progress=drain_looks.MOVING)) == replace(
        drain_looks.ADOPTED, task_id="t1"
    )
    for still in ({"lost": "gl3"}, {"stalled": "gl3"}):
        assert drain_rules.next_step(begun, drain_looks.seen(progress=drain_looks.MOVING, **still)) == replace(
            drain_looks.START, task_before="t1"
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"audit": None},
        {"audit": replace(drain_looks.CLEAN, started_at_s=1.0)},
        {"audit": LEFT},
        {"audit": NOT_WHOLE},
        {"audit": replace(drain_looks.CLEAN, unsure=1)},
        {"progress": None},
        {"progress": drain_looks.progress(drain_looks.counters(failures=1))},
        {"progress": drain_looks.progress(drain_looks.counters(skipped=1))},
        {"tasks": ()},
        {"tasks": (drain_looks.OTHER,)},
        {"tasks": (replace(drain_looks.TASK, bricks=(drain_looks.BRICK, "gl2:/b")),)},
        {"state": None},
        {"state": replace(drain_looks.STATE, bricks=drain_looks.STATE.bricks[2:])},
        {"state": replace(drain_looks.STATE, peers_down=("gl1",))},
    ],
)
def test_a_commit_needs_every_proof(changes: dict[str, Any]) -> None:
    assert drain_rules.commit_problems(drain_looks.record(drain_looks.S.AUDITED), drain_looks.seen()) == ()
    assert drain_rules.commit_problems(drain_looks.record(drain_looks.S.AUDITED), drain_looks.seen(**changes))


def test_the_last_subvolume_is_never_drained() -> None:
    last = replace(drain_looks.STATE, bricks=drain_looks.STATE.bricks[2:])
    halted(
        drain_rules.next_step(drain_looks.record(drain_looks.S.PREFLIGHT), drain_looks.seen(state=last, tasks=())),
        "the last subvolume",
    )
    # The others were taken out meanwhile.
    halted(
        drain_rules.next_step(drain_looks.record(drain_looks.S.AUDITED), drain_looks.seen(state=last)),
        "the last subvolume",
    )


# Failures, leftovers and another attempt.


@pytest.mark.parametrize("state", drain_looks.UNDER_WAY)
@pytest.mark.parametrize(
    ("found", "words"),
    [
        (drain_looks.counters(failures=21), "21 files could not be moved"),
        (drain_looks.counters(skipped=1), "1 file were skipped"),
        (drain_looks.counters(status=drain_looks.T.FAILED), "failed, not completed"),
        (drain_looks.counters(status=drain_looks.T.STOPPED), "stopped, not completed"),
        (drain_looks.counters(status=drain_looks.T.UNKNOWN), "unknown, not completed"),
    ],
)
def test_completed_is_not_drained(state: drain_model.DrainState, found: TaskCounters, words: str) -> None:
    given_up(
        drain_rules.next_step(drain_looks.record(state), drain_looks.seen(progress=drain_looks.progress(found))), words
    )


@pytest.mark.parametrize("state", drain_looks.UNDER_WAY)
@pytest.mark.parametrize(
    "found",
    [drain_looks.counters(status=drain_looks.T.FAILED), drain_looks.counters(failures=4)],
    ids=["failed", "failures"],
)
def test_a_failure_is_given_up_also_while_a_brick_is_down(state: drain_model.DrainState, found: TaskCounters) -> None:
    down = replace(
        drain_looks.STATE, bricks=(*drain_looks.STATE.bricks[:2], replace(drain_looks.STATE.bricks[2], online=False))
    )
    causes = tuple(f"brick {number} is down" for number in range(5))
    step = drain_rules.next_step(
        drain_looks.record(state), drain_looks.seen(state=down, progress=drain_looks.progress(found), causes=causes)
    )
    given_up(step, "brick 0 is down; brick 1 is down; brick 2 is down; and 2 more")
    # Counters of another task prove nothing, and while any host moves files nothing has ended.
    for other in (
        drain_looks.progress(found, task_id="t0"),
        drain_looks.progress(found, drain_looks.counters(host="gl1", status=drain_looks.T.IN_PROGRESS)),
    ):
        halted(drain_rules.next_step(drain_looks.record(state), drain_looks.seen(state=down, progress=other)))


@pytest.mark.parametrize("why", ["stalled", "lost"])
def test_a_drain_that_stands_still_is_given_up(why: str) -> None:
    given_up(
        drain_rules.next_step(
            drain_looks.record(drain_looks.S.DRAINING),
            drain_looks.seen(progress=drain_looks.MOVING, **{why: "for 2 h"}),
        ),
        "for 2 h",
    )


@pytest.mark.parametrize(
    ("found", "few", "broke"),
    [
        ((drain_looks.counters(),), False, False),
        ((drain_looks.counters(failures=1),), True, False),
        ((drain_looks.counters(files=100_000, failures=100),), True, False),
        ((drain_looks.counters(files=100_000, failures=111),), False, False),
        ((drain_looks.counters(failures=21),), False, False),
        ((drain_looks.counters(failures=3), drain_looks.counters(host="gl2")), True, False),
        ((drain_looks.counters(failures=1, skipped=1),), False, False),
        (
            (drain_looks.counters(failures=1), drain_looks.counters(host="gl2", status=drain_looks.T.IN_PROGRESS)),
            False,
            False,
        ),
        ((drain_looks.counters(status=drain_looks.T.FAILED),), False, True),
        ((drain_looks.counters(status=drain_looks.T.FAILED), drain_looks.counters(host="gl4")), False, True),
        (
            (
                drain_looks.counters(status=drain_looks.T.FAILED),
                drain_looks.counters(host="gl4", status=drain_looks.T.IN_PROGRESS),
            ),
            False,
            False,
        ),
        (
            (
                drain_looks.counters(status=drain_looks.T.FAILED),
                drain_looks.counters(host="gl4", status=drain_looks.T.STOPPED),
            ),
            False,
            False,
        ),
        ((drain_looks.counters(status=drain_looks.T.FAILED, failures=11),), False, False),
        ((drain_looks.counters(status=drain_looks.T.FAILED, skipped=1),), False, False),
    ],
)
def test_few_failures_and_a_drain_that_broke_off_are_told_from_a_failure(
    found: tuple[TaskCounters, ...], few: bool, broke: bool
) -> None:
    look = drain_looks.seen(progress=drain_looks.progress(*found))
    assert (drain_rules.only_few_failed(look), drain_rules.broke_off(look)) == (few, broke)
    assert not drain_rules.only_few_failed(drain_looks.seen(progress=None))
    assert not drain_rules.broke_off(drain_looks.seen(progress=None))


@pytest.mark.parametrize("state", [drain_looks.S.AUDITING, drain_looks.S.AUDITED, drain_looks.S.COMMITTING])
@pytest.mark.parametrize("audit", [LEFT, replace(drain_looks.CLEAN, unsure=2)], ids=["left", "unsure"])
def test_leftovers_stop_the_commit(state: drain_model.DrainState, audit: drain_model.AuditSeen) -> None:
    given_up(drain_rules.next_step(drain_looks.record(state), drain_looks.seen(audit=audit)))
    # After a failure, and audited again without another result: only Gluster can move them.
    again = drain_looks.record(state, times={drain_looks.S.FAILED: 45.0})
    assert drain_rules.may_start(again) is (state is not drain_looks.S.COMMITTING)
    assert drain_rules.next_step(again, drain_looks.seen(audit=audit)) == replace(drain_looks.START, task_before="t1")
    assert drain_rules.next_step(
        drain_looks.record(state), drain_looks.seen(audit=audit, may_recover=True)
    ) == drain_looks.act(drain_looks.D.RECOVER, state, state)
    # An incomplete audit proves nothing.
    halted(
        drain_rules.next_step(drain_looks.record(state), drain_looks.seen(audit=NOT_WHOLE)),
        "gl3 is lost",
        look_again=True,
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, drain_looks.AUDIT),
        ({"progress": FAILED}, replace(drain_looks.START, task_before="t1")),
        (
            {"progress": FAILED, "may_recover": True},
            drain_looks.act(drain_looks.D.RECOVER, drain_looks.S.FAILED, drain_looks.S.FAILED),
        ),
        ({"progress": None}, replace(drain_looks.ADOPTED, task_id="t1")),
        ({"progress": None, "silent": "for 6 h"}, replace(drain_looks.START, task_before="t1")),
        ({"tasks": ()}, drain_looks.START),
        ({"tasks": (drain_looks.OTHER,)}, drain_looks.ADOPTED),
        ({"progress": drain_looks.MOVING}, replace(drain_looks.ADOPTED, task_id="t1")),
        ({"progress": drain_looks.MOVING, "stalled": "dead"}, replace(drain_looks.START, task_before="t1")),
        # Never beside Gluster: on another host the task may go on.
        (
            {"progress": drain_looks.MOVING, "lost": "gl3", "may_recover": True},
            replace(drain_looks.START, task_before="t1"),
        ),
    ],
)
def test_a_failed_drain_waits_until_it_is_asked_for_again(
    changes: dict[str, Any], expected: drain_model.DrainAct
) -> None:
    failed = drain_looks.record(drain_looks.S.FAILED, "21 failures")
    halted(drain_rules.next_step(failed, drain_looks.seen(**changes)), "21 failures")
    assert drain_rules.begin_again(failed, drain_looks.seen(**changes)) == expected


def test_asked_for_again_in_every_other_state_it_continues() -> None:
    for state in set(drain_looks.S) - {drain_looks.S.FAILED}:
        assert drain_rules.begin_again(drain_looks.record(state), drain_looks.seen()) == drain_rules.next_step(
            drain_looks.record(state), drain_looks.seen()
        )
    halted(drain_rules.begin_again(drain_looks.record(drain_looks.S.FAILED), drain_looks.seen(state=None)))


# The way back.


@pytest.mark.parametrize("state", [drain_looks.S.STARTING, *drain_looks.UNDER_WAY, drain_looks.S.FAILED])
def test_a_drain_is_taken_back_from_every_state(state: drain_model.DrainState) -> None:
    expected = drain_looks.act(
        drain_looks.D.STOP, drain_looks.S.STOPPING, drain_looks.S.STOPPING, reason="it was asked for"
    )
    assert drain_rules.begin_stop(drain_looks.record(state), drain_looks.seen()) == replace(expected, task_id="t1")
    # One whose id was not recorded is stopped too.
    assert drain_rules.begin_stop(drain_looks.record(state), drain_looks.seen(tasks=(drain_looks.OTHER,))) == replace(
        expected, task_id="t2"
    )
    assert drain_rules.begin_stop(drain_looks.record(state), drain_looks.seen(tasks=(), progress=None)) == seen_done(
        expected
    )


@pytest.mark.parametrize("state", sorted(drain_model.UNTOUCHED_STATES | drain_model.OUT_STATES))
def test_a_drain_that_was_not_begun_is_given_up_and_a_committed_one_is_not_taken_back(
    state: drain_model.DrainState,
) -> None:
    step = drain_rules.begin_stop(drain_looks.record(state), drain_looks.seen(state=None, tasks=None))
    if state in drain_model.OUT_STATES:
        halted(step)
    else:
        assert isinstance(step, drain_model.DrainAct)
        assert (step.intent, step.result, step.seen_done) == (drain_looks.S.STOPPED, drain_looks.S.STOPPED, True)
        assert isinstance(
            drain_rules.next_step(drain_looks.record(drain_looks.S.STOPPED), drain_looks.seen()), Finished
        )


def test_a_stop_does_not_end_a_drain_that_was_begun_by_hand() -> None:
    halted(
        drain_rules.next_step(drain_looks.record(drain_looks.S.STOPPING), drain_looks.seen(tasks=(drain_looks.OTHER,))),
        "outside of this program",
    )


def test_after_a_stop_the_layout_is_repaired() -> None:
    settling = drain_looks.record(drain_looks.S.SETTLING, layout_task_id="l1")
    done = drain_looks.counters(fix_layout=True)
    assert drain_rules.next_step(
        settling, drain_looks.seen(tasks=(), layout=drain_looks.progress(done, task_id="l1"))
    ) == seen_done(drain_looks.SETTLE)
    for layout in (
        drain_looks.progress(done, task_id="older"),
        drain_looks.progress(done, drain_looks.counters(status=drain_looks.T.IN_PROGRESS), task_id="l1"),
        drain_looks.progress(replace(done, failures=1), task_id="l1"),
        TaskProgress(task_id="l1", counters=()),
    ):
        assert drain_rules.next_step(settling, drain_looks.seen(tasks=(), layout=layout)) == drain_looks.SETTLE
    halted(
        drain_rules.next_step(settling, drain_looks.seen(tasks=(replace(drain_looks.OTHER, bricks=("gl1:/b",)),))),
        look_again=True,
    )


@pytest.mark.parametrize("state", [drain_looks.S.STOPPED, drain_looks.S.FAILED, drain_looks.S.COMMITTED])
def test_options_are_restored_when_a_drain_has_ended(state: drain_model.DrainState) -> None:
    touched = drain_looks.record(state, options=(drain_looks.THROTTLE,))
    look, base = (
        (drain_looks.out, drain_looks.WITHOUT)
        if state is drain_looks.S.COMMITTED
        else (drain_looks.seen, drain_looks.STATE)
    )

    def step(*options: tuple[str, str]) -> drain_model.Step:
        return drain_rules.next_step(touched, look(state=replace(base, options=options)))

    for given in drain_looks.THROTTLE.given:
        assert step((drain_looks.THROTTLE.name, given)) == drain_looks.act(drain_looks.D.RESTORE, state, state)
    # As before, reset, or changed by an admin: that stays.
    for options in (((drain_looks.THROTTLE.name, "normal"),), (), ((drain_looks.THROTTLE.name, "custom"),)):
        assert not isinstance(step(*options), drain_model.DrainAct)
    halted(drain_rules.next_step(touched, look(state=None, tasks=None)))


# Bricks that are out of the volume.


@pytest.mark.parametrize("state", [drain_looks.S.COMMITTED, drain_looks.S.WIPING])
def test_a_brick_is_wiped_only_after_a_fresh_clean_audit(state: drain_model.DrainState) -> None:
    def step(
        place: drain_model.PlaceSeen | None = drain_model.PlaceSeen.BRICK,
        audit: drain_model.AuditSeen | None = drain_looks.CLEAN,
        **changes: Any,
    ) -> drain_model.Step:
        places = None if place is None else {drain_looks.BRICK: place}
        return drain_rules.next_step(
            drain_looks.record(state), drain_looks.out(places=places, audit=audit, **changes), hand_over=True
        )

    assert step() == drain_looks.WIPE
    for old in (None, replace(drain_looks.CLEAN, started_at_s=49.0)):
        assert step(audit=old) == drain_looks.act(drain_looks.D.AUDIT, state, state)
    for bad in (LEFT, replace(drain_looks.CLEAN, unsure=1), NOT_WHOLE):
        halted(step(audit=bad))
        assert step(audit=bad, may_recover=True) == drain_looks.act(drain_looks.D.RECOVER, state, state)
    assert step(drain_model.PlaceSeen.EMPTY, None) == seen_done(drain_looks.WIPE)
    for place in (drain_model.PlaceSeen.OTHER, drain_model.PlaceSeen.UNKNOWN, None):
        halted(step(place))
    unmounted = step(drain_model.PlaceSeen.UNMOUNTED)
    assert unmounted == drain_looks.WIPE if state is drain_looks.S.WIPING else isinstance(unmounted, Halt)


@pytest.mark.parametrize("state", [drain_looks.S.COMMITTED, drain_looks.S.WIPING, drain_looks.S.WIPED])
@pytest.mark.parametrize("hand_over", [True, False])
def test_a_brick_that_is_in_a_volume_again_is_not_wiped(*, state: drain_model.DrainState, hand_over: bool) -> None:
    halted(
        drain_rules.next_step(drain_looks.record(state), drain_looks.seen(tasks=()), hand_over=hand_over),
        "in the volume again",
    )
    halted(drain_rules.next_step(drain_looks.record(state), drain_looks.out(state=None), hand_over=True))


def test_the_hand_over() -> None:
    for state in drain_model.OUT_STATES:
        assert isinstance(drain_rules.next_step(drain_looks.record(state), drain_looks.out()), Finished)
    for state in (drain_looks.S.WIPED, drain_looks.S.HANDING_OVER):
        assert (
            drain_rules.next_step(drain_looks.record(state), drain_looks.out(), hand_over=True) == drain_looks.HAND_OVER
        )
    assert drain_rules.next_step(
        drain_looks.record(drain_looks.S.HANDING_OVER), drain_looks.seen(tasks=()), hand_over=True
    ) == seen_done(drain_looks.HAND_OVER)
    for look in (drain_looks.out(), drain_looks.seen(tasks=())):
        assert isinstance(
            drain_rules.next_step(drain_looks.record(drain_looks.S.HANDED_OVER), look, hand_over=True), Finished
        )
