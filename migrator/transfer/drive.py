"""The step that lets a driver copy the trees of a batch, one after the other, before the ordinary chunks.

A driver's word counts for nothing: the chunks that follow go over the same lists, send what is missing, link what was
split, and set what was set wrong. So nothing here fails a file; a driver that does not go through only leaves more to
the chunks. What counts is that all of its processes are gone, and that what it wrote has reached the target's disks
before size and times of a file prove anything.
"""

import asyncio
from dataclasses import dataclass, replace

from migrator.core.errors import MigratorError, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.core.states import AttemptState, ChunkKind, ChunkState
from migrator.core.tasks import through_cancellation
from migrator.core.units import several
from migrator.fs.model import Need
from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Command, Completed
from migrator.transfer.attempt import remove_before_stream
from migrator.transfer.context import LOG, PassUnderWay
from migrator.transfer.meter import Meter, cancel_and_wait
from migrator.transfer.model import ChunkRecord, Outcome, StopReason, StreamCounters, Verdict
from migrator.transfer.ports import DriverReader, DriverResult, DriverWork, Driving
from migrator.transfer.rules import stop_reason

_ALL = 2**31 - 1
_BROUGHT = (ChunkKind.RANGES, ChunkKind.FILES, ChunkKind.RANGED_FILES)
"""Kinds of chunks that a driver copies too."""
_TRIES = 3
_IN_DOUBT = "in doubt"
"""Noted instead of a boot: the driver's writes are not trusted, even without a reboot."""
_DOUBTFUL = (StopReason.IO_ERROR, StopReason.DISCONNECTED, StopReason.TARGET_STUCK, StopReason.TARGET_READ_ONLY)


async def run_driver_step(under_way: PassUnderWay, driving: Driving) -> DriverResult:
    """Let the driver copy every tree that still has files to copy, or stop (`under_way.stop_found`).

    Raises CancelledError after every process of it has ended.
    """
    passes = under_way.world.ledger.passes
    step = _Step(under_way, driving)
    watched = replace(
        under_way,
        invocation=replace(under_way.invocation, world=replace(under_way.world, activity=driving.executor.activity)),
    )
    meter = Meter(watched, (ChunkKind.TREE,), passes.totals(under_way.pass_id))
    watching = asyncio.create_task(meter.watch())
    try:
        for chunk in passes.add_trees(under_way.pass_id, _trees_to_drive(under_way)):
            if chunk.tree in under_way.left_alone:
                continue
            if chunk.state is ChunkState.PENDING and under_way.stop_found is None:
                if under_way.governor is not None:
                    await under_way.governor.until_open()
                await step.drive(chunk, meter)
    finally:
        await cancel_and_wait(watching)
        now_s = under_way.world.clock.monotonic_s()
        meter.sample(now_s)
    meter.show(now_s)
    return DriverResult(
        trees=step.trees, counters=step.counters, left_out=dict(step.left_out), last_attempt_id=step.last_attempt_id
    )


def say_second_look(under_way: PassUnderWay, driving: Driving, result: DriverResult) -> None:
    """After the ordinary chunks: report how much they still had to copy."""
    if not result.trees:
        return
    sent = under_way.world.ledger.passes.sent_since(under_way.pass_id, result.last_attempt_id)
    message = (
        f"after {driving.driver.name} the look at all files still had to bring {several(sent.files, 'file')} and "
        f"{several(sent.size_bytes, 'byte')}"
    )
    under_way.invocation.say(EventKind.SECOND_LOOK, Severity.INFO, f"batch {under_way.batch.number}", message)


def doubtful_trees(under_way: PassUnderWay) -> frozenset[bytes]:
    """Trees with an unfinished driver: its writes need not have reached the target's disks, so size and times prove nothing."""
    passes = under_way.world.ledger.passes
    chunks = passes.pending(under_way.pass_id, ChunkKind.TREE.value, _ALL, but_trees=under_way.left_alone)
    return frozenset(chunk.tree for chunk in chunks if passes.attempts_of_chunk(chunk.id))


def _trees_to_drive(under_way: PassUnderWay) -> dict[bytes, Need]:
    """The trees with pending files, and their sizes in the plan."""
    world = under_way.world
    pending = world.ledger.passes.pending
    waiting = {chunk.tree for kind in _BROUGHT for chunk in pending(under_way.pass_id, kind.value, _ALL)}
    sizes: dict[bytes, Need] = {tree.path: Need() for tree in under_way.batch.trees if tree.path in waiting}
    for chunk in world.chunk_lists.chunks(under_way.chunk_list):
        if chunk.kind in _BROUGHT and chunk.tree in sizes:
            so_far = sizes[chunk.tree]
            sizes[chunk.tree] = Need(
                size_bytes=so_far.size_bytes + chunk.size_bytes, inodes=so_far.inodes + chunk.files
            )
    return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One run of a driver that is in the ledger."""

    attempt_id: int
    token: str
    chunk: ChunkRecord
    command: Command
    reader: DriverReader


class _Unended(Exception):
    """A process of the driver could not be ended: its attempt stays unfinished."""


class _Step:
    def __init__(self, under_way: PassUnderWay, driving: Driving) -> None:
        self._pass = under_way
        self._world = under_way.world
        self._passes = under_way.world.ledger.passes
        self._driving = driving
        self._name = driving.driver.name
        self.trees = 0
        self.counters = StreamCounters()
        self.left_out: dict[bytes, str] = {}
        self.last_attempt_id = 0

    async def drive(self, chunk: ChunkRecord, meter: Meter) -> None:
        """One tree; tried again if something from outside ended the driver."""
        for number in range(1, _TRIES + 1):
            run = await self._begin(chunk)
            if run is None:
                return
            try:
                outcome = await self._synced(await self._stream(run, meter))
            except asyncio.CancelledError:
                self._finish(run, AttemptState.INTERRUPTED, ChunkState.PENDING, run.reader.counters)
                raise
            except _Unended:
                self._pass.stop(StopReason.TARGET_STUCK, f"{self._name} in {show(chunk.tree)}")
                return
            if outcome.verdict is not Verdict.INTERRUPTED or number == _TRIES:
                self._follow(run, outcome)
                return
            self._finish(run, AttemptState.INTERRUPTED, ChunkState.PENDING, outcome.counters)

    async def _begin(self, chunk: ChunkRecord) -> _Run | None:
        """Intent before the act; None if the driver cannot take the tree, or its directory cannot be made."""
        driving, request, states = self._driving, self._pass.request, self._driving.states
        decision = None if self._pass.governor is None else self._pass.governor.decision
        try:
            directory = states.directory(chunk.pass_id, chunk.number)
            noted = states.read_boot(chunk.pass_id, chunk.number)
            view = driving.executor.view(chunk.tree, directory)
            if (refusal := driving.driver.refusal(view)) is not None:
                self._leave_out(chunk, refusal)
                return None
            if self._passes.attempts_of_chunk(chunk.id):
                await self._clear_leftovers(chunk)
            work = DriverWork(
                size_bytes=chunk.size_bytes,
                jobs=request.jobs if decision is None else max(decision.hosts.get(driving.executor.host, 0), 1),
                part_files=driving.part_files,
                part_bytes=driving.part_bytes,
                capabilities=self._pass.capabilities,
                bwlimit_bytes_per_s=request.bwlimit_bytes_per_s if decision is None else decision.bwlimit_bytes_per_s,
                recopy=request.recopy or noted not in (None, driving.executor.boot_id),
            )
            token = self._world.tokens()
            command = replace(driving.driver.command(work, view, directory), token=token)
            states.note_boot(chunk.pass_id, chunk.number, _IN_DOUBT if work.recopy else driving.executor.boot_id)
        except OSError as error:
            raise MigratorError(
                f"the directory of {self._name} cannot be made ready: {error.strerror or error}",
                cause="the disk of the state directory is full, or mounted read-only",
                hint="make room below [site] state_dir, then run the same command again",
            ) from error
        attempt_id = self._passes.intend(
            chunk_id=chunk.id,
            token=token,
            host=driving.executor.host,
            engine=self._name,
            argv=[show(word) for word in command.argv],
            at_s=self._world.clock.now_s(),
        )
        self.last_attempt_id = attempt_id
        LOG.info("driver begins", extra={"tree": chunk.tree, "attempt": attempt_id, "driver": self._name})
        reader = driving.driver.reader(view, directory)
        return _Run(attempt_id=attempt_id, token=token, chunk=chunk, command=command, reader=reader)

    async def _stream(self, run: _Run, meter: Meter) -> Outcome:
        executor, chunk, reader = self._driving.executor, run.chunk, run.reader
        files = self._pass.invocation.directory.attempt(chunk.number, run.attempt_id, run.command)

        def on_stdout(piece: bytes) -> None:
            files.stdout(piece)
            reader.stdout(piece)
            end_in_trouble()

        def on_stderr(piece: bytes) -> None:
            files.stderr(piece)
            reader.stderr(piece)
            end_in_trouble()

        def end_in_trouble() -> None:
            if reader.trouble is not None:
                stream.cancel()

        stream: asyncio.Task[Completed] = asyncio.create_task(
            executor.execute(
                run.command,
                files=self._driving.driver.files,
                tree=chunk.tree,
                directory=self._driving.states.directory(chunk.pass_id, chunk.number),
                on_start=lambda process: self._started(run, process),
                on_stdout=on_stdout,
                on_stderr=on_stderr,
            )
        )
        live = meter.begin(
            number=1,
            attempt_id=run.attempt_id,
            token=run.token,
            host=executor.host,
            chunk=chunk,
            counters=lambda: reader.counters,
            end=stream.cancel,
        )
        try:
            await asyncio.wait({stream})
        finally:
            if not stream.done() or stream.cancelled():
                await self._end(run, stream)
            meter.ended(live)
            files.close(keep_list=False)
        if reader.trouble is not None:
            stop, detail = reader.trouble
            return Outcome(verdict=Verdict.STOP, counters=reader.counters, stop=stop, message=detail)
        if live.stalled:
            detail = f"{self._name} in {show(chunk.tree)} has not moved for {self._pass.request.stall_timeout_s:.0f} s"
            return Outcome(verdict=Verdict.STOP, counters=reader.counters, stop=StopReason.TARGET_STUCK, message=detail)
        try:
            return reader.outcome(stream.result())
        except ToolFailed as error:
            return Outcome(
                verdict=Verdict.STOP, counters=reader.counters, stop=StopReason.TOOL_MISSING, message=error.message
            )

    def _started(self, run: _Run, process: ProcessIdentity) -> None:
        self._passes.started(run.attempt_id, process)

    async def _end(self, run: _Run, stream: "asyncio.Task[Completed]") -> None:
        """End the driver and everything it started. Raises _Unended if a process is left."""
        stream.cancel()
        await through_cancellation(asyncio.wait({stream}, timeout=self._pass.request.end_timeout_s))
        left = await through_cancellation(self._driving.executor.end_orphans([run.token]))
        if left or not stream.done():
            name = f"attempt {run.attempt_id} of {self._name}, token {run.token}"
            self._pass.unended.append(name)
            LOG.error("a driver cannot be ended: %s", name)
            raise _Unended(name)

    async def _synced(self, outcome: Outcome) -> Outcome:
        """Sync the writes to the disks, if the driver has finished."""
        if outcome.verdict in (Verdict.STOP, Verdict.INTERRUPTED):
            return outcome
        try:
            await self._pass.sync.begun_after_now()
        except TimeoutError:
            reason, detail = StopReason.TARGET_STUCK, "what was written has not reached the target's disks in time"
        except OSError as error:
            reason = stop_reason(error.errno) or StopReason.IO_ERROR
            detail = f"sync of the target: {error.strerror or error}"
        else:
            return outcome
        return Outcome(verdict=Verdict.STOP, counters=outcome.counters, stop=reason, message=detail)

    def _follow(self, run: _Run, outcome: Outcome) -> None:
        chunk, states = run.chunk, self._driving.states
        said = {"verdict": outcome.verdict.value, "said": outcome.message}
        LOG.info("driver ended", extra={"tree": chunk.tree, "attempt": run.attempt_id, **said})
        if outcome.verdict is Verdict.STOP:
            reason = outcome.stop or StopReason.IO_ERROR
            if reason in _DOUBTFUL:
                states.note_boot(chunk.pass_id, chunk.number, _IN_DOUBT)
            self._finish(run, AttemptState.INTERRUPTED, ChunkState.PENDING, outcome.counters)
            self._pass.stop(reason, outcome.message)
            return
        if outcome.verdict is Verdict.INTERRUPTED:
            # Something keeps killing it. Its tree counts as doubtful, so the chunks send everything again.
            self._finish(run, AttemptState.INTERRUPTED, ChunkState.PENDING, outcome.counters)
            self._leave_out(chunk, f"{outcome.message}, {_TRIES} times")
            return
        went_through = outcome.verdict is Verdict.DONE
        state = AttemptState.SUCCEEDED if went_through else AttemptState.FAILED
        self._finish(run, state, ChunkState.DONE, outcome.counters)
        # After the ledger: a crash in between leaves a harmless note.
        states.clear(chunk.pass_id, chunk.number, keep_logs=bool(outcome.message))
        self.trees += 1
        self.counters += outcome.counters
        brought = f"{several(outcome.counters.files, 'file')} and {several(outcome.counters.size_bytes, 'byte')}"
        message = f"{self._name} brought {brought} of {show(chunk.tree)}; the look at all files follows"
        if outcome.message:
            message += f" ({outcome.message})"
        severity = Severity.WARNING if outcome.message else Severity.INFO
        self._say(chunk, severity, message)

    def _leave_out(self, chunk: ChunkRecord, why: str) -> None:
        self.left_out[chunk.tree] = why
        self._say(chunk, Severity.WARNING, f"{show(chunk.tree)} is left to the ordinary chunks: {why}")

    async def _clear_leftovers(self, chunk: ChunkRecord) -> None:
        """Remove temporary files of the rsyncs of earlier tries that were killed."""
        for listed in self._world.chunk_lists.chunks(self._pass.chunk_list):
            if listed.kind in (ChunkKind.FILES, ChunkKind.RANGED_FILES) and listed.tree == chunk.tree:
                paths = self._world.chunk_lists.paths(self._pass.chunk_list, listed.number)
                await remove_before_stream(self._pass, [path.path for path in paths])

    def _finish(self, run: _Run, state: AttemptState, chunk_state: ChunkState, counters: StreamCounters) -> None:
        self._passes.finish(
            run.attempt_id,
            at_s=self._world.clock.now_s(),
            state=state.value,
            exit_code=run.reader.exit_code,
            counters=counters,
            stderr_tail=run.reader.stderr_tail,
            chunk_state=chunk_state,
            problems=(),
        )

    def _say(self, chunk: ChunkRecord, severity: Severity, message: str) -> None:
        subject = f"batch {self._pass.batch.number}, {show(chunk.tree)}"
        self._pass.invocation.say(EventKind.TREE_DRIVEN, severity, subject, message)
