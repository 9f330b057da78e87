"""The queue of work and its pool, with a kind of work that only takes time: on virtual time."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from migrator.hosts.ports import HostLost
from migrator.transfer.pool import run_pool
from migrator.transfer.ports import BrickReadiness
from migrator.transfer.queue import WorkQueue
from migrator.transfer.routes import HostLane, Routes
from tests.support.fakes import VirtualClock
from tests.support.run_world import in_loop

BRICKS = ("gl1:/b", "gl2:/b")
PATIENCE_S = 100.0


@dataclass(frozen=True)
class Piece:
    id: int
    brick: str | None
    size_bytes: int = 1

    @property
    def number(self) -> int:
        return self.id


@dataclass
class Lane:
    """A host with one stream that reads its own brick, or the mount. While it is `lost`, it cannot be reached."""

    host: str
    reads_mount: bool = False
    jobs: int = 1
    lost: bool = False

    def reads(self, brick: str) -> bool:
        return not self.reads_mount and brick.startswith(self.host + ":/")

    async def connect(self, _brick: str | None) -> None:
        await self.end_orphans(())

    async def end_orphans(self, _tokens: Sequence[str]) -> Sequence[str]:
        if self.lost:
            raise HostLost("it is gone")
        return ()


@dataclass
class Volume:
    """The volume's guard: the bricks may be read, unless there are reasons against that."""

    reasons: tuple[str, ...] = ()

    async def look(self) -> BrickReadiness:
        return BrickReadiness(reasons=self.reasons, fingerprint="")


@dataclass
class Pool:
    """A backlog, and the kind of work that does its pieces, each in `piece_s`."""

    pieces: list[Piece]
    lanes: list[Lane]
    patience_s: float | None = None
    target_alone: bool = False
    piece_s: float = 1.0
    stop_after: int | None = None
    before: Callable[[Piece, Lane], float | None] = lambda _piece, _lane: None
    """Returns the delay of a piece that fails; raises HostLost for a host that fails."""
    volume: Volume = field(default_factory=Volume)
    clock: VirtualClock = field(default_factory=VirtualClock)
    done: list[tuple[int, str]] = field(default_factory=list)
    in_flight: list[str] = field(default_factory=list)
    all_work: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when every lane has a piece in flight."""
    routes: Routes = field(init=False)

    @property
    def bricks(self) -> Collection[str | None]:
        return {piece.brick for piece in self.pieces}

    def waiting(self, limit: int, bricks: Collection[str | None] | None = None) -> Sequence[Piece]:
        found = [piece for piece in self.pieces if bricks is None or piece.brick in bricks]
        return sorted(found, key=lambda piece: (-piece.size_bytes, piece.number))[:limit]

    @property
    def stopped(self) -> bool:
        return self.stop_after is not None and len(self.done) >= self.stop_after

    def held(self) -> bool:
        return False

    async def carry_out(self, piece: Piece, lane: Any, _slot: int, /) -> float | None:
        brick = self.routes.copy_on(lane, piece.brick)
        if brick is not None and not await self.routes.quiet_before(brick):
            return None
        self.in_flight.append(lane.host)
        if len(self.in_flight) == len(self.lanes):
            self.all_work.set()
        try:
            await self.clock.sleep(self.piece_s)
            delay_s = self.before(piece, lane)
        except HostLost as error:
            self.routes.lose(lane, error)
            return None
        finally:
            self.in_flight.remove(lane.host)
        self.routes.worked(lane)
        if delay_s is None:
            self.pieces.remove(piece)
            self.done.append((piece.id, lane.host))
        return delay_s

    async def run(self) -> None:
        lanes: list[Any] = list(self.lanes)
        typed: Sequence[HostLane] = lanes
        guard: Any = self.volume
        self.routes = Routes(
            clock=self.clock,
            report=lambda *_event: None,
            lanes=typed,
            guard=guard,
            target_alone=self.target_alone,
            patience_s=self.patience_s,
        )
        queue = WorkQueue[Piece](self, self.routes, clock=self.clock, governor=None)
        try:
            await run_pool(self, queue, self.routes, governor=None, workers=set())
        finally:
            self.routes.abandon()

    @property
    def by_host(self) -> dict[str, list[int]]:
        return {lane.host: [number for number, host in self.done if host == lane.host] for lane in self.lanes}


def lanes() -> list[Lane]:
    return [Lane("here", reads_mount=True), Lane("gl1"), Lane("gl2")]


@in_loop
async def test_each_lane_does_the_work_of_its_own_brick_the_largest_first() -> None:
    pieces = [Piece(number, BRICKS[number % 2], size_bytes=number) for number in range(6)]
    pool = Pool([*pieces, Piece(9, None)], lanes())
    await pool.run()
    assert pool.by_host == {"here": [9], "gl1": [4, 2, 0], "gl2": [5, 3, 1]}


@in_loop
async def test_work_that_needs_the_target_alone_goes_to_every_lane() -> None:
    pool = Pool([Piece(number, None) for number in range(9)], lanes(), target_alone=True)
    await pool.run()
    assert {host: len(done) for host, done in pool.by_host.items()} == {"here": 3, "gl1": 3, "gl2": 3}


@in_loop
async def test_the_mount_does_the_work_of_a_lost_host_until_it_answers_again() -> None:
    pool = Pool([Piece(number, BRICKS[0]) for number in range(40)], lanes(), patience_s=PATIENCE_S)
    lane = pool.lanes[1]

    def lose(piece: Piece, at: Lane) -> None:
        if at is lane and piece.id == 1 and not lane.lost:
            lane.lost = True
            raise HostLost("it is gone")
        if len(pool.done) == 10:
            lane.lost = False

    pool.before = lose
    await pool.run()
    done = [host for _, host in pool.done]
    assert sorted(number for number, _ in pool.done) == list(range(40))
    assert done[0] == "gl1"
    assert set(done[1:10]) == {"here"}
    assert "gl1" in done[10:]


@pytest.mark.parametrize("patience_s", [0.0, PATIENCE_S])
@in_loop
async def test_work_of_lanes_that_are_given_up_stays(patience_s: float) -> None:
    pool = Pool([Piece(1, BRICKS[0]), Piece(2, BRICKS[1])], lanes(), patience_s=patience_s)

    def lose(_piece: Piece, at: Lane) -> None:
        if at.host != "gl2":
            at.lost = True
            raise HostLost("it is gone")

    pool.before = lose
    before_s = pool.clock.monotonic_s()
    await pool.run()
    assert pool.done == [(2, "gl2")]
    assert pool.pieces == [Piece(1, BRICKS[0])]
    assert pool.clock.monotonic_s() - before_s >= patience_s


@in_loop
async def test_a_delayed_piece_is_done_when_its_delay_is_over() -> None:
    pool, failed = Pool([Piece(1, None), Piece(2, None)], [Lane("here", reads_mount=True)]), list[int]()

    def fail_once(piece: Piece, _at: Lane) -> float | None:
        if piece.id == 1 and not failed:
            failed.append(piece.id)
            return 30.0
        return None

    pool.before = fail_once
    before_s = pool.clock.monotonic_s()
    await pool.run()
    assert pool.done == [(2, "here"), (1, "here")]
    assert pool.clock.monotonic_s() - before_s >= 30.0


@in_loop
async def test_bricks_are_read_again_when_the_volume_is_well() -> None:
    pool = Pool([Piece(number, BRICKS[0]) for number in range(60)], lanes())
    pool.volume.reasons = ("heals are pending",)

    def recover(_piece: Piece, _at: Lane) -> None:
        if len(pool.done) == 20:
            pool.volume.reasons = ()

    pool.before = recover
    await pool.run()
    assert {host for _, host in pool.done[:20]} == {"here"}
    assert "gl1" in {host for _, host in pool.done[20:]}


@in_loop
async def test_a_stop_lets_no_further_piece_start() -> None:
    pool = Pool([Piece(number, None) for number in range(9)], [Lane("here", reads_mount=True)], stop_after=3)
    await pool.run()
    assert len(pool.done) == 3


@in_loop
async def test_a_cancellation_ends_every_worker() -> None:
    pool = Pool([Piece(number, None) for number in range(9)], lanes(), target_alone=True, piece_s=1e9)
    running = asyncio.create_task(pool.run())
    await pool.all_work.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (pool.in_flight, pool.done) == ([], [])
