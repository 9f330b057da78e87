"""What every ledger does with cutovers and their steps."""

from dataclasses import replace

import pytest

from migrator.core.entry import UserTree
from migrator.core.errors import LedgerCorrupt
from migrator.cutover.model import (
    CUTOVER_TRANSITIONS,
    NO_CUTOVER_NOTES,
    CutoverAct,
    CutoverNotes,
    CutoverRecord,
    CutoverState,
    CutoverStep,
    PurgeSum,
    TargetChanges,
)
from migrator.ledger.ledger import Ledger
from migrator.operations.model import StepResult

HOSTILE = b"home/-rf\n\xff\x00'\"%41\\"
TREE = UserTree(path=HOSTILE, user="al\udcffice")
SHOWN_USER = "al\\udcffice"
TOPS = CutoverNotes(frozen_top='{"mode": 448}', frozen_target_top='{"mode": 493}')
EVERYTHING = CutoverNotes(
    link=b"/home/\xff",
    link_before=b"/gluster/\n",
    link_after=b"/beegfs/\x01",
    final_pass_id=7,
    verification_id=8,
    manifest="manifests/m",
    target_changes=TargetChanges(files=3, size_bytes=2**45, gone=1),
    purge=PurgeSum(names=2**40, inodes=5, size_bytes=2**50),
)

THERE = (
    (CutoverStep.FREEZE, CutoverState.FREEZING, CutoverState.FROZEN),
    (CutoverStep.FINAL_PASS, CutoverState.FINAL_PASS, CutoverState.FINAL_PASS),
    (CutoverStep.VERIFY, CutoverState.VERIFYING, CutoverState.VERIFIED),
    (CutoverStep.SWITCH, CutoverState.SWITCHING, CutoverState.SWITCHED),
    (CutoverStep.THAW, CutoverState.THAWING, CutoverState.THAWED),
)
ROLLBACK_FREEZE = (CutoverStep.ROLLBACK_FREEZE, CutoverState.ROLLBACK_FREEZING, CutoverState.ROLLBACK_FROZEN)
REVERT = (CutoverStep.REVERT, CutoverState.REVERTING, CutoverState.REVERTED)
ROLLBACK_REVERT = (CutoverStep.ROLLBACK_REVERT, CutoverState.ROLLBACK_REVERTING, CutoverState.THAWED)

Move = tuple[CutoverStep, CutoverState, CutoverState]


def plan(ledger: Ledger, *, name: str = "p", batch: int = 1, tree: UserTree = TREE, at_s: float = 1.0) -> CutoverRecord:
    return ledger.cutovers.plan(plan=name, batch=batch, tree=tree, predicted_freeze_s=12.5, at_s=at_s)


def act(move: Move, reason: str = "") -> CutoverAct:
    return CutoverAct(step=move[0], intent=move[1], result=move[2], reason=reason)


def do(
    ledger: Ledger, record: CutoverRecord, move: Move, at_s: float, *, notes: CutoverNotes = TOPS, reason: str = ""
) -> CutoverRecord:
    step = ledger.cutovers.intend(record.id, act(move, reason), at_s=at_s, notes=notes)
    return ledger.cutovers.finish(step, move[2], at_s=at_s + 0.5)


def switched(ledger: Ledger) -> CutoverRecord:
    record = plan(ledger)
    for place, move in enumerate(THERE):
        record = do(ledger, record, move, 10.0 * (place + 1))
    return record


def test_a_new_attempt_comes_back_as_recorded(ledger: Ledger) -> None:
    made = plan(ledger)
    assert made == CutoverRecord(
        id=made.id,
        plan="p",
        batch=1,
        tree=UserTree(path=HOSTILE, user=SHOWN_USER),
        attempt=1,
        state=CutoverState.PLANNED,
        times={CutoverState.PLANNED: 1.0},
        predicted_freeze_s=12.5,
        token=made.token,
    )
    assert len(made.token) == 16, "of this attempt alone"
    assert ledger.cutovers.read(made.id) == made == ledger.cutovers.latest(HOSTILE)
    assert ledger.cutovers.latest(b"home/bob") is None
    with pytest.raises(LedgerCorrupt, match="no cutover 99"):
        ledger.cutovers.read(99)


def test_one_attempt_a_tree_that_has_not_ended(ledger: Ledger) -> None:
    made = plan(ledger)
    assert plan(ledger, at_s=2.0) == made
    for name, batch in (("q", 1), ("p", 2)):
        with pytest.raises(LedgerCorrupt, match="has begun already"):
            plan(ledger, name=name, batch=batch)
    do(ledger, made, REVERT, 3.0, reason="why")
    again = plan(ledger, name="q", at_s=4.0)
    assert (again.attempt, again.plan, again.failure, again.notes) == (2, "q", "", NO_CUTOVER_NOTES)
    assert ledger.cutovers.latest(HOSTILE) == again
    assert [one.attempt for one in ledger.cutovers.of_plan("p")] == [1]


def test_goes_through_all_states_with_their_times(ledger: Ledger) -> None:
    record = switched(ledger)
    assert record.state is CutoverState.THAWED
    assert list(record.times) == [CutoverState.PLANNED, *dict.fromkeys(one for move in THERE for one in move[1:])]
    assert record.times[CutoverState.FINAL_PASS] == 20.0
    assert (record.frozen_at_s, record.thawed_at_s, record.freeze_s) == (10.0, 50.5, 40.5)
    steps = ledger.cutovers.steps(record.id)
    assert [one.step for one in steps] == [move[0] for move in THERE]
    assert {one.result for one in steps} == {StepResult.DONE}
    assert [(one.intended_at_s, one.ended_at_s) for one in steps[:2]] == [(10.0, 10.5), (20.0, 20.5)]


def test_notes_are_added_and_none_leaves_them(ledger: Ledger) -> None:
    record = plan(ledger)
    step = ledger.cutovers.intend(
        record.id, act(THERE[0]), at_s=2.0, notes=replace(EVERYTHING, frozen_top="top", manifest=None)
    )
    notes = ledger.cutovers.read(record.id).notes
    assert notes == replace(EVERYTHING, frozen_top="top", manifest=None)
    done = ledger.cutovers.finish(step, CutoverState.FROZEN, at_s=3.0, notes=CutoverNotes(manifest="m2"))
    assert done.notes == replace(notes, manifest="m2")


def test_no_freeze_without_a_way_to_thaw(ledger: Ledger) -> None:
    record = plan(ledger)
    with pytest.raises(LedgerCorrupt, match="how to thaw"):
        ledger.cutovers.intend(record.id, act(THERE[0]), at_s=2.0)
    assert ledger.cutovers.read(record.id) == record
    assert list(ledger.cutovers.steps(record.id)) == []
    thawed = switched(ledger)
    with pytest.raises(LedgerCorrupt, match="how to thaw"):
        ledger.cutovers.intend(
            thawed.id, act(ROLLBACK_FREEZE), at_s=60.0, notes=CutoverNotes(frozen_top="of the other side")
        )
    assert ledger.cutovers.read(thawed.id) == thawed


def test_what_the_top_was_is_kept_from_the_first_intent(ledger: Ledger) -> None:
    record = plan(ledger)
    ledger.cutovers.intend(record.id, act(THERE[0]), at_s=2.0, notes=CutoverNotes(frozen_top="before"))
    step = ledger.cutovers.intend(record.id, act(THERE[0]), at_s=3.0, notes=CutoverNotes(frozen_top="frozen"))
    assert ledger.cutovers.read(record.id).notes.frozen_top == "before"
    late = CutoverNotes(frozen_top="frozen", frozen_target_top="t")
    done = ledger.cutovers.finish(step, CutoverState.FROZEN, at_s=4.0, notes=late)
    assert (done.notes.frozen_top, done.notes.frozen_target_top) == ("before", None)
    assert (done.frozen_at_s, done.times[CutoverState.FREEZING]) == (2.0, 2.0)


def test_every_rollback_has_the_target_top_of_its_own(ledger: Ledger) -> None:
    record = switched(ledger)
    for at_s, top in ((60.0, "first"), (70.0, "second")):
        record = do(ledger, record, ROLLBACK_FREEZE, at_s, notes=CutoverNotes(frozen_target_top=top))
        assert record.notes.frozen_target_top == top
        record = do(ledger, record, ROLLBACK_REVERT, at_s + 1, reason=f"no {top}")
        assert (record.state, record.failure) == (CutoverState.THAWED, f"no {top}")
    # The freeze of the cutover stays what it was.
    assert (record.frozen_at_s, record.thawed_at_s) == (10.0, 50.5)
    assert record.times[CutoverState.THAWED] == 71.5


def test_a_failure_stays_until_something_succeeds_after_it(ledger: Ledger) -> None:
    record = plan(ledger)
    step = ledger.cutovers.intend(record.id, act(THERE[0]), at_s=2.0, notes=TOPS)
    failed = ledger.cutovers.fail(step, "EIO", at_s=3.0)
    assert (failed.state, failed.failure) == (CutoverState.FREEZING, "EIO")
    again = do(ledger, failed, THERE[0], 4.0)
    assert (again.state, again.failure) == (CutoverState.FROZEN, "")
    gone_back = do(ledger, again, REVERT, 5.0, reason="a writer")
    assert (gone_back.failure, gone_back.thawed_at_s) == ("a writer", 5.5)
    results = [(one.result, one.message) for one in ledger.cutovers.steps(record.id)]
    assert results == [(StepResult.FAILED, "EIO"), (StepResult.DONE, ""), (StepResult.DONE, "a writer")]


def test_a_rollback_forgets_the_failure_of_the_thaw_before_it(ledger: Ledger) -> None:
    record = switched(ledger)
    retain: Move = (CutoverStep.RETAIN, CutoverState.THAWED, CutoverState.RETAINED)
    ledger.cutovers.fail(ledger.cutovers.intend(record.id, act(retain), at_s=55.0), "no mail", at_s=56.0)
    ledger.cutovers.intend(record.id, act(ROLLBACK_FREEZE), at_s=60.0, notes=TOPS)
    assert ledger.cutovers.read(record.id).failure == ""


@pytest.mark.parametrize("state", sorted(set(CutoverState) - CUTOVER_TRANSITIONS[CutoverState.PLANNED]))
def test_a_state_that_may_not_follow_is_refused(ledger: Ledger, state: CutoverState) -> None:
    record = plan(ledger)
    if state is CutoverState.PLANNED:
        return
    with pytest.raises(LedgerCorrupt, match="cannot become"):
        ledger.cutovers.intend(
            record.id, CutoverAct(step=CutoverStep.SWITCH, intent=state, result=state), at_s=2.0, notes=TOPS
        )
    assert ledger.cutovers.read(record.id) == record


def test_lists_by_plan_and_batch_and_who_may_be_frozen(ledger: Ledger) -> None:
    trees = [UserTree(path=b"home/%d" % number, user=f"u{number}") for number in range(4)]
    made = [plan(ledger, tree=tree, batch=1 + number // 2) for number, tree in enumerate(trees)]
    other = plan(ledger, name="q", tree=TREE)
    assert list(ledger.cutovers.under_way()) == []
    ledger.cutovers.intend(made[2].id, act(THERE[0]), at_s=2.0, notes=TOPS)
    ledger.cutovers.intend(other.id, act(THERE[0]), at_s=2.0, notes=TOPS)
    do(ledger, made[0], REVERT, 3.0, reason="why")
    assert [one.id for one in ledger.cutovers.under_way()] == [made[2].id, other.id]
    assert [one.id for one in ledger.cutovers.of_plan("p")] == [one.id for one in made]
    assert [one.id for one in ledger.cutovers.of_plan("p", 2)] == [made[2].id, made[3].id]
    assert list(ledger.cutovers.of_plan("r")) == []
