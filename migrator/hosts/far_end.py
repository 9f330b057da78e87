"""The far end of a connection to a host: starts programs, forwards their output, ends them. Plain Python 3.9.

Its source is sent over the connection, together with the modules that it imports; nothing stays on the host. It is two
processes: the worker does the work; the guardian above it ends whatever the worker leaves behind, also after kill -9,
and removes the placed files. Everything ends at the end of input, or when nothing was heard for a lease.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from migrator.hosts import far_process as process
from migrator.hosts import far_procfs as procfs
from migrator.hosts import far_wire as wire

_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Become the parent of all orphaned descendants."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def sync_file_system(fd: int) -> None:
    """syncfs(2). Raises OSError."""
    if _libc.syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


_DRAIN_S = 2.0
"""How long a finished program's pipes may stay open (a daemon that it started may hold them)."""
_SIGKILL = 9


class FarStream:
    """One program: its pipes under flow control, and its end. All methods belong to the loop."""

    def __init__(self, loop: FarEnd, number: int, fields: dict[str, Any]) -> None:
        """Start it. Raises OSError, ValueError."""
        environment = {wire.raw(name): wire.raw(value) for name, value in fields["environment"].items()}
        argv, with_input = [wire.raw(word) for word in fields["argv"]], fields["with_input"]
        # A stream that outlived its far end would write beside its successor.
        self.program = process.Program(
            argv, environment, with_input=with_input, dies_with_parent=True, umask=fields["umask"]
        )
        process.widen(self.program.output)
        if with_input:
            process.widen(self.program.input)
        self._token = wire.raw(fields.get("token") or "")
        self._loop = loop
        self._number = number
        self._kinds = {self.program.output: wire.STDOUT, self.program.errors: wire.STDERR}
        self._credits = dict.fromkeys(self._kinds, wire.STDOUT_WINDOW_BYTES)
        self._watched: dict[int, bool] = {}
        self._input = self.program.input
        self._given: deque[memoryview] = deque()
        self._input_ends = False
        self._ending: process.Termination | None = None
        self._discarding = False
        self._drained_s = 0.0
        self._stepped_s = time.monotonic()
        self.arrange()

    @property
    def is_running(self) -> bool:
        """Whether the program itself has not ended."""
        return self.program.exit_code is None

    @property
    def draining(self) -> bool:
        """Whether the program has ended and a pipe is still open."""
        return not self.is_running and bool(self._kinds)

    def arrange(self) -> None:
        """Update which pipes are watched."""
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
        """Queue more standard input; empty: its end."""
        if self._input < 0:
            self._return_credit(len(content))
        elif content:
            self._given.append(memoryview(content))
            self._feed()
        else:
            self._input_ends = True
            self._feed()

    def credit(self, kind: int, size_bytes: int) -> None:
        """The reader has taken this much output."""
        for fd in self._kinds:
            if self._kinds[fd] == kind:
                self._credits[fd] += size_bytes
        self.arrange()

    def end(self, fields: dict[str, Any]) -> None:
        """TERM, grace, KILL to its session and to all processes with its token. May be called again."""
        self._discarding = self._discarding or bool(fields["discard"])
        self.arrange()
        if self._ending is None:
            self._ending = process.Termination(self._processes, fields["grace_s"])
            self._loop.add_ending(self._ending)

    def limit(self, fields: dict[str, Any]) -> None:
        """See `set_limit`."""
        if self.is_running:  # not reaped, so the pid is its own
            process.set_limit(self.program.pid, fields["bytes_per_s"])

    def step(self) -> bool:
        """Whether the stream is over, with EXITED sent."""
        now_s = time.monotonic()
        if self.draining and (self._discarding or any(self._watched.get(fd) for fd in self._kinds)):
            # Count only the time in which output could have been taken.
            self._drained_s += now_s - self._stepped_s
        self._stepped_s = now_s
        if self._ending is not None and self._ending.result is None:
            return False
        hangs = self._ending is not None and not self._ending.result
        if self.is_running and not hangs:
            return False
        if self._kinds and not hangs and not self._discarding and self._drained_s < _DRAIN_S:
            return False
        for fd in [*self._kinds, self._input]:
            self._close(fd)
        code = -_SIGKILL if self.program.exit_code is None else self.program.exit_code
        self._loop.send_control(wire.EXITED, self._number, {"code": code, "ended": not hangs})
        return True

    def _processes(self, snapshot: procfs.ProcessTable) -> list[procfs.ProcessStat]:
        return self.program.processes(snapshot, self._token)

    def _read(self, fd: int) -> None:
        # The watch ends when the window is full, so there is credit here.
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
                process.take_off(self._given, sent)
        except BlockingIOError:
            pass
        except OSError:
            # The program closed its input early, which is no error.
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


_PLACES = ("/run", "/dev/shm", "/var/tmp", "/tmp")  # noqa: S108 - a directory of mode 0700 is made in it
_PREFIX = "migrator-far-end-"
_ST_NOEXEC = 0x8

Answer = tuple[dict[str, Any], bytes]


class PrivateDirectory:
    """The directory of placed files: mode 0700, in memory if possible, removed at the end. It is locked while in use,
    so that the next far end can remove one that a killed far end left behind.
    """

    def __init__(self, places: Sequence[str] = _PLACES) -> None:
        self._path = ""
        self._lock_fd = -1
        self._placed: dict[str, bytes] = {}
        place = next((path for path in places if _fits(path)), tempfile.gettempdir())
        for name in os.listdir(place):
            if name.startswith(_PREFIX):
                _remove_if_left(os.path.join(place, name))
        self._path = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
        self._lock_fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock_fd, fcntl.LOCK_SH)

    def place(self, name: str, content: bytes) -> bytes:
        """Write an executable file and return its path. Raises OSError.

        The same content is not written again, and no fork happens during the write: see `process.FORKING`.
        """
        if "/" in name or name in ("", ".", ".."):
            raise OSError(22, "not a plain file name")
        path = os.path.join(self._path, name)
        temporary = path + ".new"
        digest = hashlib.blake2b(content).digest()
        with process.FORKING:
            if self._placed.get(name) != digest:
                fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o700)
                with os.fdopen(fd, "wb") as file:
                    file.write(content)
                os.rename(temporary, path)  # noqa: PTH104
                self._placed[name] = digest
        return os.fsencode(path)

    def remove(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
        os.close(self._lock_fd)


def _fits(path: str) -> bool:
    return (
        os.path.exists(path + "/.") and os.access(path, os.W_OK | os.X_OK) and not os.statvfs(path).f_flag & _ST_NOEXEC
    )


def _remove_if_left(path: str) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        facts = os.fstat(fd)
        if facts.st_uid != os.geteuid() or time.time() - facts.st_mtime < 60:
            return  # its owner may be about to lock it
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        return
    finally:
        os.close(fd)


class Calls:
    """The operations of CALL frames, each in a thread of its own: a hung file system blocks nothing else."""

    def __init__(self, loop: FarEnd, private: PrivateDirectory, waker: int) -> None:
        self._loop = loop
        self._private = private
        self._waker = waker
        self._done: deque[tuple[int, dict[str, Any], bytes]] = deque()
        self._endings: dict[int, process.Termination] = {}
        self._placing = threading.Lock()
        self._syncing = threading.Lock()
        self._sync_fds: dict[bytes, int] = {}
        self._operations: dict[str, Callable[[dict[str, Any], bytes], Answer]] = {
            "survivors": self._survivors,
            "activity": self._activity,
            "place": self._place,
            "find": self._find,
            "head": self._head,
            "roots": self._roots,
            "watch_sync": self._watch_sync,
            "sync": self._sync,
        }

    def begin(self, number: int, fields: dict[str, Any], content: bytes) -> None:
        """Begin a call. The answer is sent at once, or later by `deliver` or `send_ended`."""
        operation = fields.get("operation")
        if operation == "facts":
            self._loop.send_control(wire.ANSWER, number, facts())
        elif operation == "end":
            tokens = [wire.raw(token) for token in fields["tokens"]]
            self._end(number, lambda snapshot: [x for token in tokens for x in snapshot.with_token(token)], fields)
        elif operation == "end_predecessors":
            tokens = [wire.raw(token) for token in fields["tokens"]]
            self._end(number, predecessors(wire.raw(fields["own"]), wire.raw(fields["prefix"]), tokens), fields)
        elif operation in self._operations:
            body = self._operations[operation]
            threading.Thread(target=self._run, args=(number, body, fields, content), daemon=True).start()
        else:
            self._loop.send_control(wire.ANSWER, number, {"errno": 95, "text": "unknown operation"})

    def deliver(self) -> None:
        """Send the answers of finished calls."""
        while self._done:
            number, fields, content = self._done.popleft()
            self._loop.send_control(wire.ANSWER, number, fields, content)

    def send_ended(self) -> None:
        """Send the answers of finished endings."""
        for number in [number for number, ending in self._endings.items() if ending.result is not None]:
            self._loop.send_control(wire.ANSWER, number, {"ended": self._endings.pop(number).result})

    def _end(self, number: int, find: process.FindProcesses, fields: dict[str, Any]) -> None:
        ending = process.Termination(find, fields["grace_s"])
        self._endings[number] = ending
        self._loop.add_ending(ending)

    def _run(
        self, number: int, body: Callable[[dict[str, Any], bytes], Answer], fields: dict[str, Any], content: bytes
    ) -> None:
        try:
            answer, more = body(fields, content)
        except OSError as error:
            answer, more = {"errno": error.errno or 5, "text": wire.text(str(error.strerror).encode())}, b""
        except Exception as error:  # noqa: BLE001 - reported to the other side
            answer, more = {"errno": 22, "text": wire.text(repr(error).encode("ascii", "backslashreplace"))}, b""
        self._done.append((number, answer, more))
        try:
            os.write(self._waker, b"\0")
        except BlockingIOError:
            return  # the pipe is full, so the loop wakes anyway

    def _survivors(self, fields: dict[str, Any], _: bytes) -> Answer:
        found = procfs.carriers(fields["tokens"]).items()
        identities = {token: [[one.pid, one.start_ticks] for one in theirs] for token, theirs in found}
        return {"boot_id": procfs.boot_id(), "survivors": identities}, b""

    def _activity(self, fields: dict[str, Any], _: bytes) -> Answer:
        return {"activity": procfs.activity(fields["tokens"])}, b""

    def _place(self, fields: dict[str, Any], content: bytes) -> Answer:
        with self._placing:
            return {"path": wire.text(self._private.place(fields["name"], content))}, b""

    def _find(self, fields: dict[str, Any], _: bytes) -> Answer:
        found = shutil.which(os.fsdecode(wire.raw(fields["program"])), path=os.fsdecode(wire.raw(fields["path"])))
        return {"path": None if found is None else wire.text(os.fsencode(os.path.abspath(found)))}, b""

    def _head(self, fields: dict[str, Any], _: bytes) -> Answer:
        with open(wire.raw(fields["path"]), "rb") as file:
            return {}, file.read(fields["size_bytes"])

    def _roots(self, fields: dict[str, Any], _: bytes) -> Answer:
        return procfs.roots(*map(wire.raw, fields["words"])), b""

    def _watch_sync(self, fields: dict[str, Any], _: bytes) -> Answer:
        """Open before anything is written: syncfs(2) reports errors since the descriptor was opened."""
        self._sync_fd(wire.raw(fields["path"]))
        return {}, b""

    def _sync(self, fields: dict[str, Any], _: bytes) -> Answer:
        sync_file_system(self._sync_fd(wire.raw(fields["path"])))
        return {}, b""

    def _sync_fd(self, path: bytes) -> int:
        with self._syncing:
            if path not in self._sync_fds:
                self._sync_fds[path] = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            return self._sync_fds[path]


def facts() -> dict[str, Any]:
    """Facts of this host; bytes are texts of `far_wire`."""
    return {
        "node_name": platform.node(),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "python_version": list(sys.version_info[:3]),
        "python": wire.text(os.fsencode(sys.executable)),
        "effective_uid": os.geteuid(),
        "boot_id": procfs.boot_id(),
        "process_id": os.getpid(),
        "time_ns": time.time_ns(),
    }


def predecessors(own: bytes, prefix: bytes, tokens: list[bytes]) -> process.FindProcesses:
    """Finds far ends of the same caller whose connections were lost, their descendants, and the processes with the
    tokens of their started programs, which may be orphans by now. `own` marks this far end, `prefix` all of the
    caller's.
    """

    def find(snapshot: procfs.ProcessTable) -> list[procfs.ProcessStat]:
        marks = [(stat, procfs.arguments_of(stat.pid)) for stat in snapshot.processes]
        older = [stat for stat, words in marks if own not in words and any(word.startswith(prefix) for word in words)]
        beneath = snapshot.beneath(stat.pid for stat in older)
        return [*older, *beneath, *(stat for token in tokens for stat in snapshot.with_token(token))]

    return find


_INPUT, _OUTPUT = 0, 1
_BACKLOG_BYTES = 8 << 20
"""If more output than this waits for the connection, programs are not read."""
_MARGIN_S = 0.05


class FarEnd:
    """The worker's loop, in one thread; `Calls` has threads for everything that may take long."""

    def __init__(self, lease_s: float, grace_s: float, private: PrivateDirectory) -> None:
        self.lease_s = lease_s
        self.grace_s = grace_s
        self._poll = select.epoll()
        self._streams: dict[int, FarStream] = {}
        self._by_fd: dict[int, FarStream] = {}
        self._endings: list[process.Termination] = []
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

    # The interface for streams and calls.

    def send(self, kind: int, number: int, payload: bytes = b"") -> None:
        """Queue a frame."""
        self._outgoing.append(memoryview(wire.HEADER.pack(len(payload), number, kind)))
        if payload:
            self._outgoing.append(memoryview(payload))
        self._waiting_bytes += wire.HEADER.size + len(payload)

    def greet(self) -> None:
        """Queue the magic and the hello."""
        self._outgoing.append(memoryview(wire.MAGIC))
        self._waiting_bytes += len(wire.MAGIC)
        self.send_control(wire.HELLO, 0, {"version": wire.VERSION, "pid": os.getpid(), "guardian": os.getppid()})

    def send_control(self, kind: int, number: int, fields: dict[str, Any], content: bytes = b"") -> None:
        """Queue a control frame."""
        self.send(kind, number, wire.pack(fields, content))

    def add_ending(self, ending: process.Termination) -> None:
        """Step it until it is over, the first time at once."""
        self._endings.append(ending)
        self._look_at_s = 0.0

    def watch(self, stream: FarStream, fd: int, *, writing: bool) -> None:
        """Call the stream's `ready` when this descriptor is ready."""
        self._by_fd[fd] = stream
        self._poll.register(fd, select.EPOLLOUT if writing else select.EPOLLIN)

    def unwatch(self, fd: int) -> None:
        if self._by_fd.pop(fd, None) is not None:
            self._poll.unregister(fd)

    @property
    def held(self) -> bool:
        """Whether the backlog is over its limit."""
        return self._held

    # The loop.

    def run(self) -> None:
        """Run until the connection ends, the lease expires, or a signal arrives."""
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
        """TERM, grace, KILL to all descendants, whatever their session."""
        me = os.getpid()
        process.end_all(lambda snapshot: snapshot.beneath([me]), self.grace_s)

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
            elif kind == wire.LIMIT:
                stream.limit(wire.unpack(payload)[0])

    def _start(self, number: int, fields: dict[str, Any]) -> None:
        try:
            stream = FarStream(self, number, fields)
        except (OSError, ValueError) as error:
            code = getattr(error, "errno", None) or 22
            self.send_control(wire.NOT_STARTED, number, {"errno": code, "text": wire.text(str(error).encode("utf-8"))})
            return
        self._streams[number] = stream
        program = stream.program
        identity = {"pid": program.pid, "start_ticks": program.start_ticks or 0, "boot_id": procfs.boot_id()}
        self.send_control(wire.STARTED, number, identity)

    def _woken(self) -> None:
        try:
            os.read(self._wake, 4096)
        except BlockingIOError:
            return
        ended = process.reap()
        for stream in self._streams.values():
            if stream.program.pid in ended:
                stream.program.was_reaped(os.waitstatus_to_exitcode(ended[stream.program.pid]))
        self._calls.deliver()

    def _step(self) -> None:
        began_s = time.monotonic()
        if self._endings and began_s >= self._look_at_s:
            snapshot = procfs.ProcessTable()
            for ending in self._endings:
                ending.step(snapshot)
            self._endings = [ending for ending in self._endings if ending.result is None]
            self._calls.send_ended()
            ended_s = time.monotonic()
            # On a host with thousands of processes a search takes long: leave time for the streams.
            self._look_at_s = ended_s + max(process.POLL_S, 4 * (ended_s - began_s))
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
            process.take_off(self._outgoing, sent)
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
            process.die_with_parent(signal.SIGTERM)
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
    # Only the worker may hold the connection, so that the connection ends with the worker.
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
    process.end_all(lambda snapshot: snapshot.beneath([me]), grace_s)
    private.remove()
    sys.stderr.flush()
    os._exit(0 if code == 0 else 1)
