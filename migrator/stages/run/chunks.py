"""Which chunk comes next: the largest that waits on the brick that fewest streams read, and those that failed once their
delay is over.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Collection, Sequence

from migrator.domain.states import ChunkKind
from migrator.domain.transfer import ChunkRecord
from migrator.ports.chunks import ChunkRecords
from migrator.ports.clock import Clock
from migrator.ports.lanes import Lane
from migrator.stages.run.governor import Governor
from migrator.stages.run.routes import Routes

_AHEAD = 64


class ChunkQueue:
    """The chunks of some kinds of one pass, side by side. The ledger knows which wait; those that are to wait longer are
    known here.

    Every lane takes what its routes let it take, evenly from all its bricks: each has disks of its own, and the last to be
    read to its end is the end of all. `finished` is set when nothing is left for anybody.
    """

    def __init__(
        self,
        passes: ChunkRecords,
        clock: Clock,
        pass_id: int,
        kinds: Sequence[ChunkKind],
        routes: Routes,
        *,
        but_trees: Collection[bytes] = (),
        governor: Governor | None = None,
    ) -> None:
        self._passes = passes
        self._governor = governor
        self._clock = clock
        self._pass_id = pass_id
        self._kinds = tuple(kinds)
        self._routes = routes
        self._but_trees = but_trees
        self._bricks = passes.bricks(pass_id)
        self._ahead: dict[str | None, deque[ChunkRecord]] = {}
        self._exhausted: set[str | None] = set()
        """On these nothing waits in the ledger, until a chunk is given back."""
        self._version = routes.version
        self._delayed: list[tuple[float, int, ChunkRecord]] = []
        self._taken: dict[int, str | None] = {}
        self._changed = asyncio.Event()
        self.finished = asyncio.Event()

    async def take(self, lane: Lane) -> ChunkRecord | None:
        """The next chunk; waits while others are at work (they may fail, or be split); None when all are done, and for
        a lane whose host was lost. What is given back later, because it was not confirmed, is for another queue: those
        who could take it may be gone.
        """
        while not self.finished.is_set():
            if (chunk := self._next(lane)) is not None:
                self._taken[chunk.id] = chunk.brick
                if self._governor is not None:
                    self._governor.begin(chunk.id, lane.host, hosts=self._routes.hosts)
                return chunk
            if not self._taken and not self._delayed and self._nothing_waits():
                self.finished.set()
                self.wake()
                return None
            if lane.host in self._routes.lost:
                return None
            await self._change()
        return None

    def confirm(self, chunk: ChunkRecord) -> None:
        """The stream over a chunk has ended; nobody waits for its confirmation but whoever needs it confirmed."""
        self._end(chunk)
        self.wake()

    def give_back(self, chunk: ChunkRecord, delay_s: float | None = None) -> None:
        """A chunk that was taken is done, split or failed; or waits again, for so long (`delay_s`)."""
        self._end(chunk)
        self._exhausted.clear()
        if delay_s:
            self._delayed.append((self._clock.monotonic_s() + delay_s, chunk.id, chunk))
        self.wake()

    async def pause(self, duration_s: float) -> None:
        """Sleep, but no longer than there is something left for anybody."""
        await self._wait(self.finished, duration_s)

    def wake(self) -> None:
        """Let everybody who waits look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _end(self, chunk: ChunkRecord) -> None:
        self._taken.pop(chunk.id, None)
        if self._governor is not None:
            self._governor.end(chunk.id)

    def _next(self, lane: Lane) -> ChunkRecord | None:
        if self._governor is not None and not self._governor.may_begin(lane.host, hosts=self._routes.hosts):
            return None
        eligible = self._routes.eligible(lane, self._bricks)
        now_s = self._clock.monotonic_s()
        due = [waiting for waiting in self._delayed if waiting[0] <= now_s and waiting[2].brick in eligible]
        if due:
            first = min(due)
            self._delayed.remove(first)
            return first[2]
        if self._version != self._routes.version:
            self._version = self._routes.version
            self._ahead.clear()
            self._exhausted.clear()
        readers = Counter(self._taken.values())
        first_of = {brick: found for brick in eligible if (found := self._first(brick)) is not None}
        if not first_of:
            return None
        brick = min(first_of, key=lambda one: (readers[one], -first_of[one].size_bytes, first_of[one].number))
        return self._ahead[brick].popleft()

    def _first(self, brick: str | None) -> ChunkRecord | None:
        """The largest that waits on a brick; it stays the first of those that were looked up ahead."""
        ahead = self._ahead.setdefault(brick, deque())
        while ahead and ahead[0].id in self._taken:
            ahead.popleft()
        if not ahead and brick not in self._exhausted:
            aside = {*self._taken, *(chunk_id for _, chunk_id, _ in self._delayed)}
            found = [chunk for chunk in self._pending(_AHEAD + len(aside), bricks={brick}) if chunk.id not in aside]
            ahead.extend(found[:_AHEAD])
            if not ahead:
                self._exhausted.add(brick)
        return ahead[0] if ahead else None

    def _nothing_waits(self) -> bool:
        return not self._pending(1)

    def _pending(self, limit: int, bricks: Collection[str | None] | None = None) -> list[ChunkRecord]:
        """The first that wait, of all kinds together: the first of each are enough to find them."""
        found = [
            chunk
            for kind in self._kinds
            for chunk in self._passes.pending(
                self._pass_id, kind.value, limit, bricks=bricks, but_trees=self._but_trees
            )
        ]
        return sorted(found, key=lambda chunk: (-chunk.size_bytes, chunk.number))[:limit]

    async def _change(self) -> None:
        """Until a chunk is given back, or the next delay is over. What is due already is for other lanes to take."""
        now_s = self._clock.monotonic_s()
        await self._wait(
            self._changed, min((due_s - now_s for due_s, *_ in self._delayed if due_s > now_s), default=None)
        )

    async def _wait(self, event: asyncio.Event, at_most_s: float | None) -> None:
        waiting: set[asyncio.Future[object]] = {asyncio.ensure_future(event.wait())}
        if at_most_s is not None:
            waiting.add(asyncio.ensure_future(self._clock.sleep(at_most_s)))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
