"""What every ledger does with drains, their steps and their counters."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.bricks.drain.model import (
    DRAIN_TRANSITIONS,
    NO_DRAIN_NOTES,
    ChangedOption,
    CopyTally,
    DrainAct,
    DrainCopying,
    DrainNotes,
    DrainRecord,
    DrainSample,
    DrainState,
    DrainStep,
)
from migrator.core.errors import LedgerCorrupt
from migrator.core.states import PassKind
from migrator.gluster.model import TaskStatus
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.operations.model import StepResult
from migrator.transfer.model import Sample
from tests.support.plans import small_plan

S, D = DrainState, DrainStep
SET = ("gl1:/b'\n", "gl2:/b\\", "gl3:/ü")
THROTTLE = ChangedOption(name="cluster.rebal-throttle", before=None, given=("lazy",))
OPTIONS = DrainNotes(options=(THROTTLE,))

Move = tuple[DrainStep, DrainState, DrainState]
CHECK: Move = (D.CHECK, S.PREFLIGHT, S.PREFLIGHT)
START: Move = (D.START, S.STARTING, S.STARTED)
WATCH: Move = (D.WATCH, S.DRAINING, S.DRAINED)
AUDIT: Move = (D.AUDIT, S.AUDITING, S.AUDITED)
COMMIT: Move = (D.COMMIT, S.COMMITTING, S.COMMITTED)
GIVE_UP: Move = (D.GIVE_UP, S.FAILED, S.FAILED)
STOP: Move = (D.STOP, S.STOPPING, S.STOPPING)
SETTLE: Move = (D.SETTLE, S.SETTLING, S.STOPPED)
RESTORE: Move = (D.RESTORE, S.STOPPED, S.STOPPED)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "ledger.db", create=True) as made:
        yield made


def plan(ledger: Ledger, bricks: tuple[str, ...] = SET, *, at_s: float = 1.0, anew: bool = False) -> DrainRecord:
    return ledger.drains.plan(volume="vol1", volume_id="v", bricks=bricks, at_s=at_s, anew=anew)


def act(move: Move, **more: str) -> DrainAct:
    return DrainAct(step=move[0], intent=move[1], result=move[2], **more)  # type: ignore[arg-type]


def do(ledger: Ledger, record: DrainRecord, *moves: Move, at_s: float = 10.0, reason: str = "") -> DrainRecord:
    for number, move in enumerate(moves):
        notes = OPTIONS if move is START else NO_DRAIN_NOTES
        begins_s = at_s + 10.0 * number
        step = ledger.drains.intend(record.id, act(move, reason=reason), at_s=begins_s, notes=notes)
        record = ledger.drains.finish(step, move[2], at_s=begins_s + 0.5)
    return record


def test_a_new_attempt_comes_back_as_recorded(ledger: Ledger) -> None:
    made = plan(ledger)
    assert made == DrainRecord(
        id=made.id, volume="vol1", volume_id="v", bricks=SET, attempt=1, state=S.PLANNED, times={S.PLANNED: 1.0}
    )
    assert ledger.drains.read(made.id) == made == ledger.drains.latest("v", SET[::-1])
    assert ledger.drains.latest("v", SET[:2]) is None
    assert ledger.drains.latest("w", SET) is None
    with pytest.raises(LedgerCorrupt, match="no drain 99"):
        ledger.drains.read(99)


def test_one_attempt_that_has_not_ended_for_a_brick(ledger: Ledger) -> None:
    made = plan(ledger)
    assert plan(ledger, SET[::-1], at_s=2.0) == made
    with pytest.raises(LedgerCorrupt, match="has begun already"):
        plan(ledger, SET[:1])
    assert plan(ledger, ("gl9:/b",)).attempt == 1
    do(ledger, made, CHECK, START, STOP, SETTLE)
    again = plan(ledger, at_s=90.0)
    assert (again.attempt, again.failure, again.notes) == (2, "", NO_DRAIN_NOTES)
    assert ledger.drains.latest("v", SET) == again
    assert [one.attempt for one in ledger.drains.all()] == [1, 1, 2]


def test_copying_while_a_drain_moves_files_is_told_apart(ledger: Ledger) -> None:
    def looked(at_s: float, status: TaskStatus, task_id: str = "t") -> DrainSample:
        counters = dict.fromkeys(("files", "size_bytes", "lookups", "failures", "skipped"), 0)
        return DrainSample(task_id=task_id, at_s=at_s, host="h", status=status, runtime_s=0.0, **counters)

    def copied(at_s: float, files: int, *, streams: int = 2) -> Sample:
        return Sample(at_s=at_s, interval_s=5.0, attempt_id=None, streams=streams, files=files, size_bytes=files * 10)

    assert ledger.drains.copying() == DrainCopying(in_drains=CopyTally(), outside=CopyTally())
    record = plan(ledger)
    ledger.plans.record(small_plan(), path="plans/plan.json", checksum="c")
    made = ledger.passes.start(
        plan="plan", batch=1, kind=PassKind.SEED, catalog="c", chunk_list="l", chunks=[], at_s=5.0
    ).id
    ledger.drains.add_samples(
        record.id,
        [
            looked(100.0, TaskStatus.IN_PROGRESS),
            looked(200.0, TaskStatus.IN_PROGRESS),
            # It waits for a commit: nothing moves any more.
            looked(900.0, TaskStatus.COMPLETED),
            looked(300.0, TaskStatus.IN_PROGRESS, "another"),
            looked(310.0, TaskStatus.IN_PROGRESS, "another"),
        ],
    )
    ledger.samples.add(
        made,
        [
            copied(100.0, 1),
            copied(105.0, 2),
            copied(200.0, 4),
            copied(204.0, 8),
            copied(310.0, 16),
            copied(250.0, 32),
            copied(800.0, 64),
            copied(150.0, 128, streams=0),
        ],
    )
    assert ledger.drains.copying() == DrainCopying(
        in_drains=CopyTally(files=22, size_bytes=220, busy_s=15.0),
        outside=CopyTally(files=97, size_bytes=970, busy_s=15.0),
    )


def test_bricks_that_are_out_are_drained_anew_only_when_they_are_in_again(ledger: Ledger) -> None:
    out = do(ledger, plan(ledger), CHECK, START, WATCH, AUDIT, COMMIT)
    assert out.state is S.COMMITTED
    assert plan(ledger, at_s=90.0) == out
    assert plan(ledger, at_s=91.0, anew=True).attempt == 2
    # What is out of the volume is no other drain's business.
    assert plan(ledger, ("gl9:/b",)).attempt == 1


def test_goes_through_all_states_with_their_times(ledger: Ledger) -> None:
    record = do(ledger, plan(ledger), CHECK, START, WATCH, AUDIT, COMMIT)
    assert list(record.times) == [
        S.PLANNED,
        S.PREFLIGHT,
        S.STARTING,
        S.STARTED,
        S.DRAINING,
        S.DRAINED,
        S.AUDITING,
        S.AUDITED,
        S.COMMITTING,
        S.COMMITTED,
    ]
    assert (record.times[S.AUDITING], record.since_s) == (40.0, 50.5)
    steps = ledger.drains.steps(record.id)
    assert [one.step for one in steps] == [D.CHECK, D.START, D.WATCH, D.AUDIT, D.COMMIT]
    assert {one.result for one in steps} == {StepResult.DONE}


def test_no_start_without_what_the_options_were(ledger: Ledger) -> None:
    record = do(ledger, plan(ledger), CHECK)
    with pytest.raises(LedgerCorrupt, match="options were before"):
        ledger.drains.intend(record.id, act(START), at_s=20.0)
    assert ledger.drains.read(record.id) == record
    # None at all are known to be none.
    ledger.drains.intend(record.id, act(START), at_s=20.0, notes=DrainNotes(options=()))
    assert ledger.drains.read(record.id).notes.options == ()


def test_what_an_option_was_before_stays_and_what_it_was_given_is_added(ledger: Ledger) -> None:
    record = do(ledger, plan(ledger), CHECK, START)
    more = ChangedOption(name=THROTTLE.name, before="lazy", given=("normal", "lazy"))
    other = ChangedOption(name="cluster.min-free-disk", before="10%", given=("5%",))
    noted = ledger.drains.note(record.id, DrainNotes(options=(more, other), task_id="t1"))
    assert noted.notes.options == (replace(THROTTLE, given=("lazy", "normal")), other)
    assert noted.notes.task_id == "t1"
    assert ledger.drains.note(record.id, NO_DRAIN_NOTES) == noted == ledger.drains.read(record.id)


def test_the_tasks_that_an_act_names_are_noted_with_its_intent(ledger: Ledger) -> None:
    record = do(ledger, plan(ledger), CHECK)
    ledger.drains.intend(record.id, act(START, task_id="t2", task_before="t1"), at_s=20.0, notes=OPTIONS)
    notes = ledger.drains.read(record.id).notes
    assert (notes.task_id, notes.task_before) == ("t2", "t1")
    step = ledger.drains.intend(record.id, act(START), at_s=21.0)
    done = ledger.drains.finish(step, S.STARTED, at_s=22.0, notes=DrainNotes(task_id="t3", layout_task_id="l"))
    assert (done.notes.task_id, done.notes.task_before, done.notes.layout_task_id) == ("t3", "t1", "l")


def test_a_failure_stays_until_something_succeeds_after_it(ledger: Ledger) -> None:
    record = do(ledger, plan(ledger), CHECK)
    step = ledger.drains.intend(record.id, act(START), at_s=20.0, notes=OPTIONS)
    failed = ledger.drains.fail(step, "EIO", at_s=21.0)
    assert (failed.state, failed.failure) == (S.STARTING, "EIO")
    record = do(ledger, failed, START, at_s=22.0)
    assert (record.state, record.failure) == (S.STARTED, "")
    record = do(ledger, record, GIVE_UP, at_s=30.0, reason="21 failures")
    assert (record.state, record.failure) == (S.FAILED, "21 failures")
    record = do(ledger, record, STOP, SETTLE, RESTORE, at_s=40.0)
    assert (record.state, record.failure) == (S.STOPPED, "21 failures")
    results = [(one.result, one.message) for one in ledger.drains.steps(record.id)][1:4]
    assert results == [(StepResult.FAILED, "EIO"), (StepResult.DONE, ""), (StepResult.DONE, "21 failures")]


def test_the_first_end_of_a_step_counts(ledger: Ledger) -> None:
    record = plan(ledger)
    step = ledger.drains.intend(record.id, act(CHECK), at_s=2.0)
    done = ledger.drains.finish(step, S.PREFLIGHT, at_s=3.0, message="hooks called")
    assert ledger.drains.finish(step, S.PREFLIGHT, at_s=9.0, message="later") == done
    assert ledger.drains.fail(step, "later", at_s=9.0) == done
    (only,) = ledger.drains.steps(record.id)
    assert (only.ended_at_s, only.result, only.message) == (3.0, StepResult.DONE, "hooks called")


def test_a_step_without_an_end_was_interrupted(ledger: Ledger) -> None:
    record = do(ledger, plan(ledger), CHECK, START)
    first = ledger.drains.intend(record.id, act(WATCH), at_s=40.0)
    ledger.drains.intend(record.id, act(WATCH), at_s=50.0)
    results = [(one.result, one.ended_at_s) for one in ledger.drains.steps(record.id)][2:]
    assert results == [(StepResult.INTERRUPTED, 50.0), (None, None)]
    assert ledger.drains.finish(first, S.DRAINED, at_s=60.0).state is S.DRAINING


@pytest.mark.parametrize("state", sorted(set(S) - DRAIN_TRANSITIONS[S.PLANNED] - {S.PLANNED}))
def test_a_state_that_may_not_follow_is_refused(ledger: Ledger, state: DrainState) -> None:
    record = plan(ledger)
    with pytest.raises(LedgerCorrupt, match="cannot become"):
        ledger.drains.intend(record.id, DrainAct(step=D.COMMIT, intent=state, result=state), at_s=2.0, notes=OPTIONS)
    assert ledger.drains.read(record.id) == record


def test_lists_what_may_have_touched_the_volume(ledger: Ledger) -> None:
    planned, started, over, out = (plan(ledger, (f"gl{number}:/b",)) for number in range(4))
    do(ledger, started, CHECK, START)
    do(ledger, over, CHECK, START, STOP, SETTLE)
    do(ledger, out, CHECK, START, WATCH, AUDIT, COMMIT)
    assert [one.id for one in ledger.drains.under_way()] == [started.id]
    assert [one.id for one in ledger.drains.all()] == [planned.id, started.id, over.id, out.id]


def test_counters_over_time(ledger: Ledger) -> None:
    record = plan(ledger)
    first = DrainSample(
        task_id="t1",
        at_s=5.0,
        host="gl2",
        files=2**40,
        size_bytes=2**55,
        lookups=3,
        failures=1,
        skipped=2,
        status=TaskStatus.IN_PROGRESS,
        runtime_s=1.5,
    )
    ledger.drains.add_samples(record.id, [])
    ledger.drains.add_samples(record.id, [first, replace(first, host="gl1"), replace(first, at_s=4.0)])
    ledger.drains.add_samples(record.id, [replace(first, files=7, status=TaskStatus.UNKNOWN)])
    found = ledger.drains.samples(record.id)
    assert [(one.at_s, one.host, one.files) for one in found] == [
        (4.0, "gl2", 2**40),
        (5.0, "gl1", 2**40),
        (5.0, "gl2", 7),
    ]
    assert found[0] == replace(first, at_s=4.0)
    assert list(ledger.drains.samples(record.id + 1)) == []
