"""One program at the far end of a connection: its pipes under flow control, and its end (Python 3.9, standard library)."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from migrator.adapters.executors import far_wire as wire
from migrator.adapters.executors.far_looks import Look, Snapshot
from migrator.adapters.executors.far_start import Ending, Started

if TYPE_CHECKING:
    from migrator.adapters.executors.far_end import FarEnd

_DRAIN_S = 2.0
"""How long a finished program's pipes may stay open (a daemon that it started may hold them)."""
_SIGKILL = 9


class FarStream:
    """One program. All methods belong to the loop."""

    def __init__(self, loop: FarEnd, number: int, fields: dict[str, Any]) -> None:
        """Start it. Raises OSError, ValueError."""
        environment = {wire.raw(name): wire.raw(value) for name, value in fields["environment"].items()}
        started = Started([wire.raw(word) for word in fields["argv"]], environment, with_input=fields["with_input"])
        self.pid = started.pid
        self.start_ticks = started.start_ticks
        self._token = wire.raw(fields.get("token") or "")
        self._loop = loop
        self._number = number
        self._kinds = {started.output: wire.STDOUT, started.errors: wire.STDERR}
        self._credits = {started.output: wire.STDOUT_WINDOW_BYTES, started.errors: wire.STDOUT_WINDOW_BYTES}
        self._watched: dict[int, bool] = {}
        self._input = started.input
        self._given: deque[memoryview] = deque()
        self._input_ends = False
        self._code: int | None = None
        self._ending: Ending | None = None
        self._discarding = False
        self._drained_s = 0.0
        self._stepped_s = time.monotonic()
        self.arrange()

    @property
    def draining(self) -> bool:
        """Whether the program has ended and its pipes have not."""
        return self._code is not None and bool(self._kinds)

    def arrange(self) -> None:
        """Watch what may be read and written now."""
        for fd in self._kinds:
            self._watch(fd, self._credits[fd] > 0 and not self._loop.held and not self._discarding, writing=False)
        if self._input >= 0:
            self._watch(self._input, bool(self._given), writing=True)

    def ready(self, fd: int) -> None:
        """A descriptor can be read or written."""
        if fd == self._input:
            self._feed()
        elif fd in self._kinds:
            self._read(fd)

    def give(self, content: bytes) -> None:
        """More standard input; empty: that was all."""
        if self._input < 0:
            self._return_credit(len(content))
        elif content:
            self._given.append(memoryview(content))
            self._feed()
        else:
            self._input_ends = True
            self._feed()

    def credit(self, kind: int, size_bytes: int) -> None:
        """The reader has taken so much."""
        for fd in self._kinds:
            if self._kinds[fd] == kind:
                self._credits[fd] += size_bytes
        self.arrange()

    def end(self, fields: dict[str, Any]) -> None:
        """TERM, grace, KILL to its session and to all that carries its token. May be called again."""
        self._discarding = self._discarding or bool(fields["discard"])
        self.arrange()
        if self._ending is None:
            self._ending = Ending(self._members, fields["grace_s"])
            self._loop.add_ending(self._ending)

    def exited(self, code: int) -> None:
        """The program itself has ended and been reaped."""
        self._code = code

    def step(self) -> bool:
        """Whether it is over: then the other side has been told."""
        now_s = time.monotonic()
        if self.draining and (self._discarding or any(self._watched.get(fd) for fd in self._kinds)):
            # Only the time in which somebody could have taken what comes.
            self._drained_s += now_s - self._stepped_s
        self._stepped_s = now_s
        if self._ending is not None and self._ending.result is None:
            return False
        hangs = self._ending is not None and not self._ending.result
        if self._code is None and not hangs:
            return False
        if self._kinds and not hangs and not self._discarding and self._drained_s < _DRAIN_S:
            return False
        for fd in [*self._kinds, self._input]:
            self._close(fd)
        code = -_SIGKILL if self._code is None else self._code
        self._loop.say(wire.EXITED, self._number, {"code": code, "ended": not hangs})
        return True

    def _members(self, snapshot: Snapshot) -> list[Look]:
        found = {look.pid: look for look in snapshot.of_session(self.pid)}
        if self._token:
            found.update((look.pid, look) for look in snapshot.with_token(self._token))
        return list(found.values())

    def _read(self, fd: int) -> None:
        # The watch is over when the window is full, so there is credit here.
        try:
            piece = os.read(fd, min(wire.PIECE_BYTES, self._credits[fd]))
        except BlockingIOError:
            return
        if not piece:
            self._close(fd)
            return
        self._credits[fd] -= len(piece)
        self._loop.send(self._kinds[fd], self._number, piece)
        if self._credits[fd] <= 0:
            self.arrange()

    def _feed(self) -> None:
        written = 0
        try:
            while self._given:
                sent = os.write(self._input, self._given[0])
                written += sent
                self._given[0] = self._given[0][sent:]
                if not self._given[0]:
                    self._given.popleft()
        except BlockingIOError:
            pass
        except OSError:
            # A program that does not want it all is no error.
            written += sum(len(piece) for piece in self._given)
            self._given.clear()
            self._input_ends = True
        self._return_credit(written)
        if self._input_ends and not self._given:
            self._close(self._input)
        else:
            self.arrange()

    def _return_credit(self, size_bytes: int) -> None:
        if size_bytes:
            self._loop.send(wire.STDIN_CREDIT, self._number, wire.NUMBER.pack(size_bytes))

    def _watch(self, fd: int, wanted: bool, *, writing: bool) -> None:
        if self._watched.get(fd, False) == wanted:
            return
        self._watched[fd] = wanted
        if wanted:
            self._loop.watch(self, fd, writing=writing)
        else:
            self._loop.unwatch(fd)

    def _close(self, fd: int) -> None:
        if fd < 0:
            return
        self._watch(fd, False, writing=False)
        os.close(fd)
        self._kinds.pop(fd, None)
        self._credits.pop(fd, None)
        if fd == self._input:
            self._input = -1
            self._given.clear()
