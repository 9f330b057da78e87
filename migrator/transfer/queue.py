"""The queue of work for lanes, of any kind: chunks to copy, files to digest.

The next piece is the largest one of the brick with the fewest readers; failed pieces follow once their delay is over.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

from migrator.core.clock import Clock
from migrator.transfer.governor import Governor
from migrator.transfer.routes import HostLane, Routes

_AHEAD = 64


class Work(Protocol):
    """A piece of work for one lane."""

    @property
    def id(self) -> int:
        """Identifies the piece in its queue, and its stream for the governor."""

    @property
    def number(self) -> int:
        """Its place among pieces of the same size."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def brick(self) -> str | None:
        """The brick that has its files; None: they are read through the mount."""


W = TypeVar("W", bound=Work)
W_co = TypeVar("W_co", bound=Work, covariant=True)


class Backlog(Protocol[W_co]):
    """The pieces of work that are not done."""

    @property
    def bricks(self) -> Collection[str | None]:
        """The bricks of all pieces."""

    def waiting(self, limit: int, bricks: Collection[str | None] | None = None) -> Sequence[W_co]:
        """The first pieces that are not done, the largest first. Pieces in flight may be among them."""


class WorkQueue(Generic[W]):
    """Distributes the pieces of a backlog to concurrent workers. The queue itself has the delayed ones.

    Every lane takes the pieces that its routes allow, evenly from all its bricks: each has its own disks, and the
    slowest brick determines the end. `finished` is set when no piece is left for any lane.
    """

    def __init__(self, backlog: Backlog[W], routes: Routes, *, clock: Clock, governor: Governor | None) -> None:
        self._backlog = backlog
        self._governor = governor
        self._clock = clock
        self._routes = routes
        self._bricks = tuple(backlog.bricks)
        self._ahead: dict[str | None, deque[W]] = {}
        self._exhausted: set[str | None] = set()
        """Bricks without more pieces in the backlog than read ahead, until a piece is given back."""
        self._version = routes.version
        self._delayed: list[tuple[float, int, W]] = []
        self._taken: dict[int, tuple[str, str | None]] = {}
        """The host of each piece in flight, and the brick that it reads."""
        self._confirming: set[int] = set()
        """Pieces that are not given back yet; the backlog may have them already."""
        self._changed = asyncio.Event()
        self.finished = asyncio.Event()

    async def take(self, lane: HostLane) -> W | None:
        """The next piece. Waits while others are in flight, since they may fail or be split. None if all are done, or
        if the host of the lane was lost. Another queue takes unconfirmed pieces that are given back later: the workers
        of this one may have ended.
        """
        while not self.finished.is_set():
            if (piece := self._next(lane)) is not None:
                self._taken[piece.id] = lane.host, self._routes.copy_on(lane, piece.brick) or piece.brick
                if self._governor is not None:
                    hosts = self._hosts_with_work()
                    self._governor.begin(piece.id, lane.host, hosts=hosts, chunks=self._few_pieces())
                return piece
            if not self._taken and self._nothing_to_take():
                self.finished.set()
                self.wake()
                return None
            if lane.host in self._routes.lost or self._routes.unwatched(lane):
                return None
            await self._change()
        return None

    def brick_for(self, lane: HostLane) -> str | None:
        """A brick of the backlog that the lane may read now; None: of none."""
        return next(filter(None, (self._routes.copy_on(lane, brick) for brick in self._bricks)), None)

    def confirm(self, piece: W) -> None:
        """Record that the stream of a piece has ended; its confirmation is still in flight."""
        self._end(piece)
        self._confirming.add(piece.id)
        self.wake()

    def give_back(self, piece: W, delay_s: float | None = None, *, done: bool = False) -> None:
        """Return a taken piece that is done, split or failed, or that waits again for `delay_s`. After one that is not
        `done`, the backlog may have more pieces than before.
        """
        self._end(piece)
        if not done:
            self._exhausted.clear()
        if delay_s:
            self._delayed.append((self._clock.monotonic_s() + delay_s, piece.id, piece))
        self.wake()

    def release(self, piece: W, delay_s: float | None) -> None:
        """As `give_back`, unless the piece waits for its confirmation."""
        if piece.id in self._taken:
            self.give_back(piece, delay_s)

    async def pause(self, duration_s: float) -> None:
        """Sleep, but no longer than until the queue is finished."""
        await self.unless_finished(self._clock.sleep(duration_s))

    async def unless_finished(self, work: Coroutine[Any, Any, object]) -> None:
        """Wait for this work. If the queue finishes first, the work is cancelled."""
        await self._wait(self.finished, work)

    def wake(self) -> None:
        """Wake all waiting workers."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _end(self, piece: W) -> None:
        self._taken.pop(piece.id, None)
        self._confirming.discard(piece.id)
        if self._governor is not None:
            self._governor.end(piece.id)

    def _next(self, lane: HostLane) -> W | None:
        if self._governor is not None:
            hosts = self._hosts_with_work()
            if not self._governor.may_begin(lane.host, hosts=hosts, chunks=self._few_pieces()):
                return None
        eligible = self._routes.eligible(lane, self._bricks)
        now_s = self._clock.monotonic_s()
        due = [waiting for waiting in self._delayed if waiting[0] <= now_s and waiting[2].brick in eligible]
        if due:
            first = min(due, key=lambda waiting: waiting[:2])
            self._delayed.remove(first)
            return first[2]
        if self._version != self._routes.version:
            self._version = self._routes.version
            self._ahead.clear()
            self._exhausted.clear()
        readers = Counter(brick for _, brick in self._taken.values())
        first_of = {brick: found for brick in eligible if (found := self._first(brick)) is not None}
        if not first_of:
            return None

        def order(brick: str | None) -> tuple[int, int, int]:
            read, first = self._routes.copy_on(lane, brick) or brick, first_of[brick]
            return readers[read], -first.size_bytes, first.number

        return self._ahead[min(first_of, key=order)].popleft()

    def _nothing_to_take(self) -> bool:
        """Whether nothing is left, or only pieces whose lanes are all given up."""
        bricks = {piece.brick for _, _, piece in self._delayed}
        if len(self._routes.in_use) == len(self._routes.lanes):
            return not bricks and not self._backlog.waiting(1)
        bricks.update(brick for brick in self._bricks if self._first(brick) is not None)
        return not any(bricks & self._routes.eligible(lane, bricks) for lane in self._routes.in_use)

    def _hosts_with_work(self) -> frozenset[str]:
        """Hosts with a piece to take, or with streams: only those need a share of a limit."""
        bricks = {brick for brick in self._bricks if self._first(brick) is not None}
        able = (lane.host for lane in self._routes.open if bricks & self._routes.eligible(lane, bricks))
        return frozenset([*able, *(host for host, _ in self._taken.values())])

    def _few_pieces(self) -> int | None:
        """The number of pieces in flight and waiting, if the read-ahead has all of them."""
        if not self._exhausted.issuperset(self._bricks):
            return None
        return len(self._taken) + len(self._delayed) + sum(map(len, self._ahead.values()))

    def _first(self, brick: str | None) -> W | None:
        """The largest waiting piece of a brick; it stays at the head of the read-ahead."""
        ahead = self._ahead.setdefault(brick, deque())
        while ahead and ahead[0].id in self._taken:
            ahead.popleft()
        if not ahead and brick not in self._exhausted:
            aside = {*self._taken, *self._confirming, *(piece_id for _, piece_id, _ in self._delayed)}
            found = [piece for piece in self._backlog.waiting(_AHEAD + len(aside), {brick}) if piece.id not in aside]
            ahead.extend(found[:_AHEAD])
            if len(found) < _AHEAD:
                self._exhausted.add(brick)
        return ahead[0] if ahead else None

    async def _change(self) -> None:
        """Wait until a piece is given back, or the next delay is over. Pieces that are due already belong to other
        lanes.
        """
        now_s = self._clock.monotonic_s()
        left_s = min((due_s - now_s for due_s, *_ in self._delayed if due_s > now_s), default=None)
        await self._wait(self._changed, *([] if left_s is None else [self._clock.sleep(left_s)]))

    async def _wait(self, event: asyncio.Event, *others: Coroutine[Any, Any, object]) -> None:
        waiting: set[asyncio.Task[object]] = {asyncio.create_task(one) for one in (event.wait(), *others)}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
