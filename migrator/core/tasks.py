"""Blocking calls in threads, cancellation, and calls shared by several tasks."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from migrator.core.errors import MigratorError

T = TypeVar("T")
P = ParamSpec("P")


class Blocking(Protocol):
    """Runs blocking work beside the event loop."""

    async def __call__(self, work: Callable[[], T], *, timeout_s: float) -> T:
        """The result of the work. Raises its errors, and TimeoutError; the work may then continue, or hang forever."""


async def told(asked: Awaitable[T]) -> T | None:
    """The answer; None if the look-up failed, which every guard treats as a failed check."""
    try:
        return await asked
    except MigratorError:
        return None


class DaemonExecutor(ThreadPoolExecutor):
    """The executor of `asyncio.to_thread`: every call has its own daemon thread, and the executor's shutdown waits for
    none.

    So a call that hangs on a file system that does not respond blocks neither the loop nor the end of the program.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start the call at once in a new daemon thread."""
        answer: Future[T] = Future()

        def body() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - raised again where the work was requested
                answer.set_exception(error)
            else:
                answer.set_result(result)

        threading.Thread(target=body, daemon=True, name="migrator-thread").start()
        return answer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Waits for nothing."""


class DaemonThreads:
    """`Blocking` on a `DaemonExecutor`."""

    def __init__(self) -> None:
        self._executor = DaemonExecutor()

    async def __call__(self, work: Callable[[], T], *, timeout_s: float) -> T:
        async with asyncio.timeout(timeout_s):
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Finish the work even if the caller is cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled = await _outlast(task)
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


async def through_cancellation(work: Coroutine[Any, Any, T]) -> T:
    """As `to_the_end`, for short work of a task that is being cancelled anyway: a cancellation meanwhile is dropped."""
    task = asyncio.ensure_future(work)
    await _outlast(task)
    return task.result()


async def _outlast(task: "asyncio.Task[Any]") -> asyncio.CancelledError | None:
    """Wait for the end of the task; returns the caller's last cancellation meanwhile, if any."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that raises one error instead of a group: a MigratorError if there is one, otherwise the first."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise _one_of(errors) from errors


def _one_of(error: BaseException) -> BaseException:
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [_one_of(one) for one in error.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, MigratorError)), leaves[0])


def drop_error(future: "asyncio.Future[Any]") -> None:
    """Mark the error of a finished future as retrieved, so that the loop does not log it."""
    if not future.cancelled():
        future.exception()


class SharedCall(Generic[T]):
    """One call for all tasks that request it at about the same time: each gets the result of a call that began after
    its request.

    Tasks that request it during a call share the next one.
    """

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        self._call = call
        self._current: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def begun_after_now(self) -> T:
        """The result of a call that has not begun yet. Raises what the call raises, in all tasks that share it."""
        if self._next is None:
            self._next = asyncio.create_task(self._follow(self._current))
        return await asyncio.shield(self._next)

    def abandon(self) -> None:
        """Cancel the calls. May be called again."""
        for task in (self._current, self._next):
            if task is not None and not task.done():
                task.cancel()
            elif task is not None:
                drop_error(task)

    async def _follow(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait({before})
        self._current, self._next = self._next, None
        return await self._call()
