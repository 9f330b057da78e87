"""Storage targets that are lost, full or short while a run goes on: over fakes of everything but the ledger."""

import asyncio
import errno
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import pytest

from migrator.beegfs import model as beegfs
from migrator.core.errors import Refused, ToolFailed
from migrator.core.events import Event, EventKind
from migrator.core.states import ChunkState
from migrator.plan.model import SurpriseKind
from migrator.transfer.model import RunStopped, StopReason
from tests.support.fake_filesystem import GIB
from tests.support.fake_streams import Fault
from tests.support.run_world import ALICE, World, in_loop

Change = Callable[[beegfs.StorageTarget], beegfs.StorageTarget]
HANGING = ALICE + b"/sub/f03"
STRIPE = beegfs.StripeSettings(targets=2, chunk_bytes=1 << 20)


def target(number: int, **changes: object) -> beegfs.StorageTarget:
    well = beegfs.StorageTarget(
        kind=beegfs.TargetKind.STORAGE if number > 100 else beegfs.TargetKind.METADATA,
        number=number,
        name=f"target_{number}",
        node=f"node_{number}",
        reachability=beegfs.Reachability.ONLINE,
        consistency=beegfs.Consistency.GOOD,
        pool=beegfs.CapacityPool.NORMAL,
        last_contact_s=10.0,
        total_bytes=GIB,
        free_bytes=GIB // 2,
        total_inodes=10**6,
        free_inodes=10**5,
    )
    return replace(well, **changes)  # type: ignore[arg-type]


def well(one: beegfs.StorageTarget) -> beegfs.StorageTarget:
    return one


def lost(one: beegfs.StorageTarget) -> beegfs.StorageTarget:
    """Target 201 is not heard of; that it is offline is said much later."""
    return replace(one, last_contact_s=60.0) if one.number == 201 else one


@dataclass
class Storage:
    """The `StorageTargets` port: two of each kind, as `change` makes them; `after` is called with every look."""

    change: Change = well
    after: Callable[[int, beegfs.StorageTarget], None] = lambda _, __: None
    failure: str = ""
    unstripable: str = ""
    looks: int = 0
    striped: list[tuple[bytes, beegfs.StripeSettings]] = field(default_factory=list)
    tool: str = "/usr/bin/beegfs"
    limits: dict[int, beegfs.UserQuota] = field(default_factory=dict)
    no_quotas: str = ""

    async def look(self) -> beegfs.StorageSeen:
        self.looks += 1
        if self.failure:
            raise ToolFailed(self.failure)
        found = beegfs.StorageSeen(targets=tuple(self.change(target(number)) for number in (1, 2, 101, 201)))
        self.after(self.looks, found.targets[-1])
        return found

    async def problems(self) -> tuple[str, ...]:
        raise AssertionError("a run asks for more")

    async def directory(self, path: bytes) -> beegfs.DirectoryFacts:
        return beegfs.DirectoryFacts(stripe=beegfs.StripeSettings(targets=4, chunk_bytes=1 << 19))

    async def set_stripe(self, path: bytes, stripe: beegfs.StripeSettings) -> None:
        if self.unstripable:
            raise ToolFailed(self.unstripable)
        self.striped.append((path, stripe))

    async def quota_problem(self) -> str | None:
        return None

    async def quotas(self, uids: Collection[int]) -> Mapping[int, beegfs.UserQuota]:
        if self.no_quotas:
            raise ToolFailed(self.no_quotas)
        return {uid: self.limits[uid] for uid in uids if uid in self.limits}

    def come_back(self, looks: int) -> asyncio.Event:
        """All targets are well after so many looks. The event is set then."""
        answers = asyncio.Event()

        def after(look: int, _: beegfs.StorageTarget) -> None:
            if look >= looks:
                self.change = well
                answers.set()

        self.after = after
        return answers


def events(world: World, kind: EventKind) -> list[Event]:
    return [event for event in world.ledger.events.latest(1000) if event.kind is kind]


@pytest.fixture
def storage(world: World) -> Storage:
    world.storage = found = Storage()
    return found


@in_loop
async def test_a_stream_that_hangs_on_a_lost_target_goes_on_when_it_is_back(world: World, storage: Storage) -> None:
    answers = storage.come_back(400)
    hung_s: list[float] = []

    def hang(path: bytes) -> None:
        if path == HANGING and not hung_s:
            hung_s.append(world.clock.now_s())
            storage.change = lost

    world.streams.before_path = hang
    world.streams.faults[HANGING] = Fault("hang", times=1, until=answers)
    await world.run()
    (told,) = events(world, EventKind.STORAGE_LOST)
    (back,) = events(world, EventKind.STORAGE_BACK)
    assert "target_201" in told.message
    assert told.at_s - hung_s[0] < 60.0
    # Longer than any stream may stand still otherwise.
    assert back.at_s - told.at_s > 2 * world.request.stall_timeout_s
    assert not events(world, EventKind.POOL_STOPPED)
    assert world.is_copied()
    assert len(world.streams.streams) == world.ledger.passes.totals(1).chunks[ChunkState.DONE]


@pytest.mark.exhaustive
@in_loop
async def test_errors_of_a_lost_target_blame_no_chunk(world: World, storage: Storage) -> None:
    def lose(path: bytes) -> None:
        if path in world.streams.faults and storage.change is well:
            storage.change = lost

    storage.come_back(20)
    world.streams.before_path = lose
    world.streams.faults[ALICE + b"/sub/f01"] = Fault("crash", times=4)
    world.streams.faults[ALICE + b"/sub/f03"] = Fault("stop", times=1, stop=StopReason.IO_ERROR)
    world.streams.faults[ALICE + b"/sub/f05"] = Fault("bad", times=3, code=errno.ECOMM)
    await world.run()
    assert world.is_copied()
    assert not world.attention
    assert not events(world, EventKind.POOL_STOPPED)
    assert not events(world, EventKind.CHUNK_FAILED)


@in_loop
async def test_a_write_without_room_names_the_target_that_is_full(world: World, storage: Storage) -> None:
    def fill(_: bytes) -> None:
        storage.change = lambda one: (
            replace(one, free_bytes=4096, pool=beegfs.CapacityPool.EMERGENCY) if one.number == 201 else one
        )

    world.streams.before_path = fill
    world.streams.faults[ALICE + b"/sub/f03"] = Fault("stop", times=1, stop=StopReason.TARGET_FULL)
    with pytest.raises(RunStopped) as caught:
        await world.run()
    assert caught.value.stopped.reason is StopReason.TARGET_FULL
    assert "target_201" in caught.value.stopped.message
    assert "target_101" not in caught.value.stopped.message
    assert "emergency" in caught.value.stopped.message


_SICK: dict[str, Change] = {
    "target_201": lambda one: replace(one, reachability=beegfs.Reachability.OFFLINE) if one.number == 201 else one,
    "lacks": lambda one: replace(one, free_bytes=10) if one.number == 101 else one,
    "inodes": lambda one: replace(one, free_inodes=3) if one.number == 1 else one,
    "emergency": lambda one: replace(one, pool=beegfs.CapacityPool.EMERGENCY) if one.number > 100 else one,
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("says", _SICK)
@in_loop
async def test_a_batch_is_refused_for_what_df_does_not_show(world: World, storage: Storage, says: str) -> None:
    world.target.room = replace(world.target.room, total_inodes=None, free_inodes=None)
    storage.change = _SICK[says]
    with pytest.raises(Refused, match=says):
        await world.run()
    assert not world.streams.streams
    storage.change = well
    await world.run()
    assert world.is_copied()


@pytest.mark.exhaustive
@in_loop
async def test_a_tool_that_cannot_be_asked_counts_where_something_hangs_on_it(world: World, storage: Storage) -> None:
    storage.failure = "BeeGFS's command is missing"
    world.target.room = replace(world.target.room, total_inodes=None, free_inodes=None)
    with pytest.raises(Refused, match="command is missing"):
        await world.run()
    with pytest.raises(Refused, match="command is missing"):
        await world.run(inodes_free=10**6, stripe=STRIPE)
    await world.run(inodes_free=10**6)
    assert world.is_copied()


@in_loop
async def test_nothing_is_written_where_the_settings_cannot_be_given(world: World, storage: Storage) -> None:
    storage.unstripable = "Error: unknown flag"
    with pytest.raises(Refused, match="unknown flag"):
        await world.run(stripe=STRIPE)
    assert not world.streams.streams
    storage.unstripable = ""
    await world.run(stripe=STRIPE)
    assert len(storage.striped) == 1


OWNER = 1001


def plan_owned(world: World, *, quotas: bool = False) -> None:
    """The plan says whose the files of alice's tree are; `quotas`: the source limits directories."""
    plan, checksum = world.documents.plans["plan"]
    owners = (beegfs.TreeOwner(tree=ALICE, uid=OWNER, size_bytes=1000, files=10),)
    surprises = tuple(replace(one, kind=SurpriseKind.QUOTA) for one in plan.surprises) if quotas else ()
    world.documents.plans["plan"] = replace(plan, owners=owners, surprises=surprises), checksum


@in_loop
async def test_a_batch_that_is_beyond_its_users_limit_is_refused_and_says_whose(world: World, storage: Storage) -> None:
    plan_owned(world)
    storage.limits[OWNER] = beegfs.UserQuota(uid=OWNER, used_bytes=GIB, limit_bytes=GIB + 1)
    dry = await world.run(dry_run=True)
    (guard,) = [one for one in dry.batches[0].guards if one.guard == "target quotas"]
    assert f"uid {OWNER}" in guard.problems[0]
    with pytest.raises(Refused) as caught:
        await world.run()
    assert "hard limit" in str(caught.value)
    assert not world.streams.streams
    storage.limits[OWNER] = beegfs.UserQuota(uid=OWNER, used_bytes=GIB, limit_bytes=GIB + (1 << 20))
    await world.run()
    assert world.is_copied()
    # What has arrived is not counted again.
    storage.limits[OWNER] = beegfs.UserQuota(uid=OWNER, used_bytes=GIB, limit_bytes=GIB)
    await world.run()
    (warned,) = events(world, EventKind.QUOTA_NEAR)
    assert "little room" in warned.message


@pytest.mark.parametrize("meant", [True, False])
def test_limits_that_cannot_be_asked_are_told_where_the_source_has_some(
    world: World, storage: Storage, meant: bool
) -> None:
    plan_owned(world, quotas=meant)
    storage.no_quotas = "no answer"
    asyncio.run(world.run())
    assert [one.message.endswith("no answer") for one in events(world, EventKind.QUOTA_NEAR)] == [True] * meant
    assert world.is_copied()
