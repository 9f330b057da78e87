"""The site's hooks around the steps of a drain. A step that they are called around stays open in the ledger until all were."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from migrator.decide.attempt_failures import Ended, drain_failure
from migrator.decide.drain import taken_back
from migrator.decide.drain_out import audit_left, audit_state
from migrator.domain.drain import OUT_STATES, DrainRecord
from migrator.domain.drain_seen import AuditSeen
from migrator.domain.errors import ToolFailed
from migrator.domain.hooks import HookFacts, HookState, HookStep
from migrator.stages.bricks.drain_context import DrainCall, DrainWorld, hooked, hooked_failure

_CLOSED_AT_THE_END = (HookStep.STOP, HookStep.COMMIT, HookStep.AUDIT, HookStep.DRAIN)
"""What was begun last ends first."""


def owes_hooks(world: DrainWorld, record: DrainRecord) -> bool:
    """Whether a killed call has left steps of a drain open, whose `post` hooks are called when it is over."""
    if world.hooks is None:
        return False
    return any(world.ledger.hooks.open_since(step, hooked(record, step).key) for step in _CLOSED_AT_THE_END)


@dataclass(slots=True, kw_only=True)
class DrainHooks:
    """Calls them, in one call of the verb. Nothing is called where nothing is changed."""

    call: DrainCall
    _asked: bool = False

    async def ask(self, record: DrainRecord) -> None:
        """Those before a drain, once in every process that is about to begin it: they are guards. Raises Refused."""
        hooking = self.call.hooking()
        if hooking is not None and not self._asked:
            await hooking.before(hooked(record, HookStep.DRAIN), self.call.facts(record))
        self._asked = True

    async def ask_back(self, record: DrainRecord) -> None:
        """Those before a drain is taken back: they are guards as well. Raises Refused."""
        hooking = self.call.hooking()
        if hooking is not None:
            await hooking.before(hooked(record, HookStep.STOP), self.call.facts(record))

    async def goes_on(self, record: DrainRecord) -> None:
        """A drain that goes on: where a call was killed that asked whether it may be taken back, that comes to nothing."""
        if not taken_back(record.state):
            await self._catch_up(record, HookStep.STOP, HookState.FAILED)

    async def end(self, record: DrainRecord) -> None:
        """Those after a drain that is over, and what killed calls owe of its steps. May be called again."""
        out = record.state in OUT_STATES
        state = HookState.DONE if out else HookState.STOPPED
        for step in _CLOSED_AT_THE_END:
            stopped = HookState.FAILED if out else HookState.DONE
            await self._catch_up(record, step, stopped if step is HookStep.STOP else state)

    async def _catch_up(self, record: DrainRecord, step: HookStep, state: HookState) -> None:
        hooking = self.call.hooking()
        if hooking is not None:
            await hooking.catch_up(hooked(record, step), self.call.facts(record, state=state))

    async def around_audit(self, record: DrainRecord, audit: Callable[[], Awaitable[AuditSeen]]) -> AuditSeen:
        """The audit before a commit. Raises HookSkipped, Refused."""
        hooking = self.call.hooking()
        if hooking is None:
            return await audit()

        async def after(_: HookFacts, found: AuditSeen) -> HookFacts:
            return self.call.facts(record, state=audit_state(found), reason="; ".join(audit_left(found)) or None)

        return await hooking.around(hooked(record, HookStep.AUDIT), audit, facts=self.call.facts(record), after=after)

    async def around_commit(self, record: DrainRecord, commit: Callable[[], Awaitable[None]]) -> None:
        """The commit. Raises HookSkipped, Refused."""
        hooking = self.call.hooking()
        if hooking is None:
            await commit()
            return

        async def after(_: HookFacts, __: None) -> HookFacts:
            return self.call.facts(record, state=HookState.DONE)

        await hooking.around(hooked(record, HookStep.COMMIT), commit, facts=self.call.facts(record), after=after)

    async def after_commit(self, record: DrainRecord) -> None:
        """Those that a killed call owes after a commit that is seen to be made."""
        await self._catch_up(record, HookStep.COMMIT, HookState.DONE)

    async def do(
        self,
        record: DrainRecord,
        step: HookStep,
        look: Callable[[DrainRecord, str], Awaitable[None]],
        *,
        seen_done: bool,
    ) -> None:
        """A step that is done by its `pre` hooks, one brick after the other; then it is looked at. Raises HookSkipped, Refused,
        ToolFailed.
        """
        hooking = self.call.hooking()
        if hooking is None:
            raise ToolFailed("there are no hooks that could do it")

        async def after(facts: HookFacts, __: None) -> HookFacts:
            return self.call.facts(record, brick=facts.brick, state=HookState.DONE)

        for name in record.bricks:
            place, facts = hooked(record, step, name), self.call.facts(record, brick=name)
            if seen_done:
                await hooking.catch_up(place, self.call.facts(record, brick=name, state=HookState.DONE))
            else:
                await hooking.around(place, partial(look, record, name), facts=facts, after=after)

    async def tell_failure(self, record: DrainRecord, ended: Ended | None, *, back: bool) -> None:
        """Those that people are told by that they have to look, once for each failure; `ended` None: the call begins, or ended by
        an exception. `back`: it is to take the drain back. May be called again.
        """
        hooking = self.call.hooking()
        if hooking is None:
            return
        failure = drain_failure(record, self.call.world.ledger.drains.steps(record.id), ended, back=back)
        if failure is None:
            return
        failed = HookStep.STOP if taken_back(record.state) else HookStep.DRAIN
        facts = self.call.facts(record, state=HookState.FAILED, failed=failed, reason=failure.reason)
        tell = hooking.once if failure.certain else hooking.catch_up
        await tell(hooked_failure(record, failure.step_id), facts)
