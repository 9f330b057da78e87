"""Following one stream of an attempt to its end, and ending it where that is needed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from migrator.domain.errors import ToolFailed
from migrator.domain.paths import show
from migrator.domain.transfer import (
    ChunkRecord,
    Outcome,
    ProcessIdentity,
    StopReason,
    StreamCounters,
    Verdict,
)
from migrator.ports.hosts import HostLost
from migrator.ports.processes import Completed
from migrator.ports.run_files import AttemptFiles
from migrator.ports.streams import Executor, StreamReader
from migrator.stages.run.context import LOG, PassUnderWay
from migrator.stages.run.meter import Meter
from migrator.stages.run.through_cancellation import through_cancellation

DIGEST_ALGORITHM = "blake2b"
"""What streams make digests with, where they do: the one that `verify` knows by the same name."""


class Start(Protocol):
    """Runs a program to its end, somewhere."""

    def __call__(
        self,
        *,
        on_start: Callable[[ProcessIdentity], None],
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None],
    ) -> Coroutine[Any, Any, Completed]:
        """The call that starts it."""


class Unended(Exception):
    """A stream could not be ended: its attempt stays unfinished, and its chunk is not given out again."""


class Stream:
    """The streams of one attempt, one after the other. `counters`, `exit_code` and `stderr_tail` are the last one's."""

    def __init__(
        self,
        under_way: PassUnderWay,
        meter: Meter,
        chunk: ChunkRecord,
        *,
        attempt_id: int,
        token: str,
        slot: int,
        executor: Executor,
    ) -> None:
        self._pass = under_way
        self._meter = meter
        self._chunk = chunk
        self._attempt_id = attempt_id
        self._token = token
        self._slot = slot
        self._executor = executor
        self.counters = StreamCounters()
        self.exit_code: int | None = None
        self.stderr_tail = b""

    async def follow(
        self,
        start: Start,
        reader: StreamReader,
        *,
        files: AttemptFiles | None = None,
        on_start: Callable[[ProcessIdentity], None] = lambda _: None,
    ) -> Outcome:
        """Run a stream to its end, and judge it. Raises CancelledError after it has ended, Unended where it could not be
        ended, HostLost where nobody knows.
        """

        def on_stdout(piece: bytes) -> None:
            if files is not None:
                files.stdout(piece)
            reader.stdout(piece)

        def on_stderr(piece: bytes) -> None:
            if files is not None:
                files.stderr(piece)
            reader.stderr(piece)

        stream = asyncio.create_task(start(on_start=on_start, on_stdout=on_stdout, on_stderr=on_stderr))
        live = self._meter.begin(
            number=self._slot,
            attempt_id=self._attempt_id,
            token=self._token,
            host=self._executor.host,
            chunk=self._chunk,
            counters=lambda: reader.counters,
            end=stream.cancel,
        )
        arrived = False
        try:
            completed = await asyncio.shield(stream)
            outcome = self._outcome(reader, completed)
            arrived = outcome.verdict is Verdict.DONE and not outcome.suspects
            if files is not None and (digests := reader.digests):
                files.digests(DIGEST_ALGORITHM, digests)
        except asyncio.CancelledError:
            ended = await self._end(stream)
            self.counters, self.stderr_tail = reader.counters, reader.stderr_tail
            if not ended:
                self._leave_unended()
            task = asyncio.current_task()
            if not live.stalled or (task is not None and task.cancelling()):
                raise
            detail = (
                f"chunk {self._chunk.number} of {show(self._chunk.tree)} has not moved for "
                f"{self._pass.request.stall_timeout_s:.0f} s"
            )
            return Outcome(verdict=Verdict.STOP, counters=reader.counters, stop=StopReason.TARGET_STUCK, message=detail)
        except ToolFailed as error:
            if self._executor.host != self._pass.world.own_host:
                # The host may have been connected anew meanwhile, without what was placed there before.
                return Outcome(verdict=Verdict.INTERRUPTED, counters=reader.counters, message=error.message)
            return Outcome(
                verdict=Verdict.STOP, counters=reader.counters, stop=StopReason.TOOL_MISSING, message=error.message
            )
        finally:
            self._meter.ended(live)
            if files is not None:
                files.close(keep_list=not arrived)
        return outcome

    def _outcome(self, reader: StreamReader, completed: Completed) -> Outcome:
        outcome = reader.outcome(completed)
        self.exit_code, self.counters, self.stderr_tail = completed.exit_code, outcome.counters, reader.stderr_tail
        return outcome

    async def _end(self, stream: "asyncio.Task[Completed]") -> bool:
        """End the stream; whether nothing of it is left. However often this task is cancelled meanwhile."""
        stream.cancel()
        await through_cancellation(asyncio.wait({stream}, timeout=self._pass.request.end_timeout_s))
        try:
            left = await through_cancellation(self._executor.end_orphans([self._token]))
        except HostLost as error:
            LOG.error("whether a stream has ended is not known: %s", error.message, extra={"attempt": self._attempt_id})
            return False
        return stream.done() and not left

    def _leave_unended(self) -> None:
        name = f"attempt {self._attempt_id} at chunk {self._chunk.number}, token {self._token}"
        self._pass.unended.append(name)
        LOG.error("a stream cannot be ended: %s", name)
        raise Unended(name)
