"""The entry of the stage: one run over one or more batches."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from migrator.domain.errors import Interrupted
from migrator.domain.events import EventKind, Severity
from migrator.domain.plan import Batch, Plan
from migrator.domain.run import BatchSummary, GuardFinding, Refusal, RunRequest, RunStopped, RunSummary
from migrator.domain.units import by_numbers
from migrator.ports.activity import Activity
from migrator.ports.blocking import Blocking
from migrator.ports.catalog import ChunkLists
from migrator.ports.clock import Clock
from migrator.ports.drivers import Driving
from migrator.ports.filesystem import SourceFileSystem, TargetFileSystem
from migrator.ports.hooks import Hooks
from migrator.ports.lanes import BrickGuard, Lanes
from migrator.ports.ledger import Ledger
from migrator.ports.locks import Locks
from migrator.ports.plans import PlanDocuments
from migrator.ports.progress import Progress
from migrator.ports.run_files import RunDirectory, RunFiles
from migrator.ports.site import SiteRecord
from migrator.ports.storage_targets import StorageTargets
from migrator.stages.probing import ProbeWorld, probing
from migrator.stages.recorded_run import recorded_run
from migrator.stages.run.bases import unfinished_delta
from migrator.stages.run.batch import BatchRun
from migrator.stages.run.capacity_watch import capacity_watch
from migrator.stages.run.context import LOG, Invocation, World
from migrator.stages.run.delta import Deltas
from migrator.stages.run.governor import Governing, Governor
from migrator.stages.run.guards import find_problems, read_plan, site_problems
from migrator.stages.run.hook_looks import preview_hooks
from migrator.stages.run.hooking import Hooking
from migrator.stages.run.left_alone import BatchRefused, Chosen, choose_trees, problem_of_part, require_part
from migrator.stages.run.meter import cancel_and_wait
from migrator.stages.run.preview import Remaining, remaining, remaining_of
from migrator.stages.run.quotas import look_at_limits, quota_finding
from migrator.stages.run.recovery import recover
from migrator.stages.run.run_words import run_words
from migrator.stages.run.sample_thinning import sample_thinning
from migrator.stages.run.trash import expire_trash

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
    ledger: Ledger,
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
    """Copy batches, one after the other, from wherever each of them is. The same call goes on after any crash.

    `tokens` gives a random token for every attempt and every call of a hook; without `hooks` none is called, and
    without `deltas` there are seed passes only; `storage` None: the target has no storage targets to ask; `probes` None: nobody
    probes meanwhile; `governing` None: all streams are at work at any time. Cancelling the task stops cleanly: every stream is ended first, then Interrupted is raised; being cancelled again meanwhile
    changes nothing.

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
                    sample_thinning(world),
                    probing(probes),
                    governed(invocation, governing),
                ):
                    summary = await _copy(hooking, batches, directory, heard_at_s=heard_at_s, deltas=deltas)
            except asyncio.CancelledError:
                invocation.say(EventKind.RUN_INTERRUPTED, Severity.WARNING, purpose, "interrupted: every stream ended")
                raise Interrupted(
                    f"{purpose} was interrupted: every stream has been ended",
                    hint="the same command goes on where it was",
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
    """The other batches go on: what speaks against this one is not known to speak against them."""
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
    """The very decisions of a run, and no change: neither target nor ledger, nor the lock, nor a run directory.

    Delta passes that would follow are not looked into, but for one that was begun: a scan would have to come first.
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
    """Let a governor say which streams may be at work, until the end of the block."""
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
