"""The dry run: the decisions of a run, without any change."""

from migrator.core.states import PassKind
from migrator.hooks.calls import Hooks, called_hooks, find_hooks
from migrator.hooks.model import HookEvent, HookStep
from migrator.hooks.rules import describe_problems, in_order, shown, would_be_called
from migrator.ledger.model import SiteRecord
from migrator.plan.model import Batch, Plan
from migrator.transfer import bases
from migrator.transfer.context import TransferPorts
from migrator.transfer.delta.delta import Deltas
from migrator.transfer.guards import find_problems
from migrator.transfer.model_runs import BatchSummary, GuardFinding, RunRequest
from migrator.transfer.remaining import Remaining, remaining
from migrator.transfer.run_hooks import RunStep


async def preview_batch(
    world: TransferPorts,
    request: RunRequest,
    plan: Plan,
    site: SiteRecord,
    chosen: bases.Chosen,
    *,
    hooks: Hooks,
    deltas: Deltas | None,
) -> BatchSummary:
    """The decisions of a run over one batch without any change of target, ledger, lock or run directory.

    Delta passes that would follow are not examined, except an unfinished one: they would need a scan first.
    """
    at_most = deltas.limits.max_delta_passes if deltas else 0
    batch, left_alone = chosen.batch, tuple(sorted(chosen.left_alone))
    if not batch.trees and left_alone:
        return BatchSummary(batch=batch.number, nothing_to_do=True, left_alone=left_alone)
    begun = bases.unfinished_delta(world.ledger.passes, plan, batch) if deltas else None
    if begun is not None:
        left = remaining(world, plan, batch, begun)
    elif chosen.whole:
        seed = world.ledger.passes.find(plan.name, batch.number, PassKind.SEED)
        left = remaining(world, plan, batch, seed, left_alone=chosen.left_alone)
    else:
        left = Remaining(record=None)
    findings, _, _ = await find_problems(
        world, request, site, plan, batch, need=left.need, left=() if begun else left.trees
    )
    if refusal := bases.refusal_of(world.ledger, plan, chosen, recopy=request.recopy):
        findings = (*findings, GuardFinding(guard="seed pass", problems=(refusal.message,)))
    finished = left.record is not None and not left.chunks and not at_most and not request.recopy
    to_call, hook_finding = await _preview_hooks(world, hooks, plan, batch, idle=finished)
    return BatchSummary(
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
        left_alone=left_alone,
    )


async def _preview_hooks(
    world: TransferPorts, hooks: Hooks, plan: Plan, batch: Batch, *, idle: bool
) -> tuple[tuple[str, ...], GuardFinding]:
    """For a dry run: the hooks that a run over the batch would call, in order, and their problems."""
    found = await find_hooks(hooks, world.blocking)
    finding = GuardFinding(guard="hooks", problems=describe_problems(found))
    if not idle:
        return would_be_called(found.hooks, (HookStep.BATCH, HookStep.PASS)), finding
    owed: list[str] = []
    delta = world.ledger.passes.find(plan.name, batch.number, PassKind.DELTA)
    passes = [RunStep(batch=batch, kind=PassKind.SEED)]
    passes += [RunStep(batch=batch, kind=PassKind.DELTA, number=delta.number)] if delta else []
    for step in (*passes, RunStep(batch=batch)):
        hooked = step.hooked(plan)
        opened = world.ledger.hooks.open_since(hooked.step, hooked.key)
        if opened is not None:
            after = hooked.stage(HookEvent.POST)
            called = called_hooks(world.ledger.hooks, after, opened)
            owed += [shown(hook) for hook in in_order(found.hooks, after) if hook.name not in called]
    return tuple(owed), finding
