"""The common part of all passes over a batch, the seed pass, and convergence after each."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.model import CatalogRecord, earlier_verifications
from migrator.core import states
from migrator.core.entry import Entry
from migrator.core.errors import MigratorError, Refused
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.core.tasks import SharedCall, cancel_and_wait, through_cancellation, to_the_end
from migrator.core.units import several
from migrator.fs.model import DigestPolicy, Need, SourceHealth, TargetCapabilities
from migrator.gluster.model import volume_state
from migrator.gluster.rules import copies
from migrator.hosts.ports import Command
from migrator.ledger.model import SiteRecord
from migrator.plan.model import Batch, Chunk, Plan
from migrator.plan.rules import unverified
from migrator.plan.rules_forecast import choose_cost, still_needed
from migrator.site.rules_guards import health_problems
from migrator.transfer import guards
from migrator.transfer import model as transfer
from migrator.transfer.attempt import Stream, Unended, look, remove_before_stream, sync_problem
from migrator.transfer.bases import covers
from migrator.transfer.context import LOG, Invocation, PassUnderWay, StorageWatch, World
from migrator.transfer.copier import copy_chunks
from migrator.transfer.delta.model import SENT
from migrator.transfer.executors import stream_activity
from migrator.transfer.meter import Meter
from migrator.transfer.model import AttemptRecord, ChunkRecord, Outcome, PassRecord, StopReason, StreamCounters, Verdict
from migrator.transfer.ports import DriverWork, Driving
from migrator.transfer.routes import Routes
from migrator.transfer.rules import stop_reason
from migrator.transfer.rules_convergence import FIXED_S, check_cost, decide

if TYPE_CHECKING:
    from migrator.transfer.engines.drivers import DriverReader
    from migrator.transfer.records import TransferLedger

# The step that lets a driver copy the trees of a batch, one after the other, before the ordinary chunks.
#
# Nothing depends on a driver's own report. The chunks that follow go over the same lists: they send missing files,
# restore split hard links, and correct wrong attributes. So nothing here fails a file; an incomplete driver run only
# leaves more work to the chunks. Two things are required: all of its processes are gone, and its writes have reached
# the target's disks before size and times of a file prove anything.


_ALL = 2**31 - 1
_BROUGHT = (states.ChunkKind.RANGES, states.ChunkKind.FILES, states.ChunkKind.RANGED_FILES)
"""Kinds of chunks that a driver copies too."""
_DOUBTFUL = (StopReason.IO_ERROR, StopReason.DISCONNECTED, StopReason.TARGET_STUCK, StopReason.TARGET_READ_ONLY)


async def run_driver_step(under_way: PassUnderWay, driving: Driving) -> None:
    """Let the driver copy every tree that still has files to copy, or stop (`under_way.stop_found`).

    Raises CancelledError after all processes of the driver have ended.
    """
    passes = under_way.world.ledger.passes
    meter = Meter(under_way, (states.ChunkKind.TREE,), passes.totals(under_way.pass_id), activity=stream_activity)
    step = _Step(under_way, driving, meter)
    watching = asyncio.create_task(meter.watch())
    try:
        for chunk in passes.add_trees(under_way.pass_id, _trees_to_drive(under_way)):
            if chunk.tree in under_way.left_alone:
                continue
            if chunk.state is states.ChunkState.PENDING and under_way.stop_found is None:
                if under_way.governor is not None:
                    await under_way.governor.until_open()
                await step.drive(chunk)
    finally:
        await cancel_and_wait(watching)
        meter.finish()


def doubtful_trees(under_way: PassUnderWay) -> frozenset[bytes]:
    """Trees with an unfinished driver: its writes may not have reached the target's disks, so size and times prove
    nothing.
    """
    passes = under_way.world.ledger.passes
    chunks = passes.pending(under_way.pass_id, states.ChunkKind.TREE.value, _ALL, but_trees=under_way.left_alone)
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


class _Step:
    def __init__(self, under_way: PassUnderWay, driving: Driving, meter: Meter) -> None:
        self._pass = under_way
        self._world = under_way.world
        self._passes = under_way.world.ledger.passes
        self._driving = driving
        self._name = driving.driver.name
        self._meter = meter

    async def drive(self, chunk: ChunkRecord) -> None:
        """Run the driver over one tree."""
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
        command = replace(driving.driver.command(work, view), token=self._world.tokens())
        return command, driving.driver.reader(view, directory)

    async def _attempt(
        self, chunk: ChunkRecord, command: Command, reader: "DriverReader"
    ) -> tuple[Stream, Outcome | None]:
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
            if outcome.verdict not in (Verdict.STOP, Verdict.INTERRUPTED) and (
                problem := await sync_problem(self._pass.sync)
            ):
                outcome = replace(outcome, verdict=Verdict.STOP, stop=problem[0], message=problem[1])
        except asyncio.CancelledError:
            await self._finish(stream, states.AttemptState.INTERRUPTED, states.ChunkState.PENDING, reader.counters)
            raise
        except Unended:
            self._pass.stop(StopReason.TARGET_STUCK, f"{self._name} in {show(chunk.tree)}")
            return stream, None
        return stream, outcome

    async def _follow(self, chunk: ChunkRecord, stream: Stream, outcome: Outcome) -> None:
        said = {"verdict": outcome.verdict.value, "said": outcome.message}
        LOG.info("driver ended", extra={"tree": chunk.tree, "attempt": stream.id, **said})
        if outcome.verdict in (Verdict.STOP, Verdict.INTERRUPTED):
            reason = outcome.stop or StopReason.IO_ERROR
            doubtful = outcome.verdict is Verdict.STOP and reason in _DOUBTFUL
            state = states.AttemptState.FAILED if doubtful else states.AttemptState.INTERRUPTED
            await self._finish(stream, state, states.ChunkState.PENDING, outcome.counters)
            if outcome.verdict is Verdict.STOP:
                self._pass.stop(reason, outcome.message)
            else:
                # Its tree counts as doubtful, so the chunks send everything again.
                self._leave_out(chunk, outcome.message)
            return
        state = states.AttemptState.SUCCEEDED if outcome.verdict is Verdict.DONE else states.AttemptState.FAILED
        await self._finish(stream, state, states.ChunkState.DONE, outcome.counters)
        self._driving.states.clear(chunk.pass_id, chunk.number, keep_logs=bool(outcome.message))
        brought = f"{several(outcome.counters.files, 'file')} and {several(outcome.counters.size_bytes, 'byte')}"
        message = f"{self._name} brought {brought} of {show(chunk.tree)}; the look at all files follows"
        if outcome.message:
            message += f" ({outcome.message})"
        self._say(chunk, Severity.WARNING if outcome.message else Severity.INFO, message)

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
        self._say(chunk, Severity.WARNING, f"{show(chunk.tree)} is left to the ordinary chunks: {why}")

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

    def _say(self, chunk: ChunkRecord, severity: Severity, message: str) -> None:
        subject = f"batch {self._pass.batch.number}, {show(chunk.tree)}"
        self._pass.invocation.say(EventKind.TREE_DRIVEN, severity, subject, message)


# After a pass over a batch: the decision about another one, from the ledger's passes, and its record.


MovesOf = Callable[[PassRecord], tuple[int, int]]
"""The number of renames and outermost deletions in the move list of a pass."""


def judge_passes(
    ledger: "TransferLedger",
    *,
    plan: str,
    batch: int,
    trees: Collection[bytes],
    at_s: float,
    streams: int,
    check: transfer.FreezeCheck,
    limits: transfer.PassLimits,
    made: int,
    moves_of: MovesOf,
) -> transfer.Decision:
    """Decide whether to make another delta pass over these trees, after the last one was closed. The prediction is
    recorded with that pass. Passes over only some of the trees, such as final ones, do not count.

    `at_s` is now, `made` the number of delta passes of this run. May be called again: the record is replaced, and the
    comparison is still with the freeze predicted after the pass before. Blocking.
    """
    done = _done(ledger, plan, batch)
    records = [(one, scan) for one, scan in done if covers(ledger.passes, one, trees)]
    earlier = {one.pass_id: one.prediction.freeze_s for one in ledger.predictions.of_batch(plan, batch)}
    decision = decide(
        [_facts(ledger, one, scan, moves_of) for one, scan in records],
        batch=batch,
        at_s=at_s,
        cost=choose_cost(ledger.samples.measured_cost(), streams),
        check=check,
        limits=limits,
        made=made,
        earlier_freeze_s=earlier.get(records[-2][0].id) if len(records) > 1 else None,
    )
    if decision.prediction is not None:
        ledger.predictions.record(
            transfer.ConvergenceRecord(
                pass_id=records[-1][0].id,
                at_s=at_s,
                batch=batch,
                outcome=decision.outcome,
                max_freeze_s=limits.max_freeze_s,
                prediction=decision.prediction,
            )
        )
    return decision


def facts_of_passes(ledger: "TransferLedger", plan: str, batch: int, moves_of: MovesOf) -> list[transfer.PassFacts]:
    """Every finished pass over a batch or some of its trees, oldest first. Blocking."""
    return [_facts(ledger, one, scan, moves_of) for one, scan in _done(ledger, plan, batch)]


def _done(ledger: "TransferLedger", plan: str, batch: int) -> list[tuple[PassRecord, CatalogRecord]]:
    """The finished passes whose scan is in the ledger, with that scan. A restored ledger may lack scans."""
    scans = {scan.name: scan for scan in ledger.scans.all()}
    records = ledger.passes.of_batch(plan, batch)
    return [(one, scans[one.catalog]) for one in records if one.state is states.PassState.DONE and one.catalog in scans]


def _facts(ledger: "TransferLedger", record: PassRecord, scan: CatalogRecord, moves_of: MovesOf) -> transfer.PassFacts:
    changes = ledger.passes.changes(record.id)
    totals = ledger.passes.totals(record.id)
    renames, gone = moves_of(record)
    finished_at_s = record.started_at_s if record.finished_at_s is None else record.finished_at_s
    scanned_s = (scan.finished_at_s or scan.started_at_s) - scan.started_at_s
    return transfer.PassFacts(
        kind=record.kind,
        number=record.number,
        scanned_at_s=scan.started_at_s,
        scan_s=scanned_s if record.scan_s is None else record.scan_s,
        started_at_s=record.started_at_s,
        finished_at_s=finished_at_s,
        sent_files=totals.done_files,
        sent_bytes=totals.done_bytes,
        renames=renames,
        gone=gone,
        trees=() if changes is None else changes.trees,
    )


# The predicted cost of verifying trees in the freeze, from the ledger.


def check_of_trees(
    ledger: "TransferLedger", plan: Plan, batch: int, trees: Collection[bytes], policy: DigestPolicy | None = None
) -> transfer.FreezeCheck:
    """The cost of verifying some trees of a batch in the freeze, if earlier proofs are reused. `policy`: which content
    to compare; None: as the newest verification did, or all of it. Blocking.
    """
    records = ledger.verifications.all()
    wanted = policy or (records[-1].policy if records else None)
    share = 1.0 if wanted is None else wanted.share
    files = size_bytes = 0
    for usage in plan.ranking:
        if (tree := usage.tree.path) not in trees:
            continue
        files += usage.files + usage.directories
        earlier = (
            earlier_verifications(ledger.verifications.covering(tree, ledger.plans.batches_with(tree)), wanted)
            if wanted
            else ()
        )
        # An earlier verification proves everything except the paths sent since.
        size_bytes += (
            min(_changed_bytes(ledger, plan.name, batch, tree, since_s=earlier[0].started_at_s), usage.size_bytes)
            if earlier
            else usage.size_bytes
        )
    s_per_path, s_per_byte = check_cost(records)
    return transfer.FreezeCheck(
        s_per_file=s_per_path,
        s_per_byte=s_per_byte * share,
        files=files,
        size_bytes=size_bytes,
        fixed_s=FIXED_S,
    )


def _changed_bytes(ledger: "TransferLedger", plan: str, batch: int, tree: bytes, *, since_s: float) -> int:
    """Bytes that passes of this plan have sent since; a pass in progress at that time counts completely."""
    total = 0
    for record in ledger.passes.of_batch(plan, batch):
        if record.finished_at_s is not None and record.finished_at_s <= since_s:
            continue
        changes = ledger.passes.changes(record.id)
        for one in changes.trees if changes else ():
            if one.tree == tree:
                total += sum(one.tally(kind).size_bytes for kind in SENT)
    return total


# The remaining work of a batch, counted without changing anything.


class Remaining(Struct, frozen=True, kw_only=True):
    """Chunks still to copy, by tree, and the room that they need on the target."""

    record: PassRecord | None
    trees: tuple[transfer.TreeWork, ...] = ()
    chunks_by_kind: Mapping[states.ChunkKind, int] = {}
    need: Need = Need()

    @property
    def chunks(self) -> int:
        """Of all kinds."""
        return sum(self.chunks_by_kind.values())


def remaining(
    world: World, plan: Plan, batch: Batch, record: PassRecord | None, *, left_alone: Collection[bytes] = ()
) -> Remaining:
    """The remaining work of a pass over the batch, except some trees; None: of a seed pass that has not started. Failed
    chunks, and those in flight when a run was killed, count: both are tried again.
    """
    trees: dict[bytes, list[int]] = {tree.path: [0, 0, 0] for tree in batch.trees}
    by_kind: dict[states.ChunkKind, int] = {}
    needs: dict[bytes, Need] = {}
    for chunk in _of_pass(world, record) if record else _of_list(world, batch):
        if chunk.tree in left_alone:
            continue
        sums = trees.setdefault(chunk.tree, [0, 0, 0])
        sums[0] += 1
        by_kind[chunk.kind] = by_kind.get(chunk.kind, 0) + 1
        if chunk.kind in (*_BROUGHT, states.ChunkKind.DIRECTORIES):
            so_far = needs.get(chunk.tree, Need())
            needs[chunk.tree] = Need(
                size_bytes=so_far.size_bytes + chunk.size_bytes, inodes=so_far.inodes + chunk.files
            )
        if chunk.kind in states.CONTENT_KINDS:
            sums[1] += chunk.files
            sums[2] += chunk.size_bytes if chunk.kind is not states.ChunkKind.LINKS else 0
    return Remaining(
        record=record,
        trees=tuple(
            transfer.TreeWork(tree=tree, chunks=chunks, files=files, size_bytes=size_bytes)
            for tree, (chunks, files, size_bytes) in trees.items()
            if chunks
        ),
        chunks_by_kind=by_kind,
        # New copies replace files that an earlier plan copied, and need no additional room.
        need=still_needed(needs, world.ledger.passes.arrived(before_plan=plan.name)),
    )


def _of_list(world: World, batch: Batch) -> Iterable[Chunk]:
    # This check comes before any use of the list: a replaced file may be no list at all.
    guards.refuse(batch, (transfer.GuardFinding(guard="chunk lists", problems=guards.list_problems(world, batch)),))
    return world.chunk_lists.chunks(batch.chunk_list)


def _of_pass(world: World, record: PassRecord) -> Iterable[transfer.ChunkRecord]:
    passes = world.ledger.passes
    failed = passes.totals(record.id).chunks.get(states.ChunkState.FAILED, 0)
    if record.state is states.PassState.DONE and not failed:
        return
    for kind in states.CHUNK_ORDER:
        yield from passes.pending(record.id, kind.value, _ALL)
    under_way = {attempt.chunk_id for attempt in passes.unfinished_attempts(pass_id=record.id)}
    yield from (chunk for chunk in map(passes.chunk, sorted(under_way)) if chunk.state is states.ChunkState.RUNNING)
    yield from passes.to_retry(record.id)


# The common part of all passes over a batch: guards, steps in order, the closing check, and the summary.


class Ready(Struct, frozen=True, kw_only=True):
    """The findings of a pass before it starts, when all guards have passed."""

    findings: tuple[transfer.GuardFinding, ...]
    health: SourceHealth
    since_s: float
    capabilities: TargetCapabilities


@dataclass(slots=True, kw_only=True)
class Copying:
    """Runs passes over one batch as recorded in the ledger, except chunks of the trees that are left alone."""

    invocation: Invocation
    plan: Plan
    site: SiteRecord
    batch: Batch
    left_alone: frozenset[bytes] = frozenset()

    @property
    def world(self) -> World:
        return self.invocation.world

    @property
    def timeout_s(self) -> float:
        return self.invocation.request.stall_timeout_s

    def say(self, kind: EventKind, severity: Severity, message: str) -> None:
        """Record an event about the batch."""
        self.invocation.say(kind, severity, f"batch {self.batch.number}", message)

    async def ready(self, need: Need, left: Sequence[transfer.TreeWork] = ()) -> Ready:
        """Evaluate all guards of a pass. Raises Refused with every reason."""
        world, request, since_s = self.world, self.invocation.request, self.world.clock.now_s()
        findings, health, warnings = await guards.find_problems(
            world, request, self.site, self.plan, self.batch, need=need, left=left
        )
        for warning in warnings:
            self.say(EventKind.QUOTA_NEAR, Severity.WARNING, warning)
        for problem in (problem for found in findings for problem in found.problems):
            self.say(EventKind.GUARD_REFUSED, Severity.ERROR, problem)
        of_batch = [usage for usage in self.plan.ranking if usage.tree in self.batch.trees]
        guards.refuse(self.batch, findings, largest=max(of_batch, key=lambda one: one.largest_bytes, default=None))
        capabilities = await self.capabilities()
        return Ready(findings=findings, health=health, since_s=since_s, capabilities=capabilities)

    async def capabilities(self) -> TargetCapabilities:
        """The recorded capabilities of the target; probed now if there is no record."""
        return self.site.capabilities or await probed_capabilities(self.world, timeout_s=self.timeout_s)

    async def make_trees(self) -> None:
        """Create the directories above each tree, and the trees, without access for users. This also proves that the
        target is writable.
        """
        world = self.world
        for tree in self.batch.trees:
            components = tree.path.split(b"/")
            above = [b"/".join(components[:depth]) for depth in range(1, len(components))]

            def make(path: bytes = tree.path, above: list[bytes] = above) -> None:
                like = [seen for directory in above if isinstance(seen := look(world.source, directory), Entry)]
                world.target.make_parents(path, like)

            with _writable(tree.path):
                is_new = await guards.wants_stripes(self.invocation, tree.path)
                await world.blocking(make, timeout_s=self.timeout_s)
            if is_new:
                await guards.set_stripes(self.invocation, tree.path)

    async def carry_out(
        self,
        record: PassRecord,
        ready: Ready,
        *,
        title: str,
        before: Callable[[PassUnderWay], Awaitable[None]],
        advance: Callable[[], None] = lambda: None,
    ) -> transfer.BatchSummary:
        """Run a pass to its end, or to a stop that is in the summary. `before` runs before its chunks. `advance` sets
        the next state of the batch when the pass is done.
        """
        world = self.world
        under_way = self.under_way(record, ready)
        routes = self._routes(record, ready.health)
        started_s = world.clock.monotonic_s()
        whole = False
        try:
            under_way.digests = await self._source_synced()
            await before(under_way)
            await self._copy_chunks(under_way, routes)
            if under_way.stop_found is None:
                await self._look_again(under_way)
            whole = under_way.stop_found is None
        finally:
            await under_way.confirmations.end()
            under_way.abandon_calls()
            routes.abandon()
            if under_way.storage is not None:
                await under_way.storage.close()
            if not whole:
                # Results that were recorded without waiting come first.
                await through_cancellation(world.ledger.write(lambda: None))
            # This also runs after a cancellation or an error: the ledger gets the state of the pass in any case.
            self._close(under_way, title, whole=whole)
            if whole:
                advance()
        tally, passes = under_way.tally, world.ledger.passes
        record = passes.read(record.id)
        return transfer.BatchSummary(
            batch=self.batch.number,
            chunks=tally.chunks,
            files=tally.files,
            size_bytes=tally.size_bytes,
            written_bytes=tally.written_bytes,
            elapsed_s=world.clock.monotonic_s() - started_s,
            chunks_by_kind=dict(tally.by_kind),
            vanished=passes.vanished_count(record.id),
            bad=tuple(passes.attention(record.id)),
            trees_gone=tuple(sorted(under_way.trees_gone)),
            left=remaining(world, self.plan, self.batch, record, left_alone=self.left_alone).trees,
            stopped=under_way.explain_stop(),
            guards=ready.findings,
        )

    def set_batch_states(self, states: Sequence[states.BatchState]) -> None:
        """Move the batch on, step by step."""
        for state in states:
            self.world.ledger.plans.set_batch_state(self.plan.name, self.batch.number, state)

    @property
    def batch_state(self) -> states.BatchState | None:
        """The state of the batch; None if it is not in the ledger."""
        record = self.world.ledger.plans.read(self.plan.name)
        return record.batches.get(self.batch.number) if record else None

    def under_way(self, record: PassRecord, ready: Ready) -> PassUnderWay:
        """The values of the pass in this run, before it starts."""
        world, timeout_s = self.world, self.timeout_s

        async def sync() -> None:
            await world.blocking(world.target.sync, timeout_s=timeout_s)

        async def health() -> SourceHealth:
            before, now = await guards.health_since(world, ready.health, ready.since_s)
            problems, doubts = health_problems(before, now, tasks_count=False), health_problems(before, now)
            return replace(now, problems=problems, doubts=doubts)

        return PassUnderWay(
            invocation=self.invocation,
            batch=self.batch,
            pass_id=record.id,
            kind=record.kind,
            chunk_list=record.chunk_list,
            capabilities=ready.capabilities,
            sync=SharedCall(sync),
            health=SharedCall(health),
            left_alone=self.left_alone,
            storage=(
                StorageWatch(world.storage, self.invocation, f"batch {self.batch.number}") if world.storage else None
            ),
        )

    async def _source_synced(self) -> bool:
        """Sync the source after the begin of the pass, so that digests of what is copied prove something (see
        `is_carried_over`). If that fails, some client's writes were lost, and users will repeat them.
        """
        try:
            await self.world.blocking(self.world.source.sync, timeout_s=self.timeout_s)
        except (OSError, TimeoutError):
            return False
        return True

    async def _copy_chunks(self, under_way: PassUnderWay, routes: Routes) -> None:
        """Run all steps in order. A step starts when the streams of the one before have ended, with two exceptions. Big
        files are put in place only after every range of them is confirmed: an unconfirmed range may come from an
        untrusted brick, and the file would not be checked again. Times of directories, which change with every file,
        are set after everything else is confirmed. Unconfirmed chunks are copied again, and then the steps after them.
        """
        in_place, times = states.CHUNK_STEPS.index((states.ChunkKind.RANGED_FILES,)), len(states.CHUNK_STEPS) - 1
        passes = under_way.world.ledger.passes

        async def run(steps: Sequence[Sequence[states.ChunkKind]]) -> None:
            while under_way.stop_found is None:
                for step in steps:
                    if under_way.stop_found is None:
                        await copy_chunks(under_way, routes, step)
                await under_way.confirmations.settled()
                if not any(
                    passes.pending(under_way.pass_id, kind.value, 1, but_trees=under_way.left_alone)
                    for step in steps
                    for kind in step
                ):
                    return

        for steps in (states.CHUNK_STEPS[:in_place], states.CHUNK_STEPS[in_place:times], states.CHUNK_STEPS[times:]):
            await run(steps)

    def _routes(self, record: PassRecord, health: SourceHealth) -> Routes:
        world = self.world
        scan = next((scan for scan in world.ledger.scans.all() if scan.name == record.catalog), None)
        return Routes(
            clock=world.clock,
            report=self.invocation.say,
            lanes=world.lanes,
            guard=world.bricks,
            catalog_fingerprint=scan.health_fingerprint if scan else "",
            copies=copies(volume_state(health)),
        )

    async def _look_again(self, under_way: PassUnderWay) -> None:
        """Check the source and both mounts again. A pass counts as whole only if the source was whole and both mounts
        the same from its start to its end.
        """
        world, timeout_s = self.world, self.timeout_s
        if problems := (await under_way.health.begun_after_now()).problems:
            under_way.stop(transfer.StopReason.SOURCE_UNHEALTHY, "; ".join(problems))
            return
        changed = await guards.mounts_changed(world, self.site, timeout_s)
        if changed:
            under_way.stop(transfer.StopReason.MOUNT_CHANGED, "; ".join(changed))

    def _close(self, under_way: PassUnderWay, title: str, *, whole: bool) -> None:
        world, number = self.world, self.batch.number
        state = states.PassState.DONE if whole else states.PassState.STOPPED
        world.ledger.passes.set_state(under_way.pass_id, state, world.clock.now_s())
        tally = under_way.tally
        bad = len(world.ledger.passes.attention(under_way.pass_id))
        message = (
            f"{title} over batch {number} {'has gone through' if whole else 'stopped'}: "
            f"{several(tally.chunks, 'chunk')} and {several(tally.files, 'file')} copied in this run"
        )
        if bad:
            message += f"; {several(bad, 'file needs', 'files need')} attention"
        severity = Severity.INFO if whole and not bad else Severity.WARNING
        self.say(EventKind.PASS_FINISHED, severity, message)


async def probed_capabilities(world: World, *, timeout_s: float, side: str = "target") -> TargetCapabilities:
    """Probe the target of this world, and record the result. `side` names it for people. Raises Refused."""
    try:
        probed = await world.blocking(world.target.probe, timeout_s=timeout_s)
    except (OSError, TimeoutError) as error:
        raise _unwritable(str(error), side=side) from error
    world.ledger.site.record_capabilities(probed, world.clock.now_s())
    return probed


@contextmanager
def _writable(path: bytes) -> Iterator[None]:
    """Raises Refused for an error of the target in the block."""
    try:
        yield
    except TimeoutError as error:
        raise _unwritable("it does not answer") from error
    except OSError as error:
        raise _unwritable(f"{show(path)}: {error.strerror or error}", error.errno) from error


def _unwritable(detail: str, code: int | None = None, side: str = "target") -> Refused:
    full = stop_reason(code) in (transfer.StopReason.TARGET_FULL, transfer.StopReason.TARGET_QUOTA)
    return Refused(
        f"the {side} cannot be written: {detail}",
        cause="it is full, or a quota is used up" if full else "it is mounted read-only, or does not answer",
        hint="see `migrator doctor`, then run the same command again",
    )


# The seed pass over one batch: everything that the plan lists.


class SeedPass(Copying):
    """The seed pass over one batch, except the trees that are left alone: their chunks stay unchanged, and count as not
    arrived. `run` may be called again: it resumes the pass.
    """

    async def run(self) -> transfer.BatchSummary:
        """Raises Refused if a guard fails before anything is copied; a later stop is in the summary."""
        passes = self.world.ledger.passes
        seed = passes.find(self.plan.name, self.batch.number, states.PassKind.SEED)
        left = remaining(self.world, self.plan, self.batch, seed, left_alone=self.left_alone)
        if left.record is not None and left.record.state is states.PassState.DONE and not left.chunks:
            # This also repairs the state of the batch after a crash between the two records.
            self._advance(states.BatchState.SEEDED)
            return transfer.BatchSummary(
                batch=self.batch.number,
                nothing_to_do=True,
                vanished=passes.vanished_count(left.record.id),
                bad=tuple(passes.attention(left.record.id)),
            )
        ready = await self.ready(left.need, left.trees)
        await self.make_trees()
        trees = [tree.path for tree in self.batch.trees]
        with _writable(trees[0]):
            # Not in later passes: they would make directories again that have gone since the plan's scan.
            await guards.lay_out(self.invocation, self.plan.catalog, trees)
        return await self.carry_out(
            self._start(left),
            ready,
            title="seed pass",
            before=self._drive,
            advance=lambda: self._advance(states.BatchState.SEEDED),
        )

    def _start(self, left: Remaining) -> PassRecord:
        """Record the pass, or resume it; every run retries failed chunks."""
        batch, passes, now_s = self.batch, self.world.ledger.passes, self.world.clock.now_s()
        record = left.record
        if record is None:
            record = passes.start(
                plan=self.plan.name,
                batch=batch.number,
                kind=states.PassKind.SEED,
                catalog=self.plan.catalog,
                chunk_list=batch.chunk_list,
                chunks=self.world.chunk_lists.chunks(batch.chunk_list),
                at_s=now_s,
            )
        elif record.state is not states.PassState.RUNNING:
            passes.set_state(record.id, states.PassState.RUNNING, now_s)
        self._advance(states.BatchState.SEEDING)
        again = passes.retry_failed(record.id, but_trees=self.left_alone)
        message = f"seed pass over batch {batch.number}: {several(left.chunks, 'chunk')} to do"
        self.say(EventKind.PASS_STARTED, Severity.INFO, message + (f", {again} of them failed before" if again else ""))
        return record

    async def _drive(self, under_way: PassUnderWay) -> None:
        """If a driver was requested, let it copy whole trees first."""
        if under_way.world.driving is not None:
            await run_driver_step(under_way, under_way.world.driving)
        under_way.doubtful_trees = doubtful_trees(under_way)

    def _advance(self, state: states.BatchState) -> None:
        """Advance the state of a batch. One in a later state stays there, except that a verified one with new files has
        to be verified again.
        """
        passes = self.world.ledger.passes.of_batch(self.plan.name, self.batch.number)
        steps = {
            (states.BatchState.PLANNED, states.BatchState.SEEDING): (states.BatchState.SEEDING,),
            (states.BatchState.PLANNED, states.BatchState.SEEDED): (
                states.BatchState.SEEDING,
                states.BatchState.SEEDED,
            ),
            (states.BatchState.SEEDING, states.BatchState.SEEDED): (states.BatchState.SEEDED,),
            (states.BatchState.VERIFIED, states.BatchState.SEEDING): (unverified(one.kind for one in passes),),
        }
        now = self.batch_state
        self.set_batch_states(steps.get((now, state), ()) if now else ())
