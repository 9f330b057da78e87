"""The conversion schedule in a plan, from a real catalog of bricks and an invented volume."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace as change

from migrator.bricks.model import BrickRoom
from migrator.core.entry import Entry
from migrator.core.units import DAY_S, MIB
from migrator.fs.model import Capacity, CapacitySample, Side
from migrator.gluster.volume import VolumeOverview
from migrator.plan.stage import PlanResult
from migrator.schedule.model import Schedule, ScheduleFacts
from migrator.schedule.rules import make_schedule
from migrator.schedule.stage import PlanScheduling
from migrator.site.config import CapacitySection
from tests.plan.test_plan_stage import ALICE, BOB, CAROL, TREES, World, world
from tests.support.catalogs import directory, invented
from tests.support.operations import CHECK, START, WATCH, cut_over, do
from tests.support.volumes import drain_sample, volume

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
    outcome = schedule.orders[0].outcome
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
    assert any("cannot be converted by this plan" in problem for problem in result.plan.problems)
    assert schedule.remedies is not None
    # The files of the catalog are of 1970: not copying alice's is enough.
    assert schedule.remedies.reap_users == ("alice",)


def test_drains_and_growth_come_from_what_was_measured_here(scanned: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a real ledger: a drain that has ended and one that has not, and nine days of looks at the source."""
    computed: list[ScheduleFacts] = []

    def kept(site: ScheduleFacts, *, assumptions: Sequence[str]) -> Schedule:
        computed.append(site)
        return make_schedule(site, assumptions=assumptions)

    monkeypatch.setattr("migrator.schedule.rules.make_schedule", kept)
    scanned.site = change(scanned.site, capacity=CapacitySection(max_fill=0.95, growth_bytes_per_day=7 * MIB))
    before = schedule_of(planned(scanned, free_bytes=2000 * MIB))
    assert (before.growth_bytes_per_day, before.growth_basis.startswith("[capacity] growth")) == (7 * MIB, True)
    assert any("drains: assumed" in sentence for sentence in before.assumptions)
    ended = scanned.ledger.drains.plan(volume="vol1", volume_id="id", bricks=("gl9:/b1",), at_s=1.0)
    going = scanned.ledger.drains.plan(volume="vol1", volume_id="id", bricks=("gl9:/b2",), at_s=1.0)
    do(scanned.ledger.drains, ended, CHECK, START, WATCH)
    do(scanned.ledger.drains, going, CHECK, START)
    for record, runtime_s in ((ended, 200.0 * DAY_S), (going, 50.0 * DAY_S)):
        scanned.ledger.drains.add_samples(record.id, [drain_sample(0, MIB * 1000, runtime_s=runtime_s)])
    scanned.ledger.capacity.add(
        [
            CapacitySample(
                side=Side.SOURCE,
                at_s=float(day * DAY_S),
                total_bytes=1000 * MIB,
                free_bytes=(636 - day) * MIB,
                total_inodes=None,
                free_inodes=None,
            )
            for day in range(10)
        ]
    )
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
    outcome = schedule_of(result).orders[0].outcome
    assert len(outcome.batches) == 2
    assert outcome.subvolumes[0].drain_begins_day == pytest.approx(20, abs=0.01)
