"""Removing no more than so many names per second."""

from collections.abc import Callable

from migrator.ports.clock import Clock


class Pace:
    """Hands out names; whoever asks waits until they are due. At most a second's worth goes at once.

    `names_per_s` is asked whenever names are taken, with how many these are.
    """

    def __init__(self, clock: Clock, names_per_s: Callable[[int], float]) -> None:
        self._clock = clock
        self._names_per_s = names_per_s
        self._due_s = clock.monotonic_s()

    async def take(self, names: int) -> None:
        """Wait until so many names may go."""
        now_s = self._clock.monotonic_s()
        # What was not used is not saved up: a rate is a rate after a pause too.
        begin_s = max(self._due_s, now_s)
        self._due_s = begin_s + names / self._names_per_s(names)
        if begin_s > now_s:
            await self._clock.sleep(begin_s - now_s)
