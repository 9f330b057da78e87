"""Removing no more than so many names per second."""

from migrator.ports.clock import Clock


class Pace:
    """Hands out names; whoever asks waits until they are due. At most a second's worth goes at once."""

    def __init__(self, clock: Clock, names_per_s: float) -> None:
        self._clock = clock
        self._names_per_s = names_per_s
        self._due_s = clock.monotonic_s()

    async def take(self, names: int) -> None:
        """Wait until so many names may go."""
        now_s = self._clock.monotonic_s()
        # What was not used is not saved up: a rate is a rate after a pause too.
        begin_s = max(self._due_s, now_s)
        self._due_s = begin_s + names / self._names_per_s
        if begin_s > now_s:
            await self._clock.sleep(begin_s - now_s)
