"""Calls beside the event loop, and calls that are shared."""

import asyncio
import threading

import pytest

from migrator.core.tasks import DaemonThreads, SharedCall
from tests.support.run_world import in_loop


@in_loop
async def test_results_and_errors_come_back() -> None:
    call = DaemonThreads()
    assert await call(lambda: 7, timeout_s=60) == 7
    with pytest.raises(OSError, match="broken"):
        await call(_broken, timeout_s=60)


@in_loop
async def test_a_call_that_hangs_is_given_up() -> None:
    forever = threading.Event()
    with pytest.raises(TimeoutError):
        await DaemonThreads()(forever.wait, timeout_s=0.01)
    forever.set()


@in_loop
async def test_who_asks_gets_a_call_that_began_afterwards() -> None:
    began: list[int] = []
    gates = [asyncio.Event() for _ in range(3)]

    beginning = asyncio.Event()

    async def call() -> int:
        number = len(began)
        began.append(number)
        beginning.set()
        await gates[number].wait()
        return number

    shared = SharedCall(call)
    first = asyncio.create_task(shared.begun_after_now())
    await beginning.wait()
    later = [asyncio.create_task(shared.begun_after_now()) for _ in range(5)]
    await asyncio.sleep(0)
    gates[0].set()
    assert await first == 0
    gates[1].set()
    assert await asyncio.gather(*later) == [1] * 5
    assert began == [0, 1]


@in_loop
async def test_an_error_reaches_all_who_share_the_call() -> None:
    async def call() -> None:
        await asyncio.sleep(0)
        raise OSError(5, "injected")

    shared = SharedCall(call)
    answers = await asyncio.gather(*(shared.begun_after_now() for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [OSError] * 3


@in_loop
async def test_who_is_cancelled_does_not_cancel_the_others() -> None:
    gate = asyncio.Event()

    async def call() -> str:
        await gate.wait()
        return "done"

    shared = SharedCall(call)
    one, other = (asyncio.create_task(shared.begun_after_now()) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    gate.set()
    assert await other == "done"
    assert one.cancelled()


def _broken() -> None:
    raise OSError(5, "broken")
