"""What `status --watch` shows its looks on: a screen of lines, or plain lines where there is no terminal."""

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from time import monotonic
from types import FrameType
from typing import Protocol, Self, TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment

from migrator.adapters.output.watch_changes import change_lines
from migrator.adapters.output.watch_layout import Line
from migrator.adapters.output.watch_view import watch_lines
from migrator.domain.watch import WatchFacts

_NO_WRAP = "\x1b[?7l"
_WRAP = "\x1b[?7h"
_LEAST_WIDTH = 20
_LEAST_HEIGHT = 4
_END_KEYS = frozenset(b"qQ")


class WatchView(AbstractContextManager["WatchView"], Protocol):
    """Looks are shown until somebody ends it."""

    def show(self, facts: WatchFacts, problem: str = "") -> None:
        """Show a look; with a `problem` it is an old one, and the problem says why."""

    def wait(self, pause_s: float) -> bool:
        """Wait for the next look. Returns False where somebody has ended it: by a key, a signal, or because nobody reads."""


def open_watch(stream: TextIO) -> WatchView:
    """The view that suits a stream: a screen on a terminal that can have one, plain lines otherwise."""
    console = Console(file=stream, highlight=False)
    if stream.isatty() and not console.is_dumb_terminal:
        return WatchScreen(console)
    return WatchLines(stream)


class _Signals:
    """Ends by SIGINT or SIGTERM, and other signals that a view asks for, without anything that is cut off halfway. Only
    the main thread may enter it.
    """

    def __init__(self, *also: signal.Signals) -> None:
        self._also = also
        self._stack = ExitStack()
        self.ended = False
        self.came: set[int] = set()
        self._reading = -1

    def __enter__(self) -> Self:
        self._reading, writing = os.pipe()
        for descriptor in (self._reading, writing):
            os.set_blocking(descriptor, False)
            self._stack.callback(os.close, descriptor)
        self._stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(writing))
        for number in (signal.SIGINT, signal.SIGTERM):
            self._stack.callback(signal.signal, number, signal.signal(number, self._end))
        for number in self._also:
            self._stack.callback(signal.signal, number, signal.signal(number, self._note))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        if self.ended:
            # Somebody asks twice while a look hangs.
            raise KeyboardInterrupt
        self.ended = True

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.came.add(number)

    def ready(self, pause_s: float, *descriptors: int, gone: int | None = None) -> list[int] | None:
        """Which of the descriptors have something to read within the pause; also returns when a signal comes. None where
        nobody reads `gone`, a pipe, any more.
        """
        poll = select.poll()
        for descriptor in (self._reading, *descriptors):
            poll.register(descriptor, select.POLLIN)
        if gone is not None:
            poll.register(gone, 0)
        found = [descriptor for descriptor, _ in poll.poll(max(pause_s, 0.0) * 1000.0)]
        if gone in found:
            return None
        if self._reading in found:
            with suppress(BlockingIOError):
                os.read(self._reading, 512)
        return [descriptor for descriptor in descriptors if descriptor in found]


class WatchLines(WatchView):
    """A plain line for each change, without control codes; the first look as a whole."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._signals = _Signals()
        self._before: WatchFacts | None = None
        self._problem = ""

    def __enter__(self) -> Self:
        self._signals.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._signals.__exit__()

    def show(self, facts: WatchFacts, problem: str = "") -> None:
        """Write what has changed. Raises BrokenPipeError where nobody reads any more."""
        lines = [problem] if problem and problem != self._problem else []
        self._problem = problem
        if not problem:
            lines += change_lines(self._before, facts)
            self._before = facts
        if lines:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()

    def wait(self, pause_s: float) -> bool:
        """Until the pause is over or a signal comes; ends also when nobody reads any more."""
        if not self._signals.ended and self._signals.ready(pause_s, gone=self._stream.fileno()) is None:
            return False
        return not self._signals.ended


class WatchScreen(WatchView):
    """The whole terminal, as wide and high as it is at any time; what was on it comes back at the end."""

    def __init__(self, console: Console, keys: TextIO = sys.stdin) -> None:
        self._console = console
        self._keys = keys
        self._signals = _Signals(signal.SIGWINCH, signal.SIGTSTP)
        self._stack = ExitStack()
        self._live: Live | None = None
        self._read_keys = False
        self._shown: tuple[WatchFacts, str] | None = None

    def __enter__(self) -> Self:
        self._signals.__enter__()
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._signals.__exit__()

    def _begin(self) -> None:
        stack = ExitStack()
        if self._keys.isatty():
            stack.enter_context(_single_keys(self._keys.fileno()))
            self._read_keys = True
        live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._live = stack.enter_context(live)
        # Names may be wider than any table knows: they end at the edge, and move no other line.
        self._write(_NO_WRAP)
        stack.callback(self._write, _WRAP)
        self._stack = stack

    def _write(self, control: str) -> None:
        self._console.file.write(control)
        self._console.file.flush()

    def show(self, facts: WatchFacts, problem: str = "") -> None:
        """Draw a look."""
        self._shown = (facts, problem)
        if self._live is not None:
            self._live.update(_Screenful(facts, problem), refresh=True)

    def wait(self, pause_s: float) -> bool:
        """Until the pause is over; a terminal of another size is drawn anew, and one that was given back comes again."""
        until_s = monotonic() + pause_s
        while not self._signals.ended:
            left_s = until_s - monotonic()
            if left_s <= 0:
                return True
            found = self._signals.ready(left_s, *([self._keys.fileno()] if self._read_keys else []))
            if found and self._ends_by_key():
                return False
            if signal.SIGTSTP in self._signals.came:
                self._rest()
            if self._signals.came and self._shown is not None:
                self.show(*self._shown)
            self._signals.came.clear()
        return False

    def _ends_by_key(self) -> bool:
        pressed = os.read(self._keys.fileno(), 64)
        if not pressed:
            self._read_keys = False
        return bool(_END_KEYS & set(pressed))

    def _rest(self) -> None:
        # The terminal is the shell's until somebody brings this back to the front.
        self._stack.close()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._begin()


@contextmanager
def _single_keys(descriptor: int) -> Iterator[None]:
    """Keys arrive without Enter and are not shown; Ctrl-C stays a signal."""
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor, termios.TCSANOW)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


class _Screenful:
    """A look in the size that the terminal has when it is drawn."""

    def __init__(self, facts: WatchFacts, problem: str) -> None:
        self._facts = facts
        self._problem = problem

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = max(options.max_width, _LEAST_WIDTH), max(options.height or options.size.height, _LEAST_HEIGHT)
        for line in watch_lines(self._facts, width=width, height=height, problem=self._problem):
            yield from _segments(console, line)
            yield Segment.line()


def _segments(console: Console, line: Line) -> Iterator[Segment]:
    for span in line:
        yield Segment(span.text, console.get_style(span.style) if span.style else None)
