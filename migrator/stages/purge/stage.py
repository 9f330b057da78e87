"""The entry of the stage: which trees, confirmed or not, one after the other."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.decide.purge import choose, confirmation_problem, plan_checksum
from migrator.domain.cutover import CutoverRecord
from migrator.domain.errors import Interrupted, MigratorError, Refused, UsageError
from migrator.domain.events import EventKind, Severity
from migrator.domain.hooks import HookStep
from migrator.domain.paths import percent_escape
from migrator.domain.purge import Choice, Chosen, PurgeSummary, TreeOutcome, TreePurge
from migrator.domain.site import TargetCapabilities
from migrator.domain.verification import VerificationRecord
from migrator.ports.site import SiteRecord
from migrator.stages.hooking import HookSkipped, StepHooks, hook_world
from migrator.stages.purge.braking import RemovalBrake
from migrator.stages.purge.context import LOG, Call, PurgeRequest, PurgeWorld
from migrator.stages.purge.examining import carried_proofs, verification_of
from migrator.stages.purge.pace import Pace
from migrator.stages.purge.tree import PurgeOfTree
from migrator.stages.recorded_run import recorded_run

VERB = "purge"
LOCK = "run"
"""Of everything that writes to either side."""

_PURGED = (Choice.PURGE, Choice.GO_ON, Choice.PURGED)
"""Trees that make the plan: one that goes on has the checksum that it began with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    chosen: Chosen
    record: CutoverRecord | None
    proof: VerificationRecord | None
    carried: tuple[VerificationRecord, ...] | None = None


async def purge(request: PurgeRequest, world: PurgeWorld) -> PurgeSummary:
    """Free the source of user trees whose users work on the target. The same call goes on after any crash.

    The caller gives file systems that were opened for this call. A dry run takes the very decisions, and changes nothing.
    Raises UsageError, Refused (no tree may be purged, or it was not confirmed), LockHeld, Interrupted, MigratorError; what
    speaks against single trees is in the summary.
    """
    if request.dry_run:
        return await _purge(Call(world=world, request=request, run_id=None))
    with world.locks.hold(LOCK, VERB), world.files.open(VERB, world.clock.now_s()) as directory:
        _check(request, world)
        try:
            async with recorded_run(
                world.ledger.runs,
                world.clock,
                verb=VERB,
                pid=request.pid,
                directory=directory.path,
                log=LOG,
                heartbeat_interval_s=request.heartbeat_interval_s,
            ) as run:
                summary = await _purge(Call(world=world, request=request, run_id=run.id))
                run.exit_code = summary.exit_code
        except asyncio.CancelledError:
            raise Interrupted(
                "the purge was interrupted",
                hint="the same command goes on where it was; until then the source is half free",
            ) from None
    return summary


def _check(request: PurgeRequest, world: PurgeWorld) -> None:
    """Whether it was confirmed; before anything is written down."""
    site, _ = _site(world)
    checksum = _checksum(world, site, _items(request, world))
    if problem := confirmation_problem(request.confirm, checksum):
        raise Refused(
            f"nothing was purged: {problem}; the plan's checksum is {checksum}",
            cause="what is purged does not come back, so what is to go has to be looked at first",
            hint=f"look at it with --dry-run, then say --confirm {checksum[:12]}",
        )


def _items(request: PurgeRequest, world: PurgeWorld) -> tuple[_Item, ...]:
    """Every tree that was asked for. Raises Refused where none can be purged."""
    items: list[_Item] = []
    for tree in (tree for _, trees in sorted(request.trees.items()) for tree in trees):
        record = world.ledger.cutovers.latest(tree.path)
        chosen = choose(tree, record, now_s=world.clock.now_s(), retain_s=request.retain_s)
        proof = None if record is None else verification_of(world.ledger, record)
        carried = None if record is None or chosen.choice not in _PURGED else carried_proofs(world, record)
        items.append(_Item(chosen=chosen, record=record, proof=proof, carried=carried))
    left = [item.chosen for item in items if item.chosen.choice not in _PURGED]
    if left and (request.named or len(left) == len(items)):
        raise Refused(
            f"nothing was purged: {'; '.join(one.words for one in left)}",
            cause="the source is freed of users who have worked on the target for [cutover] retain, and of no others",
            hint="see `migrator status` for where each user works",
        )
    return tuple(items)


def _checksum(world: PurgeWorld, site: SiteRecord, items: Sequence[_Item]) -> str:
    trees = [(item.record, item.proof) for item in items if item.record is not None and item.chosen.choice in _PURGED]
    carried = {
        item.record.id: ",".join(one.manifest_digest or "" for one in item.carried)
        for item in items
        if item.record is not None and item.carried
    }
    roots = percent_escape(world.source.root), percent_escape(world.target.root)
    return plan_checksum(site.site_id, *roots, trees, carried=carried)


def _site(world: PurgeWorld) -> tuple[SiteRecord, TargetCapabilities]:
    site = world.ledger.site.read()
    if site is None:
        raise UsageError("the ledger knows no site yet", hint="run `migrator init` first")
    if site.capabilities is None:
        raise Refused(
            "what the target can keep is not known",
            cause="it is probed by `migrator doctor`, which has not been run, or could not write there",
            hint="run `migrator doctor`",
        )
    return site, site.capabilities


async def _purge(call: Call) -> PurgeSummary:
    world, request = call.world, call.request
    site, capabilities = _site(world)
    items = _items(request, world)
    hooking = _hooking(call, site)
    if hooking is not None:
        await hooking.begin((HookStep.PURGE,))
    pace = Pace(world.clock, _brake(call).names_per_s)
    done: list[TreePurge] = []
    for item in items:
        if item.record is None or item.chosen.choice not in _PURGED:
            done.append(
                TreePurge(
                    tree=item.chosen.tree,
                    outcome=TreeOutcome.LATER,
                    words=item.chosen.words,
                    due_at_s=item.chosen.due_at_s,
                )
            )
            continue
        one = PurgeOfTree(
            call,
            site=site,
            capabilities=capabilities,
            record=item.record,
            proof=item.proof,
            carried=item.carried,
            hooking=hooking,
            pace=pace,
        )
        done.append(await _one(call, item, one))
    return PurgeSummary(
        run_id=call.run_id, dry_run=request.dry_run, checksum=_checksum(world, site, items), trees=tuple(done)
    )


def _brake(call: Call) -> RemovalBrake:
    """What the probes beside it make of the rate."""
    world, request = call.world, call.request

    def say(warning: bool, message: str) -> None:
        call.say(EventKind.THROTTLE_SET, Severity.WARNING if warning else Severity.INFO, VERB, message)

    return RemovalBrake(
        probes=world.ledger.probes,
        controls=world.ledger.controls,
        clock=world.clock,
        most=request.names_per_s,
        max_latency_s=request.max_latency_s,
        say=say,
    )


async def _one(call: Call, item: _Item, one: PurgeOfTree) -> TreePurge:
    tree = item.chosen.tree
    if item.chosen.choice is Choice.PURGED:
        await one.catch_up()
        freed = None if item.record is None else item.record.notes.purge
        return TreePurge(tree=tree, outcome=TreeOutcome.DONE_BEFORE, words=item.chosen.words, sum=freed)
    try:
        return await one.run()
    except HookSkipped as skipped:
        return TreePurge(tree=tree, outcome=TreeOutcome.LATER, words=skipped.message)
    except Refused as refused:
        call.say(EventKind.GUARD_REFUSED, Severity.ERROR, tree.user, refused.message)
        return TreePurge(
            tree=tree, outcome=TreeOutcome.REFUSED, words="a guard speaks against it", reasons=(refused.message,)
        )
    except OSError as error:
        raise MigratorError(
            f"the purge of {tree.user} could not go on: {error.strerror or error}",
            cause="a file system or the state directory does not answer, or has an error",
            hint="check with `migrator doctor`, then run the same command again: it goes on where it was",
        ) from error


def _hooking(call: Call, site: SiteRecord) -> StepHooks | None:
    world = call.world
    if world.hooks is None or call.run_id is None:
        return None
    return StepHooks(
        world=hook_world(
            world,
            world.hooks,
            site,
            source_root=world.source.root,
            target_root=world.target.root,
            run_id=call.run_id,
            say=call.say,
        )
    )
