"""Confirmation of an attempt after its stream: the sync of its files, and the health check of the volume.

Streams do not wait for it; the slot starts its next chunk meanwhile.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from migrator.core.tasks import to_the_end


class Confirmations:
    """Confirmations in flight. Their number is limited, so that streams do not run far ahead of a slow sync.

    All methods belong to one event loop. `settled` and the next `begin` raise the error of a failed confirmation.
    """

    def __init__(self, limit: int) -> None:
        self._room = asyncio.Semaphore(limit)
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    async def begin(self, confirmation: Callable[[], Coroutine[Any, Any, None]], abandoned: Callable[[], None]) -> None:
        """Start a confirmation when there is room. If it is cancelled, even before its start, `abandoned` is called
        instead.
        """
        try:
            await self._room.acquire()
        except asyncio.CancelledError:
            abandoned()
            raise
        task = asyncio.ensure_future(confirmation())
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, abandoned))
        self._raise_failure()

    async def settled(self) -> None:
        """Return when no confirmation is in flight. Raises the error of a failed one."""
        await self._over()
        self._raise_failure()

    def cancel(self) -> None:
        """Cancel all confirmations in flight, except the caller's own."""
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()

    async def end(self) -> None:
        """Cancel all confirmations in flight, and wait for their end even through repeated cancellation. May be called
        again.
        """
        self.cancel()
        await to_the_end(self._over())

    async def _over(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, abandoned: Callable[[], None], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if task.cancelled():
            abandoned()
        elif (error := task.exception()) is not None and self._failure is None:
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
