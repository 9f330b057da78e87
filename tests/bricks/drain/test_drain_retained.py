"""Sources that a drain would move for nothing: when it waits for their purge, and what it says."""

from dataclasses import replace

import pytest

from migrator.bricks.drain.model import RetainedSource, TreeOnBricks
from migrator.bricks.drain.rules_preflight import purge_commands, retained_problems, retained_sources
from migrator.core.entry import UserTree
from migrator.core.units import DAY_S, GIB
from migrator.cutover.model import CutoverRecord, CutoverState
from migrator.plan.model import Plan
from migrator.schedule.model import BatchStep, HostStep, OrderSchedule, Outcome, Schedule, ScheduleOrder, SubvolumeStep
from tests.support.plans import small_plan

S = CutoverState
BRICK, OTHER = "gl2:/b", "gl1:/b"
ALICE, CAROL = b"home/alice", b"home/carol"
NOW_S = 100.0 + 30 * DAY_S


def scheduled(*, freed_day: float = 10.0, begins_day: float | None = 10.0) -> Plan:
    """Batch 1 is alice's; carol is in no batch."""
    first = BatchStep(batch=1, begins_day=0.0, moved_day=1.0, freed_day=freed_day, waited_days=0.0)
    outcome = Outcome(
        done_day=50.0,
        obstacle=None,
        batches=(first,),
        subvolumes=(
            SubvolumeStep(subvolume=2, bricks=(BRICK,), drain_begins_day=begins_day, cleared_day=20.0, moved_bytes=1),
            SubvolumeStep(
                subvolume=1, bricks=(OTHER,), drain_begins_day=None, cleared_day=50.0, moved_bytes=0, retired=True
            ),
        ),
        hosts=(HostStep(host="gl2", free_day=20.0),),
    )
    schedule = Schedule(problem=None, orders=(OrderSchedule(order=ScheduleOrder.PLANNED, outcome=outcome),))
    return replace(small_plan(), schedule=schedule)


def cut(tree: bytes, state: CutoverState = S.RETAINED, *, thawed_at_s: float = 100.0) -> CutoverRecord:
    return CutoverRecord(
        id=1,
        plan="plan",
        batch=1,
        tree=UserTree(path=tree, user=tree.decode().removeprefix("home/")),
        attempt=1,
        state=state,
        times={S.THAWED: thawed_at_s, state: thawed_at_s},
        predicted_freeze_s=None,
    )


def sources(
    plan: Plan | None, *records: CutoverRecord, brick: str = BRICK, retain_days: float = 14.0
) -> tuple[RetainedSource, ...]:
    on_brick = [TreeOnBricks(tree=tree, files=10, size_bytes=GIB) for tree in (ALICE, CAROL)]
    return retained_sources(
        on_brick,
        {record.tree.path: record for record in records},
        plan,
        bricks=(brick,),
        retain_s=retain_days * DAY_S,
        now_s=NOW_S,
    )


@pytest.mark.parametrize("state", list(CutoverState))
def test_only_who_works_on_the_target_and_is_not_purged_has_a_retained_source(state: CutoverState) -> None:
    expected = state in (S.THAWED, S.RETAINED, S.PURGING)
    assert bool(sources(None, cut(ALICE, state))) == expected


@pytest.mark.parametrize(
    ("plan", "first"),
    [
        (scheduled(), True),
        (scheduled(freed_day=9.0), True),
        (scheduled(freed_day=10.01), False),
        (scheduled(begins_day=None), False),
        (replace(scheduled(), schedule=None), False),
        (replace(scheduled(), schedule=Schedule(problem="the catalog does not tell")), False),
        (None, False),
    ],
    ids=["at-once", "before", "after", "not-drained", "no-schedule", "no-order", "no-plan"],
)
def test_the_schedule_says_what_comes_first(plan: Plan | None, first: bool) -> None:
    (found,) = sources(plan, cut(ALICE))
    assert found.purge_planned_first is first
    said = list(retained_problems([found], unread_plan="", accepted=False))
    assert len(said) == first


def test_a_brick_that_the_schedule_retires_waits_for_nobody() -> None:
    (found,) = sources(scheduled(), cut(ALICE), brick=OTHER)
    assert not found.purge_planned_first


@pytest.mark.parametrize(("retain_days", "first"), [(10.0, True), (10.1, False)])
def test_a_user_who_had_moved_before_the_plan_is_purged_when_retain_is_over(retain_days: float, first: bool) -> None:
    (found,) = sources(scheduled(), cut(CAROL), retain_days=retain_days)
    assert found.purge_planned_first is first


def test_a_batch_that_the_schedule_does_not_come_to_is_not_planned_first() -> None:
    bob = TreeOnBricks(tree=b"home/bob", files=1, size_bytes=1)
    (found,) = retained_sources(
        [bob], {b"home/bob": cut(b"home/bob")}, scheduled(), bricks=(BRICK,), retain_s=0.0, now_s=NOW_S
    )
    assert not found.purge_planned_first


def test_it_says_how_much_and_what_to_do() -> None:
    found = sources(scheduled(), cut(ALICE), cut(CAROL), retain_days=9.0)
    (problem,) = retained_problems(found, unread_plan="", accepted=False)
    for words in ("20 files (2.0 GiB) of 2 users", "alice", "--user alice --user carol", "--accept-retained"):
        assert words in problem
    assert "when [cutover] retain is over" not in problem
    assert list(retained_problems(found, unread_plan="", accepted=True)) == []
    later = [replace(found[0], due_in_s=3 * DAY_S)]
    (problem,) = retained_problems(later, unread_plan="", accepted=False)
    assert "in 3 d when [cutover] retain is over" in problem


def test_a_plan_that_cannot_be_read_refuses_the_drain_only_if_something_is_retained() -> None:
    found = sources(None, cut(ALICE))
    (problem,) = retained_problems(found, unread_plan="it was edited by hand", accepted=False)
    assert "is not known: it was edited by hand" in problem
    assert list(retained_problems((), unread_plan="it was edited by hand", accepted=False)) == []
    assert list(retained_problems(found, unread_plan="it was edited by hand", accepted=True)) == []


def test_commands_name_the_plan_of_the_cutover_and_are_safe_to_paste() -> None:
    (one,) = sources(None, cut(ALICE))
    commands = purge_commands([one, replace(one, plan="old", user="o'neil; rm"), one])
    assert commands == (
        "`migrator purge --plan plan --user alice --dry-run`",
        "`migrator purge --plan old --user 'o'\"'\"'neil; rm' --dry-run`",
    )
