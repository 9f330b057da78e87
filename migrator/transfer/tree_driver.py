"""Driving trees: the kind of work for the lanes that lets a driver copy whole trees, one after the other, before the chunks.

Nothing depends on a driver's own report. The chunks that follow go over the same lists: they send missing files,
restore split hard links, and correct wrong attributes. So nothing here fails a file; an incomplete driver run only
leaves more work to the chunks. Two things are required: all of its processes are gone, and its writes have reached
the target's disks before size and times of a file prove anything.
"""

import asyncio
import dataclasses
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from migrator.core import states
from migrator.core.errors import MigratorError
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.core.tasks import to_the_end
from migrator.core.units import several
from migrator.fs.model import Need
from migrator.hosts.ports import Command
from migrator.transfer.context import LOG, PassUnderWay
from migrator.transfer.copier import PendingChunks
from migrator.transfer.executors import stream_activity
from migrator.transfer.leftovers import remove_before_stream
from migrator.transfer.meter import Meter
from migrator.transfer.model import (
    AttemptRecord,
    AttemptVerdict,
    ChunkRecord,
    StopReason,
    StreamCounters,
    StreamOutcome,
)
from migrator.transfer.model_governor import Gate
from migrator.transfer.pool import run_pool
from migrator.transfer.ports import DriverWork, Driving
from migrator.transfer.queue import WorkQueue
from migrator.transfer.remaining import BROUGHT_KINDS, EVERY
from migrator.transfer.routes import HostLane, Routes
from migrator.transfer.stream import Stream, Unended, sync_problem

if TYPE_CHECKING:
    from migrator.transfer.engines.drivers import DriverReader

_DOUBTFUL = (StopReason.IO_ERROR, StopReason.DISCONNECTED, StopReason.TARGET_STUCK, StopReason.TARGET_READ_ONLY)


async def drive_trees(under_way: PassUnderWay, driving: Driving) -> None:
    """Let the driver copy every tree that still has files to copy, or stop (`under_way.stop_found`).

    Raises CancelledError after all processes of the driver have ended.
    """
    world, kinds = under_way.world, (states.ChunkKind.TREE,)
    trees = _trees_to_drive(under_way)
    world.ledger.passes.add_trees(under_way.pass_id, trees)
    meter = Meter(under_way, kinds, world.ledger.passes.totals(under_way.pass_id), activity=stream_activity)
    # A driver has its own streams on this machine, and gets the governor's decisions with its command.
    lane = dataclasses.replace(world.lanes[0], jobs=1)
    routes = Routes(clock=world.clock, report=under_way.invocation.report, lanes=[lane], guard=None)
    driver = TreeDriver(under_way, driving, meter)
    driver.left_out |= {tree.path for tree in under_way.batch.trees} - trees.keys()
    backlog = PendingChunks(under_way, kinds, but_trees=driver.left_out)
    queue = WorkQueue[ChunkRecord](backlog, routes, clock=world.clock, governor=None)
    async with meter.watching():
        await run_pool(driver, queue, routes, governor=None, workers=under_way.workers)


def doubtful_trees(under_way: PassUnderWay) -> frozenset[bytes]:
    """Trees with an unfinished driver: its writes may not have reached the target's disks, so size and times prove
    nothing.
    """
    passes = under_way.world.ledger.passes
    chunks = passes.pending(under_way.pass_id, states.ChunkKind.TREE.value, EVERY, but_trees=under_way.left_alone)
    return frozenset(chunk.tree for chunk in chunks if passes.attempts_of_chunk(chunk.id))


def _trees_to_drive(under_way: PassUnderWay) -> dict[bytes, Need]:
    """The trees with pending files, and their sizes in the plan."""
    world = under_way.world
    pending = world.ledger.passes.pending
    waiting = {chunk.tree for kind in BROUGHT_KINDS for chunk in pending(under_way.pass_id, kind.value, EVERY)}
    sizes: dict[bytes, Need] = {tree.path: Need() for tree in under_way.batch.trees if tree.path in waiting}
    for chunk in world.chunk_lists.chunks(under_way.chunk_list):
        if chunk.kind in BROUGHT_KINDS and chunk.tree in sizes:
            so_far = sizes[chunk.tree]
            sizes[chunk.tree] = Need(
                size_bytes=so_far.size_bytes + chunk.size_bytes, inodes=so_far.inodes + chunk.files
            )
    return sizes


class TreeDriver:
    """The kind of work that drives trees (see `WorkKind`). `left_out` are the trees that no driver takes in this run."""

    def __init__(self, under_way: PassUnderWay, driving: Driving, meter: Meter) -> None:
        self.left_out = set(under_way.left_alone)
        self._pass = under_way
        self._world = under_way.world
        self._passes = under_way.world.ledger.passes
        self._driving = driving
        self._name = driving.driver.name
        self._meter = meter

    @property
    def stopped(self) -> bool:
        """See `WorkKind`."""
        return self._pass.stop_found is not None

    def held(self) -> bool:
        """See `WorkKind`: also while the governor's gate is closed."""
        governor = self._pass.governor
        return self._pass.is_held() or (governor is not None and governor.decision.gate is not Gate.OPEN)

    async def carry_out(self, chunk: ChunkRecord, lane: HostLane, slot: int, /) -> None:  # noqa: ARG002 (the port's)
        """See `WorkKind`: run the driver over one tree."""
        prepared = await self._prepare(chunk)
        if prepared is None:
            return
        stream, outcome = await self._attempt(chunk, *prepared)
        if outcome is not None:
            await to_the_end(self._follow(chunk, stream, outcome))

    async def _prepare(self, chunk: ChunkRecord) -> tuple[Command, "DriverReader"] | None:
        """The command and its reader; None if the driver cannot take the tree. Raises MigratorError if the driver's
        directory cannot be created.
        """
        driving, request = self._driving, self._pass.request
        governor = self._pass.governor
        try:
            directory = driving.states.fresh(chunk.pass_id, chunk.number)
            view = driving.executor.driver_view(chunk.tree, directory)
            if (refusal := driving.driver.refusal(view)) is not None:
                self._leave_out(chunk, refusal)
                return None
            earlier = self._passes.attempts_of_chunk(chunk.id)
            if earlier:
                await self._clear_leftovers(chunk)
            work = DriverWork(
                size_bytes=chunk.size_bytes,
                jobs=request.jobs if governor is None else max(governor.allowed.get(driving.executor.host, 0), 1),
                part_files=driving.part_files,
                part_bytes=driving.part_bytes,
                capabilities=self._pass.capabilities,
                bwlimit_bytes_per_s=None if governor is None else governor.decision.bwlimit_bytes_per_s,
                recopy=request.recopy or any(map(self._may_be_lost, earlier)),
            )
        except OSError as error:
            raise MigratorError(
                f"the directory of {self._name} cannot be made ready: {error.strerror or error}",
                cause="the disk of the state directory is full, or mounted read-only",
                hint="make room below [site] state_dir, then run the same command again",
            ) from error
        return driving.driver.command(work, view), driving.driver.reader(view, directory)

    async def _attempt(
        self, chunk: ChunkRecord, command: Command, reader: "DriverReader"
    ) -> tuple[Stream, StreamOutcome | None]:
        """Run the driver once, after recording the intent in the ledger. The outcome is None if the driver cannot be
        ended.
        """
        executor = self._driving.executor
        stream = Stream(self._pass, self._meter, chunk, slot=1, executor=executor, engine=self._name, command=command)
        LOG.info("driver begins", extra={"tree": chunk.tree, "driver": self._name})
        directory = self._driving.states.directory(chunk.pass_id, chunk.number)
        start = partial(executor.drive, files=self._driving.driver.files, directory=directory)
        try:
            await stream.intend()
            outcome = await stream.follow(command, start, reader, trouble=lambda: reader.trouble)
            if outcome.verdict not in (AttemptVerdict.STOP, AttemptVerdict.INTERRUPTED) and (
                problem := await sync_problem(self._pass.sync)
            ):
                outcome = replace(outcome, verdict=AttemptVerdict.STOP, stop=problem[0], message=problem[1])
        except asyncio.CancelledError:
            await self._finish(stream, states.AttemptState.INTERRUPTED, states.ChunkState.PENDING, reader.counters)
            raise
        except Unended:
            self._pass.stop(StopReason.TARGET_STUCK, f"{self._name} in {show(chunk.tree)}")
            return stream, None
        return stream, outcome

    async def _follow(self, chunk: ChunkRecord, stream: Stream, outcome: StreamOutcome) -> None:
        facts = {"verdict": outcome.verdict.value, "detail": outcome.message}
        LOG.info("driver ended", extra={"tree": chunk.tree, "attempt": stream.id, **facts})
        if outcome.verdict in (AttemptVerdict.STOP, AttemptVerdict.INTERRUPTED):
            reason = outcome.stop or StopReason.IO_ERROR
            doubtful = outcome.verdict is AttemptVerdict.STOP and reason in _DOUBTFUL
            state = states.AttemptState.FAILED if doubtful else states.AttemptState.INTERRUPTED
            await self._finish(stream, state, states.ChunkState.PENDING, outcome.counters)
            if outcome.verdict is AttemptVerdict.STOP:
                self._pass.stop(reason, outcome.message)
            else:
                # Its tree counts as doubtful, so the chunks send everything again.
                self._leave_out(chunk, outcome.message)
            return
        state = states.AttemptState.SUCCEEDED if outcome.verdict is AttemptVerdict.DONE else states.AttemptState.FAILED
        await self._finish(stream, state, states.ChunkState.DONE, outcome.counters)
        self._driving.states.clear(chunk.pass_id, chunk.number, keep_logs=bool(outcome.message))
        brought = f"{several(outcome.counters.files, 'file')} and {several(outcome.counters.size_bytes, 'byte')}"
        message = f"{self._name} copied {brought} of {show(chunk.tree)}; the check of all files follows"
        if outcome.message:
            message += f" ({outcome.message})"
        self._report(chunk, Severity.WARNING if outcome.message else Severity.INFO, message)

    def _may_be_lost(self, attempt: AttemptRecord) -> bool:
        """Whether writes of an earlier attempt may have missed the target's disks: an error of the target ended the
        attempt, or the machine has rebooted since.
        """
        process = attempt.process
        return (
            attempt.state is states.AttemptState.FAILED
            or process is None
            or process.boot_id != self._driving.executor.boot_id
        )

    def _leave_out(self, chunk: ChunkRecord, why: str) -> None:
        self.left_out.add(chunk.tree)
        self._report(chunk, Severity.WARNING, f"{show(chunk.tree)} is left to the ordinary chunks: {why}")

    async def _clear_leftovers(self, chunk: ChunkRecord) -> None:
        """Remove temporary files of killed rsyncs of earlier tries."""
        for listed in self._world.chunk_lists.chunks(self._pass.chunk_list):
            if listed.kind in (states.ChunkKind.FILES, states.ChunkKind.RANGED_FILES) and listed.tree == chunk.tree:
                paths = self._world.chunk_lists.paths(self._pass.chunk_list, listed.number)
                await remove_before_stream(self._pass, [path.path for path in paths])

    async def _finish(
        self, stream: Stream, state: states.AttemptState, chunk_state: states.ChunkState, counters: StreamCounters
    ) -> None:
        stream.counters = counters
        await self._world.ledger.write(partial(stream.finish, self._world, state, chunk_state))

    def _report(self, chunk: ChunkRecord, severity: Severity, message: str) -> None:
        subject = f"batch {self._pass.batch.number}, {show(chunk.tree)}"
        self._pass.invocation.report(EventKind.TREE_DRIVEN, severity, subject, message)
