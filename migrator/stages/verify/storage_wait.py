"""Waiting for storage of the target that is lost: what lies there cannot be read meanwhile, and is no difference."""

import asyncio
from collections.abc import Callable

from migrator.domain.events import EventKind, Severity
from migrator.ports.clock import Clock
from migrator.ports.storage_targets import StorageTargets
from migrator.stages.storage_looks import look_at_storage

_LOOK_EVERY_S = 10.0
_STOP_WITHIN_S = 1.0


class StorageWait:
    """Asks for the storage targets of one target. A look that fails says nothing: then nothing is waited for.

    To be made in the event loop that the verification runs in. `say` is told what is lost, and that it is back.
    """

    def __init__(self, storage: StorageTargets, clock: Clock, say: Callable[[EventKind, Severity, str], None]) -> None:
        self._storage = storage
        self._clock = clock
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._told = False

    async def until_back(self, *, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Wait as long as a storage or metadata target is lost; whether one was. Ends soon where the work is `stopped`."""
        was_lost = False
        while not stopped() and (lost := (await look_at_storage(self._storage)).lost):
            was_lost = True
            if not self._told:
                self._told = True
                message = f"storage of the target is lost, the verification waits for it: {'; '.join(lost)}"
                self._say(EventKind.STORAGE_LOST, Severity.ERROR, message)
            waited_s = 0.0
            while waited_s < _LOOK_EVERY_S and not stopped():
                await self._clock.sleep(_STOP_WITHIN_S)
                waited_s += _STOP_WITHIN_S
        if was_lost and self._told and not stopped():
            self._told = False
            self._say(EventKind.STORAGE_BACK, Severity.INFO, "all storage targets of the target answer again")
        return was_lost

    def was_lost(self, *, stopped: Callable[[], bool]) -> bool:
        """The same, from another thread: whether it is worth while to read again."""
        waiting = self.until_back(stopped=stopped)
        return asyncio.run_coroutine_threadsafe(waiting, self._loop).result() and not stopped()
