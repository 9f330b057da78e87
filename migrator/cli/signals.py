"""Signals that end or stop programs. Every verb handles all of them alike."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}
"""The kernel sends them for an error of the program itself: nothing in it can continue."""
_WITHOUT_EFFECT = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}
_FOR_THE_KERNEL = {signal.SIGKILL, signal.SIGSTOP}

STOPPING = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
"""They stop a program until it is continued: Ctrl-Z, and access to the terminal from the background."""

ENDING = frozenset(signal.valid_signals()) - _FAULTS - _WITHOUT_EFFECT - _FOR_THE_KERNEL - STOPPING
"""All other signals end a program that does not handle them, so this set is defined by what is not in it."""

_NEVER_IGNORED = {signal.SIGINT, signal.SIGTERM}
"""A shell lets what it starts in the background ignore SIGINT; `kill -INT` has to end that too."""


@dataclass(slots=True)
class _Ending:
    """What the next signal does: it calls `stop`, once; otherwise it raises KeyboardInterrupt. After a stop further
    signals are ignored, because a clean stop takes a few seconds.
    """

    stop: Callable[[], object] | None = None
    stopped: bool = False
    interrupted: bool = False

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.stop is not None:
            stop, self.stop, self.stopped = self.stop, None, True
            stop()
        elif not self.stopped:
            self.interrupted = True
            raise KeyboardInterrupt


_active: _Ending | None = None


@contextmanager
def handled() -> Iterator[None]:
    """In the block, every signal that ends programs raises KeyboardInterrupt, unless a block of `stopped_by_signals`
    handles it. Blocks may be nested; only the main thread can handle signals.

    A signal that was ignored before stays ignored: `nohup` has SIGHUP ignored.
    """
    global _active  # noqa: PLW0603 - a process has one handler for each signal
    if _active is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    ending = _Ending()
    before = {number: signal.getsignal(number) for number in ENDING}
    replaced = {
        number: handler
        for number, handler in before.items()
        if handler is not None and (handler is not signal.SIG_IGN or number in _NEVER_IGNORED)
    }
    _active = ending
    try:
        for number in replaced:
            signal.signal(number, ending.handle)
        yield
    except Exception as error:
        # DuckDB raises a RuntimeError for a KeyboardInterrupt in a query.
        if ending.interrupted:
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
        _active = None


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """In the block, the first signal that ends programs calls `stop` in the running event loop, and further ones are
    ignored.

    Signals that stop programs are ignored too: a user would stay frozen for as long as the program is stopped.
    """
    with handled():
        if _active is None:
            yield
            return
        before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
        loop = asyncio.get_running_loop()
        _active.stop = lambda: loop.call_soon_threadsafe(stop)
        try:
            yield
        finally:
            _active.stop = None
            for number, handler in before.items():
                signal.signal(number, handler)
