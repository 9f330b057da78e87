"""The records of drains, additions, cutovers and retirements: their states, steps and counters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.bricks.add import model as addition
from migrator.bricks.add.model import AdditionNotes, AdditionRecord, AdditionSide
from migrator.bricks.drain import model as drain
from migrator.bricks.drain.model import DrainNotes, DrainRecord
from migrator.bricks.progress import TaskSample
from migrator.bricks.retire.model import RETIREMENT_TRANSITIONS, Retirement, RetirementState
from migrator.core.entry import UserTree
from migrator.core.errors import LedgerCorrupt
from migrator.core.states import PassKind
from migrator.cutover import model as cutover
from migrator.cutover.model import CutoverNotes, CutoverRecord
from migrator.gluster.model import TaskStatus
from migrator.operations.model import OperationKind, StepResult
from migrator.plan.schedule.model import CopyTally, DrainCopying
from migrator.transfer.model import Sample
from tests.support import operations as to
from tests.support.operations import SET, TOPS, TREE, act, do, plan_addition, plan_cutover, plan_drain
from tests.support.plans import small_plan

S, D, A = cutover.CutoverState, drain.DrainState, addition.AdditionState
ROOM = addition.TargetRoom(total_bytes=2**50, storage_targets=None)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kind of operation, a way through its states, and one back. `needed` are the facts of the second step."""

    kind: OperationKind[Any, Any, Any, Any]
    plan: Callable[..., Any]
    there: tuple[to.Move, ...]
    back: tuple[to.Move, ...]
    every_fact: Any

    def store(self, ledger: MigrationLedger) -> Any:
        return getattr(ledger, f"{self.kind.name}s")


CASES = {
    "drain": Case(
        kind=drain.DRAINS,
        plan=plan_drain,
        there=(to.CHECK, to.START, to.WATCH, to.AUDIT, to.COMMIT),
        back=(to.GIVE_UP, to.STOP, to.SETTLE, to.RESTORE),
        every_fact=to.OPTIONS,
    ),
    "addition": Case(
        kind=addition.ADDITIONS,
        plan=plan_addition,
        there=(to.PREPARE, to.ADD, to.LAID_OUT, to.BALANCED, to.FINISH),
        back=((addition.AdditionStep.GIVE_UP, A.FAILED, A.FAILED),),
        every_fact=AdditionNotes(room_before=ROOM),
    ),
    "cutover": Case(kind=cutover.CUTOVERS, plan=plan_cutover, there=to.THERE, back=(to.REVERT,), every_fact=TOPS),
}
ILLEGAL = [
    (name, state)
    for name, case in CASES.items()
    for state in case.kind.states
    if state != "planned" and state not in case.kind.transitions[case.kind.states("planned")]
]


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_a_failure_stays_until_something_succeeds_after_it(ledger: MigrationLedger, case: Case) -> None:
    store, (first, second) = case.store(ledger), case.there[:2]
    record = do(store, case.plan(ledger), first)
    step = store.intend(record.id, act(second), at_s=20.0, notes=case.every_fact)
    failed = store.fail(step, "EIO", at_s=21.0)
    assert (failed.state, failed.failure) == (second[1], "EIO")
    assert store.finish(step, second[2], at_s=22.0) == failed, "the first end counts"
    record = do(store, failed, second, at_s=23.0)
    assert (record.state, record.failure) == (second[2], "")
    record = do(store, record, *case.back, at_s=30.0, reason="21 failures")
    assert (record.state, record.failure) == (case.back[-1][2], "21 failures")
    results = [(one.result, one.message) for one in store.steps(record.id)][1:4]
    assert results == [(StepResult.FAILED, "EIO"), (StepResult.DONE, ""), (StepResult.DONE, "21 failures")]


def test_the_first_end_of_a_step_counts_and_one_without_an_end_was_interrupted(
    ledger: MigrationLedger, case: Case
) -> None:
    store, (first, second) = case.store(ledger), case.there[:2]
    record = case.plan(ledger)
    step = store.intend(record.id, act(first), at_s=2.0, notes=case.every_fact)
    done = store.finish(step, first[2], at_s=3.0, message="hooks called")
    assert store.finish(step, first[2], at_s=9.0, message="later") == done
    assert store.fail(step, "later", at_s=9.0) == done
    interrupted = store.intend(record.id, act(second), at_s=40.0, notes=case.every_fact)
    store.intend(record.id, act(second), at_s=50.0, notes=case.every_fact)
    assert [(one.result, one.ended_at_s, one.message) for one in store.steps(record.id)] == [
        (StepResult.DONE, 3.0, "hooks called"),
        (StepResult.INTERRUPTED, 50.0, ""),
        (None, None, ""),
    ]
    assert store.finish(interrupted, second[2], at_s=60.0).state is second[1]


@pytest.mark.parametrize(("name", "state"), ILLEGAL)
def test_a_state_that_may_not_follow_is_refused(ledger: MigrationLedger, name: str, state: Any) -> None:
    case = CASES[name]
    record = case.plan(ledger)
    with pytest.raises(LedgerCorrupt, match="cannot become"):
        case.store(ledger).intend(record.id, act((case.there[1][0], state, state)), at_s=2.0, notes=case.every_fact)
    assert case.store(ledger).read(record.id) == record


# What each kind does with a new attempt.


def test_a_new_drain_comes_back_as_recorded_and_is_the_only_one_of_a_brick(ledger: MigrationLedger) -> None:
    made = plan_drain(ledger)
    assert made == DrainRecord(
        id=made.id, volume="vol1", volume_id="v", bricks=SET, attempt=1, state=D.PLANNED, times={D.PLANNED: 1.0}
    )
    assert ledger.drains.read(made.id) == made == ledger.drains.latest("v", SET[::-1])
    assert ledger.drains.latest("v", SET[:2]) is ledger.drains.latest("w", SET) is None
    assert plan_drain(ledger, SET[::-1], at_s=2.0) == made
    with pytest.raises(LedgerCorrupt, match="has begun already"):
        plan_drain(ledger, SET[:1])
    assert plan_drain(ledger, ("gl9:/b",)).attempt == 1
    do(ledger.drains, made, to.CHECK, to.START, to.STOP, to.SETTLE)
    again = plan_drain(ledger, at_s=90.0)
    assert (again.attempt, again.failure, again.notes) == (2, "", drain.NO_DRAIN_NOTES)
    assert ledger.drains.latest("v", SET) == again
    assert [one.attempt for one in ledger.drains.all()] == [1, 1, 2]


def test_a_new_addition_comes_back_as_recorded_and_is_the_only_one_of_a_brick(ledger: MigrationLedger) -> None:
    one = plan_addition(ledger, ("gl5:/b",), instead_of="gl9:/old")
    assert one == AdditionRecord(
        id=one.id,
        side=AdditionSide.SOURCE,
        volume="vol1",
        volume_id="v",
        bricks=("gl5:/b",),
        instead_of="gl9:/old",
        attempt=1,
        state=A.PLANNED,
        times={A.PLANNED: 1.0},
    )
    assert ledger.additions.read(one.id) == one == ledger.additions.latest("v", ("gl5:/b",), AdditionSide.SOURCE)
    assert ledger.additions.latest("v", ("gl5:/b",), AdditionSide.TARGET) is None
    other = plan_addition(ledger, ("gl5:/b",))
    assert (other.id, other.attempt) == (one.id + 1, 2), "it was only planned, and otherwise"
    made = do(ledger.additions, plan_addition(ledger), to.PREPARE)
    assert plan_addition(ledger, SET[::-1], at_s=2.0, anew=True) == made
    for side in AdditionSide:
        with pytest.raises(LedgerCorrupt, match="has begun already"):
            plan_addition(ledger, SET[:1], side=side)
    settled = do(ledger.additions, made, to.ADD, to.LAID_OUT, to.BALANCED, to.FINISH)
    assert plan_addition(ledger, at_s=90.0) == settled
    again = plan_addition(ledger, at_s=91.0, anew=True)
    assert (again.attempt, again.failure, again.notes) == (2, "", addition.NO_ADDITION_NOTES)
    assert plan_addition(ledger, SET[:1]).attempt == 1


def test_a_new_cutover_comes_back_as_recorded_and_is_the_only_one_of_a_tree(ledger: MigrationLedger) -> None:
    made = plan_cutover(ledger)
    assert made == CutoverRecord(
        id=made.id,
        plan="p",
        batch=1,
        tree=UserTree(path=TREE.path, user="al\\udcffice"),
        attempt=1,
        state=S.PLANNED,
        times={S.PLANNED: 1.0},
        predicted_freeze_s=12.5,
        token=made.token,
    )
    assert len(made.token) == 16, "of this attempt alone"
    assert ledger.cutovers.read(made.id) == made == ledger.cutovers.latest(TREE.path) == plan_cutover(ledger, at_s=2.0)
    assert ledger.cutovers.latest(b"home/bob") is None
    for name, batch in (("q", 1), ("p", 2)):
        with pytest.raises(LedgerCorrupt, match="has begun already"):
            plan_cutover(ledger, name=name, batch=batch)
    do(ledger.cutovers, made, to.REVERT, reason="why")
    again = plan_cutover(ledger, name="q", at_s=4.0)
    assert (again.attempt, again.plan, again.failure, again.notes) == (2, "q", "", cutover.NO_CUTOVER_NOTES)
    assert ledger.cutovers.latest(TREE.path) == again
    assert [one.attempt for one in ledger.cutovers.of_plan("p")] == [1]


# Facts: those that a step needs before it begins, and those that stay.


def test_no_drain_starts_without_what_the_options_were(ledger: MigrationLedger) -> None:
    record = do(ledger.drains, plan_drain(ledger), to.CHECK)
    with pytest.raises(LedgerCorrupt, match="options were before"):
        ledger.drains.intend(record.id, act(to.START), at_s=20.0)
    assert ledger.drains.read(record.id) == record
    # None at all are known to be none.
    ledger.drains.intend(record.id, act(to.START), at_s=20.0, notes=DrainNotes(options=()))
    assert ledger.drains.read(record.id).notes.options == ()


def test_a_beginning_forgets_the_task_before_and_an_adoption_keeps_it(ledger: MigrationLedger) -> None:
    record = do(ledger.additions, plan_addition(ledger), to.PREPARE, to.ADD)
    ledger.additions.intend(record.id, act(to.LAY_OUT, task_before="t0"), at_s=20.0)
    noted = ledger.additions.note(record.id, AdditionNotes(task_id="t1", files=7)).notes
    assert (noted.task_before, noted.task_id, noted.files) == ("t0", "t1", 7)
    for at_s, tasks, found in ((21.0, {"task_before": ""}, None), (22.0, {"task_id": "t2"}, "t2")):
        ledger.additions.intend(record.id, act(to.LAY_OUT, **tasks), at_s=at_s)
        notes = ledger.additions.read(record.id).notes
        assert (notes.task_before, notes.task_id) == ("", found)


def test_nothing_is_handed_over_before_it_is_known_how_large_the_target_was(ledger: MigrationLedger) -> None:
    record = do(ledger.additions, plan_addition(ledger, side=AdditionSide.TARGET), to.PREPARE)
    hand = act(to.HAND_OVER)
    with pytest.raises(LedgerCorrupt, match="how large the target was"):
        ledger.additions.intend(record.id, hand, at_s=20.0)
    assert ledger.additions.read(record.id) == record
    step = ledger.additions.intend(record.id, hand, at_s=20.0, notes=AdditionNotes(room_before=ROOM, size_bytes=7))
    # What was before the first hand-over stays.
    larger = AdditionNotes(room_before=replace(ROOM, total_bytes=2**51))
    assert ledger.additions.note(record.id, larger).notes == AdditionNotes(room_before=ROOM, size_bytes=7)
    assert ledger.additions.finish(step, A.SEEN, at_s=21.0).state is A.SEEN


def test_no_freeze_without_a_way_to_thaw(ledger: MigrationLedger) -> None:
    record = plan_cutover(ledger)
    with pytest.raises(LedgerCorrupt, match="to thaw"):
        ledger.cutovers.intend(record.id, act(to.FREEZE), at_s=2.0)
    assert ledger.cutovers.read(record.id) == record
    assert list(ledger.cutovers.steps(record.id)) == []
    thawed = do(ledger.cutovers, record, *to.THERE)
    of_the_source = CutoverNotes(frozen_top="of the other side")
    with pytest.raises(LedgerCorrupt, match="to thaw"):
        ledger.cutovers.intend(thawed.id, act(to.ROLLBACK_FREEZE), at_s=60.0, notes=of_the_source)
    assert ledger.cutovers.read(thawed.id) == thawed


def test_the_frozen_top_is_kept_from_the_first_intent(ledger: MigrationLedger) -> None:
    record = plan_cutover(ledger)
    ledger.cutovers.intend(record.id, act(to.FREEZE), at_s=2.0, notes=CutoverNotes(frozen_top="before"))
    step = ledger.cutovers.intend(record.id, act(to.FREEZE), at_s=3.0, notes=CutoverNotes(frozen_top="frozen"))
    assert ledger.cutovers.read(record.id).notes.frozen_top == "before"
    late = CutoverNotes(frozen_top="frozen", frozen_target_top="t")
    done = ledger.cutovers.finish(step, S.FROZEN, at_s=4.0, notes=late)
    assert (done.notes.frozen_top, done.notes.frozen_target_top) == ("before", None)
    assert (done.frozen_at_s, done.times[S.FREEZING]) == (2.0, 2.0)


def test_every_rollback_has_the_target_top_of_its_own_and_forgets_an_earlier_failure(ledger: MigrationLedger) -> None:
    record = do(ledger.cutovers, plan_cutover(ledger), *to.THERE)
    ledger.cutovers.fail(ledger.cutovers.intend(record.id, act(to.RETAIN), at_s=55.0), "no mail", at_s=56.0)
    for at_s, top in ((60.0, "first"), (70.0, "second")):
        record = do(ledger.cutovers, record, to.ROLLBACK_FREEZE, at_s=at_s, notes=CutoverNotes(frozen_target_top=top))
        assert (record.notes.frozen_target_top, record.failure) == (top, "")
        record = do(ledger.cutovers, record, to.ROLLBACK_REVERT, at_s=at_s + 1, reason=f"no {top}")
        assert (record.state, record.failure) == (S.THAWED, f"no {top}")
    # The freeze of the cutover stays what it was.
    assert (record.frozen_at_s, record.thawed_at_s, record.freeze_s) == (10.0, 50.5, 40.5)
    assert record.times[S.THAWED] == 71.5


# Counters over time.


LOOKED = TaskSample(
    task_id="t",
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


def test_copying_during_a_drain_is_measured_separately(ledger: MigrationLedger) -> None:
    def copied(at_s: float, files: int, *, streams: int = 2) -> Sample:
        return Sample(at_s=at_s, interval_s=5.0, attempt_id=None, streams=streams, files=files, size_bytes=files * 10)

    assert ledger.drains.copying() == DrainCopying(in_drains=CopyTally(), outside=CopyTally())
    record = plan_drain(ledger)
    ledger.plans.record(small_plan(), path="plans/plan.json", checksum="c")
    made = ledger.passes.start(
        plan="plan", batch=1, kind=PassKind.SEED, catalog="c", chunk_list="l", chunks=[], at_s=5.0
    ).id
    # From 200 s on the first task waits for a commit: nothing moves any more.
    looks = [replace(LOOKED, at_s=at_s) for at_s in (100.0, 200.0)]
    looks += [replace(LOOKED, at_s=900.0, status=TaskStatus.COMPLETED)]
    looks += [replace(LOOKED, at_s=at_s, task_id="another") for at_s in (300.0, 310.0)]
    ledger.drains.add_samples(record.id, looks)
    places = (100.0, 105.0, 200.0, 204.0, 310.0, 250.0, 800.0)
    idle = copied(150.0, 128, streams=0)
    ledger.samples.add(made, [*(copied(at_s, 2**power) for power, at_s in enumerate(places)), idle])
    assert ledger.drains.copying() == DrainCopying(
        in_drains=CopyTally(files=22, size_bytes=220, busy_s=15.0),
        outside=CopyTally(files=97, size_bytes=970, busy_s=15.0),
    )


# Retirements.


R = RetirementState


def retire(ledger: MigrationLedger, *, volume_id: str = "v", catalog: str = "c", at_s: float = 1.0) -> Retirement:
    return ledger.retirements.begin(
        volume="vol1", volume_id=volume_id, catalog=catalog, files=2, size_bytes=2**60, at_s=at_s
    )


def test_a_retirement_that_has_not_ended_is_taken_up_and_another_volume_has_its_own(ledger: MigrationLedger) -> None:
    assert ledger.retirements.newest() is None
    first = retire(ledger)
    facts = {"volume": "vol1", "volume_id": "v", "catalog": "c", "files": 2, "size_bytes": 2**60}
    assert first == Retirement(id=first.id, state=R.RETIRING, times={R.RETIRING: 1.0}, **facts)  # type: ignore[arg-type]
    assert ledger.retirements.newest() == first
    with pytest.raises(LedgerCorrupt):
        ledger.retirements.enter(first.id, R.RETIRED, at_s=2.0)
    ledger.retirements.enter(first.id, R.STOPPING, at_s=2.0)
    again = retire(ledger, catalog="c2", at_s=5.0)
    assert (again.id, again.state, again.catalog, again.since_s) == (first.id, R.RETIRING, "c2", 5.0)
    other = retire(ledger, volume_id="w")
    assert other.id != first.id
    ledger.retirements.enter(first.id, R.GIVEN_UP, at_s=6.0, failure="no")
    assert retire(ledger).id not in (first.id, other.id)
    with pytest.raises(LedgerCorrupt):
        ledger.retirements.enter(77, R.RETIRED, at_s=1.0)


@pytest.mark.parametrize("end", [R.RETIRED, R.GIVEN_UP])
def test_the_end_of_a_retirement_is_written_once_and_nothing_follows_it(
    ledger: MigrationLedger, end: RetirementState
) -> None:
    record = ledger.retirements.enter(retire(ledger).id, R.STOPPING, at_s=2.0)
    done = ledger.retirements.enter(record.id, end, at_s=3.0, failure="why")
    assert (done.state, done.since_s, done.failure) == (end, 3.0, "why")
    assert ledger.retirements.enter(record.id, end, at_s=9.0) == done
    for other in set(R) - {end}:
        assert other not in RETIREMENT_TRANSITIONS[end]
        with pytest.raises(LedgerCorrupt):
            ledger.retirements.enter(record.id, other, at_s=9.0)
