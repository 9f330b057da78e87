"""`cutover` and `rollback`: preflight checks, then one user after the other.

A cutover is permanent unless a rollback follows. A rollback also carries back the user's changes on the target; it is
possible until the source is purged. After a kill, the same call resumes or aborts what is in flight.
"""

import asyncio
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.entry import UserTree
from migrator.core.errors import Interrupted, MigratorError
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.core.units import NS_PER_S, format_duration
from migrator.cutover import model, rules, rules_preflight
from migrator.cutover.call import OWN_STEPS, ActiveSession, CutoverCall, CutoverPlace, CutoverSession
from migrator.cutover.late import open_block
from migrator.cutover.model_calls import CutoverEnding, CutoverOutcome, CutoverRequest, CutoverSummary
from migrator.cutover.preflight import Preflight
from migrator.cutover.retained_source import change_directories, final_catalog, retained_source_problem
from migrator.cutover.rules import BACK, FORWARD
from migrator.cutover.rules_states import describe_state, outcome_of
from migrator.cutover.snapshot import take_snapshot
from migrator.cutover.steps import HOOKED, TreeCutover
from migrator.cutover.tree_comparison import TreeComparison
from migrator.fs.model import TargetCapabilities
from migrator.hooks.model import HookEvent, HookState, HookStep
from migrator.ledger.locks import VOLUME, of_batch, of_tree
from migrator.ledger.model import SiteRecord
from migrator.operations.engine import reason_of
from migrator.operations.model import Act, Halt
from migrator.plan.model import Plan
from migrator.transfer.context import LOG
from migrator.transfer.guards import read_plan
from migrator.transfer.passes import PassRun
from migrator.transfer.recovery import recover
from migrator.transfer.run_hooks import RunHooks
from migrator.verify.model import CTIME_MARGIN_NS


async def move_users(call: CutoverCall) -> CutoverSummary:
    """Move one user after the other. A failed user is thawed, and the others are still moved.

    A cancellation reverts the cutover of the frozen user (after the switch it is completed) and leaves the others;
    then Interrupted is raised. Also raises UsageError, Refused, LockHeld, LedgerCorrupt.
    """
    request, world = call.request, call.migration.world
    plan, site = read_plan(world, request.run)
    trees = [tree for trees in request.trees.values() for tree in trees]
    call.ledger.cutovers.require_apart(tree.path for tree in trees)
    if request.run.dry_run:
        return await _preview_users(call, plan, site)
    purpose = f"{request.verb} of {', '.join(tree.user for tree in trees)}"
    locked = (*(of_tree(tree.path) for tree in trees), *(of_batch(plan.name, one) for one in request.trees))
    with world.locks.hold(purpose, *locked, shared=(VOLUME,)):
        try:
            async with call.migration.recorded(request.run, verb=request.verb, log=LOG) as (recorded, invocation):
                hooks = RunHooks(invocation=invocation, hooks=call.hooks, plan=plan)
                await hooks.steps().begin(OWN_STEPS)
                await recover(invocation, site)
                first = PassRun(invocation=invocation, plan=plan, site=site, batch=plan.batches[0])
                session = ActiveSession(
                    call=call, plan=plan, site=site, capabilities=await first.capabilities(), run_hooks=hooks
                )
                summary = await _move_each(session)
                recorded.exit_code = summary.exit_code
                return summary
        except asyncio.CancelledError:
            raise _naming_frozen(call, _interrupted(request)) from None
        except MigratorError as error:
            raise _naming_frozen(call, error) from error


async def _preview_users(call: CutoverCall, plan: Plan, site: SiteRecord) -> CutoverSummary:
    """Make the same decisions as a real call. Changes neither file systems nor ledger, and takes no lock."""
    session = CutoverSession(call=call, plan=plan, site=site, capabilities=site.capabilities or TargetCapabilities())
    preview = await _preview_of(session)
    move = preview.roll_back if call.request.back else preview.cut_over
    return _summary(session, [await move(tree, batch) for batch, trees in call.request.trees.items() for tree in trees])


async def _move_each(session: ActiveSession) -> CutoverSummary:
    request, preview = session.call.request, await _preview_of(session)
    outcomes: list[CutoverOutcome] = []
    chosen = [(tree, batch) for batch, trees in request.trees.items() for tree in trees]
    # Users who may be frozen come first.
    for tree, batch in sorted(chosen, key=lambda one: preview.begun(*one) is None):
        procedure = TreeCutover(session=session)
        move = UserMove(session=session, preview=preview, procedure=procedure, tree=tree, batch=batch)
        try:
            outcomes.append(await (move.roll_back() if request.back else move.cut_over()))
        finally:
            await session.call.source_writers.end()
        if procedure.cancellation.requested:
            raise _interrupted(request, outcomes[-1])
    return _summary(session, outcomes)


def _summary(session: CutoverSession, outcomes: list[CutoverOutcome]) -> CutoverSummary:
    request = session.call.request
    return CutoverSummary(
        plan=session.plan.name, back=request.back, dry_run=request.run.dry_run, outcomes=tuple(outcomes)
    )


def _naming_frozen(call: CutoverCall, error: MigratorError) -> MigratorError:
    """The error, with the users of this call who may be frozen, by it or an earlier one."""
    chosen = {tree.path for trees in call.request.trees.values() for tree in trees}
    try:
        frozen = [one for one in call.ledger.cutovers.under_way() if one.tree.path in chosen]
    except MigratorError:
        return error
    if not frozen:
        return error
    users = ", ".join(f"{one.tree.user} may be frozen ({describe_state(one.state)})" for one in frozen)
    again = "run the same command again, or `migrator rollback`, for each of them"
    return MigratorError(
        f"{error.message}; {users}", cause=error.cause, hint=f"{error.hint}; {again}" if error.hint else again
    )


def _interrupted(request: CutoverRequest, last: CutoverOutcome | None = None) -> Interrupted:
    message = f"the {request.verb} was interrupted"
    return Interrupted(
        f"{message}: {last.words}" if last else f"{message}: no user was frozen by it",
        hint="the same command resumes with the remaining users",
    )


# One user.


class UserMove(Struct, frozen=True, kw_only=True):
    """Begins or resumes the cutover or rollback of one tree."""

    session: ActiveSession
    preview: "Preview"
    procedure: TreeCutover
    tree: UserTree
    batch: int

    async def cut_over(self) -> CutoverOutcome:
        """Move a user, unless a preflight check fails. A cutover that is in flight resumes without the checks."""
        session, tree = self.session, self.tree
        comparison = TreeComparison(session=session)
        if (record := self.preview.begun(tree, self.batch)) is not None:
            self._emit(EventKind.CUTOVER_STARTED, f"resumes: {describe_state(record.state)}")
            return await comparison.after(self.procedure, await self.procedure.drive(record), record)
        record = session.ledger.cutovers.latest(tree.path)
        if record is not None and not record.under_way:
            await call_owed_hooks(self.procedure, record)
        self._emit(EventKind.CUTOVER_STARTED, "preflight checks")
        found = await self.preview.cut_over(tree, self.batch)
        for problem in found.problems:
            self._refuse(problem)
        if found.ending is not CutoverEnding.PLANNED:
            return found
        await comparison.before(tree)
        found = await self._bring_up_to_date(found)
        if found.ending is not CutoverEnding.PLANNED:
            self._refuse(found.words)
            return found
        record = session.ledger.cutovers.plan(
            plan=session.plan.name,
            batch=self.batch,
            tree=tree,
            predicted_freeze_s=found.predicted_freeze_s,
            at_s=session.now_s(),
        )
        predicted = "unknown" if record.predicted_freeze_s is None else format_duration(record.predicted_freeze_s)
        message = f"the cutover of {tree.user} to the target begins; predicted freeze: {predicted}"
        if self.preview.rollback_problem:
            message += f"; {tree.user} cannot be moved back: {self.preview.rollback_problem}"
        self._emit(EventKind.CUTOVER_STARTED, message)
        comparison.keep(record)
        return await comparison.after(self.procedure, await self.procedure.drive(record), record)

    async def _bring_up_to_date(self, found: CutoverOutcome) -> CutoverOutcome:
        """The outcome of the preflight checks after everything that can be done before the freeze: a pass over the tree,
        so that the one in the freeze finds the changes of seconds, and reading the content that it and earlier passes
        brought. Both show the load of now, which the prediction counts. It is refused if either is impossible, or the
        freeze would be too long.
        """
        session, tree, batch = self.session, self.tree, self.batch
        try:
            files = 0
            async for summary, _ in session.final_passes(tree, batch):
                files += summary.files
            if files:
                await session.ports.clock.sleep(CTIME_MARGIN_NS / NS_PER_S)
            with session.call.migration.verifying(session.plan, batch, (tree.path,)) as verification:
                await verification.read_ahead()
        except Interrupted:
            raise
        except (MigratorError, OSError) as error:
            return _refused(
                found, f"the tree {show(tree.path)} cannot be brought up to date before the freeze: {reason_of(error)}"
            )
        predicted_s, load = await self.preview.preflight.predicted_under_load(tree, batch)
        found = replace(found, predicted_freeze_s=predicted_s)
        request = session.call.request
        problem = rules_preflight.freeze_problem(predicted_s, request, batch=batch, load=load)
        # The checks and the probe take time.
        problem = problem or rules_preflight.window_problem(request.times, session.now_s())
        return _refused(found, problem) if problem else found

    async def roll_back(self) -> CutoverOutcome:
        """Move a user back, from any state."""
        session, tree = self.session, self.tree
        record = session.ledger.cutovers.latest(tree.path)
        if record is None or record.state in model.ENDED_STATES:
            if record is not None:
                await call_owed_hooks(self.procedure, record)
            return _on_source(tree, self.batch, record)
        # Checked before a user who works on the target is frozen.
        unseen = await session.rollback_problem() if record.state in model.SETTLED_STATES else ""
        if problem := unseen or await retained_source_problem(session, record):
            self._refuse(problem)
            return _not_back(record, problem, _RETRY_ROLLBACK if unseen else _OVERWRITE)
        if record.state in (model.CutoverState.THAWED, model.CutoverState.RETAINED):
            try:
                await change_directories(session, record, final_catalog(session, record), open_block)
            except (MigratorError, OSError) as error:
                problem = f"the directories of its source cannot be opened again: {reason_of(error)}"
                return _not_back(record, problem, "fix that, then run the same command again")
        self._emit(EventKind.CUTOVER_STARTED, f"{tree.user} is moved back to the source")
        return await self.procedure.drive(record)

    def _emit(self, kind: EventKind, message: str) -> None:
        self.session.emit(kind, Severity.INFO, self.tree.user, message)

    def _refuse(self, problem: str) -> None:
        self.session.emit(EventKind.GUARD_REFUSED, Severity.ERROR, self.tree.user, problem)


class Preview(Struct, frozen=True, kw_only=True):
    """The first decision of a cutover or rollback of a tree. Changes nothing. `rollback_problem` is why users whom a
    cutover moves could not be moved back; empty if they could.
    """

    session: CutoverSession
    preflight: Preflight
    rollback_problem: str

    async def cut_over(self, tree: UserTree, batch: int) -> CutoverOutcome:
        """The preflight checks of a user (refused if there are `problems`), or the first step of a cutover that
        resumes.
        """
        if (record := self.begun(tree, batch)) is not None:
            step = rules.next_step(record, await take_snapshot(self.session, record))
            verb = "rollback" if record.state in model.ROLLBACK_STATES else "cutover"
            return _first_step(record, step, f"the {verb} of {tree.user} would resume")
        record = self.session.ledger.cutovers.latest(tree.path)
        if record is not None and record.state in model.SETTLED_STATES:
            message = f"{tree.user} works on the target already ({describe_state(record.state)})"
            return outcome_of(record, CutoverEnding.MOVED, message)
        predicted_s = await asyncio.to_thread(self.preflight.predicted_freeze_s, tree, batch, after_pass=True)
        problems = await self.preflight.problems(tree, batch, predicted_freeze_s=predicted_s)
        why = self.rollback_problem
        back = f"could not be moved back: {why}" if why else "could be moved back"
        if why and self.session.call.request.require_rollback:
            problems = (*problems, f"{tree.user} {back}; {_WITHOUT_ROLLBACK}")
        return CutoverOutcome(
            tree=tree,
            batch=batch,
            ending=CutoverEnding.REFUSED if problems else CutoverEnding.PLANNED,
            cutover=record,
            words="; ".join(problems) or f"{tree.user} would be moved, and {back}",
            hint=_FIX_EACH if problems else "",
            problems=problems,
            predicted_freeze_s=predicted_s,
        )

    async def roll_back(self, tree: UserTree, batch: int) -> CutoverOutcome:
        """The first step of a rollback."""
        record = self.session.ledger.cutovers.latest(tree.path)
        if record is None or record.state in model.ENDED_STATES:
            return _on_source(tree, batch, record)
        if record.state in model.SETTLED_STATES and (problem := await self.session.rollback_problem()):
            return _not_back(record, problem, _RETRY_ROLLBACK)
        step = rules.begin_rollback(record, await take_snapshot(self.session, record))
        return _first_step(record, step, f"{tree.user} would be moved back")

    def begun(self, tree: UserTree, batch: int) -> model.CutoverRecord | None:
        """The attempt that a cutover resumes; None if there is none. A call that was killed immediately after the thaw
        has not recorded the user as retained.
        """
        record = self.session.ledger.cutovers.latest(tree.path)
        if record is None or (record.plan, record.batch) != (self.session.plan.name, batch):
            return None
        return record if record.under_way or record.state is model.CutoverState.THAWED else None


async def _preview_of(session: CutoverSession) -> Preview:
    problem = "" if session.call.request.back else await session.rollback_problem()
    return Preview(session=session, preflight=Preflight(session=session), rollback_problem=problem)


# Outcomes without a step.


_OVERWRITE = (
    "copy the changes that are worth keeping to the target; then run the same command with --overwrite-source, "
    "which moves these paths to the trash of the source"
)
_FIX_EACH = "fix each of them, then run the same command again"
_WITHOUT_ROLLBACK = "[cutover] require_rollback = false moves users anyway"
_RETRY_ROLLBACK = (
    'fix that, then run the same command again; or let a pre-freeze hook vouch for it, with [cutover] freeze = "hook"'
)


def _refused(found: CutoverOutcome, problem: str) -> CutoverOutcome:
    return replace(found, ending=CutoverEnding.REFUSED, words=problem, problems=(problem,), hint=_FIX_EACH)


def _not_back(record: model.CutoverRecord, problem: str, hint: str) -> CutoverOutcome:
    message = f"{record.tree.user} stays on the target: {problem}"
    return outcome_of(record, CutoverEnding.REFUSED, message, hint=hint, problems=(problem,))


def _first_step(record: model.CutoverRecord, step: model.Step, message: str) -> CutoverOutcome:
    if isinstance(step, Act):
        why = f" ({step.reason})" if step.reason else ""
        message = f"{message}: the first step is `{step.step.value}`{why}"
        return outcome_of(record, CutoverEnding.PLANNED, message)
    hint = step.hint if isinstance(step, Halt) else ""
    return outcome_of(record, CutoverEnding.HALTED, step.words, hint=hint, problems=(step.words,))


def _on_source(tree: UserTree, batch: int, record: model.CutoverRecord | None) -> CutoverOutcome:
    """A user who was never moved is refused: probably another user was meant. A user who is back is done."""
    if record is not None:
        return outcome_of(
            record,
            CutoverEnding.MOVED,
            f"{tree.user} works on the source already ({describe_state(record.state)})",
        )
    message = f"{tree.user} was never moved: there is nothing to go back from"
    return CutoverOutcome(tree=tree, batch=batch, ending=CutoverEnding.REFUSED, words=message, problems=(message,))


# Hooks not yet called for an attempt that has ended.


async def call_owed_hooks(procedure: TreeCutover, record: model.CutoverRecord) -> None:
    """Call the unfinished `post` hooks of every step of an attempt. No user is frozen meanwhile, so hooks may take
    long. May be called again; usually there is nothing to do.
    """
    hooks, records = procedure.session.hooks, procedure.session.ledger.hooks
    for place, step, done in _steps(record):
        if records.open_since(place.step, place.hooked.key) is not None:
            act = Act(step=step, intent=record.state, result=record.state)
            facts = procedure.facts(place, HookEvent.POST, record, act)
            await hooks.catch_up(place.hooked, facts if done else replace(facts, state=HookState.FAILED))


def _steps(record: model.CutoverRecord) -> Iterator[tuple[CutoverPlace, model.CutoverStep, bool]]:
    """The steps that hooks are called around, in order, and whether each was done."""
    state = record.state
    for direction, stays in (
        (FORWARD, state is model.CutoverState.REVERTED),
        (BACK, state is not model.CutoverState.ROLLED_BACK),
    ):
        for step in (direction.freeze, direction.switch, direction.revert if stays else direction.thaw):
            hooked = HOOKED[step]
            done = hooked is HookStep.THAW or model.STEP_STATES[step][1] in record.times
            yield CutoverPlace(step=hooked, record=record, back=not direction.forward), step, done
