"""A generator function whose callers get a tuple."""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def collected(generate: Callable[P, Iterator[T]]) -> Callable[P, tuple[T, ...]]:
    """Decorate a generator function: a call returns all yielded values as a tuple."""

    @wraps(generate)
    def call(*args: P.args, **kwargs: P.kwargs) -> tuple[T, ...]:
        return tuple(generate(*args, **kwargs))

    return call
