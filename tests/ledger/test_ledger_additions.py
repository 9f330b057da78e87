"""What every ledger does with additions, their steps and their counters."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.bricks.add.model import (
    ADDITION_TRANSITIONS,
    NO_ADDITION_NOTES,
    AdditionAct,
    AdditionNotes,
    AdditionRecord,
    AdditionSide,
    AdditionState,
    AdditionStep,
    TargetRoom,
)
from migrator.core.errors import LedgerCorrupt
from migrator.gluster.model import ListedDirectory
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.operations.model import StepResult

S, A = AdditionState, AdditionStep
SET = ("gl1:/b'\n", "gl2:/b\\", "gl3:/ü")
ROOM = TargetRoom(total_bytes=2**50, storage_targets=None)

Move = tuple[AdditionStep, AdditionState, AdditionState]
PREPARE: Move = (A.PREPARE, S.PREPARING, S.PREPARED)
ADD: Move = (A.ADD, S.ADDING, S.ADDED)
LAY_OUT: Move = (A.LAY_OUT, S.LAYOUT, S.LAYOUT)
LAID_OUT: Move = (A.LAY_OUT, S.LAYOUT, S.LAID_OUT)
BALANCED: Move = (A.BALANCE, S.BALANCING, S.BALANCED)
FINISH: Move = (A.FINISH, S.BALANCED, S.SETTLED)
GIVE_UP: Move = (A.GIVE_UP, S.FAILED, S.FAILED)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "ledger.db", create=True) as made:
        yield made


def plan(
    ledger: Ledger,
    bricks: tuple[str, ...] = SET,
    *,
    side: AdditionSide = AdditionSide.SOURCE,
    instead_of: str | None = None,
    at_s: float = 1.0,
    anew: bool = False,
) -> AdditionRecord:
    return ledger.additions.plan(
        side=side, volume="vol1", volume_id="v", bricks=bricks, instead_of=instead_of, at_s=at_s, anew=anew
    )


def act(move: Move, **more: str) -> AdditionAct:
    return AdditionAct(step=move[0], intent=move[1], result=move[2], **more)  # type: ignore[arg-type]


def do(ledger: Ledger, record: AdditionRecord, *moves: Move, at_s: float = 10.0, reason: str = "") -> AdditionRecord:
    for number, move in enumerate(moves):
        begins_s = at_s + 10.0 * number
        step = ledger.additions.intend(record.id, act(move, reason=reason), at_s=begins_s)
        record = ledger.additions.finish(step, move[2], at_s=begins_s + 0.5)
    return record


def test_a_new_attempt_comes_back_as_recorded(ledger: Ledger) -> None:
    made = plan(ledger, SET[:1], instead_of="gl9:/old")
    assert made == AdditionRecord(
        id=made.id,
        side=AdditionSide.SOURCE,
        volume="vol1",
        volume_id="v",
        bricks=SET[:1],
        instead_of="gl9:/old",
        attempt=1,
        state=S.PLANNED,
        times={S.PLANNED: 1.0},
    )
    assert ledger.additions.read(made.id) == made == ledger.additions.latest("v", SET[:1], AdditionSide.SOURCE)
    assert ledger.additions.latest("v", SET[:1], AdditionSide.TARGET) is None
    with pytest.raises(LedgerCorrupt, match="no addition 99"):
        ledger.additions.read(99)


def test_one_attempt_that_has_not_settled_for_a_brick(ledger: Ledger) -> None:
    made = do(ledger, plan(ledger), PREPARE)
    assert plan(ledger, SET[::-1], at_s=2.0, anew=True) == made
    for side in AdditionSide:
        with pytest.raises(LedgerCorrupt, match="has begun already"):
            plan(ledger, SET[:1], side=side)
    assert plan(ledger, ("gl9:/b",)).attempt == 1
    settled = do(ledger, made, ADD, LAID_OUT, BALANCED, FINISH)
    assert plan(ledger, at_s=90.0) == settled
    again = plan(ledger, at_s=91.0, anew=True)
    assert (again.attempt, again.failure, again.notes) == (2, "", NO_ADDITION_NOTES)
    assert plan(ledger, SET[:1]).attempt == 1
    assert [one.attempt for one in ledger.additions.all()] == [1, 1, 2, 1]


def test_what_was_only_planned_otherwise_is_planned_anew(ledger: Ledger) -> None:
    first = plan(ledger, SET[:1])
    second = plan(ledger, SET[:1], instead_of="gl9:/old")
    assert (second.id, second.attempt) == (first.id + 1, 2)


def test_a_beginning_forgets_the_task_before_and_an_adoption_keeps_it(ledger: Ledger) -> None:
    record = do(ledger, plan(ledger), PREPARE, ADD)
    ledger.additions.intend(record.id, act(LAY_OUT, task_before="t0"), at_s=20.0)
    noted = ledger.additions.note(record.id, AdditionNotes(task_id="t1", files=7)).notes
    assert (noted.task_before, noted.task_id, noted.files) == ("t0", "t1", 7)
    ledger.additions.intend(record.id, act(LAY_OUT, task_before=""), at_s=21.0)
    notes = ledger.additions.read(record.id).notes
    assert (notes.task_before, notes.task_id) == ("", None)
    ledger.additions.intend(record.id, act(LAY_OUT, task_id="t2"), at_s=22.0)
    notes = ledger.additions.read(record.id).notes
    assert (notes.task_before, notes.task_id) == ("", "t2")


def test_nothing_is_handed_over_before_it_is_known_how_large_the_target_was(ledger: Ledger) -> None:
    record = do(ledger, plan(ledger, side=AdditionSide.TARGET), PREPARE)
    hand = act((A.HAND_OVER, S.HANDING, S.SEEN))
    with pytest.raises(LedgerCorrupt, match="how large the target was"):
        ledger.additions.intend(record.id, hand, at_s=20.0)
    assert ledger.additions.read(record.id) == record
    step = ledger.additions.intend(record.id, hand, at_s=20.0, notes=AdditionNotes(room_before=ROOM, size_bytes=7))
    # What was before the first hand-over stays.
    larger = AdditionNotes(room_before=replace(ROOM, total_bytes=2**51))
    assert ledger.additions.note(record.id, larger).notes == AdditionNotes(room_before=ROOM, size_bytes=7)
    assert ledger.additions.finish(step, S.SEEN, at_s=21.0).state is S.SEEN


def test_a_failure_stays_until_something_succeeds_after_it(ledger: Ledger) -> None:
    record = do(ledger, plan(ledger), PREPARE, ADD)
    step = ledger.additions.intend(record.id, act(LAY_OUT), at_s=20.0)
    failed = ledger.additions.fail(step, "EIO", at_s=21.0)
    assert (failed.state, failed.failure) == (S.LAYOUT, "EIO")
    assert ledger.additions.finish(step, S.LAID_OUT, at_s=22.0) == failed
    record = do(ledger, failed, GIVE_UP, at_s=30.0, reason="21 failures")
    assert (record.state, record.failure) == (S.FAILED, "21 failures")
    record = do(ledger, record, LAY_OUT, at_s=40.0)
    assert (record.state, record.failure) == (S.LAYOUT, "")
    results = [(one.result, one.message) for one in ledger.additions.steps(record.id)][2:4]
    assert results == [(StepResult.FAILED, "EIO"), (StepResult.DONE, "21 failures")]


@pytest.mark.parametrize("state", sorted(set(S) - ADDITION_TRANSITIONS[S.PLANNED] - {S.PLANNED}))
def test_a_state_that_may_not_follow_is_refused(ledger: Ledger, state: AdditionState) -> None:
    record = plan(ledger)
    with pytest.raises(LedgerCorrupt, match="cannot become"):
        ledger.additions.intend(record.id, act((A.ADD, state, state)), at_s=2.0, notes=AdditionNotes(room_before=ROOM))
    assert ledger.additions.read(record.id) == record


def test_directories_that_wait_are_all_that_do(ledger: Ledger) -> None:
    record = plan(ledger)
    assert record.notes.directories is None
    one = ListedDirectory(
        path=b"home/\xff%\n", gfid="ab" * 16, mode=0o2750, uid=1, gid=2, reason="who knows", command="chmod 'x'"
    )
    ledger.additions.note(record.id, AdditionNotes(directories=(one, replace(one, path=b"other"))))
    assert ledger.additions.note(record.id, AdditionNotes(files=1)).notes.directories == (
        one,
        replace(one, path=b"other"),
    )
    assert ledger.additions.note(record.id, AdditionNotes(directories=())).notes.directories == ()
