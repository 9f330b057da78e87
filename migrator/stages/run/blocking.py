"""Calls that may hang in the kernel, and calls that several tasks share."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Blocking(Protocol):
    """Runs blocking work beside the event loop."""

    async def __call__(self, work: Callable[[], T], *, timeout_s: float) -> T:
        """The result of the work. Raises what it raises, and TimeoutError where it takes too long: it may then still
        be at work, or hang for ever.
        """


class DaemonThreads:
    """Every call in a thread of its own that does not keep the program from ending.

    The threads of `asyncio.to_thread` are waited for at the end of the program: one that hangs in a system call on a
    file system that does not answer would hold it for ever.
    """

    async def __call__(self, work: Callable[[], T], *, timeout_s: float) -> T:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def deliver(result: T | None, error: BaseException | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)  # type: ignore[arg-type]

        def body() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as caught:  # noqa: BLE001 - raised again where the work was asked for
                error = caught
            try:
                loop.call_soon_threadsafe(deliver, result, error)
            except RuntimeError:
                return  # the loop has ended: nobody waits for this answer any more

        threading.Thread(target=body, daemon=True, name="migrator-blocking").start()
        async with asyncio.timeout(timeout_s):
            return await answer


class SharedCall(Generic[T]):
    """One call for all who ask at about the same time: whoever asks gets the result of a call that began afterwards.

    While one call is under way, those who ask wait for the next, together.
    """

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        self._call = call
        self._current: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def begun_after_now(self) -> T:
        """The result of a call that has not begun yet. Raises what the call raises, to all who share it."""
        if self._next is None:
            self._next = asyncio.create_task(self._follow(self._current))
        return await asyncio.shield(self._next)

    def abandon(self) -> None:
        """Nobody asks any more. May be called again."""
        for task in (self._current, self._next):
            if task is not None and not task.done():
                task.cancel()
            elif task is not None and not task.cancelled():
                task.exception()  # seen, so that the loop does not complain of it

    async def _follow(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait({before})
        self._current, self._next = self._next, None
        return await self._call()
