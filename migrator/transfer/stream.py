"""One stream of an attempt: followed to its end, or ended."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from migrator.core.errors import ToolFailed
from migrator.core.paths import show
from migrator.core.states import AttemptState, ChunkState
from migrator.core.tasks import SharedCall, through_cancellation
from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Command, Completed, HostLost
from migrator.transfer import model
from migrator.transfer.context import LOG, PassUnderWay, TransferPorts
from migrator.transfer.executors import Executor
from migrator.transfer.meter import Meter
from migrator.transfer.ports import StreamReader
from migrator.transfer.rules import stop_reason

Stop = tuple[model.StopReason, str]
"""The reason for stopping the pool of streams, and the detail."""

_END_TIMEOUT_S = 60.0

Start = Callable[..., Coroutine[Any, Any, Completed]]
"""Runs a command to its end on a host; it takes `tree`, `on_start`, `on_stdout` and `on_stderr`."""


class Unended(Exception):
    """A stream could not be ended: its attempt stays unfinished, and its chunk is not reissued."""


@dataclass(slots=True, kw_only=True, eq=False)
class OpenAttempt:
    """An attempt at a chunk, and the outcome of its last stream. `id` is that of the ledger."""

    id: int = 0
    counters: model.StreamCounters = field(default_factory=model.StreamCounters)
    exit_code: int | None = None
    stderr_tail: bytes = b""

    def finish(
        self,
        world: TransferPorts,
        state: AttemptState,
        chunk_state: ChunkState,
        problems: Sequence[model.FileProblem] = (),
    ) -> None:
        """Record its end in the ledger, with the new state of its chunk. A part of a job of `Ledger.write`."""
        world.ledger.passes.finish(
            self.id,
            at_s=world.clock.now_s(),
            state=state.value,
            exit_code=self.exit_code,
            counters=self.counters,
            stderr_tail=self.stderr_tail,
            chunk_state=chunk_state,
            problems=problems,
        )


NO_STREAM = "descriptor"
"""The engine name of attempts that start no stream before they are recorded: links, and chunks with nothing to copy."""


def intend(
    under_way: PassUnderWay,
    chunk: model.ChunkRecord,
    *,
    token: str,
    engine: str = "",
    host: str = "",
    command: Command | None = None,
) -> int:
    """Record an attempt before it starts: from now on the ledger has the token of all its processes. A part of a job of
    `Ledger.write`.

    Without a command this process does the work itself: a crash leaves no other process behind.
    """
    world, passes = under_way.world, under_way.world.ledger.passes
    attempt_id = passes.intend(
        chunk_id=chunk.id,
        run_id=under_way.invocation.run_id,
        token=token,
        host=host or world.own_host,
        engine=engine if command else NO_STREAM,
        argv=[show(word) for word in command.argv] if command else (),
        at_s=world.clock.now_s(),
    )
    if command is None:
        passes.started(attempt_id, ProcessIdentity(pid=under_way.request.pid, start_ticks=0, boot_id=""))
    return attempt_id


class Stream(OpenAttempt):
    """The stream of one attempt, after `intend`. `end` ends it if it stalls; `stalled` is set then."""

    end: Callable[[], object]

    def __init__(
        self,
        under_way: PassUnderWay,
        meter: Meter,
        chunk: model.ChunkRecord,
        *,
        slot: int,
        executor: Executor,
        engine: str,
        command: Command | None,
    ) -> None:
        super().__init__()
        self.token = under_way.world.tokens()
        """In the environment of every process of the attempt."""
        self._intend = partial(
            intend, under_way, chunk, token=self.token, engine=engine, host=executor.host, command=command
        )
        self.under_way = under_way
        self.meter = meter
        self.chunk = chunk
        self.command = command
        self.slot = slot
        self.executor = executor
        self.stalled = False
        self.started_s = self.moved_s = self.sampled_s = under_way.world.clock.monotonic_s()
        self.seen = self.sampled = model.StreamCounters()
        self.activity: int | None = None

    async def intend(self) -> None:
        """Record the attempt. A cancellation takes effect when that is on the disk."""

        def record() -> None:
            self.id = self._intend()

        await self.under_way.world.ledger.write(record)

    async def follow(
        self, command: Command, start: Start, reader: StreamReader, trouble: Callable[[], Stop | None] = lambda: None
    ) -> model.StreamOutcome:
        """Run a stream to its end, and judge it. `trouble` in its output ends it at once. Raises CancelledError after
        it has ended, Unended if it could not be ended, HostLost if that is unknown.
        """
        command = replace(command, token=self.token)
        files = self.under_way.invocation.directory.attempt(self.chunk.number, self.id, command)
        ledger = self.under_way.world.ledger

        def taking(keep: Callable[[bytes], None], read: Callable[[bytes], None]) -> Callable[[bytes], None]:
            def take(piece: bytes) -> None:
                keep(piece)
                read(piece)
                if trouble() is not None:
                    stream.cancel()

            return take

        stream: asyncio.Task[Completed] = asyncio.create_task(
            start(
                command,
                tree=self.chunk.tree,
                # A stream that is not known to have started counts as one that has.
                on_start=lambda process: ledger.later(partial(ledger.passes.started, self.id, process)),
                on_stdout=taking(files.stdout, reader.stdout),
                on_stderr=taking(files.stderr, reader.stderr),
            )
        )
        self.end = stream.cancel
        self.meter.begin(self, reader)
        arrived = False
        try:
            completed = await asyncio.shield(stream)
            outcome = reader.outcome(completed)
            self.exit_code, self.stderr_tail = completed.exit_code, reader.stderr_tail
            self.counters += outcome.counters
            arrived = outcome.verdict is model.AttemptVerdict.DONE and not outcome.suspects
        except asyncio.CancelledError:
            ended = await self._end(stream)
            self.counters, self.stderr_tail = self.counters + reader.counters, reader.stderr_tail
            if not ended:
                self._leave_unended()
            task = asyncio.current_task()
            stop = trouble()
            self.stalled = self.stalled and stop is None
            if (stop is None and not self.stalled) or (task is not None and task.cancelling()):
                raise
            reason, detail = stop or (
                model.StopReason.TARGET_STUCK,
                f"chunk {self.chunk.number} of {show(self.chunk.tree)} has not moved for "
                f"{self.under_way.request.stall_timeout_s:.0f} s",
            )
            return model.StreamOutcome(
                verdict=model.AttemptVerdict.STOP, counters=reader.counters, stop=reason, message=detail
            )
        except ToolFailed as error:
            outcome = model.StreamOutcome(
                verdict=model.AttemptVerdict.INTERRUPTED, counters=reader.counters, message=error.message
            )
            # Another host may have reconnected meanwhile, and lost the files placed there before.
            if self.executor.host == self.under_way.world.own_host:
                outcome = replace(outcome, verdict=model.AttemptVerdict.STOP, stop=model.StopReason.TOOL_MISSING)
        finally:
            self.meter.ended(self)
            files.close(keep_list=not arrived)
        return outcome

    async def _end(self, stream: "asyncio.Task[Completed]") -> bool:
        """End the stream, even during cancellation. Returns whether all of its processes have ended."""
        stream.cancel()
        await through_cancellation(asyncio.wait({stream}, timeout=_END_TIMEOUT_S))
        try:
            left = await through_cancellation(self.executor.end_orphans([self.token]))
        except HostLost as error:
            LOG.error("the state of a stream is unknown: %s", error.message, extra={"attempt": self.id})
            return False
        return stream.done() and not left

    def _leave_unended(self) -> None:
        name = f"attempt {self.id} at chunk {self.chunk.number}, token {self.token}"
        self.under_way.unended.append(name)
        LOG.error("a stream cannot be ended: %s", name)
        raise Unended(name)


async def sync_problem(sync: SharedCall[None]) -> Stop | None:
    """Sync the target, starting after this call; None if all earlier writes have reached its disks."""
    try:
        await sync.begun_after_now()
    except TimeoutError:
        return model.StopReason.TARGET_STUCK, "written data did not reach the target's disks in time"
    except OSError as error:
        return stop_reason(error.errno) or model.StopReason.IO_ERROR, f"sync of the target: {error.strerror or error}"
    return None
