"""Storage targets that are lost, full or short during a run, and whether room and quotas suffice for what is to come."""

import asyncio
import errno
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.beegfs import model as beegfs
from migrator.beegfs.model import CapacityPool, Reachability, StorageTarget, TreeOwner, UserQuota
from migrator.beegfs.rules import OwnerNeed, QuotaFindings, even_room, low_limit, quota_findings, room_to_work
from migrator.core.errors import Refused, ToolFailed
from migrator.core.events import Event, EventKind
from migrator.core.states import ChunkState
from migrator.core.units import GIB, TIB
from migrator.fs.model import Need, SurpriseKind
from migrator.plan.rules_needs import owner_needs
from migrator.reap.model import PlanReap, ReapedTree
from migrator.render.text import to_markdown
from migrator.report.status import read_status
from migrator.report.view_status import status_document
from migrator.site.model import ReapAction
from migrator.transfer import layouts
from migrator.transfer.context import RunInvocation
from migrator.transfer.delta.delta import DeltaPass
from migrator.transfer.model import StopReason
from migrator.transfer.model_runs import RunStopped
from tests.support.fake_streams import Fault
from tests.support.making import made
from tests.support.plans import usage
from tests.support.run_world import ALICE, World, in_loop

Change = Callable[[beegfs.StorageTarget], beegfs.StorageTarget]
HANGING = ALICE + b"/sub/f03"
LAYOUT = (beegfs.LayoutRule(stripe=beegfs.StripeSettings(targets=4)),)


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
    return replace(well, **changes)


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
    late: bool = False
    unstripable: str = ""
    looks: int = 0
    striped: list[tuple[bytes, beegfs.StripeSettings]] = field(default_factory=list)
    tool: str = "/usr/bin/beegfs"
    limits: dict[int, beegfs.UserQuota] = field(default_factory=dict)
    no_quotas: str = ""

    async def state(self, *, patient: bool = False) -> beegfs.StorageState:
        self.looks += 1
        if self.failure:
            raise ToolFailed(self.failure)
        if self.late and not patient:
            raise ToolFailed("no answer within 6 s")
        found = beegfs.StorageState(targets=tuple(self.change(target(number)) for number in (1, 2, 101, 201)))
        self.after(self.looks, found.targets[-1])
        return found

    async def problems(self) -> tuple[str, ...]:
        raise AssertionError("a run asks for more")

    async def directories(self, paths: Sequence[bytes]) -> Sequence[beegfs.DirectorySettings]:
        return [await self.directory(path) for path in paths]

    async def directory(self, path: bytes) -> beegfs.DirectorySettings:
        return beegfs.DirectorySettings(stripe=beegfs.StripeSettings(targets=4, chunk_bytes=1 << 19))

    async def set_stripe(self, paths: Sequence[bytes], stripe: beegfs.StripeSettings) -> None:
        if self.unstripable:
            raise ToolFailed(self.unstripable)
        self.striped += [(path, stripe) for path in paths]

    async def pools(self) -> Mapping[str, int]:
        raise AssertionError("a run asks for more")

    async def licence_problem(self) -> str | None:
        raise AssertionError("a run asks for more")

    async def quota_problem(self) -> str | None:
        return None

    async def quotas(self, uids: Collection[int]) -> Mapping[int, beegfs.UserQuota]:
        if self.no_quotas:
            raise ToolFailed(self.no_quotas)
        return {uid: self.limits[uid] for uid in uids if uid in self.limits}

    async def set_limits(self, size_bytes: Mapping[int, int]) -> None:
        raise AssertionError("a run sets no limits")

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
async def test_status_has_the_targets_as_they_are_and_were(world: World, storage: Storage) -> None:
    early = beegfs.StorageSample(day=-1, at_s=0.0, targets=(target(101), target(201)))
    world.ledger.capacity.add_storage(early)
    sick = {"free_bytes": GIB // 4, "consistency": beegfs.Consistency.NEEDS_RESYNC}
    storage.change = lambda one: target(201, **sick) if one.number == 201 else one
    await world.run()
    text = to_markdown(status_document(read_status(world.ledger, now_s=world.clock.now_s()))).replace("\\", "")
    assert "The fullest storage target has 25.0 % is free, of the emptiest 50.0 %" in text
    assert "storage target target_201 (201, on node_201): Online, Needs-resync." in text
    assert "-256.0 MiB" in text


@in_loop
async def test_a_tool_that_cannot_be_asked_counts_where_something_hangs_on_it(world: World, storage: Storage) -> None:
    storage.failure = "BeeGFS's command is missing"
    world.target.room = replace(world.target.room, total_inodes=None, free_inodes=None)
    with pytest.raises(Refused, match="command is missing"):
        await world.run()
    with pytest.raises(Refused, match="command is missing"):
        await world.run(inodes_free=10**6, layout=LAYOUT)
    await world.run(inodes_free=10**6)
    assert world.is_copied()


@in_loop
async def test_guards_and_outages_wait_for_late_answers(world: World, storage: Storage) -> None:
    storage.late = True
    world.target.room = replace(world.target.room, total_inodes=None, free_inodes=None)
    answers = storage.come_back(60)

    def hang(path: bytes) -> None:
        if path == HANGING and storage.change is well and not answers.is_set():
            storage.change = lost

    world.streams.before_path = hang
    world.streams.faults[HANGING] = Fault("hang", times=1, until=answers)
    await world.run(layout=LAYOUT)
    assert world.is_copied()
    assert len(events(world, EventKind.STORAGE_LOST)) == len(events(world, EventKind.STORAGE_BACK)) == 1
    # A fact that is only shown was not waited for.
    assert not world.ledger.capacity.storage()


@in_loop
async def test_nothing_is_written_where_the_settings_cannot_be_given(world: World, storage: Storage) -> None:
    storage.unstripable = "Error: unknown flag"
    with pytest.raises(Refused, match="unknown flag"):
        await world.run(layout=LAYOUT)
    assert not world.streams.streams
    storage.unstripable = ""
    await world.run(layout=LAYOUT)
    assert len(storage.striped) == 1


@in_loop
async def test_only_the_seed_pass_makes_directories_of_the_plan(
    world: World, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that have gone since its scan would be extra on the target, and change the times of the directory above."""
    called: list[tuple[RunInvocation, Collection[bytes]]] = []

    async def lay_out(invocation: RunInvocation, _: str, trees: Collection[bytes]) -> None:
        called.append((invocation, trees))

    monkeypatch.setattr(layouts, "lay_out", lay_out)
    await world.run()
    ((invocation, trees),) = called
    assert trees == [ALICE]
    plan, _ = world.documents.plans["plan"]
    site, nothing = world.ledger.site.required(), cast("Any", None)
    await DeltaPass(invocation=invocation, plan=plan, site=site, batch=plan.batches[0], deltas=nothing).make_trees()
    assert len(called) == 1


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
def test_unknown_limits_are_told_where_the_source_has_some(world: World, storage: Storage, meant: bool) -> None:
    plan_owned(world, quotas=meant)
    storage.no_quotas = "no answer"
    asyncio.run(world.run())
    assert [one.message.endswith("no answer") for one in events(world, EventKind.QUOTA_NEAR)] == [True] * meant
    assert world.is_copied()


ANN, SHARED = usage(b"alice", size_bytes=10 * GIB, files=1000), usage(b"shared", size_bytes=4 * GIB, files=400)
OWNERS = (
    TreeOwner(tree=b"alice", uid=1001, size_bytes=9 * GIB, files=900),
    TreeOwner(tree=b"alice", uid=1002, size_bytes=1 * GIB, files=50),
    TreeOwner(tree=b"shared", uid=1001, size_bytes=2 * GIB, files=200),
)
ALL = {one.tree.path: Need(size_bytes=one.size_bytes, inodes=one.files + one.directories) for one in (ANN, SHARED)}
QUOTA = UserQuota(uid=1001, used_bytes=GIB, used_chunk_files=100, limit_bytes=20 * GIB, limit_chunk_files=10_000)


def needs(left: Mapping[bytes, Need] = ALL, reap: PlanReap | None = None) -> dict[int, OwnerNeed]:
    return {one.uid: one for one in owner_needs(OWNERS, (ANN, SHARED), left, reap=reap)}


def judged(*, spread: int = 1, left: Mapping[bytes, Need] = ALL, **limits: Any) -> QuotaFindings:
    quota = replace(QUOTA, **limits)
    return quota_findings(needs(left).values(), {1001: quota}, spread=spread)


def reaping(action: ReapAction) -> PlanReap:
    tree = made(ReapedTree, tree=ANN.tree, action=action, files=300, size_bytes=3 * GIB, allocated_bytes=3 * GIB)
    return made(PlanReap, trees=(tree,))


def test_usage_of_an_owner_counts_the_rest_of_all_trees_without_reaped_files() -> None:
    assert needs()[1001].need == Need(size_bytes=11 * GIB, inodes=1100)
    assert needs()[1001].users == ("alice", "shared")
    half = {b"alice": Need(size_bytes=5 * GIB, inodes=500)}
    assert needs(half)[1001].need == Need(size_bytes=9 * GIB // 2, inodes=450)
    assert needs({}) == {}
    assert needs(reap=reaping(ReapAction.SKIP))[1001].need == Need(size_bytes=8 * GIB, inodes=800)
    assert needs(reap=reaping(ReapAction.ARCHIVE))[1002].need == Need()
    assert needs(reap=reaping(ReapAction.LIST)) == needs()


@pytest.mark.parametrize(
    ("limits", "problems", "warnings"),
    [
        ({}, 0, 0),
        ({"limit_bytes": 12 * GIB}, 0, 1),
        ({"limit_bytes": 12 * GIB - 1}, 1, 0),
        ({"limit_chunk_files": 1200}, 0, 1),
        ({"limit_chunk_files": 1199}, 1, 0),
        ({"limit_bytes": 1, "limit_chunk_files": 1}, 2, 0),
        ({"limit_bytes": None, "limit_chunk_files": None}, 0, 0),
        ({"limit_chunk_files": 1, "used_chunk_files": None}, 0, 0),
        ({"uid": 1001, "used_bytes": 30 * GIB}, 1, 0),
    ],
)
def test_lack_of_space_is_a_problem_or_a_warning(limits: dict[str, Any], problems: int, warnings: int) -> None:
    found = judged(**limits)
    assert (len(found.problems), len(found.warnings)) == (problems, warnings)
    assert all("uid 1001" in words and "alice" in words for words in (*found.problems, *found.warnings))


def test_files_that_are_spread_may_take_more_chunk_files_than_they_are() -> None:
    assert judged(limit_chunk_files=4000) == QuotaFindings()
    (warning,) = judged(limit_chunk_files=4000, spread=4).warnings
    assert "up to 4 chunk files" in warning
    assert not judged(limit_chunk_files=4000, spread=4).problems


@given(used=st.integers(0, 20), limit=st.integers(1, 20), count=st.booleans())
def test_one_at_his_limit_cannot_work(used: int, limit: int, count: bool) -> None:
    quota = UserQuota(uid=7, used_bytes=0 if count else used, used_chunk_files=used if count else 0)
    quota = replace(quota, limit_chunk_files=limit) if count else replace(quota, limit_bytes=limit)
    found = room_to_work([OwnerNeed(uid=7, users=("ann",))], {7: quota})
    assert bool(found.problems) == (used >= limit)
    assert bool(found.warnings) == (0.9 * limit < used < limit)


NORMAL, LOW, EMERGENCY = CapacityPool


def filled(free: int | None, pool: CapacityPool | None = NORMAL, **changes: object) -> StorageTarget:
    return target(101, pool=pool, total_bytes=40 * TIB, free_bytes=free, **changes)


@pytest.mark.parametrize(
    ("targets", "limit"),
    [
        # The default of version 7, of version 8, and neither: then nobody can tell.
        ([filled(2 * TIB), filled(30 * TIB)], TIB),
        ([filled(700 * GIB), filled(30 * TIB)], 512 * GIB),
        ([filled(100 * GIB), filled(30 * TIB)], 0),
        # One that is passed over tells more than a default.
        ([filled(3 * TIB, LOW), filled(30 * TIB)], 3 * TIB),
        ([filled(100 * GIB, LOW), filled(30 * TIB)], TIB),
        ([filled(80 * GIB, EMERGENCY), filled(100 * GIB)], 80 * GIB),
        # It lacks inodes, not room.
        ([filled(3 * TIB, LOW), filled(2 * TIB)], 0),
        ([filled(5 * GIB, LOW), filled(6 * GIB, LOW)], 0),
        ([filled(2 * TIB, None), filled(30 * TIB, None)], 0),
        ([filled(2 * TIB), filled(None)], 0),
        ([filled(GIB, reachability=Reachability.OFFLINE), filled(30 * TIB)], TIB),
        ([], 0),
    ],
)
def test_from_which_room_on_a_target_is_passed_over(targets: Sequence[StorageTarget], limit: int) -> None:
    assert low_limit(targets) == limit


@pytest.mark.parametrize(
    ("free", "low", "room"),
    [
        # Where no limit is known, the fullest one ends it.
        ([20, 100], 0, 40),
        ([0, 100], 0, 0),
        ([], 0, 0),
        # Otherwise full ones are passed over.
        ([20, 100], 5, 110),
        ([4, 100], 5, 95),
        ([6, 6], 5, 12),
        ([4, 3], 5, 6),
    ],
)
def test_the_room_of_several_targets(free: list[float], low: float, room: float) -> None:
    assert even_room(free, low) == room


rooms = st.lists(st.integers(0, 1000), min_size=1, max_size=6)


def fill(free: Sequence[float], added: float, low: float) -> list[float]:
    """By pieces, each on all that are not low, or on all where every one is."""
    left = list(free)
    while added > 1e-9 and left:
        normal = [place for place, one in enumerate(left) if low and one > low + 1e-9]
        piece = min([added / len(normal), *(left[place] - low for place in normal)]) if normal else added / len(left)
        for place in normal or range(len(left)):
            left[place] -= piece
        added = added - piece * len(normal) if normal else 0.0
    return left


@given(rooms, st.integers(0, 300), st.floats(0, 1))
def test_accepted_plans_fit_at_every_step(free: list[int], low: int, share: float) -> None:
    """To look again never shows less than was promised, and no more either as long as nothing is passed over."""
    whole = even_room(free, low)
    left = fill(free, whole * share, low)
    assert all(one >= -1e-6 for one in left)
    again = even_room(left, low)
    assert again >= whole * (1 - share) - 1e-5
    if not low:
        assert again == pytest.approx(whole * (1 - share), abs=1e-6)
