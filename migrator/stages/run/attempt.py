"""One try at one chunk: the stream, what it leaves to judge, and the sync that makes it count."""

import asyncio
import errno
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from migrator.decide.stopping import stop_reason
from migrator.domain.errors import ToolFailed
from migrator.domain.paths import show
from migrator.domain.plan import ListedPath
from migrator.domain.states import ChunkKind
from migrator.domain.transfer import (
    ChunkRecord,
    FileProblem,
    FileProblemKind,
    Outcome,
    ProcessIdentity,
    StopReason,
    StreamCounters,
    Verdict,
)
from migrator.ports.processes import Command, Completed
from migrator.ports.streams import ChunkWork, StreamReader
from migrator.stages.run.context import LOG, PassUnderWay
from migrator.stages.run.descriptor import Handled, copy_by_descriptor, make_links
from migrator.stages.run.leftovers import remove_before_stream
from migrator.stages.run.looking import judge, settle_vanished
from migrator.stages.run.meter import Meter

_T = TypeVar("_T")

BY_DESCRIPTOR = "descriptor"
"""Named as the engine of attempts that start no process."""


class Unended(Exception):
    """A stream could not be ended: its attempt stays unfinished, and its chunk is not given out again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one attempt came to, judged. `bad` and `vanished` are final, `again` is worth another try."""

    verdict: Verdict
    counters: StreamCounters
    message: str = ""
    vanished: tuple[FileProblem, ...] = ()
    bad: tuple[FileProblem, ...] = ()
    again: tuple[FileProblem, ...] = ()
    stop: tuple[StopReason, str] | None = None
    exit_code: int | None = None
    stderr_tail: bytes = b""


class Attempt:
    """One attempt that is in the ledger. `run` is called once."""

    def __init__(
        self, under_way: PassUnderWay, meter: Meter, chunk: ChunkRecord, paths: Sequence[ListedPath], slot: int
    ) -> None:
        world, request = under_way.world, under_way.request
        self._pass = under_way
        self._world = world
        self._meter = meter
        self._chunk = chunk
        self._slot = slot
        self._token = world.tokens()
        fits = world.engine.fits
        self._listed = tuple(paths)
        links = chunk.kind is ChunkKind.LINKS
        by_stream = () if links else tuple(listed for listed in paths if fits(chunk.tree, listed.path))
        self._by_descriptor = () if links else tuple(listed for listed in paths if not fits(chunk.tree, listed.path))
        self._view = world.executor.view(chunk.tree)
        self._work = ChunkWork(
            kind=chunk.kind,
            tree=chunk.tree,
            paths=by_stream,
            capabilities=under_way.capabilities,
            bwlimit_bytes_per_s=_share(request.bwlimit_bytes_per_s, request.jobs),
            recopy=request.recopy
            or chunk.list_path is not None
            or bool(world.ledger.passes.attempts_of_chunk(chunk.id)),
        )
        self._command: Command | None = None
        if by_stream:
            self._command = replace(world.engine.command(self._work, self._view), token=self._token)
        # Intent before the act: from here on the ledger knows the token that every process of it will carry.
        self.id = world.ledger.passes.intend(
            chunk_id=chunk.id,
            token=self._token,
            host=world.executor.host,
            engine=world.engine.name if self._command else BY_DESCRIPTOR,
            argv=[show(word) for word in self._command.argv] if self._command else (),
            at_s=world.clock.now_s(),
        )
        self.exit_code: int | None = None
        self.stderr_tail = b""
        self.counters = StreamCounters()
        LOG.info("attempt begins", extra=self.facts)

    @property
    def facts(self) -> Mapping[str, object]:
        """Which attempt this is, for the log."""
        return {
            "run": self._pass.invocation.run_id,
            "batch": self._pass.batch.number,
            "chunk": self._chunk.number,
            "chunk_kind": self._chunk.kind.value,
            "tree": self._chunk.tree,
            "attempt": self.id,
            "paths": len(self._listed),
        }

    async def run(self) -> Result:
        """Copy, judge, sync. Raises CancelledError after the stream has ended, Unended where it could not be ended."""
        result = await self._copy()
        if result.verdict is not Verdict.DONE:
            return result
        # Done means that a sync which began after the stream's end has reached the disks.
        try:
            await self._pass.sync.begun_after_now()
        except TimeoutError:
            detail = "what was written has not reached the target's disks in time"
            return self._stopped(StopReason.TARGET_STUCK, detail)
        except OSError as error:
            reason = stop_reason(error.errno) or StopReason.IO_ERROR
            return self._stopped(reason, f"sync of the target: {error.strerror or error}")
        return result

    async def _copy(self) -> Result:
        bad: tuple[FileProblem, ...] = ()
        vanished: tuple[FileProblem, ...] = ()
        again: tuple[FileProblem, ...] = ()
        if self._command is not None:
            if self._work.recopy and self._chunk.kind is ChunkKind.FILES:
                await remove_before_stream(self._pass, [listed.path for listed in self._work.paths])
            outcome = await self._stream(self._command)
            if outcome.verdict is Verdict.STOP:
                outcome = self._without_known_io_errors(outcome)
            if outcome.verdict is not Verdict.DONE:
                return self._as_it_is(outcome)
            judgement = await judge(self._pass, outcome.suspects)
            if judgement.stop is not None:
                return self._stopped(*judgement.stop, bad=judgement.bad)
            bad, vanished, again = judgement.bad, judgement.vanished, judgement.reappeared
        else:
            # This program itself does the work: there is no other process to be found after a crash.
            own = ProcessIdentity(pid=self._pass.request.pid, start_ticks=0, boot_id="")
            self._world.ledger.passes.started(self.id, own)
        handled = await self._without_stream()
        if handled.counters.files:
            self.counters = _plus(self.counters, handled.counters)
            self._meter.wrote(handled.counters)
        if handled.stop is not None:
            return self._stopped(*handled.stop, bad=(*bad, *handled.suspects))
        gone = [problem for problem in handled.suspects if problem.kind is FileProblemKind.VANISHED]
        settled = await settle_vanished(self._pass, gone)
        if settled.stop is not None:
            return self._stopped(*settled.stop)
        return Result(
            verdict=Verdict.DONE,
            counters=self.counters,
            vanished=(*vanished, *settled.vanished),
            bad=(*bad, *(problem for problem in handled.suspects if problem.kind is FileProblemKind.BAD)),
            again=(*again, *settled.reappeared),
            exit_code=self.exit_code,
            stderr_tail=self.stderr_tail,
        )

    async def _without_stream(self) -> Handled:
        if self._chunk.kind is ChunkKind.LINKS:
            return await make_links(self._pass, self._chunk.tree, self._listed)
        return await copy_by_descriptor(self._pass, self._chunk.tree, self._by_descriptor, by_stream=self._work.paths)

    async def _stream(self, command: Command) -> Outcome:
        reader = self._world.engine.reader(self._work, self._view)
        files = self._pass.invocation.directory.attempt(self._chunk.number, self.id, command)

        def on_stdout(piece: bytes) -> None:
            files.stdout(piece)
            reader.stdout(piece)

        def on_stderr(piece: bytes) -> None:
            files.stderr(piece)
            reader.stderr(piece)

        stream = asyncio.create_task(
            self._world.executor.execute(
                command,
                program=self._world.engine.program,
                tree=self._chunk.tree,
                on_start=self._on_start,
                on_stdout=on_stdout,
                on_stderr=on_stderr,
            )
        )
        live = self._meter.begin(
            number=self._slot,
            attempt_id=self.id,
            token=self._token,
            chunk=self._chunk,
            counters=lambda: reader.counters,
            end=stream.cancel,
        )
        arrived = False
        try:
            completed = await asyncio.shield(stream)
            outcome = self._outcome(reader, completed)
            arrived = outcome.verdict is Verdict.DONE and not outcome.suspects
        except asyncio.CancelledError:
            ended = await self._end(stream)
            self.counters, self.stderr_tail = reader.counters, reader.stderr_tail
            if not ended:
                await self._leave_unended()
            task = asyncio.current_task()
            if not live.stalled or (task is not None and task.cancelling()):
                raise
            detail = (
                f"chunk {self._chunk.number} of {show(self._chunk.tree)} has not moved for "
                f"{self._pass.request.stall_timeout_s:.0f} s"
            )
            return Outcome(verdict=Verdict.STOP, counters=reader.counters, stop=StopReason.TARGET_STUCK, message=detail)
        except ToolFailed as error:
            return Outcome(
                verdict=Verdict.STOP, counters=reader.counters, stop=StopReason.TOOL_MISSING, message=error.message
            )
        finally:
            self._meter.ended(live)
            files.close(keep_list=not arrived)
        return outcome

    def _on_start(self, process: ProcessIdentity) -> None:
        self._world.ledger.passes.started(self.id, process)

    def _outcome(self, reader: StreamReader, completed: Completed) -> Outcome:
        outcome = reader.outcome(completed)
        self.exit_code, self.counters, self.stderr_tail = completed.exit_code, outcome.counters, reader.stderr_tail
        return outcome

    async def _end(self, stream: "asyncio.Task[Completed]") -> bool:
        """End the stream; whether nothing of it is left. However often this task is cancelled meanwhile."""
        stream.cancel()
        await _through_cancellation(asyncio.wait({stream}, timeout=self._pass.request.end_timeout_s))
        left = await _through_cancellation(self._world.executor.end_orphans([self._token]))
        return stream.done() and not left

    async def _leave_unended(self) -> None:
        name = f"attempt {self.id} at chunk {self._chunk.number}, token {self._token}"
        self._pass.unended.append(name)
        LOG.error("a stream cannot be ended: %s", name)
        raise Unended(name)

    def _without_known_io_errors(self, outcome: Outcome) -> Outcome:
        """A stop for source files alone that an earlier run recorded is none: those files are bad."""
        failing = [suspect for suspect in outcome.suspects if suspect.errno == errno.EIO]
        known = self._pass.known_io_errors
        if outcome.stop is StopReason.IO_ERROR and failing and all(suspect.path in known for suspect in failing):
            return replace(outcome, verdict=Verdict.DONE, stop=None)
        return outcome

    def _as_it_is(self, outcome: Outcome) -> Result:
        if outcome.verdict is Verdict.STOP:
            failing = tuple(
                replace(suspect, kind=FileProblemKind.BAD) for suspect in outcome.suspects if suspect.errno == errno.EIO
            )
            return self._stopped(outcome.stop or StopReason.IO_ERROR, outcome.message, bad=failing)
        return Result(
            verdict=outcome.verdict,
            counters=self.counters,
            message=outcome.message,
            exit_code=self.exit_code,
            stderr_tail=self.stderr_tail,
        )

    def _stopped(self, reason: StopReason, detail: str, bad: tuple[FileProblem, ...] = ()) -> Result:
        """Only files that cannot be read for EIO are recorded: the stop's other reasons blame no file."""
        return Result(
            verdict=Verdict.STOP,
            counters=self.counters,
            message=detail,
            bad=tuple(problem for problem in bad if problem.errno == errno.EIO),
            stop=(reason, detail),
            exit_code=self.exit_code,
            stderr_tail=self.stderr_tail,
        )


async def _through_cancellation(work: Coroutine[object, object, _T]) -> _T:
    """Let something short and bounded come to its end however often this task is cancelled; tells the caller nothing
    of that, who is being cancelled anyway.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
    return task.result()


def _share(limit_bytes_per_s: int | None, jobs: int) -> int | None:
    return None if limit_bytes_per_s is None else max(limit_bytes_per_s // max(jobs, 1), 1)


def _plus(one: StreamCounters, other: StreamCounters) -> StreamCounters:
    return StreamCounters(files=one.files + other.files, size_bytes=one.size_bytes + other.size_bytes)
