"""Calls that may hang in the kernel, kept away from the event loop."""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Blocking(Protocol):
    """Runs blocking work beside the event loop."""

    async def __call__(self, work: Callable[[], T], *, timeout_s: float) -> T:
        """The result of the work. Raises what it raises, and TimeoutError where it takes too long: it may then still
        be at work, or hang for ever.
        """
