"""The far end of a connection to a host: starts programs there, hands their output on, and ends them (Python 3.9,
standard library; together with `far_wire`, `far_looks`, `far_start`, `far_stream` and `far_calls`).

It is sent over the connection itself and nothing of it stays on the host. Two processes: the worker, which does it all,
and a guardian above it, which ends whatever the worker leaves behind, also after kill -9, and removes the files that
were placed. Everything ends when the connection does (end of input), or when nothing has been heard for the lease.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import warnings
from collections import deque
from typing import Any

from migrator.adapters.executors import far_wire as wire
from migrator.adapters.executors.far_calls import Calls, PrivateDirectory
from migrator.adapters.executors.far_looks import Snapshot, boot_id
from migrator.adapters.executors.far_start import Ending, adopt_orphans, die_with_parent, end_all, reap
from migrator.adapters.executors.far_stream import FarStream

_INPUT, _OUTPUT = 0, 1
_BACKLOG_BYTES = 8 << 20
"""So much may wait for the connection before no more is read from programs."""
_ENDING_STEP_S = 0.02
_MARGIN_S = 0.05


class FarEnd:
    """The worker's loop. One thread; what may take long is called in threads of their own."""

    def __init__(self, lease_s: float, grace_s: float, private: PrivateDirectory) -> None:
        self.lease_s = lease_s
        self.grace_s = grace_s
        self._poll = select.epoll()
        self._streams: dict[int, FarStream] = {}
        self._by_fd: dict[int, FarStream] = {}
        self._endings: list[Ending] = []
        self._look_at_s = 0.0
        self._incoming = bytearray()
        self._outgoing: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._writing = False
        self._held = False
        self._over = False
        self._heard_s = time.monotonic()
        wake, self._waker = os.pipe()
        for fd in (wake, self._waker, _INPUT, _OUTPUT):
            os.set_blocking(fd, False)
        self._wake = wake
        self._calls = Calls(self, private, self._waker)

    # What streams and calls use.

    def send(self, kind: int, number: int, payload: bytes = b"") -> None:
        """Queue a frame."""
        self._outgoing.append(memoryview(wire.HEADER.pack(len(payload), number, kind)))
        if payload:
            self._outgoing.append(memoryview(payload))
        self._waiting_bytes += wire.HEADER.size + len(payload)

    def greet(self) -> None:
        """The first that is said."""
        self._outgoing.append(memoryview(wire.MAGIC))
        self._waiting_bytes += len(wire.MAGIC)
        self.say(wire.HELLO, 0, {"version": wire.VERSION, "pid": os.getpid(), "guardian": os.getppid()})

    def say(self, kind: int, number: int, fields: dict[str, Any], content: bytes = b"") -> None:
        """Queue a frame of control."""
        self.send(kind, number, wire.pack(fields, content))

    def add_ending(self, ending: Ending) -> None:
        """Have it stepped until it is over, at once for the first time."""
        self._endings.append(ending)
        self._look_at_s = 0.0

    def watch(self, stream: FarStream, fd: int, *, writing: bool) -> None:
        """Tell the stream when this descriptor of it is ready."""
        self._by_fd[fd] = stream
        self._poll.register(fd, select.EPOLLOUT if writing else select.EPOLLIN)

    def unwatch(self, fd: int) -> None:
        """No more."""
        if self._by_fd.pop(fd, None) is not None:
            self._poll.unregister(fd)

    @property
    def held(self) -> bool:
        """Whether the connection takes nothing at the moment."""
        return self._held

    # The loop.

    def run(self) -> None:
        """Until the connection ends, the lease runs out, or a signal says so."""
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._poll.register(_INPUT, select.EPOLLIN)
        self._poll.register(self._wake, select.EPOLLIN)
        self._flush()
        while not self._over:
            for fd, _ in self._poll.poll(self._timeout_s()):
                if fd == _INPUT:
                    self._read()
                elif fd == self._wake:
                    self._woken()
                elif fd in self._by_fd:
                    self._by_fd[fd].ready(fd)
            self._step()
            self._flush()
            if time.monotonic() - self._heard_s > self.lease_s:
                return

    def end_everything(self) -> None:
        """What was started here, and what that started, in whatever session: TERM, grace, KILL."""
        me = os.getpid()
        end_all(lambda snapshot: snapshot.beneath([me]), self.grace_s)

    def _on_signal(self, number: int, _frame: object) -> None:
        if number != signal.SIGCHLD:
            self._over = True

    def _timeout_s(self) -> float:
        left_s = self._heard_s + self.lease_s - time.monotonic() + _MARGIN_S
        if self._endings:
            left_s = min(left_s, max(self._look_at_s - time.monotonic(), 0.0))
        if any(stream.draining for stream in self._streams.values()):
            left_s = min(left_s, 0.1)
        return max(left_s, 0.0)

    def _read(self) -> None:
        try:
            piece = os.read(_INPUT, 1 << 20)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._over = True
            return
        self._heard_s = time.monotonic()
        self._incoming += piece
        while len(self._incoming) >= wire.HEADER.size:
            length, number, kind = wire.HEADER.unpack_from(self._incoming)
            if length > wire.LARGEST_PAYLOAD_BYTES:
                self._over = True
                return
            end = wire.HEADER.size + length
            if len(self._incoming) < end:
                return
            payload = bytes(memoryview(self._incoming)[wire.HEADER.size : end])
            del self._incoming[:end]
            self._take(kind, number, payload)

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == wire.PING:
            self.send(wire.PONG, number)
        elif kind == wire.CALL:
            self._calls.begin(number, *wire.unpack(payload))
        elif kind == wire.START:
            self._start(number, wire.unpack(payload)[0])
        elif number in self._streams:
            stream = self._streams[number]
            if kind == wire.STDIN:
                stream.give(payload)
            elif kind == wire.CREDIT:
                stream.credit(*wire.CREDIT_FIELDS.unpack(payload))
            elif kind == wire.END:
                stream.end(wire.unpack(payload)[0])

    def _start(self, number: int, fields: dict[str, Any]) -> None:
        try:
            stream = FarStream(self, number, fields)
        except (OSError, ValueError) as error:
            code = getattr(error, "errno", None) or 22
            self.say(wire.NOT_STARTED, number, {"errno": code, "text": wire.text(str(error).encode("utf-8"))})
            return
        self._streams[number] = stream
        identity = {"pid": stream.pid, "start_ticks": stream.start_ticks, "boot_id": boot_id()}
        self.say(wire.STARTED, number, identity)

    def _woken(self) -> None:
        try:
            os.read(self._wake, 4096)
        except BlockingIOError:
            return
        for pid, status in reap().items():
            for stream in self._streams.values():
                if stream.pid == pid:
                    stream.exited(os.waitstatus_to_exitcode(status))
        self._calls.deliver()

    def _step(self) -> None:
        began_s = time.monotonic()
        if self._endings and began_s >= self._look_at_s:
            snapshot = Snapshot()
            for ending in self._endings:
                ending.step(snapshot)
            self._endings = [ending for ending in self._endings if ending.result is None]
            self._calls.look()
            ended_s = time.monotonic()
            # On a host with thousands of processes a look takes long: streams must go on meanwhile.
            self._look_at_s = ended_s + max(_ENDING_STEP_S, 4 * (ended_s - began_s))
        for number in [number for number, stream in self._streams.items() if stream.step()]:
            del self._streams[number]

    def _flush(self) -> None:
        while self._outgoing:
            try:
                sent = os.writev(_OUTPUT, [self._outgoing[i] for i in range(min(len(self._outgoing), 64))])
            except BlockingIOError:
                break
            except OSError:
                self._over = True
                return
            self._waiting_bytes -= sent
            while sent:
                first = self._outgoing[0]
                if sent < len(first):
                    self._outgoing[0] = first[sent:]
                    break
                sent -= len(first)
                self._outgoing.popleft()
        wanted = bool(self._outgoing)
        if wanted != self._writing:
            self._writing = wanted
            if wanted:
                self._poll.register(_OUTPUT, select.EPOLLOUT)
            else:
                self._poll.unregister(_OUTPUT)
        held = self._waiting_bytes > _BACKLOG_BYTES
        if held != self._held:
            self._held = held
            for stream in self._streams.values():
                stream.arrange()


def _work(settings: dict[str, Any], private: PrivateDirectory) -> None:
    far_end = FarEnd(settings["lease_s"], settings["grace_s"], private)
    far_end.greet()
    try:
        far_end.run()
    finally:
        far_end.end_everything()


def main(settings: dict[str, Any]) -> None:
    """Never returns. `settings`: lease_s, grace_s."""
    warnings.simplefilter("ignore")
    os.umask(0o022)
    os.chdir("/")
    private = PrivateDirectory()
    adopt_orphans()
    guardian = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            die_with_parent(signal.SIGTERM)
            if os.getppid() == guardian:
                adopt_orphans()
                _work(settings, private)
                code = 0
        finally:
            sys.stderr.flush()
            if sys.exc_info()[0] is not None:
                sys.excepthook(*sys.exc_info())
            os._exit(code)
    _guard(pid, private, settings["grace_s"])


def _guard(worker: int, private: PrivateDirectory, grace_s: float) -> None:
    # Only the worker may hold the connection: it must be seen to end when the worker does.
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, _INPUT)
    os.dup2(null, _OUTPUT)

    def pass_on(number: int, _frame: object) -> None:
        try:
            os.kill(worker, number)
        except ProcessLookupError:
            return

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, pass_on)
    me = os.getpid()
    code: int | None = None
    while code is None:
        pid, status = os.waitpid(-1, 0)
        if pid == worker:
            code = os.waitstatus_to_exitcode(status)
    end_all(lambda snapshot: snapshot.beneath([me]), grace_s)
    private.remove()
    sys.stderr.flush()
    os._exit(0 if code == 0 else 1)
