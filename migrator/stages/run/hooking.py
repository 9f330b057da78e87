"""Calling hooks around batches and passes. Every call is in the ledger before its hook is started."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace

from migrator.decide.hooks import (
    counterparts,
    document,
    end_of,
    environment,
    in_order,
    judge,
    problem_words,
    shown,
)
from migrator.domain.errors import MigratorError, Refused
from migrator.domain.events import EventKind, Severity
from migrator.domain.hooks import (
    Hook,
    HookCall,
    HookEvent,
    HookFacts,
    HookOutcome,
    HookResult,
    HookSite,
    HookStep,
)
from migrator.domain.paths import show
from migrator.domain.plan import Batch, Plan
from migrator.domain.run import BatchSummary
from migrator.domain.states import PassKind
from migrator.ports.hooks import Hooks, HookStepRecord
from migrator.ports.ledger import SiteRecord
from migrator.stages.run.context import LOG, Invocation, World
from migrator.stages.run.hook_looks import Place, called_hooks, find_hooks, refuse_hooks, subject_of

_STEPS = (HookStep.BATCH, HookStep.PASS)
"""Those of this verb: what calls of another one have left is for that to clear away."""

_DONE, _STOPPED, _SKIPPED, _REFUSED, _FAILED = "done", "stopped", "skipped", "refused", "failed"

Work = Callable[[], Awaitable[BatchSummary]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """A step that hooks are called around, now."""

    hooks: Hooks
    place: Place
    record: HookStepRecord
    facts: HookFacts


@dataclass(slots=True, kw_only=True)
class Hooking:
    """Calls the hooks of one run; with `hooks` None there are none."""

    invocation: Invocation
    hooks: Hooks | None
    plan: Plan
    site: SiteRecord

    async def begin(self) -> None:
        """Before anything is started: look at all hooks, and end what calls of a run that was killed have left.

        Raises Refused where a hook is not as it has to be, or the remains of one cannot be ended.
        """
        if self.hooks is None:
            return
        found = await find_hooks(self._world, self.hooks)
        for problem in problem_words(found):
            self.invocation.say(EventKind.GUARD_REFUSED, Severity.ERROR, "hooks", problem)
        refuse_hooks(found)
        records = self._world.ledger.hooks
        for call in records.unfinished(_STEPS):
            named = f"{call.stage}.d/{show(call.name)}"
            if not await self.hooks.end(call.token):
                raise Refused(
                    f"the hook {named} of an earlier run cannot be ended",
                    cause="it hangs in the kernel (D state), on a file system or device that does not answer",
                    hint=f"when its processes (MIGRATOR_TOKEN={call.token}) are gone, run the same command again",
                )
            records.finish(
                call.id,
                at_s=self._world.clock.now_s(),
                exit_code=None,
                outcome=HookOutcome.INTERRUPTED,
                output=call.output,
            )
            message = f"the hook {named} of an earlier run was interrupted"
            self.invocation.say(EventKind.HOOK_INTERRUPTED, Severity.INFO, "hooks", message)

    async def around_batch(self, batch: Batch, work: Work, *, idle: bool) -> BatchSummary:
        """As `around_pass`, over a whole batch."""
        return await self._around(Place(batch=batch), work, idle=idle)

    async def around_pass(
        self, batch: Batch, kind: PassKind, work: Work, *, idle: bool, number: int | None = None
    ) -> BatchSummary:
        """The work, with the hooks of its step before and after it. `idle`: there is nothing to do; then only those
        `post` hooks are called that a run which was killed still owes.

        A step that a hook skips has a summary that says so. Raises Refused where a `pre` hook refuses the step; what the
        work raises is raised on, after the `post` hooks, except for a cancellation: the step then stays open.
        """
        return await self._around(Place(batch=batch, kind=kind, number=number), work, idle=idle)

    async def catch_up(self, batch: Batch, kind: PassKind, *, number: int | None = None) -> None:
        """Call the `post` hooks that an earlier run still owes after a pass that is done. May be called again."""
        if self.hooks is not None:
            await self._call_owed(self.hooks, Place(batch=batch, kind=kind, number=number), None)

    @property
    def _world(self) -> World:
        return self.invocation.world

    async def _around(self, place: Place, work: Work, *, idle: bool) -> BatchSummary:
        if self.hooks is None:
            return await work()
        if idle:
            summary = await work()
            await self._call_owed(self.hooks, place, summary)
            return summary
        found = await find_hooks(self._world, self.hooks)
        refuse_hooks(found)
        stages = [in_order(found.hooks, place.stage(event)) for event in HookEvent]
        if not any(stages):
            return await work()
        record = self._world.ledger.hooks.open_step(
            run_id=self.invocation.run_id,
            step=place.step,
            subject=subject_of(self.plan, place),
            at_s=self._world.clock.now_s(),
        )
        step = _Open(hooks=self.hooks, place=place, record=record, facts=self._facts(place, record.opened_at_s))
        went_on: list[bytes] = []
        for hook in stages[0]:
            result, outcome = await self._call(step, hook)
            if outcome is not HookOutcome.GO_ON:
                return await self._stop(step, went_on, hook, result, skips=outcome is HookOutcome.SKIP)
            went_on.append(hook.name)
        try:
            summary = await work()
        except MigratorError as error:
            state = _REFUSED if isinstance(error, Refused) else _FAILED
            await self._finish(replace(step, facts=replace(step.facts, state=state)))
            raise
        await self._finish(replace(step, facts=_after(step.facts, summary)))
        return summary

    async def _stop(
        self, step: _Open, went_on: Collection[bytes], hook: Hook, result: HookResult, *, skips: bool
    ) -> BatchSummary:
        """A `pre` hook stops its step. Those that had let it go on may have done something: they hear of it."""
        end = end_of(result, step.hooks.timeout_s)
        message = f"{step.place.words} is {'skipped' if skips else 'not begun'}: the hook {shown(hook)} "
        message += f"said so ({end})" if skips else f"refused it ({end})"
        kind, severity = (
            (EventKind.HOOK_SKIPPED, Severity.WARNING) if skips else (EventKind.HOOK_REFUSED, Severity.ERROR)
        )
        self._say(kind, severity, step.place, message)
        facts = replace(step.facts, state=_SKIPPED if skips else _REFUSED)
        await self._finish(replace(step, facts=facts), only=frozenset(went_on))
        if skips:
            return BatchSummary(batch=step.place.batch.number, skipped=message)
        raise Refused(
            message,
            cause="a pre hook that ends with another exit code than 0 and 62 is a guard that speaks against the step",
            hint="mend what it says, or rename the hook so that it begins with a dot; then run the same command again",
        )

    async def _finish(self, step: _Open, *, only: Collection[bytes] | None = None, but: Collection[bytes] = ()) -> None:
        """Call the `post` hooks of a step and close it. Where they are not as they have to be, it stays open, and the next
        run calls them.
        """
        step = replace(step, facts=replace(step.facts, finished_at_s=self._world.clock.now_s()))
        try:
            found = await find_hooks(self._world, step.hooks)
            refuse_hooks(found)
        except Refused as error:
            message = f"after {step.place.words} no hook was called: {error.message}"
            self._say(EventKind.HOOK_FAILED, Severity.WARNING, step.place, message)
            return
        after = in_order(found.hooks, step.place.stage(HookEvent.POST))
        for hook in after if only is None else counterparts(after, only):
            if hook.name in but:
                continue
            result, outcome = await self._call(step, hook)
            if outcome is HookOutcome.WARN:
                end = end_of(result, step.hooks.timeout_s)
                message = f"the hook {shown(hook)} after {step.place.words} failed ({end})"
                self._say(EventKind.HOOK_FAILED, Severity.WARNING, step.place, message)
        at_s = self._world.clock.now_s()
        self._world.ledger.hooks.close_step(step.record.id, state=step.facts.state, at_s=at_s)

    async def _call_owed(self, hooks: Hooks, place: Place, summary: BatchSummary | None) -> None:
        """The step had come to its end, and the run was killed before all its `post` hooks had."""
        record = self._world.ledger.hooks.open_since(place.step, subject_of(self.plan, place))
        if record is not None:
            facts = replace(self._facts(place, record.opened_at_s), state=_DONE)
            if summary is not None:
                facts = _after(facts, summary)
            step = _Open(hooks=hooks, place=place, record=record, facts=facts)
            await self._finish(step, but=called_hooks(self._world, place, record))

    async def _call(self, step: _Open, hook: Hook) -> tuple[HookResult, HookOutcome]:
        world, records, hooks = self._world, self._world.ledger.hooks, step.hooks
        site = HookSite(
            site_id=self.site.site_id,
            name=self.site.name,
            file=hooks.site_file,
            source_root=world.source.root,
            target_root=world.target.root,
        )
        call = HookCall(
            hook=hook,
            document=document(hook.stage, site, step.facts),
            environment=environment(hook.stage, site, step.facts),
            token=world.tokens(),
            text=step.facts.text,
        )
        self._say(EventKind.HOOK_CALLED, Severity.INFO, step.place, f"calling the hook {shown(hook)}")
        call_id = records.intend(step_id=step.record.id, hook=hook, token=call.token, at_s=world.clock.now_s())
        exit_code, outcome, output = None, HookOutcome.INTERRUPTED, b""
        try:
            result = await hooks.call(call)
            exit_code, outcome, output = result.exit_code, judge(hook.stage.event, result), _kept(result)
        finally:
            records.finish(call_id, at_s=world.clock.now_s(), exit_code=exit_code, outcome=outcome, output=output)
        end = end_of(result, hooks.timeout_s)
        LOG.info("hook ended: %s", end, extra={"hook": shown(hook), "output": show(result.output)})
        return result, outcome

    def _say(self, kind: EventKind, severity: Severity, place: Place, message: str) -> None:
        self.invocation.say(kind, severity, f"batch {place.batch.number}", message)

    def _facts(self, place: Place, started_at_s: float) -> HookFacts:
        return HookFacts(
            run_id=self.invocation.run_id,
            plan=self.plan.name,
            batch=place.batch.number,
            pass_kind=place.kind,
            pass_number=place.number,
            trees=place.batch.trees,
            files=place.batch.files,
            size_bytes=place.batch.size_bytes,
            started_at_s=started_at_s,
        )


def _after(facts: HookFacts, summary: BatchSummary) -> HookFacts:
    state = _SKIPPED if summary.skipped else _STOPPED if summary.stopped else _DONE
    return replace(
        facts,
        state=state,
        copied_files=summary.files,
        copied_bytes=summary.size_bytes,
        attention=len(summary.bad),
    )


def _kept(result: HookResult) -> bytes:
    return result.output or result.problem.encode("utf-8", "backslashreplace")
