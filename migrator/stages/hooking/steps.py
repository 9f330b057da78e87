"""Calling the hooks around one step after the other."""

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

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
    HooksFound,
    HookState,
    HookStep,
)
from migrator.domain.paths import show
from migrator.ports.hooks import HookStepRecord
from migrator.stages.hooking.looks import called_hooks, find_hooks, refuse_hooks
from migrator.stages.hooking.world import HookedStep, HookRefused, HookSkipped, HookWorld

_LOG = logging.getLogger("migrator.hooks")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """A step that hooks are called around, now."""

    step: HookedStep
    record: HookStepRecord
    facts: HookFacts

    def ended(self, state: HookState) -> "_Open":
        """It ended early."""
        return replace(self, facts=replace(self.facts, state=state))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepHooks:
    """Calls the hooks of one run of one verb."""

    world: HookWorld

    async def begin(self, steps: Collection[HookStep]) -> None:
        """Before anything is started: look at all hooks, and end what calls around these steps, of a run that was killed,
        have left. Those around other steps are for the verbs that make them.

        Raises Refused where a hook is not as it has to be, or the remains of one cannot be ended.
        """
        found = await self._find()
        for problem in problem_words(found):
            self.world.say(EventKind.GUARD_REFUSED, Severity.ERROR, "hooks", problem)
        refuse_hooks(found)
        records = self.world.records
        for call in records.unfinished(steps):
            named = f"{call.stage}.d/{show(call.name)}"
            if not await self.world.hooks.end(call.token):
                raise Refused(
                    f"the hook {named} of an earlier run cannot be ended",
                    cause="it hangs in the kernel (D state), on a file system or device that does not answer",
                    hint=f"when its processes (MIGRATOR_TOKEN={call.token}) are gone, run the same command again",
                )
            records.finish(
                call.id,
                at_s=self.world.clock.now_s(),
                exit_code=None,
                outcome=HookOutcome.INTERRUPTED,
                output=call.output,
            )
            message = f"the hook {named} of an earlier run was interrupted"
            self.world.say(EventKind.HOOK_INTERRUPTED, Severity.INFO, "hooks", message)

    async def around(
        self,
        step: HookedStep,
        work: Callable[[], Awaitable[T]],
        *,
        facts: HookFacts,
        after: Callable[[HookFacts, T], Awaitable[HookFacts]],
        stoppable: bool = True,
    ) -> T:
        """The work, with the hooks of its step before and after it. `facts` are those before it, `after` makes those after it
        and must not raise.

        Raises HookSkipped where a `pre` hook skips the step, Refused where one refuses it or hooks are not as they have to
        be; nothing was done then. With `stoppable` False the work is done whatever hooks say, and what is wrong with
        them is a warning. What the work raises is raised on, after the `post` hooks, except for a cancellation: the
        step then stays open.
        """
        found = await self._found(step, stoppable=stoppable)
        before = in_order(found.hooks, step.stage(HookEvent.PRE)) if found else ()
        if found and not before and not in_order(found.hooks, step.stage(HookEvent.POST)):
            return await work()
        opened = self._open(step, facts)
        await self._call_before(opened, before, stoppable=stoppable)
        try:
            result = await work()
        except MigratorError as error:
            await self._finish(opened.ended(HookState.REFUSED if isinstance(error, Refused) else HookState.FAILED))
            raise
        facts = await after(opened.facts, result)
        await self._finish(replace(opened, facts=replace(facts, started_at_s=opened.facts.started_at_s)))
        return result

    async def tell(self, step: HookedStep, facts: HookFacts) -> bool:
        """A step that is nothing but its hooks: the `pre` ones may stop it, the `post` ones do it. Whether all of these did
        it; what a killed run had called of them is not called again. Raises as `around`.
        """
        found = await self._found(step, stoppable=True)
        before = in_order(found.hooks, step.stage(HookEvent.PRE)) if found else ()
        records = self.world.records
        left = records.open_since(step.step, step.key)
        called = called_hooks(records, step.stage(HookEvent.POST), left) if left else frozenset()
        opened = self._open(step, facts)
        await self._call_before(opened, before, stoppable=True)
        done = replace(opened, facts=replace(opened.facts, state=HookState.DONE))
        return await self._finish(done, but=called, otherwise=HookState.FAILED)

    async def before(self, step: HookedStep, facts: HookFacts) -> None:
        """The `pre` hooks of a step that takes longer than this run may: it stays open, and `catch_up` calls its `post` ones
        when it is over. Raises as `around`.
        """
        found = await self._found(step, stoppable=True)
        hooks = in_order(found.hooks, step.stage(HookEvent.PRE)) if found else ()
        await self._call_before(self._open(step, facts), hooks, stoppable=True)

    async def catch_up(self, step: HookedStep, facts: HookFacts) -> None:
        """Call the `post` hooks that an earlier run still owes: the step was done, and the run was killed before all of
        them had come to their end. `facts` are those after the step. May be called again; mostly there is nothing to do.
        """
        record = self.world.records.open_since(step.step, step.key)
        if record is not None:
            facts = replace(facts, started_at_s=record.opened_at_s, state=facts.state or HookState.DONE)
            called = called_hooks(self.world.records, step.stage(HookEvent.POST), record)
            await self._finish(_Open(step=step, record=record, facts=facts), but=called)

    async def once(self, step: HookedStep, facts: HookFacts) -> None:
        """The `post` hooks of what nothing comes before, once for the key of the step; what a killed run had called of them is
        not called again. May be called again.
        """
        known = self.world.records.latest(step.step, step.key)
        if known is None:
            self._open(step, facts)
        await self.catch_up(step, facts)

    async def _find(self) -> HooksFound:
        return await find_hooks(self.world.hooks, self.world.blocking)

    async def _found(self, step: HookedStep, *, stoppable: bool) -> HooksFound | None:
        """The hooks as they lie there now; None where they cannot be called and the step is made all the same."""
        try:
            found = await self._find()
            refuse_hooks(found)
        except Refused as error:
            if stoppable:
                raise
            self._warn(step, f"before {step.words} no hook was called: {error.message}")
            return None
        return found

    def _open(self, step: HookedStep, facts: HookFacts) -> _Open:
        record = self.world.records.open_step(
            run_id=self.world.run_id, step=step.step, subject=step.key, at_s=self.world.clock.now_s()
        )
        return _Open(step=step, record=record, facts=replace(facts, started_at_s=record.opened_at_s))

    async def _call_before(self, opened: _Open, hooks: Sequence[Hook], *, stoppable: bool) -> None:
        went_on: list[bytes] = []
        for hook in hooks:
            result, outcome = await self._call(opened, hook)
            if outcome is HookOutcome.GO_ON:
                went_on.append(hook.name)
            elif stoppable:
                await self._stop(opened, went_on, hook, result, skips=outcome is HookOutcome.SKIP)
            else:
                self._warn_of_end(opened.step, hook, HookEvent.PRE, result)

    async def _stop(
        self, opened: _Open, went_on: Collection[bytes], hook: Hook, result: HookResult, *, skips: bool
    ) -> None:
        """A `pre` hook stops its step. Those that had let it go on may have done something: they hear of it."""
        step, end = opened.step, end_of(result, self.world.hooks.timeout_s)
        message = f"{step.words} is {'skipped' if skips else 'not begun'}: the hook {shown(hook)} "
        message += f"said so ({end})" if skips else f"refused it ({end})"
        kind, severity = (
            (EventKind.HOOK_SKIPPED, Severity.WARNING) if skips else (EventKind.HOOK_REFUSED, Severity.ERROR)
        )
        self.world.say(kind, severity, step.subject, message)
        state = HookState.SKIPPED if skips else HookState.REFUSED
        await self._finish(opened.ended(state), only=frozenset(went_on))
        if skips:
            raise HookSkipped(message, hint="run the same command again later")
        by_itself = not result.timed_out and (result.exit_code is None or result.exit_code >= 0)
        raise (HookRefused if by_itself else Refused)(
            message,
            cause="a pre hook that ends with another exit code than 0 and 62 is a guard that speaks against the step",
            hint="mend what it says, or rename the hook so that it begins with a dot; then run the same command again",
        )

    async def _finish(
        self,
        opened: _Open,
        *,
        only: Collection[bytes] | None = None,
        but: Collection[bytes] = (),
        otherwise: HookState | None = None,
    ) -> bool:
        """Call the `post` hooks of a step and close it; whether all went well. Where they are not as they have to be, it
        stays open, and the next run calls them. `otherwise` is what the ledger says of the step where a hook failed.
        """
        step = opened.step
        opened = replace(opened, facts=replace(opened.facts, finished_at_s=self.world.clock.now_s()))
        try:
            found = await self._find()
            refuse_hooks(found)
        except Refused as error:
            self._warn(step, f"after {step.words} no hook was called: {error.message}")
            return False
        failed = False
        after = in_order(found.hooks, step.stage(HookEvent.POST))
        for hook in after if only is None else counterparts(after, only):
            if hook.name in but:
                continue
            result, outcome = await self._call(opened, hook)
            if outcome is HookOutcome.WARN:
                failed = True
                self._warn_of_end(step, hook, HookEvent.POST, result)
        state = otherwise if failed and otherwise is not None else opened.facts.state
        self.world.records.close_step(opened.record.id, state=state, at_s=self.world.clock.now_s())
        return not failed

    async def _call(self, opened: _Open, hook: Hook) -> tuple[HookResult, HookOutcome]:
        world, facts = self.world, opened.facts
        call = HookCall(
            hook=hook,
            document=document(hook.stage, world.site, facts),
            environment=environment(hook.stage, world.site, facts),
            token=world.tokens(),
        )
        world.say(EventKind.HOOK_CALLED, Severity.INFO, opened.step.subject, f"calling the hook {shown(hook)}")
        call_id = world.records.intend(step_id=opened.record.id, hook=hook, token=call.token, at_s=world.clock.now_s())
        exit_code, outcome, output = None, HookOutcome.INTERRUPTED, b""
        try:
            result = await world.hooks.call(call)
            exit_code, outcome, output = result.exit_code, judge(hook.stage.event, result), _kept(result)
        finally:
            world.records.finish(call_id, at_s=world.clock.now_s(), exit_code=exit_code, outcome=outcome, output=output)
        end = end_of(result, world.hooks.timeout_s)
        _LOG.info("hook ended: %s", end, extra={"hook": shown(hook), "output": show(result.output)})
        return result, outcome

    def _warn_of_end(self, step: HookedStep, hook: Hook, event: HookEvent, result: HookResult) -> None:
        where = "after" if event is HookEvent.POST else "before"
        on = "" if event is HookEvent.POST else "; nothing is stopped by it"
        end = end_of(result, self.world.hooks.timeout_s)
        self._warn(step, f"the hook {shown(hook)} {where} {step.words} failed ({end}){on}")

    def _warn(self, step: HookedStep, message: str) -> None:
        self.world.say(EventKind.HOOK_FAILED, Severity.WARNING, step.subject, message)


def _kept(result: HookResult) -> bytes:
    return result.output or result.problem.encode("utf-8", "backslashreplace")
