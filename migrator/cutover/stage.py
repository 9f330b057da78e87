"""`cutover` and `rollback`: preflight checks, then one user after the other."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from migrator.beegfs.rules import OwnerNeed, room_to_work
from migrator.beegfs.tool import look_at_quotas, look_at_storage
from migrator.catalog.model import CatalogRecord
from migrator.core.entry import UserTree
from migrator.core.errors import Interrupted, MigratorError
from migrator.core.events import EventKind, FindingStatus, Severity
from migrator.core.paths import is_beneath, show
from migrator.core.states import PassKind
from migrator.core.tasks import told
from migrator.core.units import NS_PER_S, format_duration
from migrator.cutover import model, rules, rules_directions, rules_preflight, rules_states, rules_writers, steps
from migrator.cutover.late import open_block
from migrator.cutover.model_calls import CutoverEnding, CutoverOutcome, CutoverRequest, CutoverSummary
from migrator.cutover.places import CutoverPlace
from migrator.fs.model import TargetCapabilities
from migrator.hooks.model import HookEvent, HookState, HookStep
from migrator.hooks.stage import find_hooks
from migrator.ledger.locks import VOLUME, of_batch, of_tree
from migrator.ledger.model import SiteRecord
from migrator.operations.engine import reason_of
from migrator.operations.model import Act, Halt
from migrator.plan.model import Plan
from migrator.plan.rules_forecast import choose_cost
from migrator.site.rules_guards import capacity_problems, health_problems
from migrator.site.rules_links import check_switch_hooks, leads_elsewhere
from migrator.transfer.attempt import recover
from migrator.transfer.bases import covers
from migrator.transfer.context import LOG
from migrator.transfer.guards import mounts_changed, read_plan, storage_problems
from migrator.transfer.model import FileProblemKind, PassRecord
from migrator.transfer.passes import Copying, check_of_trees, facts_of_passes
from migrator.transfer.rules_convergence import load_factor, predict
from migrator.transfer.run import Hooking, moves_of
from migrator.verify.model import CTIME_MARGIN_NS

if TYPE_CHECKING:
    from migrator.cutover.records import CutoverLedger

# The plan of a cutover that has begun.


ByBatch = Mapping[int, tuple[UserTree, ...]]
"""Trees by the number of their batch."""


def attempts_of_users(ledger: "CutoverLedger", users: Sequence[str] | None) -> Mapping[str, ByBatch]:
    """By plan, the trees of these users (None: of all) that were moved or are being moved, and did not come back. A user without
    such trees is in no plan.
    """
    found: dict[str, dict[int, list[UserTree]]] = {}
    for record in sorted(rules_states.newest_attempts(ledger.cutovers.all()), key=lambda one: one.tree.path):
        if (users is None or record.tree.user in users) and record.state not in model.ENDED_STATES:
            found.setdefault(record.plan, {}).setdefault(record.batch, []).append(record.tree)
    return {plan: {batch: tuple(trees) for batch, trees in batches.items()} for plan, batches in found.items()}


# Hooks not yet called for an attempt that has ended.


async def call_owed(machine: steps.TreeCutover, record: model.CutoverRecord) -> None:
    """Call the unfinished `post` hooks of every step of an attempt. No user is frozen meanwhile, so hooks may take
    long. May be called again; usually there is nothing to do.
    """
    hooks, records = machine.hooks, machine.cutting.ledger.hooks
    for place, step, done in _steps(record):
        if records.open_since(place.step, place.hooked.key) is not None:
            act = Act(step=step, intent=record.state, result=record.state)
            facts = machine.facts(place, HookEvent.POST, record, act)
            await hooks.catch_up(place.hooked, facts if done else replace(facts, state=HookState.FAILED))


def _steps(record: model.CutoverRecord) -> Iterator[tuple[CutoverPlace, model.CutoverStep, bool]]:
    """The steps that hooks are called around, in order, and whether each was done."""
    state = record.state
    for way, stays in (
        (rules_directions.FORWARD, state is model.CutoverState.REVERTED),
        (rules_directions.BACK, state is not model.CutoverState.ROLLED_BACK),
    ):
        for step in (way.freeze, way.switch, way.revert if stays else way.thaw):
            hooked = steps.HOOKED[step]
            done = hooked is HookStep.THAW or model.STEP_STATES[step][1] in record.times
            yield CutoverPlace(step=hooked, record=record, back=not way.forward), step, done


# Beginning and resuming.


class Beginning(Struct, frozen=True, kw_only=True):
    """Begins or resumes the cutover or rollback of one tree. `no_way_back` is why users could not be moved back; empty
    if they could.
    """

    sight: steps.Sight
    no_way_back: str = ""

    async def cut_over(self, machine: steps.TreeCutover, tree: UserTree, batch: int) -> CutoverOutcome:
        """Move a user, unless a preflight check fails. A cutover that is in flight resumes without the checks."""
        cutting = machine.cutting
        cutovers = cutting.ledger.cutovers
        comparison = steps.TreeComparison(cutting=cutting)
        if (record := self.begun(tree, batch)) is not None:
            cutting.say(
                EventKind.CUTOVER_STARTED,
                Severity.INFO,
                record.tree,
                f"resumes: {rules_states.describe_state(record.state)}",
            )
            return await comparison.after(machine, await machine.drive(record), record)
        record = cutovers.latest(tree.path)
        if record is not None and not record.under_way:
            await call_owed(machine, record)
        cutting.say(EventKind.CUTOVER_STARTED, Severity.INFO, tree, "preflight checks")
        found = await self.preview(tree, batch)
        for problem in found.problems:
            cutting.say(EventKind.GUARD_REFUSED, Severity.ERROR, tree, problem)
        if found.ending is not CutoverEnding.PLANNED:
            return found
        await comparison.before(tree)
        found = await self._bring_up_to_date(cutting, found)
        if found.ending is not CutoverEnding.PLANNED:
            cutting.say(EventKind.GUARD_REFUSED, Severity.ERROR, tree, found.words)
            return found
        record = cutovers.plan(
            plan=cutting.plan.name,
            batch=batch,
            tree=tree,
            predicted_freeze_s=found.predicted_freeze_s,
            at_s=cutting.now_s(),
        )
        predicted_s = record.predicted_freeze_s
        predicted = "nothing is predicted" if predicted_s is None else f"{format_duration(predicted_s)} are predicted"
        message = f"the cutover of {tree.user} to the target begins; of the freeze {predicted}"
        if self.no_way_back:
            message += f"; {tree.user} cannot be moved back: {self.no_way_back}"
        cutting.say(EventKind.CUTOVER_STARTED, Severity.INFO, record.tree, message)
        comparison.keep(record)
        return await comparison.after(machine, await machine.drive(record), record)

    async def _bring_up_to_date(self, cutting: steps.Cutting, found: CutoverOutcome) -> CutoverOutcome:
        """The outcome of the preflight checks after everything that can be done before the freeze: a pass over the tree, so that
        the one in the freeze finds the changes of seconds, and reading the content that it and earlier passes brought. Both
        show the load of now, which the prediction counts. It is refused if either is impossible, or the freeze would be too long.
        """
        sight, tree, batch = self.sight, found.tree, found.batch
        try:
            files = 0
            async for summary, _ in cutting.final_passes(tree, batch):
                files += summary.files
            if files:
                await sight.run.clock.sleep(CTIME_MARGIN_NS / NS_PER_S)
            with sight.world.migration.verifying(sight.plan, batch, (tree.path,)) as verification:
                await verification.read_ahead()
        except Interrupted:
            raise
        except (MigratorError, OSError) as error:
            problem = f"the tree {show(tree.path)} cannot be brought up to date before the freeze: {reason_of(error)}"
            return replace(found, ending=CutoverEnding.REFUSED, words=problem, problems=(problem,), hint=_MEND)
        *before_s, now_s = await asyncio.to_thread(self._scans_s, tree, batch)
        load = load_factor(before_s, now_s)
        predicted_s = await asyncio.to_thread(self._predicted_freeze_s, tree, batch)
        if predicted_s is not None:
            predicted_s = load * predicted_s + await self._around_s(tree)
        found = replace(found, predicted_freeze_s=predicted_s)
        problem = rules_preflight.freeze_problem(predicted_s, sight.request, batch=batch, load=load)
        # The checks and the probe take time.
        if problem := problem or rules_preflight.window_problem(sight.request.times, sight.now_s()):
            return replace(found, ending=CutoverEnding.REFUSED, words=problem, problems=(problem,), hint=_MEND)
        return found

    async def _around_s(self, tree: UserTree) -> float:
        """What a freeze takes beside the final pass and its verification: waiting for client caches, and the searches."""
        sight, began_s = self.sight, self.sight.run.clock.monotonic_s()
        await told(sight.world.source_writers((tree.path,)))
        search_s = sight.run.clock.monotonic_s() - began_s
        identity = await told(sight.blocking(sight.run.source.identity))
        settle_s = 0.0 if identity is None else rules_writers.settle_s(identity.filesystem, sight.request.settle_s)
        return settle_s + steps.SEARCHES * search_s

    def _scans_s(self, tree: UserTree, batch: int) -> Sequence[float]:
        """How long the scans of the passes over the tree took, except that of the plan. Blocking."""
        ledger = self.sight.ledger
        scans = {scan.name: scan for scan in ledger.scans.all()}
        passes = ledger.passes.of_batch(self.sight.plan.name, batch)
        covering = (one for one in passes if one.kind is not PassKind.SEED and covers(ledger.passes, one, (tree.path,)))
        return [_took_s(scans[one.catalog]) for one in covering if one.catalog in scans]

    async def roll_back(self, machine: steps.TreeCutover, tree: UserTree, batch: int) -> CutoverOutcome:
        """Move a user back, from any state."""
        cutting = machine.cutting
        record = cutting.ledger.cutovers.latest(tree.path)
        if record is None or record.state in model.ENDED_STATES:
            if record is not None:
                await call_owed(machine, record)
            return _on_source(tree, batch, record)
        # Checked before a user who works on the target is frozen.
        unseen = await self.sight.against_rollback() if record.state in model.SETTLED_STATES else ""
        if problem := unseen or await steps.retained_source_problem(cutting, record):
            cutting.say(EventKind.GUARD_REFUSED, Severity.ERROR, record.tree, problem)
            return _not_back(record, problem, _ASK_AGAIN if unseen else _BRING_OVER)
        if record.state in (model.CutoverState.THAWED, model.CutoverState.RETAINED):
            try:
                await steps.change_directories(cutting, record, steps.final_catalog(cutting, record), open_block)
            except (MigratorError, OSError) as error:
                problem = f"the directories of its source cannot be opened again: {reason_of(error)}"
                return _not_back(record, problem, "put that right, then run the same command again")
        cutting.say(EventKind.CUTOVER_STARTED, Severity.INFO, record.tree, f"{tree.user} is moved back to the source")
        return await machine.drive(record)

    async def preview(self, tree: UserTree, batch: int) -> CutoverOutcome:
        """The preflight checks of a user (refused if there are `problems`), or the first step of a cutover that resumes.
        Changes nothing.
        """
        if (record := self.begun(tree, batch)) is not None:
            step = rules.next_step(record, await self.sight.see(record))
            verb = "rollback" if record.state in model.ROLLBACK_STATES else "cutover"
            return _first_step(record, step, f"the {verb} of {tree.user} would resume")
        record = self.sight.ledger.cutovers.latest(tree.path)
        if record is not None and record.state in model.SETTLED_STATES:
            return rules_states.outcome_of(
                record,
                CutoverEnding.MOVED,
                f"{tree.user} works on the target already ({rules_states.describe_state(record.state)})",
            )
        predicted_s = await asyncio.to_thread(self._predicted_freeze_s, tree, batch)
        problems = await self._problems(tree, batch, predicted_freeze_s=predicted_s)
        back = f"could not be moved back: {self.no_way_back}" if self.no_way_back else "could be moved back"
        if self.no_way_back and self.sight.request.require_rollback:
            problems = (*problems, f"{tree.user} {back}; {_WITHOUT}")
        return CutoverOutcome(
            tree=tree,
            batch=batch,
            ending=CutoverEnding.REFUSED if problems else CutoverEnding.PLANNED,
            cutover=record,
            words="; ".join(problems) or f"{tree.user} would be moved, and {back}",
            hint=_MEND if problems else "",
            problems=problems,
            predicted_freeze_s=predicted_s,
        )

    async def preview_back(self, tree: UserTree, batch: int) -> CutoverOutcome:
        """The first step of a rollback. Changes nothing."""
        record = self.sight.ledger.cutovers.latest(tree.path)
        if record is None or record.state in model.ENDED_STATES:
            return _on_source(tree, batch, record)
        if record.state in model.SETTLED_STATES and (problem := await self.sight.against_rollback()):
            return _not_back(record, problem, _ASK_AGAIN)
        step = rules.begin_rollback(record, await self.sight.see(record))
        return _first_step(record, step, f"{tree.user} would be moved back")

    def begun(self, tree: UserTree, batch: int) -> model.CutoverRecord | None:
        """The attempt that a cutover resumes; None if there is none. A call that was killed immediately after the thaw
        has not recorded the user as retained.
        """
        record = self.sight.ledger.cutovers.latest(tree.path)
        if record is None or (record.plan, record.batch) != (self.sight.plan.name, batch):
            return None
        return record if record.under_way or record.state is model.CutoverState.THAWED else None

    # Preflight checks.

    async def _problems(self, tree: UserTree, batch: int, *, predicted_freeze_s: float | None) -> tuple[str, ...]:
        """Every failed check, as a sentence."""
        sight, ledger = self.sight, self.sight.ledger
        plan = ledger.plans.read(sight.plan.name)
        state = plan.batches.get(batch) if plan else None
        newest = self._newest_pass(tree, batch)
        failed_chunks, bad_files = (0, 0) if newest is None else self._failed(tree, newest)
        chosen = {one.path for trees in sight.request.trees.values() for one in trees}
        closed = rules_preflight.window_problem(sight.request.times, sight.now_s())
        paused = () if ledger.controls.now().hold is None else ("the migration is paused: `migrator resume` ends that",)
        capacity = await self._capacity()
        problems = rules_preflight.cutover_problems(
            tree,
            sight.request,
            batch=batch,
            state=state,
            before=ledger.cutovers.latest(tree.path),
            beside=[
                one
                for one in ledger.cutovers.under_way()
                if (one.plan, one.batch) == (sight.plan.name, batch) and one.tree.path not in chosen
            ],
            failed_chunks=failed_chunks,
            bad_files=bad_files,
            predicted_freeze_s=predicted_freeze_s,
            lacks_backup=sight.lacks_backup(tree.path, batch),
            checked={
                f"the tree {show(tree.path)} on the target": await self._top(
                    tree, copied=state in (None, *rules_preflight.READY)
                ),
                f"the path of {tree.user}": await self._link(tree),
                "the room on the target": capacity,
                "the mounts": await self._mounts(),
                "the way to freeze": await self._freeze(tree),
                f"the default ACLs of {tree.user}": await sight.acl_problems(
                    tree, sight.plan.catalog if newest is None else newest.catalog
                ),
                # No time limit: looking up many files takes long, and no user is frozen yet.
                f"the archives of {tree.user}": await asyncio.to_thread(steps.lacking_archives, sight, tree),
            },
        )
        # While servers are down, reading quotas would block.
        limits = await self._limits(tree) if capacity == () else ()
        return (*paused, *((closed,) if closed else ()), *problems, *limits)

    def _predicted_freeze_s(self, tree: UserTree, batch: int) -> float | None:
        """The predicted freeze of the user now; None if no delta pass has covered their tree. Blocking."""
        sight, ledger = self.sight, self.sight.ledger
        found = predict(
            facts_of_passes(ledger, sight.plan.name, batch, lambda one: moves_of(sight.world.migration.deltas, one)),
            tree=tree.path,
            at_s=sight.now_s(),
            cost=choose_cost(ledger.samples.measured_cost(), sight.run.streams),
            check=check_of_trees(ledger, sight.plan, batch, [tree.path], sight.world.policy),
        )
        return None if found is None else found.freeze_s

    def _failed(self, tree: UserTree, newest: PassRecord) -> tuple[int, int]:
        """The numbers of chunks and files of the tree that failed in the newest pass over it. Files that changed or
        moved during that pass do not count: the final pass sends them.
        """
        passes = self.sight.ledger.passes
        bad = [one for one in passes.attention(newest.id) if one.kind is FileProblemKind.BAD]
        return (
            sum(chunk.tree == tree.path for chunk in passes.failed(newest.id)),
            sum(is_beneath(one.path, tree.path) for one in bad),
        )

    def _newest_pass(self, tree: UserTree, batch: int) -> PassRecord | None:
        """The newest seed or delta pass over the tree."""
        passes = self.sight.ledger.passes
        found = (
            one
            for one in reversed(passes.of_batch(self.sight.plan.name, batch))
            if one.kind is not PassKind.FINAL and covers(passes, one, (tree.path,))
        )
        return next(found, None)

    async def _top(self, tree: UserTree, *, copied: bool) -> tuple[str, ...] | None:
        try:
            top = await self.sight.entry(self.sight.run.target, tree.path)
        except OSError:
            return None
        # A batch that is not copied yet already reports that the tree is missing.
        return (
            rules_preflight.not_closed(tree, top, uid=os.geteuid(), gid=os.getegid())
            if copied or top is not None
            else ()
        )

    async def _link(self, tree: UserTree) -> tuple[str, ...] | None:
        links = self.sight.world.links
        if links is None:
            found = await told(find_hooks(self.sight.world.hooks, self.sight.run.blocking))
            if found is None:
                return None
            by_hook = self.sight.request.switch_by_hook
            missing = [one for one in check_switch_hooks(found, by_hook=by_hook) if one.status is not FindingStatus.OK]
            return tuple(f"{one.message}: {one.fix}" for one in missing)
        source, _ = self.sight.paths(tree.path)

        def look() -> tuple[str, ...]:
            found = links.read_link(tree)
            problem = links.problem(found) or leads_elsewhere(found, (os.path.realpath(source),))
            return () if problem is None else (f"{problem.message}: {problem.fix}",)

        try:
            return await self.sight.blocking(look)
        except MigratorError as error:
            return (error.message,)
        except OSError:
            return None

    async def _capacity(self) -> tuple[str, ...] | None:
        run = self.sight.request.run
        capacity = await told(self.sight.blocking(self.sight.run.target.capacity))
        if capacity is None:
            return None
        storage = await look_at_storage(self.sight.run.storage, patient=True)
        room = capacity_problems(storage.room(capacity), 0, 0, run.inodes_free, run.reserve_bytes)
        return (*room, *storage_problems(storage, run))

    async def _limits(self, tree: UserTree) -> tuple[str, ...]:
        """Quotas on the target that would stop the user from writing; empty if they cannot be read."""
        sight = self.sight
        owned = max(
            (one for one in sight.plan.owners if one.tree == tree.path),
            key=lambda one: (one.size_bytes, one.files),
            default=None,
        )
        if owned is None:
            return ()
        owner = OwnerNeed(uid=owned.uid, users=(tree.user,))
        look = await look_at_quotas(sight.run.storage, sight.run.target.root, [owner.uid])
        words = room_to_work([owner], look.quotas)
        if isinstance(sight, steps.Cutting):
            for warning in words.warnings:
                sight.say(EventKind.QUOTA_NEAR, Severity.WARNING, tree, warning)
        return words.problems

    async def _mounts(self) -> tuple[str, ...]:
        world, site, timeout_s = self.sight.run, self.sight.site, self.sight.request.run.stall_timeout_s
        health = await world.source.health()
        return (
            *await mounts_changed(world, site, timeout_s),
            *health_problems(health, health),
        )

    async def _freeze(self, tree: UserTree) -> tuple[str, ...] | None:
        found = await told(find_hooks(self.sight.world.hooks, self.sight.run.blocking))
        top = await told(self.sight.blocking(lambda: self.sight.world.freezer.read_top(tree.path)))
        unseen = await self.sight.unseen(self.sight.world.source_writers, (tree.path,))
        if found is None or top is None or unseen is None:
            return None
        if self.sight.world.seen_by_nobody is not None and not self.sight.request.vouched:
            unseen += tuple(
                f"whether somebody writes was not seen: {one}" for one in await self.sight.world.seen_by_nobody()
            )
        before = self.sight.ledger.cutovers.latest(tree.path)
        problems = (
            None if before is not None and before.under_way else rules_preflight.closed_already(top),
            rules_preflight.missing_freeze_hook(found.hooks) if self.sight.request.vouched else None,
            *unseen,
        )
        return tuple(one for one in problems if one is not None)


_BRING_OVER = (
    "look at these paths, and bring over to the target what is worth it; then give the same command with --overwrite-source, "
    "which moves what stands in the way to the trash of the source"
)
_MEND = "fix each of them, then run the same command again"
_WITHOUT = "[cutover] require_rollback = false moves users all the same"
_ASK_AGAIN = 'put that right, then run the same command again; or have a pre-freeze hook answer for it, with [cutover] freeze = "hook"'


def _took_s(scan: CatalogRecord) -> float:
    return max((scan.finished_at_s or scan.started_at_s) - scan.started_at_s, 0.0)


def _not_back(record: model.CutoverRecord, problem: str, hint: str) -> CutoverOutcome:
    words = f"{record.tree.user} stays on the target: {problem}"
    return rules_states.outcome_of(record, CutoverEnding.REFUSED, words, hint=hint, problems=(problem,))


def _first_step(record: model.CutoverRecord, step: model.Step, words: str) -> CutoverOutcome:
    if isinstance(step, Act):
        why = f" ({step.reason})" if step.reason else ""
        words = f"{words}: the first step is `{step.step.value}`{why}"
        return rules_states.outcome_of(record, CutoverEnding.PLANNED, words)
    hint = step.hint if isinstance(step, Halt) else ""
    return rules_states.outcome_of(record, CutoverEnding.HALTED, step.words, hint=hint, problems=(step.words,))


def _on_source(tree: UserTree, batch: int, record: model.CutoverRecord | None) -> CutoverOutcome:
    """A user who was never moved is refused: probably another user was meant. A user who is back is done."""
    if record is not None:
        return rules_states.outcome_of(
            record,
            CutoverEnding.MOVED,
            f"{tree.user} works on the source already ({rules_states.describe_state(record.state)})",
        )
    words = f"{tree.user} was never moved: there is nothing to go back from"
    return CutoverOutcome(tree=tree, batch=batch, ending=CutoverEnding.REFUSED, words=words, problems=(words,))


# The call.


class CutoverCall(Struct, frozen=True, kw_only=True):
    """One call of `cutover` or `rollback`: its request, and everything outside the program.

    A cutover is permanent unless a rollback follows. A rollback also carries back the user's changes on the target; it
    is possible until the source is purged. After a kill, the same call resumes or aborts what is in flight.
    """

    request: CutoverRequest
    world: steps.CutoverWorld

    async def make(self) -> CutoverSummary:
        """Move one user after the other. A failed user is thawed, and the others are still moved.

        A cancellation reverts the cutover of the frozen user (after the switch it is completed) and leaves the others;
        then Interrupted is raised. Also raises UsageError, Refused, LockHeld, LedgerCorrupt.
        """
        plan, site = read_plan(self.world.migration.world, self.request.run)
        trees = [tree for trees in self.request.trees.values() for tree in trees]
        self.world.ledger.cutovers.require_apart(tree.path for tree in trees)
        if self.request.run.dry_run:
            return await self._preview(plan, site)
        purpose = f"{self.request.verb} of {', '.join(tree.user for tree in trees)}"
        world, run = self.world, self.world.migration.world
        locked = (*(of_tree(tree.path) for tree in trees), *(of_batch(plan.name, one) for one in self.request.trees))
        with run.locks.hold(purpose, *locked, shared=(VOLUME,)):
            try:
                async with world.migration.recorded(self.request.run, verb=self.request.verb, log=LOG) as (
                    recorded,
                    invocation,
                ):
                    hooking = Hooking(invocation=invocation, hooks=world.hooks, plan=plan, site=site)
                    await hooking.begin(steps.OWN_STEPS)
                    await recover(invocation, site)
                    first = Copying(invocation=invocation, plan=plan, site=site, batch=plan.batches[0])
                    cutting = steps.Cutting(
                        world=world,
                        request=self.request,
                        plan=plan,
                        site=site,
                        capabilities=await first.capabilities(),
                        hooking=hooking,
                    )
                    summary = await self._all_trees(cutting)
                    recorded.exit_code = summary.exit_code
                    return summary
            except asyncio.CancelledError:
                raise self._with_frozen(self._interrupted()) from None
            except MigratorError as error:
                raise self._with_frozen(error) from error

    async def _all_trees(self, cutting: steps.Cutting) -> CutoverSummary:
        beginning = Beginning(sight=cutting, no_way_back="" if self.request.back else await cutting.against_rollback())
        outcomes: list[CutoverOutcome] = []
        chosen = [(tree, batch) for batch, trees in self.request.trees.items() for tree in trees]
        # Users who may be frozen come first.
        for tree, batch in sorted(chosen, key=lambda one: beginning.begun(*one) is None):
            machine = steps.TreeCutover(cutting=cutting)
            begin = beginning.roll_back if self.request.back else beginning.cut_over
            try:
                outcomes.append(await begin(machine, tree, batch))
            finally:
                await self.world.source_writers.end()
            if machine.cancellation.requested:
                raise self._interrupted(outcomes[-1])
        return self._summary(cutting, outcomes)

    async def _preview(self, plan: Plan, site: SiteRecord) -> CutoverSummary:
        """Make the same decisions as a real call. Changes neither file systems nor ledger, and takes no lock."""
        sight = steps.Sight(
            world=self.world,
            request=self.request,
            plan=plan,
            site=site,
            capabilities=site.capabilities or TargetCapabilities(),
        )
        beginning = Beginning(sight=sight, no_way_back="" if self.request.back else await sight.against_rollback())
        preview = beginning.preview_back if self.request.back else beginning.preview
        outcomes = [await preview(tree, batch) for batch, trees in self.request.trees.items() for tree in trees]
        return self._summary(sight, outcomes)

    def _summary(self, sight: steps.Sight, outcomes: list[CutoverOutcome]) -> CutoverSummary:
        return CutoverSummary(
            plan=sight.plan.name, back=self.request.back, dry_run=self.request.run.dry_run, outcomes=tuple(outcomes)
        )

    def _with_frozen(self, error: MigratorError) -> MigratorError:
        """The error, with the users of this call whom it or an earlier one may have left frozen."""
        chosen = {tree.path for trees in self.request.trees.values() for tree in trees}
        try:
            frozen = [one for one in self.world.ledger.cutovers.under_way() if one.tree.path in chosen]
        except MigratorError:
            return error
        if not frozen:
            return error
        users = ", ".join(f"{one.tree.user} may be frozen ({rules_states.describe_state(one.state)})" for one in frozen)
        again = "give the same command again, or `migrator rollback`, for each of them"
        return MigratorError(
            f"{error.message}; {users}", cause=error.cause, hint=f"{error.hint}; {again}" if error.hint else again
        )

    def _interrupted(self, last: CutoverOutcome | None = None) -> Interrupted:
        words = f"the {self.request.verb} was interrupted"
        return Interrupted(
            f"{words}: {last.words}" if last else f"{words}: nobody was frozen by it",
            hint="the same command goes on with those that are left",
        )
