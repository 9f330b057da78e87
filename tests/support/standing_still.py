"""A program that stands still in the middle of its work by itself, so that a phase that is short cannot be missed."""

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any


def stand_still_when(holds: Callable[[], object], watched: Sequence[tuple[type, str]]) -> None:
    """To be called in the process of the program: it stops itself (SIGSTOP) as soon as this holds, which is looked at before
    and after every call of these methods. It is to be killed then.
    """
    for owner, name in watched:
        setattr(owner, name, _watched(getattr(owner, name), holds))


def _watched(method: Callable[..., Any], holds: Callable[[], object]) -> Callable[..., Any]:
    def call(*words: Any, **named: Any) -> Any:
        _look(holds)
        result = method(*words, **named)
        _look(holds)
        return result

    return call


def _look(holds: Callable[[], object]) -> None:
    if holds():
        os.kill(os.getpid(), signal.SIGSTOP)
