"""The clocks of this machine."""

import asyncio
import time


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
