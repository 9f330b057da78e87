"""What a schedule is computed from."""

from dataclasses import replace

import pytest

from migrator.bricks.model import BrickRoom
from migrator.core.entry import UserTree
from migrator.core.units import DAY_S, YEAR_S
from migrator.fs.model import Need
from migrator.plan.model import AgeBucket, Batch, TransferCost
from migrator.reap.model import ReapAction, ReapedTree
from migrator.schedule.model import OldFiles, Placed, TreeOnBrick
from migrator.schedule.rules import NoSchedule, Placement, batch_facts, volume_facts
from migrator.schedule.rules_drains import SlowerInDrains
from tests.schedule.schedules import subvolume
from tests.support.usages import usage
from tests.support.volumes import brick, volume

ALICE = UserTree(path=b"home/alice", user="alice")


def room(total: int, free: int) -> BrickRoom:
    return BrickRoom(total_bytes=total, free_bytes=free)


def test_a_set_has_the_room_of_its_fullest_copy_and_gives_all_its_disks() -> None:
    bricks = (brick("a:/b"), brick("b:/b"), brick("c:/b", arbiter=True))
    state = volume(bricks=bricks, replica_count=3)
    (found,) = volume_facts(state, {"a:/b": room(100, 40), "b:/b": room(90, 20), "c:/b": room(5, 1)})
    assert (found.number, found.total_bytes, found.free_bytes, found.added_bytes) == (1, 90, 20, 195)
    assert found.hosts == ("a", "b", "c")


def test_what_is_not_known_makes_no_schedule() -> None:
    with pytest.raises(NoSchedule, match="room on b:/b"):
        volume_facts(volume("a:/b", "b:/b"), {"a:/b": room(1, 1)})
    with pytest.raises(NoSchedule, match="pieces"):
        volume_facts(volume("a:/b", "b:/b", "c:/b", disperse_count=3), {})
    with pytest.raises(NoSchedule, match="do not divide"):
        volume_facts(volume("a:/b", "b:/b", "c:/b", replica_count=2), {})


def test_where_users_are() -> None:
    sets = (subvolume(1), subvolume(2))
    found = Placement(
        sets,
        [
            TreeOnBrick(brick="gl1:/b1", tree=ALICE.path, files=3, allocated_bytes=30),
            TreeOnBrick(brick="gl2:/b2", tree=ALICE.path, files=1, allocated_bytes=10),
            TreeOnBrick(brick="gone:/b", tree=ALICE.path, files=2, allocated_bytes=5),
            TreeOnBrick(brick=None, tree=ALICE.path, files=1, allocated_bytes=1),
            TreeOnBrick(brick="gl2:/b2", tree=None, files=7, allocated_bytes=70),
        ],
    )
    alice = found.of([ALICE.path, b"home/nobody"])
    assert alice == Placed(size_bytes=(34, 14), files=(5, 3))
    assert (alice.all_bytes, alice.all_files) == (48, 8)
    assert found.of([None]).size_bytes == (0, 70)


def reaped(action: ReapAction) -> ReapedTree:
    return ReapedTree(tree=ALICE, action=action, rule="", files=30, size_bytes=900, allocated_bytes=300, oldest_ns=0)


@pytest.mark.parametrize(
    ("action", "arrived", "size_bytes", "inodes", "old"),
    [
        (None, None, 1000, 120, 400),
        (ReapAction.LIST, None, 1000, 120, 400),
        (ReapAction.ARCHIVE, None, 1000, 90, 400),
        (ReapAction.SKIP, None, 700, 90, 100),
        (None, Need(size_bytes=100, inodes=21), 900, 99, 400),
        (None, Need(size_bytes=10**9, inodes=10**9), 0, 0, 0),
    ],
)
def test_what_a_batch_takes(
    action: ReapAction | None, arrived: Need | None, size_bytes: int, inodes: int, old: int
) -> None:
    ages = (
        AgeBucket(label="young", max_age_s=YEAR_S, files=1, size_bytes=600),
        AgeBucket(label="old", max_age_s=None, files=1, size_bytes=400),
    )
    alice = replace(usage(ALICE.path, size_bytes=5000, files=100), allocated_bytes=1000, directories=20, by_mtime=ages)
    batch = Batch(
        number=4,
        trees=(ALICE,),
        size_bytes=5000,
        files=100,
        directories=20,
        chunks=1,
        chunk_list="",
        chunk_list_digest="",
        forecast_s=DAY_S,
        fits=True,
    )
    found = batch_facts(
        batch,
        {ALICE.path: alice},
        Placement((subvolume(1),), []),
        arrived={} if arrived is None else {ALICE.path: arrived},
        reaped={} if action is None else {ALICE.path: reaped(action)},
        archived_s=DAY_S / 2,
        cost=TransferCost(s_per_file=0.001, s_per_byte=0.0, streams=1, basis=""),
        slower=SlowerInDrains(share=0.25, basis=""),
    )
    assert (found.number, found.target_bytes, found.target_inodes, found.copy_days) == (4, size_bytes, inodes, 1.5)
    assert found.copy_days_in_drain == 6.0
    assert found.old == (OldFiles(user="alice", size_bytes=old),)
