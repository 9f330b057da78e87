"""The conversion schedule in a plan: what it is computed from, and its tables."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as change
from rich.console import Console

from migrator.core.entry import Entry, UserTree
from migrator.core.states import PassKind, PassState
from migrator.core.units import DAY_S, MIB, TIB
from migrator.fs.model import Capacity, CapacitySample, Need, Side
from migrator.gluster.model import BrickRoom
from migrator.gluster.volume import VolumeOverview
from migrator.plan.model import Batch, TransferCost
from migrator.plan.plan import PlanResult
from migrator.plan.rules_forecast import Growth
from migrator.plan.schedule.model import ObstacleKind, PlacedContent, Schedule, ScheduleInput, TreeOnBrick
from migrator.plan.schedule.rules import (
    NoSchedule,
    Placement,
    assumptions,
    make_schedule,
    scheduled_batch,
    scheduled_outcome,
    scheduled_subvolumes,
)
from migrator.plan.schedule.rules_drains import SlowerInDrains, assumed_drain_cost
from migrator.plan.schedule.rules_habits import Habits
from migrator.plan.schedule.schedule import PlanScheduling
from migrator.plan.schedule.view import schedule_blocks
from migrator.reap.model import ReapedTree
from migrator.render.document import Document, Section
from migrator.render.terminal import print_document
from migrator.site.config import CapacitySection
from migrator.site.model import ReapAction
from tests.plan.schedule.schedules import field_example, subvolume
from tests.plan.test_plan import ALICE, BOB, CAROL, TREES, World, world
from tests.support.catalogs import directory, invented
from tests.support.making import made
from tests.support.operations import CHECK, START, WATCH, cut_over, do, plan_drain
from tests.support.plans import usage
from tests.support.volumes import brick, drain_sample, volume

__all__ = ["world"]

BRICKS = ("gl1:/b1", "gl1:/b2", "gl2:/b1", "gl2:/b2")


def entries() -> list[Entry]:
    """Alice has 60 MiB on every brick, bob 20, carol 10; one of carol's files is sparse, and something lies outside."""
    found = [directory(b"home"), *(directory(tree) for tree in TREES)]
    for tree, size in ((ALICE, 60), (BOB, 20), (CAROL, 10)):
        found += [
            invented(b"%s/%d" % (tree, number), size_bytes=size * MIB, brick=brick)
            for number, brick in enumerate(BRICKS)
        ]
    found.append(invented(CAROL + b"/sparse", size_bytes=2**40, blocks=8, brick=BRICKS[0]))
    found.append(invented(b"stray", size_bytes=MIB, brick=BRICKS[3]))
    return found


def overview() -> VolumeOverview:
    room = BrickRoom(total_bytes=100 * MIB, free_bytes=8 * MIB, total_inodes=1000, free_inodes=900)
    rooms = dict.fromkeys(BRICKS, room)
    return VolumeOverview(state=volume(*BRICKS), version="10.3", rooms=rooms, tasks=(), progress={})


def planned(made: World, *, free_bytes: int = 2**42) -> PlanResult:
    room = Capacity(total_bytes=free_bytes, free_bytes=free_bytes, total_inodes=None, free_inodes=None)
    return made.plan(capacity=room, scheduling=PlanScheduling(volume=overview()))


@pytest.fixture
def scanned(world: World) -> World:
    world.init()
    world.scanned(entries(), bricks=BRICKS)
    world.site = change(
        world.site,
        capacity=CapacitySection(max_fill=0.95, growth_bytes_per_day=0),
        target=change(world.site.target, inodes_free=10**6),
    )
    return world


def schedule_of(result: PlanResult) -> Schedule:
    assert result.plan.schedule is not None
    return result.plan.schedule


def test_it_is_in_the_document(scanned: World) -> None:
    result = planned(scanned)
    schedule = schedule_of(result)
    assert schedule.problem is None
    outcome = schedule.outcome
    assert outcome is not None
    assert outcome.obstacle is None
    # 91 MiB lie on each of four bricks of 100: none can go before alice, the heaviest, is purged after 30 days.
    assert [step.batch for step in outcome.batches] == [1, 2, 3]
    first = outcome.batches[0]
    assert first.freed_day == pytest.approx(first.moved_day + 30, abs=0.01)
    assert outcome.subvolumes[0].drain_begins_day == first.freed_day
    assert {host.host for host in outcome.hosts} == {"gl1", "gl2"}
    assert {brick for step in outcome.subvolumes for brick in step.bricks} == set(BRICKS)
    assert any("1.0 MiB outside every user tree" in sentence for sentence in schedule.assumptions)
    assert scanned.documents.read(result.plan.name)[0] == result.plan
    assert result.plan.problems == ()


def test_an_impossible_one_is_a_problem_of_the_plan(scanned: World) -> None:
    result = planned(scanned, free_bytes=200 * MIB)
    schedule = schedule_of(result)
    assert result.plan.problems
    assert schedule.outcome is not None
    assert schedule.outcome.obstacle is not None
    assert schedule.outcome.obstacle.kind is ObstacleKind.TARGET_BYTES


def test_drains_and_growth_come_from_what_was_measured_here(scanned: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a real ledger: a drain that has ended and one that has not, and nine days of looks at the source."""
    computed: list[ScheduleInput] = []

    def kept(site: ScheduleInput, *, assumptions: Sequence[str]) -> Schedule:
        computed.append(site)
        return make_schedule(site, assumptions=assumptions)

    monkeypatch.setattr("migrator.plan.schedule.rules.make_schedule", kept)
    scanned.site = change(scanned.site, capacity=CapacitySection(max_fill=0.95, growth_bytes_per_day=7 * MIB))
    before = schedule_of(planned(scanned, free_bytes=2000 * MIB))
    assert (before.growth_bytes_per_day, before.growth_basis.startswith("[capacity] growth")) == (7 * MIB, True)
    assert any("drains: assumed" in sentence for sentence in before.assumptions)
    ended = plan_drain(scanned.ledger, ("gl9:/b1",))
    going = plan_drain(scanned.ledger, ("gl9:/b2",))
    do(scanned.ledger.drains, ended, CHECK, START, WATCH)
    do(scanned.ledger.drains, going, CHECK, START)
    for record, runtime_s in ((ended, 200.0 * DAY_S), (going, 50.0 * DAY_S)):
        scanned.ledger.drains.add_samples(record.id, [drain_sample(0, MIB * 1000, runtime_s=runtime_s)])
    looks = [(float(day * DAY_S), (636 - day) * MIB) for day in range(10)]
    room = {"side": Side.SOURCE, "total_bytes": 1000 * MIB}
    scanned.ledger.capacity.add([made(CapacitySample, at_s=at_s, free_bytes=free, **room) for at_s, free in looks])
    schedule = schedule_of(planned(scanned, free_bytes=2000 * MIB))
    # A MiB a day where 364 to 372 were in use, of which 360 are users'.
    assert schedule.growth_bytes_per_day == pytest.approx(360 / 368 * MIB, rel=0.01)
    assert schedule.growth_basis == "measured here by looks at the source over 9 days"
    (said,) = [sentence for sentence in schedule.assumptions if sentence.startswith("drains:")]
    assert "measured here: 1 drain of 0 files and 1000.0 MiB took 200 d" in said
    (site,) = computed[1:]
    days = site.drain_days_per_byte * 1000 * MIB
    assert days == pytest.approx(200)
    assert site.growth_bytes_per_day == pytest.approx(schedule.growth_bytes_per_day, rel=1e-6)


def test_users_who_moved_before_hold_their_bricks_until_they_are_purged(scanned: World) -> None:
    now_s = planned(scanned).plan.created_at_s
    # On the target since the third second of the epoch: to be purged in twenty days.
    cut_over(scanned.root / "ledger.db", "alice")
    retain_s = int(now_s - 3 + 20 * DAY_S)
    scanned.site = change(scanned.site, cutover=change(scanned.site.cutover, retain_s=retain_s))
    result = planned(scanned)
    assert result.left_out == (ALICE,)
    outcome = schedule_of(result).outcome
    assert outcome is not None
    assert len(outcome.batches) == 2
    assert outcome.subvolumes[0].drain_begins_day == pytest.approx(20, abs=0.01)


def test_users_wait_for_their_move_as_long_as_those_before(scanned: World) -> None:
    first = planned(scanned)
    (moved,) = [one for one in first.plan.batches if ALICE in [tree.path for tree in one.trees]]
    made = scanned.ledger.passes.start(
        plan=first.plan.name,
        batch=moved.number,
        kind=PassKind.SEED,
        catalog=first.plan.catalog,
        chunk_list="l",
        chunks=(),
        at_s=0.0,
    )
    scanned.ledger.passes.set_state(made.id, PassState.DONE, 3.0 - 4 * DAY_S)
    cut_over(scanned.root / "ledger.db", "alice")
    before, after = (scheduled_outcome(one.plan) for one in (first, planned(scanned)))
    assert before is not None
    assert after is not None
    wait_days = min(one.moved_day - one.begins_day for one in before.batches)
    assert all(one.moved_day - one.begins_day == pytest.approx(4 + wait_days, abs=0.01) for one in after.batches)


ALICE_TREE = UserTree(path=b"home/alice", user="alice")


def room(total: int, free: int) -> BrickRoom:
    return BrickRoom(total_bytes=total, free_bytes=free)


def test_a_set_has_the_room_of_its_fullest_copy_and_gives_all_its_disks() -> None:
    bricks = (brick("a:/b"), brick("b:/b"), brick("c:/b", arbiter=True))
    state = volume(bricks=bricks, replica_count=3)
    (found,) = scheduled_subvolumes(state, {"a:/b": room(100, 40), "b:/b": room(90, 20), "c:/b": room(5, 1)})
    assert (found.number, found.total_bytes, found.free_bytes, found.added_bytes) == (1, 90, 20, 195)
    assert found.hosts == ("a", "b", "c")


def test_unknown_bricks_make_no_schedule() -> None:
    with pytest.raises(NoSchedule, match="b:/b"):
        scheduled_subvolumes(volume("a:/b", "b:/b"), {"a:/b": room(1, 1)})
    with pytest.raises(NoSchedule, match="dispersed"):
        scheduled_subvolumes(volume("a:/b", "b:/b", "c:/b", disperse_count=3), {})
    with pytest.raises(NoSchedule, match="do not divide"):
        scheduled_subvolumes(volume("a:/b", "b:/b", "c:/b", replica_count=2), {})


def test_usage_of_subvolumes_by_trees() -> None:
    sets = (subvolume(1), subvolume(2))
    found = Placement(
        sets,
        [
            TreeOnBrick(brick="gl1:/b1", tree=ALICE_TREE.path, files=3, allocated_bytes=30),
            TreeOnBrick(brick="gl2:/b2", tree=ALICE_TREE.path, files=1, allocated_bytes=10),
            TreeOnBrick(brick="gone:/b", tree=ALICE_TREE.path, files=2, allocated_bytes=5),
            TreeOnBrick(brick=None, tree=ALICE_TREE.path, files=1, allocated_bytes=1),
            TreeOnBrick(brick="gl2:/b2", tree=None, files=7, allocated_bytes=70),
        ],
    )
    alice = found.of([ALICE_TREE.path, b"home/nobody"])
    assert alice == PlacedContent(size_bytes=(34, 14), files=(5, 3))
    assert (alice.all_bytes, alice.all_files) == (48, 8)
    assert found.of([None]).size_bytes == (0, 70)


def reaped(action: ReapAction) -> ReapedTree:
    return made(ReapedTree, tree=ALICE_TREE, action=action, files=30, size_bytes=900, allocated_bytes=300)


@pytest.mark.parametrize(
    ("action", "arrived", "size_bytes", "inodes"),
    [
        (None, None, 1000, 120),
        (ReapAction.LIST, None, 1000, 120),
        (ReapAction.ARCHIVE, None, 1000, 90),
        (ReapAction.SKIP, None, 700, 90),
        (None, Need(size_bytes=100, inodes=21), 900, 99),
        (None, Need(size_bytes=10**9, inodes=10**9), 0, 0),
    ],
)
def test_need_of_a_batch_on_the_target(
    action: ReapAction | None, arrived: Need | None, size_bytes: int, inodes: int
) -> None:
    alice = replace(usage(ALICE_TREE.path, size_bytes=5000, files=100, directories=20), allocated_bytes=1000)
    found = scheduled_batch(
        made(Batch, number=4, trees=(ALICE_TREE,), forecast_s=DAY_S),
        {ALICE_TREE.path: alice},
        Placement((subvolume(1),), []),
        arrived={} if arrived is None else {ALICE_TREE.path: arrived},
        reaped={} if action is None else {ALICE_TREE.path: reaped(action)},
        archived_s=DAY_S / 2,
        cost=TransferCost(s_per_file=0.001, s_per_byte=0.0, streams=1, basis=""),
        slower=SlowerInDrains(share=0.25, basis=""),
    )
    assert (found.number, found.target_bytes, found.target_inodes, found.copy_days) == (4, size_bytes, inodes, 1.5)
    assert found.copy_days_in_drain == 6.0


GOLDEN = Path(__file__).parents[2] / "fixtures" / "schedules"
BEGINS_AT_S = 20_000 * DAY_S
COST = TransferCost(s_per_file=0.0, s_per_byte=1e-9, streams=1, basis="measured here: 1 GB/s")

RATES: Any = {
    "copying": COST,
    "slower": SlowerInDrains(share=0.4, basis="measured here, 40%"),
    "drains": assumed_drain_cost(),
    "growth": Growth(),
    "reaped": {},
    "habits": Habits(),
}


def field_schedule(target_bytes: int) -> Schedule:
    site = field_example(target_bytes)
    return make_schedule(site, assumptions=assumptions(site, **RATES))


def shown(schedule: Schedule) -> str:
    stream = io.StringIO()
    section = Section(title="When bricks can be cleared", blocks=tuple(schedule_blocks(schedule, BEGINS_AT_S)))
    print_document(Console(file=stream, width=132), Document(title="t", subtitle="", sections=(section,)))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize(("name", "target_bytes"), [("possible", 85 * TIB), ("impossible", 60 * TIB)])
def test_the_field_example(name: str, target_bytes: int) -> None:
    assert shown(field_schedule(target_bytes)) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
