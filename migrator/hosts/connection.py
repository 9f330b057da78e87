"""One connection to a far end: the source that is sent first, then frames, calls and streams."""

import asyncio
import logging
import os
import re
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from migrator.core.errors import ToolFailed
from migrator.core.tasks import drop_error
from migrator.hosts import far_wire as wire
from migrator.hosts.far_source import far_source
from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Command, HostLost
from migrator.hosts.process import Duplex

_log = logging.getLogger(__name__)

_PACKAGE = __name__.rpartition(".")[0]
_MODULES = ("far_wire", "far_procfs", "far_process", "far_end")
"""In loading order: each imports only earlier ones."""

TOO_OLD = "migrator-far-end: this Python is too old: "


def bundle(*, lease_s: float, grace_s: float) -> bytes:
    """The far end as one Python source in ASCII."""
    return far_source(_PACKAGE, _MODULES, {"lease_s": lease_s, "grace_s": grace_s})


def arguments(size_bytes: int, key: str) -> tuple[str, ...]:
    """The interpreter's arguments to read and run this many bytes of source. `key` marks its processes.

    The code has only double quotes, so that every login shell accepts it in single quotes; Python 2 can parse it, too.
    """
    code = (
        f'import sys; v = sys.version_info[:3]; v < (3, 9) and sys.exit("{TOO_OLD}%d.%d.%d" % tuple(v)); '
        f'exec(compile(sys.stdin.buffer.read({size_bytes}), "migrator-far-end", "exec"))'
    )
    return ("-I", "-S", "-c", code, key)


class Transport(Protocol):
    """Makes the command that runs Python on a host with its standard streams connected to ours, and explains its
    failures.
    """

    @property
    def host(self) -> str:
        """The host's name, as in site.toml."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of this program's environment that the command needs."""

    def argv(self, arguments: tuple[str, ...]) -> tuple[bytes, ...]:
        """The command, with these arguments for the interpreter."""

    def explain(self, stderr: bytes, exit_code: int | None, *, connected: bool) -> HostLost:
        """The error for a failure. `exit_code` None: it has not ended. `connected`: the connection had been
        established.
        """


Failures = Sequence[tuple[str, str, str, str]]
"""A regular expression for the output of the connecting program, what it means, the cause, and the hint."""


def own_environment(names: Sequence[str]) -> dict[str, str]:
    """These variables of this program's environment, without unset ones."""
    return {name: os.environ[name] for name in names if name in os.environ}


def known_failure(failures: Failures, stderr: bytes, message: str, **names: str) -> HostLost | None:
    """The error for the first failure whose expression matches the output: its meaning follows `message`, and `names`
    fill the rest.
    """
    printed = stderr.decode("utf-8", "replace")
    for pattern, what, cause, hint in failures:
        if re.search(pattern, printed):
            return HostLost(message + what, cause=cause.format(**names), hint=hint.format(**names))
    return None


_NOISE_BYTES = 1 << 20
_EXPLAIN_WITHIN_S = 2.0
_MARGIN_S = 0.5
_BEATS = 4
"""Heartbeats in a lease."""


class RemoteStream:
    """This side of one program at the far end."""

    def __init__(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.started: asyncio.Future[ProcessIdentity] = loop.create_future()
        self.exited: asyncio.Future[tuple[int, bool]] = loop.create_future()
        """The exit code, and whether all its processes could be ended."""
        self.output = {wire.STDOUT: Output(), wire.STDERR: Output()}
        self.input_window_bytes = wire.STDIN_WINDOW_BYTES
        self.input_room = asyncio.Event()
        for future in (self.started, self.exited):
            future.add_done_callback(drop_error)

    def fail(self, error: Exception) -> None:
        """The connection is lost."""
        for future in (self.started, self.exited):
            if not future.done():
                future.set_exception(error)
        for output in self.output.values():
            output.end()
        self.input_room.set()


class Output:
    """Pieces that have arrived and have not been taken."""

    def __init__(self) -> None:
        self.pieces: deque[bytes] = deque()
        self.ended = False
        self.news = asyncio.Event()

    def add(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self.news.set()

    def end(self) -> None:
        self.ended = True
        self.news.set()


class Connection:
    """One connection; `open` opens it. After its loss, every waiting call raises HostLost, and it cannot be used again.

    A connection that is silent for a whole lease counts as lost: the far end has received nothing either, or will
    detect the end of the connection. Heartbeats come from a thread: a busy event loop ends no stream.
    """

    def __init__(self, transport: Transport, *, key: str, lease_s: float, grace_s: float, open_within_s: float) -> None:
        self._transport = transport
        self._lease_s = lease_s
        self._grace_s = grace_s
        self._open_within_s = open_within_s
        self._key = key
        self._incoming = bytearray()
        self._greeted = False
        self._numbers = 0
        self._calls: dict[int, asyncio.Future[tuple[wire.Fields, bytes]]] = {}
        self._streams: dict[int, RemoteStream] = {}
        self._duplex: Duplex | None = None
        self._hello: asyncio.Future[wire.Fields] = asyncio.get_running_loop().create_future()
        self._hello.add_done_callback(drop_error)
        self._losing: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._over = threading.Event()
        self._heard_s = 0.0
        self.lost: HostLost | None = None

    async def open(self) -> None:
        """Connect, send the far end's source, and wait for its hello. Raises HostLost."""
        loop = asyncio.get_running_loop()
        source = bundle(lease_s=self._lease_s, grace_s=self._grace_s)
        command = Command(
            argv=self._transport.argv(arguments(len(source), self._key)),
            environment=self._transport.environment,
            timeout_s=None,
        )
        try:
            self._duplex = Duplex(command, on_output=self._take, on_end=self._ended)
        except ToolFailed as error:
            raise HostLost(error.message, cause=error.cause, hint=error.hint) from error
        self._duplex.write(source)
        self._heard_s = loop.time()
        try:
            async with asyncio.timeout(self._open_within_s):
                hello = await self._hello
        except TimeoutError as error:
            printed = self._duplex.stderr or b"Connection timed out: no answer within %d s" % self._open_within_s
            lost = self._transport.explain(printed, None, connected=False)
            await self._lose(lost)
            raise lost from error
        except asyncio.CancelledError:
            await self.close()
            raise
        if hello.get("version") != wire.VERSION:
            await self.close()
            raise HostLost(f"{self._transport.host} answers in another version: {hello.get('version')}")
        self._listening = asyncio.create_task(self._listen(), name=f"lease-{self._transport.host}")
        name = f"heartbeat-{self._transport.host}"
        threading.Thread(target=self._beat, args=(self._duplex,), name=name, daemon=True).start()

    async def call(self, operation: str, content: bytes = b"", **arguments: object) -> tuple[wire.Fields, bytes]:
        """Call an operation of the far end. Raises OSError as raised there, HostLost."""
        number = self._next()
        answer: asyncio.Future[tuple[wire.Fields, bytes]] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        try:
            payload = wire.pack({"operation": operation, **arguments}, content)
            self._send(wire.CALL, number, payload)
            fields, more = await answer
        finally:
            self._calls.pop(number, None)
        if "errno" in fields:
            raise OSError(fields["errno"], wire.raw(fields["text"]).decode("utf-8", "replace"))
        return fields, more

    def start(self, command: Command, environment: Mapping[str, str], *, token: str) -> RemoteStream:
        """Request the start of a program with this environment and token; `started` has the outcome (or OSError, HostLost)."""
        if self.lost is not None:
            raise self.lost
        stream = RemoteStream(self._next())
        self._streams[stream.number] = stream
        fields = {
            "argv": [wire.text(word) for word in command.argv],
            "environment": {wire.text(k.encode()): wire.text(v.encode()) for k, v in environment.items()},
            "token": token,
            "with_input": bool(command.stdin),
            "umask": command.umask,
        }
        self._send(wire.START, stream.number, wire.pack(fields))
        return stream

    async def feed(self, stream: RemoteStream, content: bytes) -> None:
        """Write standard input as fast as the program reads it."""
        left = memoryview(content)
        while left and not stream.exited.done():
            if stream.input_window_bytes <= 0:
                stream.input_room.clear()
                await stream.input_room.wait()
                continue
            piece = bytes(left[: min(stream.input_window_bytes, wire.PIECE_BYTES)])
            left = left[len(piece) :]
            stream.input_window_bytes -= len(piece)
            self._send(wire.STDIN, stream.number, piece)
            if self._duplex is not None:
                await self._duplex.room()

    def end_input(self, stream: RemoteStream) -> None:
        """End standard input."""
        if self.lost is None and not stream.exited.done():
            self._send(wire.STDIN, stream.number, b"")

    def credit(self, stream: RemoteStream, kind: int, size_bytes: int) -> None:
        """Report that this much of the output has been taken."""
        if self.lost is None and not stream.exited.done():
            self._send(wire.CREDIT, stream.number, wire.CREDIT_FIELDS.pack(kind, size_bytes))

    def end(self, stream: RemoteStream, *, grace_s: float, discard: bool) -> None:
        """Request the end of all its processes; then `exited` is set. `discard` drops the rest of the output."""
        if self.lost is None and not stream.exited.done():
            self._send(wire.END, stream.number, wire.pack({"grace_s": grace_s, "discard": discard}))

    def limit(self, stream: RemoteStream, bytes_per_s: int) -> None:
        """As `Processes.limit`."""
        if self.lost is None and not stream.exited.done():
            self._send(wire.LIMIT, stream.number, wire.pack({"bytes_per_s": bytes_per_s}))

    async def close(self) -> None:
        """Close the connection; the far end then ends all programs. May be called again."""
        await self._lose(
            HostLost(f"the connection to {self._transport.host} was closed"), patience_s=self._grace_s + 6.0
        )

    def _next(self) -> int:
        self._numbers = self._numbers % 0xFFFFFFFF + 1
        return self._numbers

    def _send(self, kind: int, number: int, payload: bytes = b"") -> None:
        if self.lost is not None:
            raise self.lost
        if self._duplex is not None:
            self._duplex.write(wire.HEADER.pack(len(payload), number, kind), payload)

    def _take(self, piece: bytes) -> None:
        self._heard_s = asyncio.get_running_loop().time()
        self._incoming += piece
        if not self._greeted and not self._greet():
            return
        start, size = 0, len(self._incoming)
        view = memoryview(self._incoming)
        frames = []
        while size - start >= wire.HEADER.size:
            length, number, kind = wire.HEADER.unpack_from(view, start)
            end = start + wire.HEADER.size + length
            if end > size:
                break
            frames.append((kind, number, bytes(view[start + wire.HEADER.size : end])))
            start = end
        view.release()
        del self._incoming[:start]
        for kind, number, payload in frames:
            self._dispatch(kind, number, payload)

    def _greet(self) -> bool:
        """Skip the output of the login shell, up to the magic."""
        place = self._incoming.find(wire.MAGIC)
        if place < 0:
            del self._incoming[:-_NOISE_BYTES]
            return False
        del self._incoming[: place + len(wire.MAGIC)]
        self._greeted = True
        return True

    def _dispatch(self, kind: int, number: int, payload: bytes) -> None:
        if kind == wire.HELLO:
            if not self._hello.done():
                self._hello.set_result(wire.unpack(payload)[0])
            return
        if kind == wire.ANSWER:
            answer = self._calls.get(number)
            if answer is not None and not answer.done():
                answer.set_result(wire.unpack(payload))
            return
        stream = self._streams.get(number)
        if stream is None:
            return
        if kind in stream.output:
            stream.output[kind].add(payload)
        elif kind == wire.STDIN_CREDIT:
            stream.input_window_bytes += wire.NUMBER.unpack(payload)[0]
            stream.input_room.set()
        elif kind == wire.STARTED:
            if not stream.started.done():  # a call that is cancelled does not wait for it any more
                stream.started.set_result(ProcessIdentity(**wire.unpack(payload)[0]))
        elif kind in (wire.NOT_STARTED, wire.EXITED):
            del self._streams[number]
            fields = wire.unpack(payload)[0]
            if kind == wire.EXITED:
                stream.exited.set_result((fields["code"], fields["ended"]))
                stream.fail(ToolFailed("it has ended"))
            else:
                text = wire.raw(fields["text"]).decode("utf-8", "replace")
                stream.fail(OSError(fields["errno"], text))

    def _ended(self) -> None:
        if self._losing is None and self.lost is None:
            self._losing = asyncio.create_task(self._explain_end(), name=f"lost-{self._transport.host}")

    async def _explain_end(self) -> None:
        if self._duplex is None:
            return
        exit_code = await self._duplex.exit_code(within_s=_EXPLAIN_WITHIN_S)
        if self.lost is None:
            await self._lose(self._transport.explain(self._duplex.stderr, exit_code, connected=self._greeted))

    def _beat(self, duplex: Duplex) -> None:
        while not self._over.wait(self._lease_s / _BEATS):
            duplex.write_aside(wire.HEADER.pack(0, 0, wire.PING))

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        while self.lost is None:
            slept_from_s = loop.time()
            await asyncio.sleep(self._lease_s / _BEATS)
            # The time for which the loop was busy does not count: nothing was read then.
            self._heard_s += max(loop.time() - slept_from_s - self._lease_s / _BEATS, 0.0)
            silent_s = loop.time() - self._heard_s
            if silent_s > self._lease_s + _MARGIN_S:
                printed = b"Connection timed out: nothing heard for %d s" % silent_s
                await self._lose(self._transport.explain(printed, None, connected=True))
                return

    async def _lose(self, error: HostLost, *, patience_s: float = 0.0) -> None:
        """Fail all waiting calls, and end the connecting program."""
        self._over.set()
        if self.lost is None:
            self.lost = error
            if not self._hello.done():
                self._hello.set_exception(error)
            for answer in self._calls.values():
                if not answer.done():
                    answer.set_exception(error)
            for stream in self._streams.values():
                stream.fail(error)
            self._streams.clear()
        me = asyncio.current_task()
        if self._listening is not None and self._listening is not me:
            self._listening.cancel()
        if self._duplex is not None:
            await self._duplex.close(patience_s=patience_s, grace_s=0.5)
