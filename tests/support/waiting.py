"""Waiting for what comes: polled, up to a deadline that only a hang reaches."""

import asyncio
import time
from collections.abc import Awaitable, Callable

DEADLINE_S = 600.0


def wait_for(
    condition: Callable[[], object], what: str = "what has to come", *, deadline_s: float = DEADLINE_S
) -> None:
    """Poll until something holds; fail at the deadline."""
    end_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end_s, f"waited in vain for {what}"
        time.sleep(0.02)


async def until(condition: Callable[[], object]) -> None:
    """As `wait_for`, in an event loop."""
    end_s = time.monotonic() + DEADLINE_S
    while not await _now(condition()):
        assert time.monotonic() < end_s, "waited in vain"
        await asyncio.sleep(0.01)


async def _now(found: object) -> object:
    return await found if isinstance(found, Awaitable) else found
