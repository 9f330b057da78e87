"""Blocking work in threads that nobody has to wait for."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


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
