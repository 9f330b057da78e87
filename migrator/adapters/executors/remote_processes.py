"""Programs at the other end of a connection."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from migrator.adapters.executors import far_wire as wire
from migrator.adapters.executors.connection import Connection, Output, RemoteStream
from migrator.adapters.executors.proc import TOKEN_VARIABLE
from migrator.adapters.executors.process import BASE_ENVIRONMENT, Collected, ignore, not_started
from migrator.domain.paths import show
from migrator.domain.transfer import ProcessIdentity
from migrator.ports.cancelling import to_the_end
from migrator.ports.hosts import HostLost
from migrator.ports.processes import Command, Completed, OnOutput

_log = logging.getLogger(__name__)

_CREDIT_BYTES = wire.STDOUT_WINDOW_BYTES // 4


class RemoteProcesses:
    """The `Processes` port over a connection. `grace_s` lies between TERM and KILL; `output_limit_bytes` holds for
    `run` only. Every call raises HostLost where the host cannot be reached, with `in_doubt` where a program may run on.
    """

    environment: Mapping[str, str] = BASE_ENVIRONMENT

    def __init__(
        self, connected: Callable[[], Awaitable[Connection]], *, grace_s: float, output_limit_bytes: int
    ) -> None:
        self._connected = connected
        self._grace_s = grace_s
        self._output_limit_bytes = output_limit_bytes

    async def run(self, command: Command) -> Completed:
        """Run to its end. Raises ToolFailed where it cannot be started, or says more than the limit."""
        stdout = Collected(command, self._output_limit_bytes)
        stderr = Collected(command, self._output_limit_bytes)
        completed = await self.stream(command, on_start=ignore, on_stdout=stdout.take, on_stderr=stderr.take)
        return Completed(
            exit_code=completed.exit_code, stdout=stdout.content, stderr=stderr.content, timed_out=completed.timed_out
        )

    async def stream(
        self,
        command: Command,
        *,
        on_start: Callable[[ProcessIdentity], None],
        on_stdout: OnOutput,
        on_stderr: OnOutput,
    ) -> Completed:
        """As `run`, with output handed out in pieces. What a callback raises ends the process and is raised on."""
        connection = await self._connected()
        # Everything there carries a token, so that nothing of it can be lost.
        token = command.token or secrets.token_hex(16)
        environment = {**self.environment, **command.environment, TOKEN_VARIABLE: token}
        try:
            stream = connection.start(command.argv, environment, token=token, with_input=bool(command.stdin))
        except HostLost as error:
            raise HostLost(error.message, cause=error.cause, hint=error.hint) from error
        finished = False
        try:
            timed_out = await self._supervise(connection, stream, command, on_start, (on_stdout, on_stderr))
            exit_code, _ = await stream.exited
            finished = True
        except HostLost as error:
            finished = True  # nothing can be done for it
            raise HostLost(error.message, cause=error.cause, hint=error.hint, in_doubt=True) from error
        except OSError as error:
            if stream.started.done() and stream.started.exception() is error:
                finished = True
                raise not_started(command, error) from error
            raise
        finally:
            if not finished:
                await to_the_end(self._abandon(connection, stream, command))
        return Completed(exit_code=exit_code, stdout=b"", stderr=b"", timed_out=timed_out)

    async def survivors(self, tokens: Sequence[str]) -> Mapping[str, tuple[ProcessIdentity, ...]]:
        """Which living processes there still carry one of the tokens."""
        connection = await self._connected()
        fields, _ = await connection.call("survivors", tokens=list(tokens))
        return {
            str(token): tuple(
                ProcessIdentity(pid=pid, start_ticks=ticks, boot_id=fields["boot_id"]) for pid, ticks in found
            )
            for token, found in fields["survivors"].items()
        }

    async def end(self, token: str, *, grace_s: float) -> bool:
        """End every process there that carries the token; False where one is left. May be called again."""
        connection = await self._connected()
        fields, _ = await connection.call("end", tokens=[token], grace_s=grace_s)
        return bool(fields["ended"])

    async def _supervise(
        self,
        connection: Connection,
        stream: RemoteStream,
        command: Command,
        on_start: Callable[[ProcessIdentity], None],
        takers: tuple[OnOutput, OnOutput],
    ) -> bool:
        """Whether it ran into its time limit."""
        on_start(await stream.started)
        tasks: list[asyncio.Task[None]] = [
            asyncio.create_task(self._follow(connection, stream, kind, take))
            for kind, take in zip((wire.STDOUT, wire.STDERR), takers, strict=True)
        ]
        if command.stdin:
            tasks.append(asyncio.create_task(connection.feed(stream, command.stdin)))
        try:
            timed_out = not await self._wait(stream, tasks, command.timeout_s)
            if timed_out:
                _log.warning("%s ran into its time limit of %s s", show(command.argv[0]), command.timeout_s)
                connection.end(stream, grace_s=self._grace_s, discard=False)
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await to_the_end(_settled(tasks))
        return timed_out

    async def _wait(self, stream: RemoteStream, tasks: Sequence["asyncio.Task[None]"], timeout_s: float | None) -> bool:
        """False where the time ran out. Raises what a task raised, or what the program's end was lost by."""
        loop = asyncio.get_running_loop()
        deadline_s = None if timeout_s is None else loop.time() + timeout_s
        while not stream.exited.done():
            left_s = None if deadline_s is None else max(deadline_s - loop.time(), 0.0)
            waiting: list[asyncio.Future[Any]] = [stream.exited, *(task for task in tasks if not task.done())]
            done, _ = await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                future.result()
            if not done:
                return False
        stream.exited.result()
        return True

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
                await asyncio.sleep(0)  # a talkative program must not keep the others waiting
            owed_bytes += len(piece)
            if owed_bytes >= _CREDIT_BYTES:
                connection.credit(stream, kind, owed_bytes)
                owed_bytes = 0

    async def _abandon(self, connection: Connection, stream: RemoteStream, command: Command) -> None:
        """Have it ended, and wait for that. A host that is lost meanwhile ends it by itself."""
        connection.end(stream, grace_s=self._grace_s, discard=True)
        try:
            _, ended = await stream.exited
        except Exception as error:  # noqa: BLE001 - what it was abandoned for is raised
            _log.info("%s was abandoned on a host that is lost: %s", show(command.argv[0]), error)
            return
        if not ended:
            _log.error("a process of %s cannot be ended", show(command.argv[0]))


async def _settled(tasks: Sequence["asyncio.Task[None]"]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
