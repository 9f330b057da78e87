"""Runs over bricks: which chunks are read where, and what happens when a host, a brick or the volume does not stay."""

import asyncio
import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.core.errors import Refused
from migrator.core.events import Event, EventKind
from migrator.core.paths import join, name, parent
from migrator.core.states import AttemptState, BatchState, ChunkKind
from migrator.fs.model import TargetCapabilities
from migrator.gluster.model import BrickRules
from migrator.hosts.ports import HostLost
from migrator.ledger.locks import of_brick
from migrator.operations.run_files import last_heard_s
from migrator.transfer.model import StopReason
from migrator.transfer.model_runs import RunStopped
from migrator.transfer.ports import BrickReadiness
from migrator.transfer.rules_leftovers import marks_name, part_name
from tests.support.fake_streams import FakeLane, FakeStreams, Fault
from tests.support.fakes import FakeProgress
from tests.support.operations import AUDIT, CHECK, COMMIT, START, WATCH, act, do, plan_drain
from tests.support.run_world import ALICE, LIST, World, in_loop, plan_in_ranges, small_world
from tests.support.volumes import brick, volume

ONE, TWO = "gl1:/bricks/1", "gl2:/bricks/1"
QUIET = BrickReadiness(reasons=(), fingerprint="")
DRAINING = BrickReadiness(reasons=("a task is under way on volume vol1: Remove brick",), fingerprint="", lasting=True)
BUSY = BrickReadiness(reasons=("the volume's state is not known: glusterd is busy",), fingerprint="")


@dataclass
class Volume:
    """The `BrickGuard` port: looks as they are told, the last one again and again."""

    looks: list[BrickReadiness] = field(default_factory=lambda: [QUIET])
    asked: int = 0

    async def look(self) -> BrickReadiness:
        self.asked += 1
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return brick_world(tmp_path, ONE, TWO, None)


def brick_world(tmp_path: Path, *bricks: str | None) -> World:
    """Chunks of these bricks by turns, and two hosts that read a brick each."""
    found = small_world(tmp_path, files=12, bricks=bricks)
    for host, own in (("gl1", ONE), ("gl2", TWO)):
        streams = FakeStreams(found.source, found.target, host=host)
        rules = BrickRules(times_from_mdata=True, distributed=True)
        found.more_lanes.append(FakeLane(streams, streams, 2, frozenset({own}), rules))
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


NOT_READ = (EventKind.HOST_LOST, EventKind.BRICKS_UNFIT)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"lost": HostLost("no answer")}, "host gl2 is lost, its chunks are read elsewhere: no answer"),
        ({"refused": frozenset({TWO})}, f"brick {TWO} is not read any more in this run: {TWO} is no brick there"),
    ],
)
@in_loop
async def test_a_brick_that_no_host_reads_is_read_through_the_mount(
    world: World, facts: dict[str, Any], said: str
) -> None:
    world.more_lanes[1] = dataclasses.replace(world.more_lanes[1], **facts)
    await world.run()
    wanted = listed_bricks(world)
    assert read_by(world.streams) == wanted[None] | wanted[TWO]
    assert read_by(streams_of(world, 1)) == set()
    assert [event.message for event in world.progress.events if event.kind in NOT_READ] == [said]
    assert world.is_copied()


@in_loop
async def test_bricks_of_a_set_that_waits_to_be_healed_are_read_through_the_mount_and_others_on(world: World) -> None:
    held = replace(QUIET, held={ONE: f"1 entry of brick {ONE} wait to be healed"})
    world.bricks = Volume([QUIET, held, held])
    await world.run()
    wanted = listed_bricks(world)
    assert wanted[None] < read_by(world.streams) <= wanted[None] | wanted[ONE]
    assert read_by(streams_of(world, 1)) == wanted[TWO]
    (said,) = [event.message for event in world.progress.events if event.kind is EventKind.BRICKS_UNFIT]
    assert said.endswith(f"1 entry of brick {ONE} wait to be healed")
    assert world.is_copied()


@pytest.mark.parametrize("facts", [{}, {"lost": HostLost("no answer")}, {"refused": frozenset({ONE})}])
@in_loop
async def test_every_copy_of_a_replica_set_is_read_by_its_own_host(tmp_path: Path, facts: dict[str, Any]) -> None:
    world = brick_world(tmp_path, ONE)
    world.source.volume = volume(ONE, TWO, brick("gl3:/bricks/1", arbiter=True), replica_count=3)
    world.more_lanes[0] = dataclasses.replace(world.more_lanes[0], **facts)
    await world.run()
    assert world.is_copied()
    streams = (world.streams, streams_of(world, 0), streams_of(world, 1))
    assert [bool(read_by(one)) for one in streams] == [False, not facts, True]
    assert [set(lane.asked) for lane in world.more_lanes] == [{ONE}, {TWO}]


class Hanging(FakeStreams):
    """A host whose target does not answer any more when the streams have ended."""

    async def sync(self) -> None:
        await asyncio.Event().wait()


@in_loop
async def test_a_target_that_hangs_on_another_host_ends_the_run(world: World) -> None:
    hanging = Hanging(world.source, world.target, host="gl1")
    world.more_lanes[0] = dataclasses.replace(world.more_lanes[0], executor=hanging, engine=hanging)
    with pytest.raises(RunStopped) as caught:
        await world.run(stall_timeout_s=0.1)
    assert caught.value.stopped.reason is StopReason.TARGET_STUCK


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


def told(world: World, kind: EventKind) -> asyncio.Event:
    """Set when such an event is reported."""
    seen = asyncio.Event()

    class Said(FakeProgress):
        def event(self, event: Event) -> None:
            super().event(event)
            if event.kind is kind:
                seen.set()

    world.progress = Said()
    return seen


@in_loop
async def test_a_host_lost_in_one_step_is_read_from_again_in_the_next(world: World) -> None:
    (directories, paths), *others = world.lists.lists[LIST]
    world.lists.lists[LIST] = [(replace(directories, brick=TWO), paths), *others]
    lane, files = world.more_lanes[1], listed_bricks(world)
    lane.lost = HostLost("no answer")
    found = told(world, EventKind.HOST_FOUND)
    world.streams.faults = {path: Fault("hang", until=found) for path in files[TWO]}

    def answer(at: bytes) -> None:
        if any(at in some for some in files.values()):
            lane.lost = None

    world.streams.before_path = answer
    await world.run(jobs=1)
    assert found.is_set()
    assert read_by(streams_of(world, 1))
    assert world.is_copied()


@pytest.mark.parametrize("does", ["works", "hangs", "is away"])
@in_loop
async def test_a_silent_stream_on_a_host_is_stalled_unless_it_works_there(world: World, does: str) -> None:
    world.ledger.site.record_capabilities(TargetCapabilities(syncfs_reaches_disks=False), 1.0)
    world.request = replace(world.request, stall_timeout_s=30.0)
    on_host, over = streams_of(world, 0), asyncio.Event()
    on_host.faults[min(listed_bricks(world)[ONE])] = Fault("hang", times=1, until=over)

    def moved() -> int:
        now_s = int(world.clock.monotonic_s())
        if now_s > began_s + 2 * world.request.stall_timeout_s:
            over.set()
        if does == "is away":
            raise HostLost("no answer")
        return now_s if does == "works" else 7

    began_s, on_host.moved = world.clock.monotonic_s(), moved
    if does == "works":
        await world.run()
        assert world.is_copied()
        assert [event for event in world.progress.events if event.kind is EventKind.CHUNK_RETRIED] == []
    else:
        with pytest.raises(RunStopped, match="has not moved"):
            await world.run()


@in_loop
async def test_the_bricks_of_a_host_are_read_evenly(tmp_path: Path) -> None:
    """By size alone all streams would read the first brick to its end, and then the second one."""
    world = brick_world(tmp_path, ONE, ONE, ONE, TWO, TWO, TWO)
    (lane,) = world.more_lanes = [dataclasses.replace(world.more_lanes[0], bricks=frozenset({ONE, TWO}))]
    await world.run()
    assert world.is_copied()
    assert [set(lane.asked[at : at + 2]) for at in (0, 2, 4)] == [{ONE, TWO}] * 3


@pytest.mark.guarantee("bricks-and-mount")
@in_loop
async def test_chunks_read_while_a_drain_began_are_read_again_through_the_mount(world: World) -> None:
    world.bricks = Volume([QUIET, DRAINING])
    await world.run()
    read = read_by(streams_of(world, 0)) | read_by(streams_of(world, 1))
    assert read
    assert read <= read_by(world.streams)
    assert world.is_copied()


@in_loop
async def test_streams_hold_off_the_commit_of_their_brick_and_a_commit_holds_off_streams(world: World) -> None:
    held: set[str] = set()
    streams_of(world, 0).before_path = lambda _: held.update(name for one in world.locks.held for name in one.shared)
    with world.locks.hold("the commit of a drain", of_brick(TWO)):
        await world.run()
    assert of_brick(ONE) in held
    assert read_by(streams_of(world, 1)) == set()
    assert world.locks.held == []
    assert world.is_copied()


@pytest.mark.parametrize("state", ["committing", "committed", "audited", "committed before"])
@in_loop
async def test_a_run_goes_on_over_the_commit_of_a_drain_and_no_other_change(world: World, state: str) -> None:
    drains, drain = world.ledger.drains, plan_drain(world.ledger, (TWO,))
    world.source.volume, after = (volume(*bricks, volume_id="v") for bricks in ((ONE, TWO), (ONE,)))
    world.bricks = Volume([DRAINING])

    def leave(_: bytes) -> None:
        if world.source.volume == after:
            return
        at_s = 10.0 if "before" in state else world.clock.now_s()
        do(drains, drain, CHECK, START, WATCH, AUDIT, at_s=at_s)
        step = drains.intend(drain.id, act(COMMIT), at_s=at_s) if state != "audited" else 0
        if "committed" in state:
            drains.finish(step, COMMIT[2], at_s=at_s)
        world.source.volume = after

    world.streams.before_path = leave
    if state in ("committing", "committed"):
        # Clients lose their connections for a moment.
        world.streams.faults[ALICE + b"/0"] = Fault("stop", times=1, stop=StopReason.DISCONNECTED)
        await world.run()
        assert world.is_copied()
    else:
        with pytest.raises(RunStopped, match=f"brick {TWO} left the volume"):
            await world.run()


@pytest.mark.guarantee("bricks-and-mount")
@in_loop
async def test_bricks_are_read_again_when_the_volume_is_well(world: World) -> None:
    well = asyncio.Event()
    before: list[int] = []

    class Mended(Volume):
        async def look(self) -> BrickReadiness:
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
async def test_chunks_read_while_the_volume_was_unwell_are_read_again(world: World) -> None:
    """Also where it is well again at the end of the stream."""
    path = min(listed_bricks(world)[ONE])
    bricks = world.bricks = Volume([QUIET, BUSY, QUIET])
    streams_of(world, 0).faults[path] = Fault("hang", times=1, until=told(world, EventKind.BRICKS_FIT))
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
async def test_an_attempt_on_a_host_that_is_away_is_waited_for_until_its_lease_is_over(
    world: World, tmp_path: Path
) -> None:
    await world.run(dry_run=True)
    chunk = world.leave_attempt("gl1", world.clock.now_s())
    world.more_lanes[0].lost = HostLost("gl1 cannot be reached")
    with pytest.raises(Refused, match="may still run on host gl1"):
        await world.run(lease_s=30.0)
    # While the ledger is held, the directory of a run alone says that it is alive.
    (killed,) = (replace(run, directory=str(tmp_path)) for run in world.ledger.passes.runs_with_attempts())
    assert last_heard_s(killed) == killed.heartbeat_at_s
    (tmp_path / "heartbeat").write_text(str(killed.heartbeat_at_s + 9.0))
    assert last_heard_s(killed) == killed.heartbeat_at_s + 9.0
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
    seed = world.ledger.site.required().name_seed
    left = [join(parent(path), of_part(name(path), seed)) for of_part in (part_name, marks_name)]
    users = join(parent(path), part_name(name(path), seed + 1))
    for side in (world.source, world.target):
        side.add(users, b"kept")
    for part in left:
        world.target.add(part, b"of a run that was killed")
    await world.run()
    assert [world.target.look(part) for part in left] == [None, None]
    assert world.target.look(users) is not None
