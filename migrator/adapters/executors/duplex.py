"""A long-lived program that is spoken to: the connection to a host."""

import asyncio
import fcntl
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from migrator.adapters.executors.process import Child
from migrator.ports.processes import Command

_READ_BYTES = 1 << 20
_HIGH_WATER_BYTES = 4 << 20
_PIECES_AT_ONCE = 64
_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20
_STDERR_BYTES = 1 << 16


class Duplex:
    """A program with open standard input and output. Belongs to the event loop that made it.

    `on_output` takes every piece of standard output and must be quick; the end of the output, or of the program, is
    told once by `on_end`.
    """

    def __init__(self, command: Command, *, on_output: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Raises ToolFailed where it cannot be started."""
        self._child = Child(command, open_input=True)
        self._on_output = on_output
        self._on_end = on_end
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._writing = False
        self._closing = False
        self._stderr = bytearray()
        for fd in (self._child.stdin, self._child.stdout):
            with suppress(OSError):  # as wide as it is, where the limit for all pipes of a user is reached
                fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE_BYTES)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._child.stdout, self._read)
        loop.add_reader(self._child.stderr, self._read_errors)
        self._reading = True
        self._reading_errors = True

    @property
    def pid(self) -> int:
        """The program's."""
        return self._child.identity.pid

    @property
    def stderr(self) -> bytes:
        """The end of what it has said on standard error so far, up to 64 KiB."""
        return bytes(self._stderr)

    def write(self, *pieces: bytes) -> None:
        """Queue for its standard input, at once and whole. See `room`."""
        if self._closing:
            return
        for piece in pieces:
            if piece:
                self._unsent.append(memoryview(piece))
                self._unsent_bytes += len(piece)
        if not self._writing:
            self._send()

    async def room(self) -> None:
        """Wait until not too much is queued."""
        await self._room.wait()

    async def exit_code(self, *, within_s: float) -> int | None:
        """Its exit code, once it has ended and its standard error with it; None where it takes longer."""
        try:
            async with asyncio.timeout(within_s):
                await self._child.exited()
        except TimeoutError:
            return None
        if self._reading_errors:
            self._read_errors()
        return self._child.exit_code

    async def close(self, *, patience_s: float, grace_s: float) -> None:
        """The end of its input, time to end by itself, then TERM and KILL. May be called again."""
        if self._closing:
            return
        self._closing = True
        self._stop_writing()
        self._child.close_input()
        try:
            if patience_s > 0:
                await self.exit_code(within_s=patience_s)
        finally:
            try:
                await self._child.end(grace_s)
            finally:
                self._stop_reading()
                self._child.close()

    def _read(self) -> None:
        try:
            piece = os.read(self._child.stdout, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if piece:
            self._on_output(piece)
            return
        asyncio.get_running_loop().remove_reader(self._child.stdout)
        self._reading = False
        self._on_end()

    def _read_errors(self) -> None:
        try:
            while piece := os.read(self._child.stderr, _READ_BYTES):
                self._stderr += piece
                del self._stderr[:-_STDERR_BYTES]
        except BlockingIOError:
            return
        asyncio.get_running_loop().remove_reader(self._child.stderr)
        self._reading_errors = False

    def _send(self) -> None:
        while self._unsent:
            pieces = [self._unsent[number] for number in range(min(len(self._unsent), _PIECES_AT_ONCE))]
            try:
                sent = os.writev(self._child.stdin, pieces)
            except BlockingIOError:
                break
            except OSError:
                # The end of its output tells of it.
                self._unsent.clear()
                self._unsent_bytes = 0
                break
            self._unsent_bytes -= sent
            while sent:
                first = self._unsent[0]
                if sent < len(first):
                    self._unsent[0] = first[sent:]
                    break
                sent -= len(first)
                self._unsent.popleft()
        wanted = bool(self._unsent)
        if wanted != self._writing:
            loop = asyncio.get_running_loop()
            if wanted:
                loop.add_writer(self._child.stdin, self._send)
            else:
                loop.remove_writer(self._child.stdin)
            self._writing = wanted
        if self._unsent_bytes > _HIGH_WATER_BYTES:
            self._room.clear()
        else:
            self._room.set()

    def _stop_writing(self) -> None:
        if self._writing:
            asyncio.get_running_loop().remove_writer(self._child.stdin)
            self._writing = False
        self._unsent.clear()
        self._room.set()

    def _stop_reading(self) -> None:
        loop = asyncio.get_running_loop()
        if self._reading:
            loop.remove_reader(self._child.stdout)
            self._reading = False
            self._on_end()
        if self._reading_errors:
            loop.remove_reader(self._child.stderr)
            self._reading_errors = False
