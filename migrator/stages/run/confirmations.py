"""What is left of an attempt after its stream: the sync that makes it count, and the look at the volume. Streams do not
wait for it: the next chunk of a slot begins meanwhile.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any


class Confirmations:
    """Confirmations under way, a limited number of them: a sync that takes long must not let streams run far ahead.

    All methods belong to one event loop. What a confirmation raises is raised by `settled`, and by the next `begin`.
    """

    def __init__(self, limit: int) -> None:
        self._room = asyncio.Semaphore(limit)
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    async def begin(self, confirmation: Callable[[], Coroutine[Any, Any, None]], abandoned: Callable[[], None]) -> None:
        """Begin one, once there is room for it. `abandoned` is called instead of its end where it is cancelled, also
        before it has begun.
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
        """Return when none is under way. Raises what one of them raised."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._raise_failure()

    def cancel(self) -> None:
        """Cancel those under way, but for the one that calls this."""
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()

    async def end(self) -> None:
        """Cancel those under way and wait for their end, however often this is cancelled. May be called again."""
        self.cancel()
        cancelled: asyncio.CancelledError | None = None
        while self._tasks:
            try:
                await asyncio.wait(self._tasks)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

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
