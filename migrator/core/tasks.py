"""What asyncio code shares: blocking calls in threads, cancellation, calls that several tasks share."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

# ---
# Calls that may hang in the kernel, kept away from the event loop.


T = TypeVar("T")


class Blocking(Protocol):
    """Runs blocking work beside the event loop."""

    async def __call__(self, work: Callable[[], T], *, timeout_s: float) -> T:
        """The result of the work. Raises what it raises, and TimeoutError where it takes too long: it may then still
        be at work, or hang for ever.
        """


# ---
# What stages and adapters do alike when they are cancelled.


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Let the work come to its end however often the caller is cancelled meanwhile; the cancellation follows then."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.result()
        raise cancelled
    return task.result()


# ---
# Blocking work in threads that nobody has to wait for.


P = ParamSpec("P")


class DaemonExecutor(ThreadPoolExecutor):
    """What `asyncio.to_thread` runs on, made so that nobody waits for its threads at the end: every call has a thread
    of its own, and one that hangs on a file system that does not answer holds neither the loop nor the program.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start the call at once."""
        answer: Future[T] = Future()

        def body() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - raised again where the work was asked for
                answer.set_exception(error)
            else:
                answer.set_result(result)

        threading.Thread(target=body, daemon=True, name="migrator-thread").start()
        return answer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing is waited for."""


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


# ---
# Calls that several tasks share.


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


# ---
# Ending what was begun although the task that began it is being cancelled.


_T = TypeVar("_T")


async def through_cancellation(work: Coroutine[object, object, _T]) -> _T:
    """Let something short and bounded come to its end however often this task is cancelled; tells the caller nothing
    of that, who is being cancelled anyway.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
    return task.result()
