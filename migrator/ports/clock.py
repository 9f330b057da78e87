"""Time is an argument."""

from typing import Protocol


class Clock(Protocol):
    """The wall clock for records, the monotonic one for durations."""

    def now_s(self) -> float:
        """Seconds since the epoch, UTC."""

    def monotonic_s(self) -> float:
        """Seconds that never go back."""

    async def sleep(self, duration_s: float) -> None:
        """Wait; may be cancelled."""
