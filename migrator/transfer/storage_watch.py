"""Polling the target's storage targets while streams run: if a server is down, streams stall instead of failing."""

import asyncio

from migrator.beegfs.rules import describe_fullest, lost_targets
from migrator.beegfs.tool import StorageTargets
from migrator.core.clock import Clock
from migrator.core.errors import ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.tasks import SharedCall, drop_error
from migrator.transfer.ports import Report

QUIET_S = 5.0
"""A stream that is quiet for twice this time triggers a poll."""
LOOK_EVERY_S = 5.0
"""Minimum interval from the start of one poll to the next; a poll costs the management service almost nothing."""


class StorageWatch:
    """The storage targets that are lost now (`lost`: sentences; empty: none known). It reports newly lost targets, and
    when all are back. A failed poll changes nothing; the next one waits longer for the answer.
    """

    def __init__(self, storage: StorageTargets, clock: Clock, report: Report, subject: str) -> None:
        self._storage = storage
        self._clock = clock
        self._report = report
        self._subject = subject
        self._call = SharedCall(self._ask)
        self._looking: asyncio.Task[None] | None = None
        self._next_s = 0.0
        self._names: frozenset[str] = frozenset()
        self._late = False
        self.lost: tuple[str, ...] = ()

    async def look(self) -> tuple[str, ...]:
        """`lost`, after a poll that starts now, and a longer one if that fails: it decides who is to blame for a failure."""
        await self._call.begun_after_now()
        if self._late:
            await self._call.begun_after_now()
        return self.lost

    def begin(self) -> None:
        """Poll in the background, if the last poll started long enough ago."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return
        if self._looking is not None:
            if not self._looking.done():
                return
            self._looking.result()  # raises errors of this program; those of the tool are handled in `_ask`
        self._next_s = now_s + LOOK_EVERY_S
        self._looking = asyncio.create_task(self._call.begun_after_now())

    async def fullest_targets(self) -> str:
        """The full targets, or the fullest ones, after a write failed for lack of space; empty if unknown."""
        try:
            return describe_fullest((await self._storage.state()).targets)
        except ToolFailed:
            return ""

    async def close(self) -> None:
        """End a poll in flight. May be called again."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
            drop_error(self._looking)
            self._looking = None
        self._call.abandon()

    async def _ask(self) -> None:
        try:
            seen = await self._storage.state(patient=self._late)
        except ToolFailed:
            self._late = True
            return
        self._late = False
        self.lost = lost_targets(seen)
        # The text changes with every poll, since it has the time of the last contact. The set of targets does not.
        names = frozenset(words.partition(":")[0] for words in self.lost)
        new = tuple(words for words in self.lost if words.partition(":")[0] not in self._names)
        before, self._names = self._names, names
        if new:
            message = f"storage of the target is lost, streams wait for it: {'; '.join(new)}"
            self._report(EventKind.STORAGE_LOST, Severity.ERROR, self._subject, message)
        elif before and not names:
            message = "all storage targets of the target answer again"
            self._report(EventKind.STORAGE_BACK, Severity.INFO, self._subject, message)
