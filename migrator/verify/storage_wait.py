"""Waiting for lost storage of the target: its files are unreadable meanwhile, not different."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from migrator.beegfs.tool import StorageTargets, read_storage
from migrator.core.clock import Clock
from migrator.core.events import EventKind, Severity

_LOOK_EVERY_S = 10.0
_STOP_WITHIN_S = 1.0


@dataclass(slots=True)
class StorageWait:
    """Polls the storage targets. If a poll fails, nothing is known, and the comparison does not wait.

    Create it in the event loop of the verification. `report` receives the loss of storage, and its return.
    """

    storage: StorageTargets
    clock: Clock
    report: Callable[[EventKind, Severity, str], None]
    _loop: asyncio.AbstractEventLoop = field(init=False, default_factory=asyncio.get_running_loop)
    _told: bool = field(init=False, default=False)

    async def until_back(self, *, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Wait while a storage or metadata target is lost; return whether one was. Returns soon if the work is `stopped`."""
        was_lost = False
        while not stopped() and (lost := (await read_storage(self.storage, patient=True)).lost):
            was_lost = True
            if not self._told:
                self._told = True
                message = f"storage of the target is lost, the verification waits for it: {'; '.join(lost)}"
                self.report(EventKind.STORAGE_LOST, Severity.ERROR, message)
            waited_s = 0.0
            while waited_s < _LOOK_EVERY_S and not stopped():
                await self.clock.sleep(_STOP_WITHIN_S)
                waited_s += _STOP_WITHIN_S
        if was_lost and self._told and not stopped():
            self._told = False
            self.report(EventKind.STORAGE_BACK, Severity.INFO, "all storage targets of the target answer again")
        return was_lost

    def was_lost(self, *, stopped: Callable[[], bool]) -> bool:
        """As `until_back`, from another thread; if it returns True, retry the read."""
        waiting = self.until_back(stopped=stopped)
        return asyncio.run_coroutine_threadsafe(waiting, self._loop).result() and not stopped()
