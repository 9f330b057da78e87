"""`run`: one invocation over one or more batches."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from migrator.beegfs.tool import StorageTargets
from migrator.catalog.model import CatalogRecord
from migrator.catalog.ports import ChunkLists
from migrator.core.clock import Clock
from migrator.core.errors import Interrupted, Refused
from migrator.core.events import EventKind, Severity
from migrator.core.progress import Progress
from migrator.core.states import PassKind, PassState
from migrator.core.tasks import Blocking
from migrator.core.units import by_numbers, several
from migrator.delta.delta import DeltaPass, Deltas, Scan, expire_trash
from migrator.fs.ports import SourceFileSystem, TargetFileSystem
from migrator.fs.probing import ProbeWorld, probing
from migrator.hooks.stage import Hooks
from migrator.hosts.ports import Activity
from migrator.ledger.call import recorded_run
from migrator.ledger.locks import Locks
from migrator.ledger.model import PassRecord, SiteRecord
from migrator.plan.model import Batch, Plan
from migrator.plan.ports import PlanDocuments
from migrator.transfer.bases import (
    BatchRefused,
    Chosen,
    choose_trees,
    covered,
    part_of,
    pass_number,
    problem_of_part,
    require_part,
    same_base,
    unfinished_delta,
)
from migrator.transfer.context import LOG, Invocation, World
from migrator.transfer.governor import Governing, Governor
from migrator.transfer.guards import find_problems, look_at_limits, quota_finding, read_plan, site_problems
from migrator.transfer.hooks import Hooking, is_seeded, preview_hooks
from migrator.transfer.lanes import Lanes
from migrator.transfer.meter import cancel_and_wait, capacity_watch
from migrator.transfer.model import (
    BatchSummary,
    Decision,
    DeltaSummary,
    GuardFinding,
    Refusal,
    RunRequest,
    RunStopped,
    RunSummary,
)
from migrator.transfer.passes import Remaining, SeedPass, check_of_trees, judge_passes, remaining, remaining_of
from migrator.transfer.ports import BrickGuard, Driving
from migrator.transfer.recovery import recover
from migrator.transfer.run_files import RunDirectory, RunFiles

if TYPE_CHECKING:
    from migrator.ledger.ledger import Ledger, PassRecords

# The outcome of a run, in one sentence.


def run_words(run: RunSummary) -> tuple[str, Severity]:
    """For people, with its severity."""
    words = "had been finished before: nothing was copied" if run.nothing_to_do else "copied"
    if run.nothing_to_do and any(batch.left_alone for batch in run.batches):
        words = "nothing to do"
    if skipped := [str(batch.batch) for batch in run.batches if batch.skipped]:
        all_skipped = len(skipped) == len(run.batches)
        words = (
            "skipped by hooks: nothing was copied" if all_skipped else f"{words}, but for {', '.join(skipped)} (hooks)"
        )
    if refused := [str(batch.batch) for batch in run.batches if batch.refusal]:
        words = f"{words}, but for {', '.join(refused)} (refused)"
        if len(refused) == len(run.batches):
            words = "refused: nothing was copied"
    bad = sum(len(batch.bad) for batch in run.batches)
    if bad:
        words += f"; {several(bad, 'file needs', 'files need')} attention"
    return words, Severity.WARNING if bad or skipped or refused else Severity.INFO


# One batch of a run: its seed pass, and delta passes until another one is not worth while.


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRun:
    """All passes of one batch in this run. Without `deltas` there is only the seed pass.

    `batch` has the trees to copy; `whole`: these are all except `left_alone`, whose users work on the target. If not whole,
    the seed pass of the batch is already done.
    """

    hooking: Hooking
    batch: Batch
    deltas: Deltas | None
    whole: bool = True
    left_alone: frozenset[bytes] = frozenset()

    async def run(self) -> BatchSummary:
        """All passes, with the hooks of the batch around them. A stop on the way is in the summary. Raises Refused."""
        follows = self.deltas is not None and self.deltas.limits.max_delta_passes > 0
        idle = not follows and (self._is_seeded or self._is_followed)
        return await self.hooking.around_batch(self.batch, self._passes, idle=idle)

    async def _passes(self) -> BatchSummary:
        summary = await self._seed()
        deltas = self.deltas
        if deltas is None or summary.stopped is not None or summary.skipped:
            return summary
        for made in range(1, deltas.limits.max_delta_passes + 1):
            summary, go_on = await self._round(deltas, made, summary)
            if not go_on:
                break
        return summary

    async def _seed(self) -> BatchSummary:
        """Later passes also send what failed in the seed pass."""
        if self._is_followed or not self.whole:
            await self._catch_up()
            return BatchSummary(batch=self.batch.number, nothing_to_do=True)
        seed = SeedPass(
            invocation=self._invocation,
            plan=self._plan,
            site=self._site,
            batch=self.batch,
            left_alone=self.left_alone,
        )
        if not self._is_seeded:
            await self._until_open()
        return await self.hooking.around_pass(
            self.batch, PassKind.SEED, partial(_guarded, seed.run), idle=self._is_seeded
        )

    async def _catch_up(self) -> None:
        """The hooks after passes that a killed run had finished."""
        await self.hooking.catch_up(self.batch, PassKind.SEED)
        latest = self._records.find(self._plan.name, self.batch.number, PassKind.DELTA)
        if latest is not None and latest.state is PassState.DONE:
            await self.hooking.catch_up(self.batch, PassKind.DELTA, number=latest.number)

    async def _round(self, deltas: Deltas, made: int, so_far: BatchSummary) -> tuple[BatchSummary, bool]:
        """One more delta pass over all trees. If different passes scanned them last, one pass for each group, from one scan,
        so that the next pass has them together again. Returns the sum so far, and whether another pass follows.
        """
        groups = await self._groups(deltas)
        if len(groups) > 1:
            deltas = replace(deltas, scan=_once(deltas.scan, [tree.path for tree in self.batch.trees]))
        go_on = False
        for group in groups:
            part = self.batch if len(group) == len(self.batch.trees) else part_of(self._plan, self.batch, group)
            so_far, go_on = await self._delta(deltas, part, made, so_far)
            if so_far.stopped is not None or so_far.skipped:
                return so_far, False
        return so_far, go_on

    async def _groups(self, deltas: Deltas) -> Sequence[frozenset[bytes]]:
        """The trees of each next pass: of the one to resume, or of new ones."""
        begun = unfinished_delta(self._records, self._plan, self.batch)
        if begun is None:
            await _guarded(self._pass_over(self.batch, deltas).end_earlier)
            return [
                frozenset(tree.path for tree in group) for group in same_base(self._records, self._plan, self.batch)
            ]
        its_own = covered(self._records, begun)
        return [frozenset(tree.path for tree in self.batch.trees) if its_own is None else its_own]

    async def _delta(self, deltas: Deltas, part: Batch, made: int, so_far: BatchSummary) -> tuple[BatchSummary, bool]:
        """One pass over these trees of the batch. A pass over only some trees predicts no freeze: then another one follows
        if anything had changed, or if the next one has all trees together again.
        """
        await self._until_open()
        number = pass_number(self._records, self._plan, part, PassKind.DELTA)
        work = partial(_guarded, self._pass_over(part, deltas).run)
        summary = await self.hooking.around_pass(part, PassKind.DELTA, work, idle=False, number=number)
        if summary.skipped:
            return replace(so_far, skipped=summary.skipped), False
        record = self._records.find(self._plan.name, self.batch.number, PassKind.DELTA)
        decision = None
        if self.whole and part is self.batch and summary.stopped is None and record is not None:
            decision = self._judge(deltas, made)
        told = self._of(record, summary, decision)
        changed = told.changes is not None and not told.changes.nothing
        go_on = decision.go_on if decision is not None else changed or part is not self.batch
        return _together(so_far, summary, told), go_on

    async def _until_open(self) -> None:
        """A pass reads and renames before its first chunk, so it waits for the governor too."""
        if self._invocation.governor is not None:
            await self._invocation.governor.until_open()

    def _pass_over(self, part: Batch, deltas: Deltas) -> DeltaPass:
        return DeltaPass(invocation=self._invocation, plan=self._plan, site=self._site, batch=part, deltas=deltas)

    def _judge(self, deltas: Deltas, made: int) -> Decision:
        world = self._invocation.world
        decision = judge_passes(
            world.ledger,
            plan=self._plan.name,
            batch=self.batch.number,
            trees=[tree.path for tree in self.batch.trees],
            at_s=world.clock.now_s(),
            streams=max(sum(lane.jobs for lane in world.lanes.all), 1),
            check=check_of_trees(world.ledger, self._plan, self.batch.number, [tree.path for tree in self.batch.trees]),
            limits=deltas.limits,
            made=made,
            moves_of=partial(moves_of, deltas),
        )
        self._invocation.say(EventKind.PASS_JUDGED, Severity.INFO, f"batch {self.batch.number}", decision.sentence)
        return decision

    def _of(self, record: PassRecord | None, summary: BatchSummary, decision: Decision | None) -> DeltaSummary:
        ledger = self._invocation.world.ledger
        return DeltaSummary(
            number=record.number if record else 0,
            files=summary.files,
            size_bytes=summary.size_bytes,
            elapsed_s=summary.elapsed_s,
            scan_s=(record.scan_s if record else None) or 0.0,
            changes=ledger.passes.changes(record.id) if record else None,
            outcome=decision.outcome if decision else None,
            freeze_s=decision.prediction.freeze_s if decision and decision.prediction else None,
            sentence=decision.sentence if decision else "",
        )

    @property
    def _invocation(self) -> Invocation:
        return self.hooking.invocation

    @property
    def _plan(self) -> Plan:
        return self.hooking.plan

    @property
    def _site(self) -> SiteRecord:
        return self.hooking.site

    @property
    def _is_seeded(self) -> bool:
        return is_seeded(self._invocation.world, self._plan, self.batch)

    @property
    def _is_followed(self) -> bool:
        """Whether passes after the seed were made."""
        kinds = (PassKind.DELTA, PassKind.FINAL)
        return any(self._records.find(self._plan.name, self.batch.number, kind) is not None for kind in kinds)

    @property
    def _records(self) -> "PassRecords":
        return self._invocation.world.ledger.passes


async def _guarded(work: Callable[[], Awaitable[T]]) -> T:
    try:
        return await work()
    except Refused as refused:
        raise BatchRefused.by(refused) from refused


def _once(scan: Scan, trees: Sequence[bytes]) -> Scan:
    """Scans all these trees once, whichever are requested, and returns the same catalog each time."""
    made: list[CatalogRecord] = []

    async def scan_once(_: Sequence[bytes]) -> CatalogRecord:
        if not made:
            made.append(await scan(trees))
        return made[0]

    return scan_once


def moves_of(deltas: Deltas, record: PassRecord) -> tuple[int, int]:
    """How many renames and outermost deletions the move list of a pass has."""
    if record.move_list is None:
        return 0, 0
    lists = deltas.move_lists
    return sum(1 for _ in lists.renames(record.move_list)), sum(1 for _ in lists.gone(record.move_list))


def _together(so_far: BatchSummary, summary: BatchSummary, delta: DeltaSummary) -> BatchSummary:
    """The later pass sends what had not arrived before, so only its own bad files are left."""
    kinds = {
        kind: so_far.chunks_by_kind.get(kind, 0) + summary.chunks_by_kind.get(kind, 0)
        for kind in (*so_far.chunks_by_kind, *summary.chunks_by_kind)
    }
    idle = delta.changes is not None and delta.changes.nothing and not summary.chunks
    return replace(
        summary,
        chunks=so_far.chunks + summary.chunks,
        files=so_far.files + summary.files,
        size_bytes=so_far.size_bytes + summary.size_bytes,
        written_bytes=so_far.written_bytes + summary.written_bytes,
        elapsed_s=so_far.elapsed_s + delta.scan_s + summary.elapsed_s,
        chunks_by_kind=kinds,
        trees_gone=tuple(sorted({*so_far.trees_gone, *summary.trees_gone})),
        nothing_to_do=so_far.nothing_to_do and idle,
        deltas=(*so_far.deltas, delta),
    )


# One run over one or more batches.


VERB = "run"


async def run_batches(
    request: RunRequest,
    *,
    source: SourceFileSystem,
    target: TargetFileSystem,
    lanes: Lanes,
    bricks: BrickGuard | None,
    driving: Driving | None,
    chunk_lists: ChunkLists,
    documents: PlanDocuments,
    ledger: "Ledger",
    locks: Locks,
    progress: Progress,
    clock: Clock,
    tokens: Callable[[], str],
    files: RunFiles,
    activity: Activity,
    blocking: Blocking,
    hooks: Hooks | None = None,
    deltas: Deltas | None = None,
    storage: StorageTargets | None = None,
    probes: ProbeWorld | None = None,
    governing: Governing | None = None,
) -> RunSummary:
    """Copy batches, one after the other, each from its present state. The same call resumes after any crash.

    `tokens` returns a random token for every attempt and every call of a hook. Without `hooks` none is called; without
    `deltas` there are only seed passes; `storage` None: the target has no storage targets to poll; `probes` None: no probes
    run; `governing` None: no governor limits the streams. Cancelling the task ends every stream, then raises Interrupted;
    cancelling again meanwhile changes nothing.

    Raises UsageError (no such batch), Refused (a guard, with every reason), LockHeld, RunStopped (the pool stopped: a
    full target, an input/output error, ...; the summary is in it), Interrupted, LedgerCorrupt.
    """
    world = World(
        source=source,
        target=target,
        lanes=lanes,
        bricks=bricks,
        driving=driving,
        chunk_lists=chunk_lists,
        documents=documents,
        ledger=ledger,
        progress=progress,
        clock=clock,
        activity=activity,
        blocking=blocking,
        tokens=tokens,
        storage=storage,
    )
    plan, site = read_plan(world, request)
    numbered = [batch for number in dict.fromkeys(request.batches) for batch in plan.batches if batch.number == number]
    if request.dry_run:
        batches = [choose_trees(ledger, plan, batch, request.trees) for batch in numbered]
        return await _preview(world, request, plan, site, batches, hooks=hooks, deltas=deltas)
    purpose = f"run of {_which(numbered)} of plan {plan.name}"
    with locks.hold(VERB, purpose), files.open(VERB, clock.now_s()) as directory:
        # A cutover holds the same lock: nobody is moved from here on.
        batches = [choose_trees(ledger, plan, batch, request.trees) for batch in numbered]
        earlier = ledger.runs.latest(VERB)
        async with recorded_run(
            ledger.runs,
            clock,
            verb=VERB,
            pid=request.pid,
            directory=directory.path,
            log=LOG,
            heartbeat_interval_s=request.heartbeat_interval_s,
        ) as recorded:
            invocation = Invocation(world=world, request=request, run_id=recorded.id, directory=directory)
            hooking = Hooking(invocation=invocation, hooks=hooks, plan=plan, site=site)
            heard_at_s = earlier.heartbeat_at_s if earlier else 0.0
            try:
                async with (
                    capacity_watch(world),
                    probing(probes),
                    governed(invocation, governing),
                ):
                    summary = await _copy(hooking, batches, directory, heard_at_s=heard_at_s, deltas=deltas)
            except asyncio.CancelledError:
                invocation.say(EventKind.RUN_INTERRUPTED, Severity.WARNING, purpose, "interrupted: every stream ended")
                raise Interrupted(
                    f"{purpose} was interrupted: every stream has been ended",
                    hint="run the same command again to resume",
                ) from None
            recorded.exit_code = summary.exit_code
    return summary


def _which(batches: Sequence[Batch]) -> str:
    return by_numbers([batch.number for batch in batches], "batch", "batches")


async def _copy(
    hooking: Hooking,
    batches: Sequence[Chosen],
    directory: RunDirectory,
    *,
    heard_at_s: float,
    deltas: Deltas | None,
) -> RunSummary:
    invocation, plan, site = hooking.invocation, hooking.plan, hooking.site
    which = _which([chosen.batch for chosen in batches])
    subject = f"plan {plan.name}"
    invocation.say(EventKind.RUN_STARTED, Severity.INFO, subject, f"run of {which} of plan {plan.name}")
    await hooking.begin()
    await recover(invocation, site, heard_at_s=heard_at_s)
    if deltas is not None:
        await expire_trash(invocation, deltas, site)
    done: list[BatchSummary] = []
    for chosen in batches:
        try:
            summary = await _run_one(hooking, chosen, deltas)
        except BatchRefused as refused:
            if len(batches) == 1 or await site_problems(invocation.world, invocation.request, site):
                raise
            summary = _refused(invocation, chosen, refused)
        done.append(summary)
        if summary.stopped is not None:
            so_far = RunSummary(run_id=invocation.run_id, directory=directory.path, dry_run=False, batches=tuple(done))
            raise RunStopped(summary.stopped, so_far)
    whole = RunSummary(run_id=invocation.run_id, directory=directory.path, dry_run=False, batches=tuple(done))
    words, severity = run_words(whole)
    invocation.say(EventKind.RUN_FINISHED, severity, subject, f"{which}: {words}")
    return whole


async def _run_one(hooking: Hooking, chosen: Chosen, deltas: Deltas | None) -> BatchSummary:
    invocation, batch = hooking.invocation, chosen.batch
    left_alone = tuple(sorted(chosen.left_alone))
    if left_alone:
        invocation.say(EventKind.TREES_LEFT_ALONE, Severity.INFO, f"batch {batch.number}", chosen.words)
    if not batch.trees and left_alone:
        return BatchSummary(batch=batch.number, nothing_to_do=True, left_alone=left_alone)
    require_part(invocation.world.ledger, hooking.plan, chosen, deltas=deltas is not None)
    running = BatchRun(hooking=hooking, batch=batch, deltas=deltas, whole=chosen.whole, left_alone=chosen.left_alone)
    return replace(await running.run(), left_alone=left_alone)


def _refused(invocation: Invocation, chosen: Chosen, refused: BatchRefused) -> BatchSummary:
    """The run continues with the other batches: the refusal need not concern them."""
    number = chosen.batch.number
    message = f"batch {number} was refused, and the next one follows: {refused.message}"
    invocation.say(EventKind.BATCH_REFUSED, Severity.ERROR, f"batch {number}", message)
    LOG.error("%s", refused.message, extra={"hint": refused.hint})
    return BatchSummary(
        batch=number,
        left_alone=tuple(sorted(chosen.left_alone)),
        refusal=Refusal(message=refused.message, cause=refused.cause, hint=refused.hint),
    )


async def _preview(
    world: World,
    request: RunRequest,
    plan: Plan,
    site: SiteRecord,
    batches: Sequence[Chosen],
    *,
    hooks: Hooks | None,
    deltas: Deltas | None,
) -> RunSummary:
    """The decisions of a run without any change of target, ledger, lock or run directory.

    Delta passes that would follow are not examined, except an unfinished one: they would need a scan first.
    """
    at_most = deltas.limits.max_delta_passes if deltas else 0
    found: list[BatchSummary] = []
    for chosen in batches:
        batch, alone = chosen.batch, chosen.left_alone
        if not batch.trees and alone:
            found.append(BatchSummary(batch=batch.number, nothing_to_do=True, left_alone=tuple(sorted(alone))))
            continue
        begun = unfinished_delta(world.ledger.passes, plan, batch) if deltas else None
        if begun is not None or not chosen.whole:
            left = remaining_of(world, plan, batch, begun) if begun is not None else Remaining(record=None)
        else:
            left = remaining(world, plan, batch, left_alone=alone)
        findings, _ = await find_problems(world, request, site, batch, left.need)
        if begun is None and not any(found.problems for found in findings):
            findings = (*findings, *quota_finding(await look_at_limits(world, plan, left.trees)))
        if problem := problem_of_part(world.ledger, plan, chosen):
            findings = (*findings, GuardFinding(guard="seed pass", problems=(problem,)))
        finished = left.record is not None and not left.chunks and not at_most
        to_call, hook_finding = await preview_hooks(world, hooks, plan, batch, idle=finished)
        found.append(
            BatchSummary(
                batch=batch.number,
                chunks=left.chunks,
                files=sum(work.files for work in left.trees),
                size_bytes=sum(work.size_bytes for work in left.trees),
                chunks_by_kind=left.chunks_by_kind,
                left=left.trees,
                guards=(hook_finding,) if finished else (*findings, hook_finding),
                nothing_to_do=finished,
                hooks=to_call,
                deltas_to_follow=at_most,
                left_alone=tuple(sorted(alone)),
            )
        )
    return RunSummary(run_id=None, directory=None, dry_run=True, batches=tuple(found))


@asynccontextmanager
async def governed(invocation: Invocation, governing: Governing | None) -> AsyncIterator[None]:
    """Run a governor until the end of the block."""
    if governing is None:
        yield
        return
    world, request = invocation.world, invocation.request

    def say(warning: bool, message: str) -> None:
        severity = Severity.WARNING if warning else Severity.INFO
        invocation.say(EventKind.STREAMS_SET, severity, "governor", message)

    governor = Governor(
        governing=replace(governing, limits=replace(governing.limits, bwlimit_bytes_per_s=request.bwlimit_bytes_per_s)),
        hosts={lane.host: lane.jobs for lane in world.lanes.all},
        run_id=invocation.run_id,
        clock=world.clock,
        say=say,
    )
    invocation.governor = governor
    task = asyncio.create_task(governor.watch())
    try:
        yield
    finally:
        await cancel_and_wait(task)
