"""Calls that several tasks share."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedCall(Generic[T]):
    """One call for all who ask at about the same time: whoever asks gets the result of a call that began afterwards.

    While one call is under way, those who ask wait for the next, together.
    """

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        self._call = call
        self._current: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def begun_after_now(self) -> T:
        """The result of a call that has not begun yet. Raises what the call raises, to all who share it."""
        if self._next is None:
            self._next = asyncio.create_task(self._follow(self._current))
        return await asyncio.shield(self._next)

    def abandon(self) -> None:
        """Nobody asks any more. May be called again."""
        for task in (self._current, self._next):
            if task is not None and not task.done():
                task.cancel()
            elif task is not None and not task.cancelled():
                task.exception()  # seen, so that the loop does not complain of it

    async def _follow(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait({before})
        self._current, self._next = self._next, None
        return await self._call()
