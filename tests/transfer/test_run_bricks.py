"""Runs over bricks: which chunks are read where, and what happens when a host, a brick or the volume does not stay."""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from migrator.core.errors import Refused
from migrator.core.events import Event, EventKind
from migrator.core.paths import join, name, parent
from migrator.core.states import AttemptState, BatchState, ChunkKind
from migrator.gluster.model import BrickRules
from migrator.hosts.ports import HostLost
from migrator.transfer.ports import BrickLook
from migrator.transfer.rules import marks_name, part_name
from tests.support.fake_streams import FakeLane, FakeStreams, Fault
from tests.support.fakes import FakeProgress
from tests.support.run_world import ALICE, World, in_loop, plan_in_ranges, small_world

ONE, TWO = "gl1:/bricks/1", "gl2:/bricks/1"
QUIET = BrickLook(reasons=(), fingerprint="")
DRAINING = BrickLook(reasons=("a task is under way on volume vol1: Remove brick",), fingerprint="", lasting=True)
BUSY = BrickLook(reasons=("the volume's state is not known: glusterd is busy",), fingerprint="")


@dataclass
class Volume:
    """The `BrickGuard` port: looks as they are told, the last one again and again."""

    looks: list[BrickLook] = field(default_factory=lambda: [QUIET])
    asked: int = 0

    async def look(self) -> BrickLook:
        self.asked += 1
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = small_world(tmp_path, files=12, bricks=(ONE, TWO, None))
    for host, brick in (("gl1", ONE), ("gl2", TWO)):
        streams = FakeStreams(found.source, found.target, host=host)
        rules = BrickRules(times_from_mdata=True, distributed=True)
        found.more_lanes.append(FakeLane(streams, streams, 2, frozenset({brick}), rules))
    found.bricks = Volume()
    return found


def streams_of(world: World, number: int) -> FakeStreams:
    streams = world.more_lanes[number].executor
    assert isinstance(streams, FakeStreams)
    return streams


def listed_bricks(world: World) -> dict[str | None, set[bytes]]:
    """The paths of the chunk lists, by brick."""
    found: dict[str | None, set[bytes]] = {}
    for rows in list(world.lists.lists.values())[:1]:
        for chunk, paths in rows:
            if chunk.kind.value == "files":
                found.setdefault(chunk.brick, set()).update(listed.path for listed in paths)
    return found


def read_by(streams: FakeStreams) -> set[bytes]:
    return {path for kind, paths in streams.streams if kind.value == "files" for path in paths}


@in_loop
async def test_each_brick_is_read_by_its_own_host_and_the_rest_through_the_mount(world: World) -> None:
    await world.run()
    wanted = listed_bricks(world)
    assert read_by(streams_of(world, 0)) == wanted[ONE]
    assert read_by(streams_of(world, 1)) == wanted[TWO]
    assert read_by(world.streams) == wanted[None]
    assert world.more_lanes[0].asked == [ONE] * len(world.more_lanes[0].asked)
    assert world.is_copied()
    assert world.batch_state is BatchState.SEEDED


@in_loop
async def test_without_its_host_a_brick_is_read_through_the_mount(world: World) -> None:
    world.more_lanes[1].lost = HostLost("gl2 cannot be reached")
    await world.run()
    wanted = listed_bricks(world)
    assert read_by(world.streams) == wanted[None] | wanted[TWO]
    assert read_by(streams_of(world, 1)) == set()
    assert [event.message for event in world.progress.events if event.kind is EventKind.HOST_LOST] == [
        "host gl2 is lost, its chunks are read through the mount: gl2 cannot be reached"
    ]
    assert world.is_copied()


@in_loop
async def test_a_host_lost_in_the_middle_gives_its_chunk_back_only_when_its_stream_is_dead(world: World) -> None:
    first = streams_of(world, 0)
    path = min(listed_bricks(world)[ONE])
    first.faults[path] = Fault("lost", times=1)
    began_s = world.clock.now_s()
    lane = world.more_lanes[0]

    def lose(at: bytes) -> None:
        if at == path:
            lane.lost = HostLost("no answer")

    first.before_path = lose
    alive_when_read_again: list[bool] = []
    world.streams.before_path = lambda at: (
        alive_when_read_again.append(world.clock.now_s() - began_s < world.request.lease_s) if at == path else None
    )
    await world.run()
    assert world.is_copied()
    # By the mount, after the lease: the host never answered again.
    assert alive_when_read_again == [False]
    states = [attempt.state for attempt in world.ledger.passes.unfinished_attempts()]
    assert states == []


@in_loop
async def test_the_bricks_of_a_host_are_read_evenly(tmp_path: Path) -> None:
    """By size alone all streams would read the first brick to its end, and then the second one."""
    world = small_world(tmp_path, files=8, bricks=(ONE, ONE, TWO, TWO))
    streams = FakeStreams(world.source, world.target, host="gl1")
    world.more_lanes.append(
        FakeLane(streams, streams, 2, frozenset({ONE, TWO}), BrickRules(times_from_mdata=True, distributed=True))
    )
    world.bricks = Volume()
    await world.run()
    assert world.is_copied()
    assert set(world.more_lanes[0].asked[:2]) == {ONE, TWO}
    assert world.more_lanes[0].asked[2:] == [ONE, TWO] or world.more_lanes[0].asked[2:] == [TWO, ONE]


@pytest.mark.guarantee("bricks-and-mount")
@in_loop
async def test_what_was_read_while_a_drain_began_is_read_again_through_the_mount(world: World) -> None:
    world.bricks = Volume([QUIET, DRAINING])
    await world.run()
    read = read_by(streams_of(world, 0)) | read_by(streams_of(world, 1))
    assert read
    assert read <= read_by(world.streams)
    assert world.is_copied()


@pytest.mark.guarantee("bricks-and-mount")
@in_loop
async def test_bricks_are_read_again_when_the_volume_is_well(world: World) -> None:
    well = asyncio.Event()
    before: list[int] = []

    class Mended(Volume):
        async def look(self) -> BrickLook:
            if self.asked == 2:
                before.extend(len(streams_of(world, number).streams) for number in (0, 1))
                well.set()
            return await super().look()

    world.bricks = Mended([QUIET, BUSY, QUIET])
    world.streams.faults = {path: Fault("hang", until=well) for path in world.source.nodes}
    await world.run()
    assert world.is_copied()
    kinds = [event.kind for event in world.progress.events]
    assert [kind for kind in kinds if kind in (EventKind.BRICKS_UNFIT, EventKind.BRICKS_FIT)] == [
        EventKind.BRICKS_UNFIT,
        EventKind.BRICKS_FIT,
    ]
    after = [len(streams_of(world, number).streams) for number in (0, 1)]
    assert sum(after) > sum(before) > 0


@in_loop
async def test_what_was_read_while_the_volume_was_not_well_is_read_again(world: World) -> None:
    """Also where it is well again at the end of the stream."""
    path = min(listed_bricks(world)[ONE])
    bricks = world.bricks = Volume([QUIET, BUSY, QUIET])
    seen = asyncio.Event()
    streams_of(world, 0).faults[path] = Fault("hang", times=1, until=seen)

    class Said(FakeProgress):
        def event(self, event: Event) -> None:
            super().event(event)
            if event.kind is EventKind.BRICKS_FIT:
                seen.set()

    world.progress = Said()
    await world.run()
    assert bricks.asked > 2
    assert world.is_copied()
    assert [path in paths for _, paths in (*streams_of(world, 0).streams, *world.streams.streams)].count(True) > 1


@in_loop
async def test_files_that_moved_off_their_brick_are_read_through_the_mount(world: World) -> None:
    path = min(listed_bricks(world)[ONE])
    streams_of(world, 0).faults[path] = Fault("moved")
    await world.run()
    assert world.is_copied()
    assert path in read_by(world.streams)
    assert list(world.attention) == []


@in_loop
async def test_a_brick_that_is_none_is_read_through_the_mount_and_its_host_is_not_lost(world: World) -> None:
    world.more_lanes[0].refused = frozenset({ONE})
    await world.run()
    wanted = listed_bricks(world)
    assert read_by(streams_of(world, 0)) == set()
    assert read_by(world.streams) == wanted[None] | wanted[ONE]
    (event,) = [event for event in world.progress.events if event.kind is EventKind.BRICKS_UNFIT]
    assert f"{ONE} is no brick there" in event.message
    assert EventKind.HOST_LOST not in [event.kind for event in world.progress.events]
    assert world.is_copied()


@in_loop
async def test_an_attempt_on_a_host_that_is_away_is_waited_for_until_its_lease_is_over(world: World) -> None:
    await world.run(dry_run=True)
    chunk = world.leave_attempt("gl1", world.clock.now_s())
    world.more_lanes[0].lost = HostLost("gl1 cannot be reached")
    with pytest.raises(Refused, match="may still be at work on host gl1"):
        await world.run(lease_s=30.0)
    # The clock of the next run begins anew: a lease that is over is one of no length here.
    await world.run(lease_s=-60.0)
    assert world.is_copied()
    assert world.ledger.passes.attempts_of_chunk(chunk)[0].state is AttemptState.INTERRUPTED


@in_loop
async def test_a_big_file_is_put_in_place_when_its_ranges_are_confirmed(world: World) -> None:
    path = ALICE + b"/sub/big"
    world.source.add(path, b"big")
    plan_in_ranges(world, path, [70, 60], ONE)
    # Quiet when the ranges began, and not any more when they had ended: they are read once more, through the mount.
    world.bricks = Volume([QUIET, DRAINING])
    await world.run()
    assert ChunkKind.RANGES in {kind for kind, _ in streams_of(world, 0).streams}
    by_mount = [kind for kind, paths in world.streams.streams if path in paths]
    assert by_mount == [ChunkKind.RANGES, ChunkKind.RANGES, ChunkKind.RANGED_FILES]
    assert ChunkKind.RANGED_FILES not in {kind for kind, _ in streams_of(world, 0).streams}


@in_loop
async def test_parts_of_a_big_file_do_not_stay_where_another_engine_copies_it_whole(world: World) -> None:
    path = min(listed_bricks(world)[ONE])
    for rows in world.lists.lists.values():
        for number, (chunk, paths) in enumerate(rows):
            if any(one.path == path for one in paths):
                rows[number] = (replace(chunk, kind=ChunkKind.RANGED_FILES), paths)
    left = [join(parent(path), of_part(name(path))) for of_part in (part_name, marks_name)]
    users = join(parent(path), part_name(b"a file of the user's that is called so"))
    for side in (world.source, world.target):
        side.add(users, b"kept")
    for part in left:
        world.target.add(part, b"of a run that was killed")
    await world.run()
    assert [world.target.look(part) for part in left] == [None, None]
    assert world.target.look(users) is not None
