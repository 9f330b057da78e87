"""Looks at the target's storage targets while streams run: a server that is down makes them stand still, not fail."""

import asyncio
from collections.abc import Callable

from migrator.decide.storage_targets import fullest_words, lost_targets
from migrator.domain.errors import ToolFailed
from migrator.ports.clock import Clock
from migrator.ports.storage_targets import StorageTargets
from migrator.stages.run.shared_call import SharedCall

QUIET_S = 5.0
"""A stream that has been quiet for twice as long makes it look."""
LOOK_EVERY_S = 5.0
"""From the beginning of one look to the next: one question to the management service costs it next to nothing."""


class StorageWatch:
    """What is lost now (`lost`: sentences; empty: nothing is known to be). `say` is called whenever that changes, with the
    sentences that are new, or with none when everything is back.

    A look that fails changes nothing: nobody then knows that a target is lost, or that one is back.
    """

    def __init__(self, storage: StorageTargets, clock: Clock, say: Callable[[tuple[str, ...]], None]) -> None:
        self._storage = storage
        self._clock = clock
        self._say = say
        self._call = SharedCall(self._ask)
        self._looking: asyncio.Task[None] | None = None
        self._next_s = 0.0
        self._names: frozenset[str] = frozenset()
        self.lost: tuple[str, ...] = ()

    async def look(self) -> tuple[str, ...]:
        """What is lost, by a look that begins now."""
        await self._call.begun_after_now()
        return self.lost

    def begin(self) -> None:
        """Look beside everything else, where the last look is long enough ago."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return
        if self._looking is not None:
            if not self._looking.done():
                return
            self._looking.result()  # raises what went wrong here, and not with the tool
        self._next_s = now_s + LOOK_EVERY_S
        self._looking = asyncio.create_task(self._call.begun_after_now())

    async def full_words(self) -> str:
        """The targets that are full, or the fullest, after a write found no room; empty where nobody can say."""
        try:
            return fullest_words((await self._storage.look()).targets)
        except ToolFailed:
            return ""

    async def close(self) -> None:
        """End a look that is under way. May be called again."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
            if not self._looking.cancelled():
                self._looking.exception()
            self._looking = None
        self._call.abandon()

    async def _ask(self) -> None:
        try:
            seen = await self._storage.look()
        except ToolFailed:
            return
        self.lost = lost_targets(seen)
        # The words change with every look (since when nothing was heard); which targets they are does not.
        names = frozenset(words.partition(":")[0] for words in self.lost)
        new = tuple(words for words in self.lost if words.partition(":")[0] not in self._names)
        told, self._names = self._names, names
        if new or (told and not names):
            self._say(new)
