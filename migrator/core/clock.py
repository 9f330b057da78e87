"""Time as an argument: the protocol, and the clocks of this machine."""

import asyncio
import time
from typing import Protocol

# ---
# Time is an argument.


class Clock(Protocol):
    """The wall clock for records, the monotonic one for durations."""

    def now_s(self) -> float:
        """Seconds since the epoch, UTC."""

    def monotonic_s(self) -> float:
        """Seconds that never go back."""

    async def sleep(self, duration_s: float) -> None:
        """Wait; may be cancelled."""


# ---
# The clocks of this machine.


class SystemClock:
    """The `Clock` port."""

    def now_s(self) -> float:
        """Seconds since the epoch, UTC."""
        return time.time()

    def monotonic_s(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    async def sleep(self, duration_s: float) -> None:
        """Wait; may be cancelled."""
        await asyncio.sleep(duration_s)
