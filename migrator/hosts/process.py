"""Programs of this machine, run by the event loop: their input and output, their time limits, their ends.

`far_process` starts and ends them, with a clean environment. Cancellation waits for the end: no task leaves a process
behind.
"""

import asyncio
import functools
import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from msgspec.structs import replace

from migrator.core.errors import ToolFailed
from migrator.core.paths import show
from migrator.core.tasks import to_the_end
from migrator.hosts import far_process, proc
from migrator.hosts.far_procfs import ProcessTable
from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Command, Completed, ConversationOver, OnOutput, OnStart, Processes

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

BASE_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
GRACE_S = 5.0
"""The default time between TERM and KILL."""
_PIECE_BYTES = 1 << 16
_DRAIN_S = 2.0
"""How long a finished program's pipes may stay open (a daemon that it started may hold them)."""


class CollectingProcesses(Processes):
    """`run` in terms of `stream`; raises ToolFailed also if the output exceeds the limit."""

    def __init__(self, *, grace_s: float, output_limit_bytes: int) -> None:
        self._grace_s = grace_s
        self._output_limit_bytes = output_limit_bytes

    async def run(self, command: Command) -> Completed:
        """As the port."""
        stdout = _Collected(command, self._output_limit_bytes)
        stderr = _Collected(command, self._output_limit_bytes)
        ended = await self.stream(command, on_start=lambda _: None, on_stdout=stdout.take, on_stderr=stderr.take)
        return replace(ended, stdout=b"".join(stdout.pieces), stderr=b"".join(stderr.pieces))


class LocalProcesses(CollectingProcesses):
    """The `Processes` port of this machine. `grace_s` is the time between TERM and KILL; `output_limit_bytes` applies
    to `run` only. `one_output` joins standard error to standard output, so that their lines keep their order.
    """

    def __init__(
        self, *, grace_s: float = GRACE_S, output_limit_bytes: int = 256 << 20, one_output: bool = False
    ) -> None:
        super().__init__(grace_s=grace_s, output_limit_bytes=output_limit_bytes)
        self._one_output = one_output
        self._children: dict[str | None, Child] = {}

    def limit(self, token: str, bytes_per_s: int) -> None:
        if (child := self._children.get(token)) is not None and not child.reap():
            far_process.set_limit(child.identity.pid, bytes_per_s)

    async def survivors(self, tokens: Sequence[str]) -> Mapping[str, tuple[ProcessIdentity, ...]]:
        return proc.carriers(tokens)

    async def end(self, token: str, *, grace_s: float) -> bool:
        return await end_all(lambda snapshot: snapshot.with_token(token.encode()), grace_s)

    async def stream(
        self, command: Command, *, on_start: OnStart, on_stdout: OnOutput, on_stderr: OnOutput
    ) -> Completed:
        child = Child(command, one_output=self._one_output)
        if command.more is not None:
            far_process.widen(child.stdin)
        self._children[command.token] = child
        finished = timed_out = False
        # Nothing was awaited since the start of the process, so no cancellation can have occurred in between.
        try:
            on_start(child.identity)
            exited = asyncio.ensure_future(child.exited())
            following = [
                asyncio.ensure_future(feed_when_asked(command, exited, child.feed, child.close_input)),
                asyncio.ensure_future(_follow(child, child.stdout, on_stdout)),
            ]
            if not self._one_output:
                following.append(asyncio.ensure_future(_follow(child, child.stderr, on_stderr)))
            try:
                try:
                    timed_out = not await wait_for_end(exited, following, command.timeout_s)
                finally:
                    await cancel_all([exited])  # only one task may wait for the end at a time
                if timed_out:
                    _log.warning("%s ran into its time limit of %s s", show(command.argv[0]), command.timeout_s)
                    await self._end(child, command)
                    # A process that hangs in the kernel keeps its pipes open.
                    _set(child.end_seen)
                    await cancel_all(following[:1])
                await _finish(following[timed_out:])
                finished = not timed_out
            finally:
                await cancel_all(following)
        finally:
            try:
                if not finished:
                    await to_the_end(self._end(child, command))
            finally:
                self._children.pop(command.token, None)
                child.close()
        return Completed(exit_code=child.exit_code, stdout=b"", stderr=b"", timed_out=timed_out)

    async def _end(self, child: "Child", command: Command) -> None:
        """End a program that did not finish. One that finished may have left a daemon on purpose."""
        if not await child.end(self._grace_s):
            _log.error("a process of %s cannot be ended (pid %d)", show(command.argv[0]), child.identity.pid)


async def end_all(find: far_process.FindProcesses, grace_s: float) -> bool:
    """End all processes found, as `far_process.Ending` does; False if one survives."""
    ending = far_process.Termination(find, grace_s)
    while True:
        began_s = time.monotonic()
        ending.step(ProcessTable())
        if ending.result is not None:
            return ending.result
        # On a machine with thousands of processes a search takes long: leave time for everything else.
        await asyncio.sleep(max(far_process.POLL_S, 4 * (time.monotonic() - began_s)))


class Child:
    """One started program. All methods belong to the event loop that created it.

    `open_input`: the caller writes its standard input through the descriptor `stdin`. `one_output`: standard error goes
    to `stdout`.
    """

    def __init__(self, command: Command, *, open_input: bool = False, one_output: bool = False) -> None:
        """Raises ToolFailed if it cannot be started."""
        self.end_seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._token = (command.token or "").encode()
        try:
            self._program = far_process.Program(
                command.argv,
                _environment(command),
                with_input=bool(command.stdin) or open_input,
                # A killed command's streams are found by their tokens: the next command waits for them, or ends them.
                dies_with_parent=False,
                one_output=one_output,
                umask=command.umask,
            )
        except (OSError, ValueError) as error:
            raise not_started(command, error) from error
        self.stdin, self.stdout, self.stderr = self._program.input, self._program.output, self._program.errors
        self._pidfd = -1
        try:
            self._pidfd = os.pidfd_open(self._program.pid)
            self.identity = _identity(command, self._program)
        except (OSError, ToolFailed) as error:
            self._program.kill()
            self._program.wait()
            self.close()
            raise not_started(command, error) from error

    @property
    def exit_code(self) -> int:
        """The exit code; minus the signal's number after a signal, also for a process that hangs after KILL."""
        code = self._program.exit_code
        return -signal.SIGKILL if code is None else code

    def reap(self) -> bool:
        """True if it has ended; an ended process is reaped."""
        if not self._program.reap():
            return False
        _set(self.end_seen)
        return True

    async def exited(self) -> None:
        """Wait for its end and reap it."""
        while not self.reap():
            await ready(self._pidfd, writing=False)

    async def feed(self, content: bytes) -> None:
        """Write standard input as fast as it is read; a program may close it early."""
        left = memoryview(content)
        while left and self.stdin >= 0:
            try:
                left = left[os.write(self.stdin, left) :]
            except BlockingIOError:
                await ready(self.stdin, writing=True)
            except BrokenPipeError:
                self.close_input()

    def close_input(self) -> None:
        """Close standard input. May be called again."""
        far_process.close(self.stdin)
        self.stdin = -1

    def kill(self) -> None:
        """KILL its process group at once."""
        self._program.kill()

    async def end(self, grace_s: float) -> bool:
        """TERM, grace, KILL to its session and to all processes with its token, and reap it. False if one survives."""
        ended = await end_all(lambda snapshot: self._program.processes(snapshot, self._token), grace_s)
        self.reap()
        return ended

    def close(self) -> None:
        """Close the pipes. May be called again."""
        far_process.close(self.stdin, self.stdout, self.stderr, self._pidfd)
        self.stdin = self.stdout = self.stderr = self._pidfd = -1
        if self._program.exit_code is None:
            # It hangs in the kernel: a thread waits for its end, so that it does not remain a zombie.
            threading.Thread(target=self._program.wait, name=f"reap-{self._program.pid}", daemon=True).start()


class _Collected:
    """Output, kept up to a limit."""

    def __init__(self, command: Command, limit_bytes: int) -> None:
        self._command = command
        self._left_bytes = self._limit_bytes = limit_bytes
        self.pieces: list[bytes] = []

    def take(self, piece: bytes) -> None:
        self._left_bytes -= len(piece)
        if self._left_bytes < 0:
            raise ToolFailed(
                f"{show(self._command.argv[0])} printed more than {self._limit_bytes} bytes",
                hint="run the command by hand to see its output: " + show(b" ".join(self._command.argv)),
            )
        self.pieces.append(piece)


def _environment(command: Command) -> dict[str, str]:
    environment = {**BASE_ENVIRONMENT, **command.environment}
    if command.token is not None:
        environment[proc.TOKEN_VARIABLE] = command.token
    return environment


def not_started(command: Command, error: Exception) -> ToolFailed:
    """The error for a program that could not be started."""
    missing = isinstance(error, FileNotFoundError)
    return ToolFailed(
        f"{show(command.argv[0])} could not be started: {error}",
        cause="the program is not installed" if missing else "",
        hint="install it; `migrator doctor` lists what is needed" if missing else "",
    )


def _identity(command: Command, program: far_process.Program) -> ProcessIdentity:
    if program.start_ticks is None:
        raise ToolFailed(
            f"{show(command.argv[0])} (pid {program.pid}) is not visible in /proc",
            cause="/proc is not mounted, or hides processes (hidepid)",
        )
    return ProcessIdentity(pid=program.pid, start_ticks=program.start_ticks, boot_id=proc.boot_id())


def _set(future: "asyncio.Future[None]", _: object = None) -> None:
    if not future.done():
        future.set_result(None)


async def ready(fd: int, *, writing: bool, ended: "asyncio.Future[None] | None" = None) -> None:
    """Wait until a descriptor is readable or writable, or `ended` is done. One waiter at a time for each."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    wake = functools.partial(_set, ready)
    (loop.add_writer if writing else loop.add_reader)(fd, wake)
    if ended is not None:
        ended.add_done_callback(wake)
    try:
        await ready
    finally:
        (loop.remove_writer if writing else loop.remove_reader)(fd)
        if ended is not None:
            ended.remove_done_callback(wake)


async def _follow(child: Child, fd: int, take: OnOutput) -> None:
    """Pass on output until the pipe's end, or for the drain time after the program's end. The time spent in `take` does
    not count.
    """
    drained_s = 0.0
    while drained_s < _DRAIN_S:
        began_s = time.monotonic()
        try:
            piece = os.read(fd, _PIECE_BYTES)
        except BlockingIOError:
            if child.end_seen.done():
                with suppress(TimeoutError):
                    async with asyncio.timeout(_DRAIN_S - drained_s):
                        await ready(fd, writing=False)
                drained_s += time.monotonic() - began_s
            else:
                await ready(fd, writing=False, ended=child.end_seen)
            continue
        if not piece:
            return
        if child.end_seen.done():
            drained_s += time.monotonic() - began_s
        taken = take(piece)
        if taken is not None:
            await taken
        else:
            await asyncio.sleep(0)  # a program with much output must not starve the others


async def feed_when_asked(
    command: Command, exited: "asyncio.Future[Any]", feed: Callable[[bytes], Awaitable[None]], end: Callable[[], None]
) -> None:
    """Feed a program its standard input, unless it ends before it is asked, and end that."""
    if command.asked is not None and not command.asked.is_set():
        await _before(exited, command.asked.wait())
    piece: bytes | None = command.stdin
    try:
        while piece:
            await feed(piece)
            piece = None if command.more is None else await _before(exited, command.more())
    finally:
        end()


async def _before(exited: "asyncio.Future[Any]", awaited: Awaitable[Result]) -> Result | None:
    """What is awaited, or None if the program ends first."""
    waiting = asyncio.ensure_future(awaited)
    try:
        await asyncio.wait({waiting, exited}, return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else None
    finally:
        waiting.cancel()


async def wait_for_end(
    ended: "asyncio.Future[Any]", following: Sequence["asyncio.Future[None]"], timeout_s: float | None
) -> bool:
    """False after a timeout. Raises the error of `ended` or of a follower."""
    loop = asyncio.get_running_loop()
    deadline_s = None if timeout_s is None else loop.time() + timeout_s
    while not ended.done():
        left_s = None if deadline_s is None else max(deadline_s - loop.time(), 0.0)
        waiting = [ended, *(task for task in following if not task.done())]
        done, _ = await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return False
        for future in done:
            future.result()
    ended.result()
    return True


async def _finish(following: Sequence["asyncio.Future[None]"]) -> None:
    done, _ = await asyncio.wait(following, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()


async def cancel_all(tasks: Sequence["asyncio.Future[Any]"]) -> None:
    """Cancel tasks and wait for their ends, even if the caller is cancelled; their errors are dropped."""
    for task in tasks:
        task.cancel()
    await to_the_end(_settled(tasks))


async def _settled(tasks: Sequence["asyncio.Future[Any]"]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


_READ_BYTES = 1 << 20
_HIGH_WATER_BYTES = 4 << 20
_PIECES_AT_ONCE = 64
_STDERR_BYTES = 1 << 16


class Duplex:
    """A long-lived program with open standard input and output: the connection to a host. Belongs to the event loop
    that made it. `on_output` takes every piece of standard output and must be quick; `on_end` is called once, at the
    end of the output.
    """

    def __init__(self, command: Command, *, on_output: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Raises ToolFailed if it cannot be started."""
        self._child = Child(command, open_input=True)
        self._on_output = on_output
        self._on_end = on_end
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._closing = False
        self._sending = threading.Lock()
        self._stderr = bytearray()
        for fd in (self._child.stdin, self._child.stdout):
            far_process.widen(fd)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._child.stdout, self._read)
        self._loop.add_reader(self._child.stderr, self._read_errors)
        self._reading_errors = True

    @property
    def pid(self) -> int:
        return self._child.identity.pid

    @property
    def stderr(self) -> bytes:
        """The last 64 KiB of its standard error."""
        return bytes(self._stderr)

    def write(self, *pieces: bytes) -> None:
        """Queue for its standard input. See `room`."""
        if self._closing:
            return
        with self._sending:
            idle = not self._unsent
            for piece in pieces:
                if piece:
                    self._unsent.append(memoryview(piece))
                    self._unsent_bytes += len(piece)
        if idle:
            self._send()

    def write_aside(self, piece: bytes) -> None:
        """Write the queue at once, then this piece (at most PIPE_BUF bytes). The piece is dropped if the queue does not fit into
        the pipe. May be called from any thread, also while the event loop is busy.
        """
        with self._sending:
            if not self._closing:
                self._write_out()
            if self._closing or self._unsent:
                return
            # The pipe is full, or the program has ended: `on_end` reports that.
            with suppress(OSError):
                os.write(self._child.stdin, piece)

    async def room(self) -> None:
        """Wait until the queue is below its limit."""
        await self._room.wait()

    async def exit_code(self, *, within_s: float) -> int | None:
        """Its exit code, with all of standard error read; None after a timeout."""
        try:
            async with asyncio.timeout(within_s):
                await self._child.exited()
        except TimeoutError:
            return None
        if self._reading_errors:
            self._read_errors()
        return self._child.exit_code

    async def close(self, *, patience_s: float, grace_s: float) -> None:
        """Close its input, wait `patience_s` for its end, then TERM and KILL. May be called again."""
        if self._closing:
            return
        self._stop_writing()
        self._child.close_input()
        try:
            if patience_s > 0:
                await self.exit_code(within_s=patience_s)
        finally:
            try:
                if not self._child.reap():
                    await self._child.end(grace_s)
            finally:
                self._stop_reading()
                self._child.close()

    def kill(self) -> None:
        """KILL it at once. May be called again, and without an event loop."""
        if self._closing:
            return
        self._stop_writing()  # on a closed loop, removing a descriptor does nothing
        self._child.kill()
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
        self._loop.remove_reader(self._child.stdout)
        self._on_end()

    def _read_errors(self) -> None:
        try:
            while piece := os.read(self._child.stderr, _READ_BYTES):
                self._stderr += piece
                del self._stderr[:-_STDERR_BYTES]
        except BlockingIOError:
            return
        self._stop_reading_errors()

    def _send(self) -> None:
        with self._sending:
            self._write_out()
        if self._unsent:
            self._loop.add_writer(self._child.stdin, self._send)
        else:
            self._loop.remove_writer(self._child.stdin)
        if self._unsent_bytes > _HIGH_WATER_BYTES:
            self._room.clear()
        else:
            self._room.set()

    def _write_out(self) -> None:
        while self._unsent:
            pieces = [self._unsent[number] for number in range(min(len(self._unsent), _PIECES_AT_ONCE))]
            try:
                sent = os.writev(self._child.stdin, pieces)
            except BlockingIOError:
                break
            except OSError:
                # `on_end` reports it.
                self._unsent.clear()
                self._unsent_bytes = 0
                break
            self._unsent_bytes -= sent
            far_process.take_off(self._unsent, sent)

    def _stop_writing(self) -> None:
        self._loop.remove_writer(self._child.stdin)
        with self._sending:
            self._closing = True
            self._unsent.clear()
        self._room.set()

    def _stop_reading(self) -> None:
        if self._loop.remove_reader(self._child.stdout):
            self._on_end()
        self._stop_reading_errors()

    def _stop_reading_errors(self) -> None:
        self._loop.remove_reader(self._child.stderr)
        self._reading_errors = False


_LIMIT_BYTES = 64 << 20


class LocalConversation:
    """The `Conversation` port with a process of this machine."""

    def __init__(self, command: Command) -> None:
        """Raises ToolFailed if it cannot be started."""
        self._said = bytearray()
        self._news = asyncio.Event()
        self._ended = False
        self._duplex = Duplex(command, on_output=self._take, on_end=self._end_seen)
        self._asking = asyncio.Lock()
        self._over = False

    @property
    def pid(self) -> int:
        return self._duplex.pid

    async def ask(self, question: bytes, *, until: Callable[[bytes], bool], timeout_s: float) -> bytes:
        async with self._asking:
            if self._over:
                raise ConversationOver("it was ended")
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._answer(question, until)
            except TimeoutError:
                self.end()
                raise ConversationOver(f"no answer within {timeout_s:.0f} s") from None
            except BaseException:
                self.end()
                raise

    def end(self) -> None:
        """As the port, with KILL: it has nothing to clean up."""
        self._over = True
        self._duplex.kill()

    async def _answer(self, question: bytes, until: Callable[[bytes], bool]) -> bytes:
        # Output from before the question would count as its answer.
        if self._said.strip():
            raise ConversationOver("it spoke unasked")
        self._said.clear()
        self._duplex.write(question)
        while not self._said or not until(bytes(self._said)):
            if self._ended or len(self._said) > _LIMIT_BYTES:
                raise ConversationOver("the program ended" if self._ended else "it does not stop speaking")
            self._news.clear()
            await self._news.wait()
        answer = bytes(self._said)
        self._said.clear()
        return answer

    def _take(self, piece: bytes) -> None:
        self._said += piece
        self._news.set()

    def _end_seen(self) -> None:
        self._ended = True
        self._news.set()
