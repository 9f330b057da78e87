"""Waiting with a deadline says why it was in vain, and what to do next."""

import asyncio

import pytest

from migrator.core.errors import ToolFailed
from migrator.lab.machine import until


class Clock:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def now_s(self) -> float:
        return self.slept_s

    def monotonic_s(self) -> float:
        return self.slept_s

    async def sleep(self, duration_s: float) -> None:
        self.slept_s += duration_s


async def never() -> str | None:
    return "it is in use"


def test_the_last_reason_the_cause_and_the_hint_are_told() -> None:
    with pytest.raises(ToolFailed) as caught:
        asyncio.run(until(never, clock=Clock(), deadline_s=2.0, cause="somebody", hint="migrator lab down --dir /x"))
    assert caught.value.message == "it is in use, after 2 s of waiting"
    assert (caught.value.cause, caught.value.hint) == ("somebody", "migrator lab down --dir /x")
