"""Blocking calls in threads, cancellation, and calls shared by several tasks."""

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from queue import SimpleQueue
from typing import Any, Generic, NoReturn, ParamSpec, Protocol, TypeVar

from migrator.core.clock import Clock
from migrator.core.errors import Interrupted, MigratorError

_log = logging.getLogger("migrator.tasks")

T = TypeVar("T")
P = ParamSpec("P")


class Blocking(Protocol):
    """Runs blocking work beside the event loop."""

    async def __call__(self, work: Callable[[], T], *, timeout_s: float) -> T:
        """The result of the work. Raises its errors, and TimeoutError; the work may then continue, or hang forever."""


async def result_or_none(asked: Awaitable[T]) -> T | None:
    """The answer; None if the look-up failed, which every guard treats as a failed check."""
    try:
        return await asked
    except (MigratorError, OSError, TimeoutError):
        return None


_idle: deque[SimpleQueue[Callable[[], None]]] = deque()
"""Threads that have ended their calls. To start one takes longer: the caller waits until it runs, behind all others."""
os.register_at_fork(after_in_child=_idle.clear)


class DaemonExecutor(ThreadPoolExecutor):
    """The executor of `asyncio.to_thread`: every call has a daemon thread for itself, and the executor's shutdown waits
    for none.

    So a call that hangs on a file system that does not respond blocks neither the loop nor the end of the program.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start the call at once, in an idle thread or a new one."""
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

        try:
            _idle.pop().put(body)
        except IndexError:
            threading.Thread(target=_serve, args=(body,), daemon=True, name="migrator-thread").start()
        return answer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Waits for nothing."""


def _serve(call: Callable[[], None]) -> NoReturn:
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    while True:
        call()
        del call  # with what it holds
        _idle.append(calls)
        call = calls.get()


class DaemonThreads:
    """`Blocking` on a `DaemonExecutor`."""

    def __init__(self) -> None:
        self._executor = DaemonExecutor()

    async def __call__(self, work: Callable[[], T], *, timeout_s: float) -> T:
        async with asyncio.timeout(timeout_s):
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)


async def in_thread(work: Callable[[threading.Event], T]) -> T:
    """Run `work` in a thread. A cancellation sets its event, and takes effect when it has ended."""
    stop = threading.Event()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait({running})
        raise


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
async def beside(work: Coroutine[Any, Any, object], what: str) -> AsyncIterator[None]:
    """Run some work until the end of the block; its errors are only logged."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s ended: %s", what, error)


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that raises one error instead of a group: a MigratorError if there is one, otherwise the first; Interrupted, as which
    work ends that the group cancels, only if there is no other.
    """
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise _one_of(errors) from errors


def _one_of(error: BaseException) -> BaseException:
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [_one_of(one) for one in error.exceptions]
    others = [leaf for leaf in leaves if not isinstance(leaf, Interrupted)] or leaves
    return next((leaf for leaf in others if isinstance(leaf, MigratorError)), others[0])


async def again_and_again(call: Callable[[], object], clock: Clock, every_s: float) -> None:
    """Call it until cancelled."""
    while True:
        call()
        await clock.sleep(every_s)


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel a background task and wait for its end; raises its own error, if any."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


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


# Worker threads over two queues, with bounded memory.


_STOP_GRACE_S = 5.0
"""Time that a stopped pool waits for its threads. A thread in a long read is abandoned: it only reads."""
_WAITING_PER_WORKER = 4

Wide = TypeVar("Wide")
Narrow = TypeVar("Narrow")


class WorkPool(Generic[Wide, Narrow]):
    """Threads for `Wide` tasks (directories), which create more tasks of both kinds, and `Narrow` ones (files to read).

    Narrow tasks go first, and their queue is bounded: if it is full, the thread that creates one runs it at once. Wide tasks
    are taken last in, first out, which keeps their queue short.
    """

    def __init__(
        self, workers: int, *, do_wide: Callable[[Wide], None], do_narrow: Callable[[Narrow], None] = lambda _: None
    ) -> None:
        self._workers = max(workers, 1)
        self._do_wide = do_wide
        self._do_narrow = do_narrow
        self._wide: list[Wide] = []
        self._narrow: deque[Narrow] = deque()
        self._busy = 0
        self._changed = threading.Condition()
        self._stopped = False
        self._failure: BaseException | None = None

    @property
    def stopped(self) -> bool:
        """True if the work should end early; long tasks poll it."""
        return self._stopped

    @property
    def waiting(self) -> int:
        """The number of wide tasks that are not done."""
        return len(self._wide) + self._busy

    def put_wide(self, *tasks: Wide) -> None:
        """Queue directories."""
        with self._changed:
            self._wide.extend(tasks)
            self._changed.notify(len(tasks))

    def put_narrow(self, task: Narrow) -> None:
        """Queue a file to read, or run the task in the calling thread if the queue is full."""
        with self._changed:
            if len(self._narrow) < self._workers * _WAITING_PER_WORKER:
                self._narrow.append(task)
                self._changed.notify()
                return
        self._do_narrow(task)

    async def run(self) -> None:
        """Run all tasks. Raises what a task raised. When cancelled, it stops soon and abandons threads in a long read."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        left = self._workers

        def one_ended() -> None:
            nonlocal left
            left -= 1
            if not left:
                ended.set()

        def work() -> None:
            try:
                self._work()
            except BaseException as error:  # noqa: BLE001 (supervision: raised again by `run`)
                self.stop(error)
            finally:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(one_ended)

        for number in range(self._workers):
            threading.Thread(target=work, name=f"work-{number}", daemon=True).start()
        try:
            await ended.wait()
        except asyncio.CancelledError:
            self.stop()
            await asyncio.wait([asyncio.ensure_future(ended.wait())], timeout=_STOP_GRACE_S)
            raise
        if self._failure is not None:
            raise self._failure

    def stop(self, failure: BaseException | None = None) -> None:
        """Let the threads end after their present task; `run` raises the first failure. May be called again."""
        with self._changed:
            self._stopped = True
            self._failure = self._failure or failure
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._stopped or self._narrow or self._wide) and self._busy:
                    self._changed.wait()
                if self._stopped or not (self._narrow or self._wide):
                    self._changed.notify_all()
                    return
                self._busy += 1
                narrow = self._narrow.popleft() if self._narrow else None
                wide = self._wide.pop() if narrow is None else None
            try:
                if narrow is not None:
                    self._do_narrow(narrow)
                elif wide is not None:
                    self._do_wide(wide)
            finally:
                with self._changed:
                    self._busy -= 1
                    self._changed.notify_all()


async def work_through(blocks: Iterator[Sequence[Narrow]], work: Callable[[Narrow], None], *, workers: int) -> None:
    """Do blocking work for each item of some blocks, a block at a time in each of the threads. Raises and stops as `WorkPool`."""

    def read(blocks: Iterator[Sequence[Narrow]]) -> None:
        for block in blocks:
            if pool.stopped:
                return
            pool.put_narrow(block)

    def do(block: Sequence[Narrow]) -> None:
        for item in block:
            if pool.stopped:
                return
            work(item)

    pool = WorkPool[Iterator[Sequence[Narrow]], Sequence[Narrow]](workers, do_wide=read, do_narrow=do)
    pool.put_wide(blocks)
    await pool.run()
