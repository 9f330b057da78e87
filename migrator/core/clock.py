"""Time is an argument: the protocol of a clock, and the clock of this machine."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The wall clock for records, the monotonic one for durations."""

    def now_s(self) -> float:
        """Seconds since the epoch, UTC."""

    def monotonic_s(self) -> float:
        """Seconds of a clock that never runs backwards."""

    async def sleep(self, duration_s: float) -> None:
        """Wait; may be cancelled."""


class SystemClock:
    """The clock of this machine."""

    def now_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(duration_s)


def local_time(at_s: float) -> tuple[int, int]:
    """Weekday (0 is Monday) and minute of the day on this machine."""
    found = time.localtime(at_s)
    return found.tm_wday, found.tm_hour * 60 + found.tm_min
