"""A host at the other end of a connection: its programs, its files, its facts."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from migrator.core.errors import ToolFailed
from migrator.core.paths import show
from migrator.core.tasks import to_the_end
from migrator.fs.model import SENTINEL_NAME
from migrator.hosts import far_wire as wire
from migrator.hosts.connection import Connection, Output, RemoteStream, Transport
from migrator.hosts.local import ROOTS_TIMEOUT_S, facts_of, program_files
from migrator.hosts.model import HostRoots, ProcessIdentity
from migrator.hosts.ports import Command, Completed, HostFacts, HostLost, OnOutput, OnStart
from migrator.hosts.proc import TOKEN_VARIABLE
from migrator.hosts.process import (
    BASE_ENVIRONMENT,
    CollectingProcesses,
    cancel_all,
    feed_when_asked,
    not_started,
    wait_for_end,
)

_log = logging.getLogger(__name__)

_CREDIT_BYTES = wire.STDOUT_WINDOW_BYTES // 4


class RemoteProcesses(CollectingProcesses):
    """The `Processes` port over a connection. `grace_s` is the time between TERM and KILL; `output_limit_bytes` applies
    to `run` only. Every call raises HostLost if the host cannot be reached, with `in_doubt` if a program may still
    run.
    """

    environment: Mapping[str, str] = BASE_ENVIRONMENT

    def __init__(
        self, connected: Callable[[], Awaitable[Connection]], *, grace_s: float, output_limit_bytes: int
    ) -> None:
        super().__init__(grace_s=grace_s, output_limit_bytes=output_limit_bytes)
        self._connected = connected
        self.doubtful: dict[RemoteStream, str] = {}
        """The tokens of programs that were requested over a connection that did not report their end."""
        self._limits: dict[str, Callable[[int], None]] = {}

    async def stream(
        self, command: Command, *, on_start: OnStart, on_stdout: OnOutput, on_stderr: OnOutput
    ) -> Completed:
        connection = await self._connected()
        # Every program there carries a token, so that it can always be found.
        token = command.token or secrets.token_hex(16)
        environment = {**self.environment, **command.environment, TOKEN_VARIABLE: token}
        try:
            stream = connection.start(command, environment, token=token)
        except HostLost as error:
            raise again(error) from error
        self.doubtful[stream] = token
        self._limits[token] = partial(connection.limit, stream)
        stream.exited.add_done_callback(lambda exited: self._ended(stream, exited))
        finished = False
        try:
            timed_out = await self._supervise(connection, stream, command, on_start, (on_stdout, on_stderr))
            exit_code, _ = await stream.exited
            finished = True
        except HostLost as error:
            finished = True  # it cannot be ended from here
            raise again(error, in_doubt=True) from error
        except OSError as error:
            if stream.started.done() and stream.started.exception() is error:
                finished = True
                raise not_started(command, error) from error
            raise
        finally:
            del self._limits[token]
            if not finished:
                await to_the_end(self._abandon(connection, stream, command))
        return Completed(exit_code=exit_code, stdout=b"", stderr=b"", timed_out=timed_out)

    def limit(self, token: str, bytes_per_s: int) -> None:
        if token in self._limits:
            self._limits[token](bytes_per_s)

    async def survivors(self, tokens: Sequence[str]) -> Mapping[str, tuple[ProcessIdentity, ...]]:
        connection = await self._connected()
        fields, _ = await connection.call("survivors", tokens=list(tokens))
        return {
            str(token): tuple(
                ProcessIdentity(pid=pid, start_ticks=ticks, boot_id=fields["boot_id"]) for pid, ticks in found
            )
            for token, found in fields["survivors"].items()
        }

    async def end(self, token: str, *, grace_s: float) -> bool:
        connection = await self._connected()
        fields, _ = await connection.call("end", tokens=[token], grace_s=grace_s)
        return bool(fields["ended"])

    def _ended(self, stream: RemoteStream, exited: "asyncio.Future[tuple[int, bool]]") -> None:
        if not isinstance(exited.exception(), HostLost):
            del self.doubtful[stream]

    async def _supervise(
        self,
        connection: Connection,
        stream: RemoteStream,
        command: Command,
        on_start: OnStart,
        takers: tuple[OnOutput, OnOutput],
    ) -> bool:
        """True if the program timed out."""
        on_start(await stream.started)
        tasks: list[asyncio.Task[None]] = [
            asyncio.create_task(self._follow(connection, stream, kind, take))
            for kind, take in zip((wire.STDOUT, wire.STDERR), takers, strict=True)
        ]
        if command.stdin:
            feed, end = partial(connection.feed, stream), partial(connection.end_input, stream)
            tasks.append(asyncio.create_task(feed_when_asked(command, stream.exited, feed, end)))
        try:
            timed_out = not await wait_for_end(stream.exited, tasks, command.timeout_s)
            if timed_out:
                _log.warning("%s ran into its time limit of %s s", show(command.argv[0]), command.timeout_s)
                connection.end(stream, grace_s=self._grace_s, discard=False)
            await asyncio.gather(*tasks)
        finally:
            await cancel_all(tasks)
        return timed_out

    async def _follow(self, connection: Connection, stream: RemoteStream, kind: int, take: OnOutput) -> None:
        output: Output = stream.output[kind]
        owed_bytes = 0
        while True:
            if not output.pieces:
                if output.ended:
                    return
                output.news.clear()
                await output.news.wait()
                continue
            piece = output.pieces.popleft()
            taken = take(piece)
            if taken is not None:
                await taken
            else:
                await asyncio.sleep(0)  # a program with much output must not starve the others
            owed_bytes += len(piece)
            if owed_bytes >= _CREDIT_BYTES:
                connection.credit(stream, kind, owed_bytes)
                owed_bytes = 0

    async def _abandon(self, connection: Connection, stream: RemoteStream, command: Command) -> None:
        """End it and wait for its end. A host that is lost meanwhile ends it itself."""
        connection.end(stream, grace_s=self._grace_s, discard=True)
        try:
            _, ended = await stream.exited
        except Exception as error:  # noqa: BLE001 - the caller raises the error that led here
            _log.info("%s was abandoned on a host that is lost: %s", show(command.argv[0]), error)
            return
        if not ended:
            _log.error("a process of %s cannot be ended", show(command.argv[0]))


_OPEN_WITHIN_S = 30.0
_FIRST_BACKOFF_S = 1.0
_LARGEST_BACKOFF_S = 60.0
_CLOCK_LOOKS = 3


class Backoff:
    """After a failure, `check` raises the same error until a time has passed that grows with each failure in a row."""

    def __init__(self) -> None:
        self._failure: HostLost | None = None
        self._pause_s = 0.0
        self._not_before_s = 0.0

    def check(self) -> None:
        """Raises HostLost."""
        if self._failure is not None and asyncio.get_running_loop().time() < self._not_before_s:
            raise again(self._failure)

    def failed(self, error: HostLost) -> None:
        self._failure = error
        self._pause_s = min(max(self._pause_s * 2, _FIRST_BACKOFF_S), _LARGEST_BACKOFF_S)
        self._not_before_s = asyncio.get_running_loop().time() + self._pause_s

    def succeeded(self) -> None:
        self._failure, self._pause_s = None, 0.0


class RemoteHost:
    """The `Host` port over one connection, opened at first use and again at the first use after a loss. After a failed
    attempt, calls raise the same error until a back-off has passed.

    A new connection first ends all programs that an earlier one of this object has left there. So once the host is
    reached again, no old program runs there, except those that cannot be ended (see `Processes.end`).
    """

    def __init__(
        self,
        transport: Transport,
        *,
        lease_s: float = 30.0,
        grace_s: float = 5.0,
        open_within_s: float = _OPEN_WITHIN_S,
        output_limit_bytes: int = 256 << 20,
    ) -> None:
        self.name = transport.host
        self._transport = transport
        self._lease_s = lease_s
        self._grace_s = grace_s
        self._open_within_s = open_within_s
        self._key = f"migrator-far-end-{secrets.token_hex(12)}-"
        self._opened = 0
        self._identity: tuple[Connection, HostFacts] | None = None
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._backoff = Backoff()
        self._placed: dict[tuple[str, bytes], bytes] = {}
        self._placing = asyncio.Lock()
        self._watched: set[bytes] = set()
        self._files: dict[bytes, tuple[bytes, ...]] = {}
        self.processes = RemoteProcesses(self.connected, grace_s=grace_s, output_limit_bytes=output_limit_bytes)

    async def connected(self) -> Connection:
        """The open connection. Raises HostLost."""
        async with self._connecting:
            if self._connection is not None:
                if self._connection.lost is None:
                    return self._connection
                self._connection = None
            self._backoff.check()
            try:
                self._connection = await self._connect()
            except HostLost as error:
                self._backoff.failed(error)
                raise
            self._backoff.succeeded()
            return self._connection

    async def facts(self) -> HostFacts:
        """As the port; the clock offset is that of the fastest of a few answers."""
        connection = await self.connected()
        looks = []
        for _ in range(_CLOCK_LOOKS):
            before_ns, began_s = time.time_ns(), time.monotonic()
            fields, _more = await connection.call("facts")
            round_trip_s = time.monotonic() - began_s
            looks.append((round_trip_s, (fields["time_ns"] - before_ns) / 1e9 - round_trip_s / 2, fields))
        round_trip_s, offset_s, fields = min(looks, key=lambda look: look[0])
        return facts_of(self.name, fields, offset_s=offset_s, round_trip_s=round_trip_s)

    async def identity(self) -> HostFacts:
        connection = await self.connected()
        if self._identity is None or self._identity[0] is not connection:
            self._identity = (connection, await self.facts())
        return self._identity[1]

    async def find(self, program: str) -> bytes | None:
        path = self.processes.environment["PATH"]
        connection = await self.connected()
        fields, _ = await connection.call("find", program=wire.text(program.encode()), path=wire.text(path.encode()))
        return None if fields["path"] is None else wire.raw(fields["path"])

    async def place(self, name: str, content: bytes) -> bytes:
        key = (name, content)
        async with self._placing:  # sent once, though several programs wait for it
            connection = await self.connected()
            if key not in self._placed:
                fields, _ = await connection.call("place", content, name=name)
                self._placed[key] = wire.raw(fields["path"])
            return self._placed[key]

    async def files_of(self, program: bytes) -> tuple[bytes, ...]:
        await self.connected()
        if program not in self._files:
            found = await program_files(program, processes=self.processes, read_head=self._read_head)
            self._files[program] = found
        return self._files[program]

    async def roots(self, target: bytes, brick: bytes) -> HostRoots:
        connection = await self.connected()
        words = [wire.text(word) for word in (target, brick, SENTINEL_NAME)]
        with ToolFailed.of_files(f"the roots of {self.name} cannot be looked at"):
            fields, _ = await asyncio.wait_for(connection.call("roots", words=words), ROOTS_TIMEOUT_S)
        return HostRoots(**fields)

    async def activity(self, tokens: Sequence[str]) -> Mapping[str, int]:
        connection = await self.connected()
        fields, _ = await connection.call("activity", tokens=list(tokens))
        return {str(token): int(value) for token, value in fields["activity"].items()}

    async def watch_sync(self, path: bytes) -> None:
        connection = await self.connected()
        if path not in self._watched:
            await connection.call("watch_sync", path=wire.text(path))
            self._watched.add(path)

    async def sync(self, path: bytes) -> None:
        connection = await self.connected()
        await connection.call("sync", path=wire.text(path))
        self._watched.add(path)

    async def close(self) -> None:
        async with self._connecting:
            if self._connection is not None:
                await self._connection.close()
                self._connection = None

    async def _connect(self) -> Connection:
        self._opened += 1
        own = f"{self._key}{self._opened}"
        connection = Connection(
            self._transport,
            key=own,
            lease_s=self._lease_s,
            grace_s=self._grace_s,
            open_within_s=self._open_within_s,
        )
        await connection.open()
        self._placed.clear()
        self._watched.clear()
        self._files.clear()
        if self._opened > 1:
            ended = await connection.call(
                "end_predecessors",
                own=own,
                prefix=self._key,
                tokens=sorted(set(self.processes.doubtful.values())),
                grace_s=min(self._grace_s, 1.0),
            )
            self.processes.doubtful.clear()
            if not ended[0]["ended"]:
                _log.error("a process of an earlier connection to %s cannot be ended", self.name)
        return connection

    async def _read_head(self, path: bytes, size_bytes: int) -> bytes:
        connection = await self.connected()
        _, content = await connection.call("head", path=wire.text(path), size_bytes=size_bytes)
        return content


def again(error: HostLost, *, in_doubt: bool = False) -> HostLost:
    """The same loss for another caller."""
    return HostLost(error.message, cause=error.cause, hint=error.hint, in_doubt=in_doubt)
