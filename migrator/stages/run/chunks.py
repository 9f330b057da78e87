"""Which chunk comes next: the largest that waits, and those that failed once their delay is over."""

import asyncio
import heapq
from collections import deque

from migrator.domain.states import ChunkKind
from migrator.domain.transfer import ChunkRecord
from migrator.ports.clock import Clock
from migrator.ports.ledger import PassRecords

_AHEAD = 64


class ChunkQueue:
    """The chunks of one kind of one pass. The ledger knows which wait; those that are to wait longer are known here."""

    def __init__(self, passes: PassRecords, clock: Clock, pass_id: int, kind: ChunkKind) -> None:
        self._passes = passes
        self._clock = clock
        self._pass_id = pass_id
        self._kind = kind
        self._ahead: deque[ChunkRecord] = deque()
        self._delayed: list[tuple[float, int, ChunkRecord]] = []
        self._taken: set[int] = set()
        self._changed = asyncio.Event()

    async def take(self) -> ChunkRecord | None:
        """The next chunk; waits while others are at work (they may fail, or be split); None when all are done."""
        while True:
            if (chunk := self._next()) is not None:
                self._taken.add(chunk.id)
                return chunk
            if not self._taken and not self._delayed:
                return None
            await self._change()

    def give_back(self, chunk: ChunkRecord, delay_s: float | None = None) -> None:
        """A chunk that was taken is done, split or failed; or waits again, for so long (`delay_s`)."""
        self._taken.discard(chunk.id)
        if delay_s is not None:
            heapq.heappush(self._delayed, (self._clock.monotonic_s() + delay_s, chunk.id, chunk))
        self._changed.set()
        self._changed = asyncio.Event()

    def _next(self) -> ChunkRecord | None:
        if self._delayed and self._delayed[0][0] <= self._clock.monotonic_s():
            return heapq.heappop(self._delayed)[2]
        if not self._ahead:
            aside = self._taken | {chunk_id for _, chunk_id, _ in self._delayed}
            found = self._passes.pending(self._pass_id, self._kind.value, _AHEAD + len(aside))
            self._ahead.extend(chunk for chunk in found if chunk.id not in aside)
        return self._ahead.popleft() if self._ahead else None

    async def _change(self) -> None:
        """Until a chunk is given back, or the first delay is over."""
        waiting = {asyncio.ensure_future(_set(self._changed))}
        if self._delayed:
            left_s = max(self._delayed[0][0] - self._clock.monotonic_s(), 0.0)
            waiting.add(asyncio.ensure_future(self._clock.sleep(left_s)))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()


async def _set(event: asyncio.Event) -> None:
    await event.wait()
