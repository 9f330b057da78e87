"""Blocking work in threads that nobody has to wait for."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


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
