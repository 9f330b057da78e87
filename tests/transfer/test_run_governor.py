"""The governor at work in the stage: windows, pauses, limits that change, shares of a limit, chunks that take too long.

Streams take time on a virtual clock; the ledger is real.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from migrator.core.events import EventKind
from migrator.core.probe import Probe, ProbeSide, ProbeTimes
from migrator.core.states import ChunkKind
from migrator.core.units import MIB
from migrator.core.windows import Window
from migrator.gluster.model import BrickRules
from migrator.hosts.ports import Command, Completed
from migrator.plan.model import TransferCost
from migrator.transfer import governor as streams
from migrator.transfer.governor import LOOK_EVERY_S, Governing
from migrator.transfer.model import StreamView
from migrator.transfer.model_governor import Bound, GovernorRecord, Limits, StreamsBy
from migrator.transfer.ports import BrickReadiness, ChunkWork
from tests.support.fake_streams import FakeLane, FakeStreams, Fault
from tests.support.fakes import VirtualClock
from tests.support.run_world import ALICE, World, in_loop, small_world

BEGIN_S = 1_700_000_000.0 + 1000.0
"""Where a virtual clock begins: a Tuesday, 22:30:00 UTC."""
MINUTE_S = 60.0


def utc(at_s: float) -> tuple[int, int]:
    days, rest = divmod(int(at_s), 86400)
    return (days + 3) % 7, rest // 60


@dataclass
class Stream:
    """When a stream over files was at work, and the limit that it was given."""

    began_s: float
    limit: int | None
    ended_s: float | None = None


@dataclass(slots=True)
class SlowStreams(FakeStreams):
    """Every stream over files takes so long, on the clock of the run that is at work."""

    clock: Callable[[], VirtualClock] = VirtualClock
    takes_s: float = 100.0
    work: list[Stream] = field(default_factory=list)

    def command(self, work: ChunkWork, view: StreamView) -> Command:
        # Not slots' own super(): the class is made anew for its slots.
        command = FakeStreams.command(self, work, view)
        return replace(command, environment={"limit": str(work.bwlimit_bytes_per_s or 0)})

    async def execute(self, command: Command, **given: Any) -> Completed:
        if command.argv[1].decode() != ChunkKind.FILES.value:
            return await FakeStreams.execute(self, command, **given)
        clock = self.clock()
        stream = Stream(clock.now_s(), int(command.environment["limit"]) or None)
        self.work.append(stream)
        await clock.sleep(self.takes_s)
        stream.ended_s = clock.now_s()
        return await FakeStreams.execute(self, command, **given)

    def at(self, at_s: float) -> list[Stream]:
        """Those that were at work at a time."""
        return [one for one in self.work if one.began_s <= at_s and (one.ended_s is None or at_s < one.ended_s)]


@dataclass
class Governed:
    """A small migration under a governor."""

    world: World
    limits: Limits = field(default_factory=Limits)
    windows: tuple[Window, ...] = ()
    cost: TransferCost | None = None

    def __post_init__(self) -> None:
        self.streams = SlowStreams(self.world.source, self.world.target, clock=lambda: self.world.clock)
        self.world.streams = self.streams
        # Hours go by on the virtual clock: what is written down meanwhile is not what is tried here.
        self.world.request = replace(self.world.request, progress_interval_s=20.0, sample_interval_s=60.0)
        self.world.governing = self.governing

    def governing(self) -> Governing:
        self.world.ledger.samples.measured_cost = lambda: self.cost  # type: ignore[method-assign]
        return Governing(
            ledger=self.world.ledger,
            load_of=AsyncMock(return_value=None),
            limits=self.limits,
            windows=self.windows,
            local_time=utc,
            in_words=lambda at_s: f"minute {utc(at_s)[1]}",
            by=StreamsBy.FIXED,
        )

    async def run(self, *meanwhile: tuple[float, Callable[[], object]], **changes: Any) -> None:
        """Run to the end; meanwhile, so long after its beginning, something else happens."""

        async def later(after_s: float, act: Callable[[], object]) -> None:
            await asyncio.sleep(0)
            await self.world.clock.sleep(after_s)
            act()

        others = [asyncio.create_task(later(*one)) for one in meanwhile]
        try:
            await self.world.run(**changes)
        finally:
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    def probe(self) -> None:
        """A probe of the target that takes 400 ms."""
        times = ProbeTimes(create_s=0.4, write_s=0.0, sync_s=0.0, stat_s=0.0, unlink_s=0.0, readdir_s=0.0)
        probe = Probe(side=ProbeSide.TARGET, at_s=self.world.clock.now_s(), times=times)
        self.world.ledger.probes.add(probe)

    def tune(self, limits: Limits) -> None:
        self.world.ledger.controls.tune(limits, by="anna", at_s=0.0)

    @property
    def records(self) -> list[GovernorRecord]:
        run = self.world.ledger.runs.latest()
        assert run is not None
        return list(self.world.ledger.governor.of_run(run.id))

    @property
    def said(self) -> list[str]:
        events = reversed(self.world.ledger.events.latest(100))
        return [event.message for event in events if event.kind is EventKind.STREAMS_SET]


@pytest.fixture
def governed(tmp_path: Path) -> Iterator[Governed]:
    world = small_world(tmp_path, files=32, per_chunk=2)
    yield Governed(world)
    world.ledger.close()


def from_to(start: str, end: str, **limits: int) -> Window:
    minutes = [int(time[:2]) * 60 + int(time[3:]) for time in (start, end)]
    return Window(days=tuple(range(7)), start_minute=minutes[0], end_minute=minutes[1], **limits)


@in_loop
async def test_at_the_end_of_a_window_what_is_at_work_ends_and_the_rest_waits_for_the_next(governed: Governed) -> None:
    governed.windows = (from_to("22:00", "22:32"), from_to("22:35", "24:00"))
    await governed.run()
    assert governed.world.is_copied()
    begun = sorted(one.began_s - BEGIN_S for one in governed.streams.work)
    tonight = [after_s for after_s in begun if after_s < 2 * MINUTE_S + 3.0]
    assert len(tonight) == 4
    assert max(one.ended_s or 0.0 for one in governed.streams.work[:4]) > BEGIN_S + 2 * MINUTE_S
    assert 5 * MINUTE_S <= min(begun[4:]) < 6 * MINUTE_S
    assert governed.said[:2] == [
        "no chunk starts until minute 1355: outside the windows of [transfer]",
        "chunks start again: up to 2 streams",
    ]
    assert governed.records[1].until_s == BEGIN_S + 5 * MINUTE_S


@in_loop
async def test_streams_are_added_and_taken_away_while_it_runs(governed: Governed) -> None:
    await governed.run(
        (50.0, partial(governed.tune, Limits(jobs=5))),
        (150.0, partial(governed.tune, Limits(jobs=1))),
        jobs=2,
    )
    assert governed.world.is_copied()
    assert len(governed.streams.at(BEGIN_S + 40.0)) == 2
    assert len(governed.streams.at(BEGIN_S + 60.0)) == 5
    later = [one for one in governed.streams.work if one.began_s > BEGIN_S + 153.0]
    assert later
    assert all(len(governed.streams.at(one.began_s)) == 1 for one in later)


@in_loop
async def test_streams_together_never_pass_their_limit_also_while_it_changes(governed: Governed) -> None:
    governed.limits = Limits(bwlimit_bytes_per_s=1000)
    await governed.run(
        (50.0, partial(governed.tune, Limits(jobs=4))),
        (350.0, partial(governed.tune, Limits(jobs=2))),
        jobs=2,
    )
    assert governed.world.is_copied()
    assert {500, 250} <= {one.limit for one in governed.streams.work}
    for one in governed.streams.work:
        assert sum(other.limit or 1001 for other in governed.streams.at(one.began_s)) <= 1000


@in_loop
async def test_hosts_without_work_get_no_share_of_the_limit(tmp_path: Path) -> None:
    brick, quiet = "gl1:/bricks/1", BrickReadiness(reasons=(), fingerprint="")
    world = small_world(tmp_path, files=16, per_chunk=2, bricks=(brick,))
    governed = Governed(world, Limits(bwlimit_bytes_per_s=1000))
    on_brick = SlowStreams(world.source, world.target, host="gl1", clock=lambda: world.clock)
    rules = BrickRules(times_from_mdata=True, distributed=True)
    world.more_lanes.append(FakeLane(on_brick, on_brick, 2, frozenset({brick}), rules))
    world.bricks = SimpleNamespace(look=AsyncMock(return_value=quiet))
    await governed.run(jobs=2)
    assert world.is_copied()
    assert ({one.limit for one in on_brick.work}, governed.streams.work) == ({500}, [])


@in_loop
async def test_the_share_of_a_running_stream_follows_its_need(governed: Governed) -> None:
    governed.limits = Limits(bwlimit_bytes_per_s=1000 * MIB)
    clock, moved, shares = VirtualClock(), [0, 0], [0, 0]
    hosts = ("gl1", "gl2")
    lanes: Any = [SimpleNamespace(host=host, jobs=1) for host in hosts]

    async def later(*used_share: float) -> list[int]:
        for _ in range(8):
            for number, share in enumerate(used_share):
                moved[number] += int(share * LOOK_EVERY_S * shares[number])
            await clock.sleep(LOOK_EVERY_S)
        assert sum(shares) <= 1000 * MIB
        return [share // MIB for share in shares]

    async with streams.governed(governed.governing(), lanes, run_id=None, clock=clock, report=print) as governor:
        assert governor is not None
        for number, host in enumerate(hosts):
            governor.begin(number, host, hosts=hosts)
            shares[number] = governor.share_of(number) or 0
            governor.follow(number, partial(shares.__setitem__, number), partial(moved.__getitem__, number))
        assert shares == [500 * MIB] * 2
        idle, busy = await later(0.0, 1.0)
        assert busy >= 900 > idle > 0
        # It needs more again; then its host has no more work.
        assert await later(1.0, 1.0) == [500, 500]
        governor.end(0)
        assert shares[1] == 1000 * MIB
        # A stream that cannot change gets its share at once.
        assert governor.may_begin("gl1", hosts=hosts)
        governor.begin(2, "gl1", hosts=hosts)
        assert shares[1] == governor.share_of(2) == 500 * MIB


@in_loop
async def test_probes_that_pass_the_limit_take_streams_away(governed: Governed) -> None:
    governed.limits = Limits(max_latency_s=0.05)
    # The last three when the streams of the first chunks have come to their ends.
    await governed.run(*((at_s, governed.probe) for at_s in (10.0, 20.0, 30.0, 110.0, 120.0, 130.0)), jobs=4)
    assert governed.world.is_copied()
    assert [(record.bound, record.streams) for record in governed.records] == [
        (Bound.JOBS, 4),
        (Bound.LATENCY, 2),
        (Bound.LATENCY, 1),
    ]
    assert governed.said == [
        "up to 2 of 4 streams run now: small operations on the target take long: the newest probe took 400 ms, "
        "the limit is 50 ms"
    ]
    later = [one for one in governed.streams.work if one.began_s > BEGIN_S + 130.0]
    assert {len(governed.streams.at(one.began_s)) for one in later} == {1}


@pytest.mark.exhaustive
@in_loop
async def test_chunks_that_would_take_too_long_are_halved_before_they_begin(governed: Governed) -> None:
    governed.cost = TransferCost(s_per_file=500.0, s_per_byte=0.0, streams=1, basis="measured")
    await governed.run()
    assert governed.world.is_copied()
    sizes = [len(paths) for kind, paths in governed.streams.streams if kind is ChunkKind.FILES]
    assert sizes == [1] * 32


@in_loop
async def test_halves_of_a_chunk_that_was_not_tried_count_as_new(tmp_path: Path) -> None:
    world = small_world(tmp_path, files=4, per_chunk=4)
    governed = Governed(world, cost=TransferCost(s_per_file=300.0, s_per_byte=0.0, streams=1, basis="measured"))
    governed.streams.faults[ALICE + b"/sub/f00"] = Fault("crash", times=1)
    await governed.run()
    assert world.is_copied()
    tried = zip(governed.streams.streams, governed.streams.recopied, strict=True)
    assert [(len(paths), again) for (kind, paths), again in tried if kind is ChunkKind.FILES] == [
        (2, False),
        (2, False),
        (2, True),
    ]
