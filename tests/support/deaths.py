"""The program is killed between any two calls of what it works with, by wrapping that."""

from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


class Killed(BaseException):
    """The program was killed: nothing that it calls does anything any more."""


@dataclass(slots=True)
class Death:
    """Kills at the `left`-th call of anything that is wrapped, and at every later one."""

    left: int

    def tick(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise Killed

    @property
    def happened(self) -> bool:
        return self.left <= 0


class Dying:
    """Anything, wrapped so that the `Death` may come before each of its calls."""

    def __init__(self, wrapped: Any, death: Death) -> None:
        self._wrapped = wrapped
        self._death = death

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        if not callable(found):
            return found if isinstance(found, int | float | str | bytes) else Dying(found, self._death)

        def call(*args: Any, **kwargs: Any) -> Any:
            # A sign of life comes by the clock, between calls that depend on the one before: it would make their number random.
            if name != "heartbeat":
                self._death.tick()
            return found(*args, **kwargs)

        return call


def dying(wrapped: T, death: Death) -> T:
    """Wrap something, with the type that it has."""
    return Dying(wrapped, death)  # type: ignore[return-value]
