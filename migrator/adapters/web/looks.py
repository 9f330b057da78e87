"""What is served is read when somebody asks for it, and not more often than it may be."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

from migrator.domain.errors import MigratorError

Seen = TypeVar("Seen")


class Looks(Generic[Seen]):
    """The newest look, shared by all who ask. A look that failed is not repeated sooner either."""

    def __init__(
        self, look: Callable[[], Seen], *, pause_s: Callable[[float], float], clock: Callable[[], float] = monotonic
    ) -> None:
        """`look` runs in a thread; `pause_s` says how long what a look of so many seconds has seen is good for."""
        self._look = look
        self._pause_s = pause_s
        self._clock = clock
        self._one = asyncio.Lock()
        self._good_until_s = -1.0
        self._seen: Seen | None = None
        self._error: MigratorError | None = None

    async def newest(self) -> Seen:
        """What was seen, now or a little ago. Raises MigratorError."""
        async with self._one:
            if self._clock() >= self._good_until_s:
                await self._look_again()
            if self._error is not None:
                raise self._error
            assert self._seen is not None  # noqa: S101 - one of both is there after a look
            return self._seen

    async def _look_again(self) -> None:
        began_s = self._clock()
        try:
            self._seen, self._error = await asyncio.to_thread(self._look), None
        except MigratorError as error:
            self._error = error
        ended_s = self._clock()
        self._good_until_s = ended_s + self._pause_s(ended_s - began_s)
