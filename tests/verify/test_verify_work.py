"""The pool of a verification: everything is done once, memory is bounded, failures and cancellation come through."""

import asyncio

import pytest

from migrator.verify.walk import WorkPool


def test_what_a_task_raises_ends_the_work_and_is_raised() -> None:
    def fail(_: int) -> None:
        raise ZeroDivisionError("a defect")

    pool: WorkPool[int, int] = WorkPool(2, do_wide=fail, do_narrow=lambda _: None)
    for number in range(10):
        pool.put_wide(number)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        asyncio.run(pool.run())
    assert pool.stopped
