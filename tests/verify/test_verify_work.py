"""The pool of a verification: everything is done once, memory is bounded, failures and cancellation come through."""

import asyncio
import threading

import pytest

from migrator.verify.walk import WorkPool


def test_everything_is_done_once_and_few_wait() -> None:
    done: list[int] = []
    lock = threading.Lock()
    waiting: list[int] = []

    def spread(depth: int) -> None:
        for number in range(50):
            pool.put_narrow(depth * 100 + number)
            waiting.append(len(pool._narrow))
        if depth < 5:
            pool.put_wide(depth + 1)

    def note(number: int) -> None:
        with lock:
            done.append(number)

    pool: WorkPool[int, int] = WorkPool(3, do_wide=spread, do_narrow=note)
    pool.put_wide(0)
    asyncio.run(pool.run())
    assert sorted(done) == sorted(depth * 100 + number for depth in range(6) for number in range(50))
    assert max(waiting) <= 12


def test_nothing_to_do_ends_at_once() -> None:
    pool: WorkPool[int, int] = WorkPool(2, do_wide=lambda _: None, do_narrow=lambda _: None)
    asyncio.run(pool.run())


def test_what_a_task_raises_ends_the_work_and_is_raised() -> None:
    def fail(_: int) -> None:
        raise ZeroDivisionError("a defect")

    pool: WorkPool[int, int] = WorkPool(2, do_wide=fail, do_narrow=lambda _: None)
    for number in range(10):
        pool.put_wide(number)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        asyncio.run(pool.run())
    assert pool.stopped


def test_cancellation_stops_soon() -> None:
    started, seen = threading.Event(), []

    def again(number: int) -> None:
        started.set()
        seen.append(number)
        pool.put_wide(number + 1)

    pool: WorkPool[int, int] = WorkPool(2, do_wide=again, do_narrow=lambda _: None)
    pool.put_wide(0)

    async def cancel() -> None:
        task = asyncio.create_task(pool.run())
        await asyncio.to_thread(started.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert pool.stopped
