"""The hooks around batches and passes, and around the steps of whoever else makes passes."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import TypeVar

from migrator.domain.hooks import HookFacts, HookState, HookStep
from migrator.domain.plan import Batch, Plan
from migrator.domain.run import BatchSummary
from migrator.domain.states import PassKind
from migrator.ports.hooks import Hooks
from migrator.ports.site import SiteRecord
from migrator.stages.hooking import CutoverPlace, HookSkipped, StepHooks, hook_world
from migrator.stages.run.context import Invocation
from migrator.stages.run.hook_looks import Place

RUN_STEPS = frozenset({HookStep.BATCH, HookStep.PASS})
"""Those of `run`: what calls of another verb have left is for that one to clear away."""

T = TypeVar("T")
Work = Callable[[], Awaitable[BatchSummary]]


@dataclass(slots=True, kw_only=True)
class Hooking:
    """Calls the hooks of one run; with `hooks` None there are none."""

    invocation: Invocation
    hooks: Hooks | None
    plan: Plan
    site: SiteRecord

    async def begin(self, steps: Collection[HookStep] = RUN_STEPS) -> None:
        """Before anything is started: look at all hooks, and end what calls around these steps, of a run that was killed,
        have left. Raises Refused where a hook is not as it has to be, or the remains of one cannot be ended.
        """
        if self.hooks is not None:
            await self._calls(self.hooks).begin(steps)

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
        await self._call_owed(Place(batch=batch, kind=kind, number=number), None)

    async def around_step(
        self,
        place: CutoverPlace,
        work: Callable[[], Awaitable[T]],
        *,
        facts: HookFacts,
        after: Callable[[HookFacts, T], Awaitable[HookFacts]],
        stoppable: bool = True,
    ) -> T:
        """A step of a cutover, with its hooks before and after it: see `StepHooks.around`."""
        if self.hooks is None:
            return await work()
        return await self._calls(self.hooks).around(place.hooked, work, facts=facts, after=after, stoppable=stoppable)

    def owes(self, place: CutoverPlace) -> bool:
        """Whether an earlier run has left the hooks of a step of a cutover without an end."""
        hooked = place.hooked
        records = self.invocation.world.ledger.hooks
        return self.hooks is not None and records.open_since(hooked.step, hooked.key) is not None

    async def catch_up_step(self, place: CutoverPlace, facts: HookFacts) -> None:
        """Call the `post` hooks that an earlier run still owes after a step of a cutover that was done. `facts` are those
        after it. May be called again.
        """
        if self.hooks is not None:
            await self._calls(self.hooks).catch_up(place.hooked, facts)

    def _calls(self, hooks: Hooks) -> StepHooks:
        world = self.invocation.world
        return StepHooks(
            world=hook_world(
                world,
                hooks,
                self.site,
                source_root=world.source.root,
                target_root=world.target.root,
                run_id=self.invocation.run_id,
                say=self.invocation.say,
            )
        )

    async def _around(self, place: Place, work: Work, *, idle: bool) -> BatchSummary:
        if self.hooks is None:
            return await work()
        if idle:
            summary = await work()
            await self._call_owed(place, summary)
            return summary
        try:
            return await self._calls(self.hooks).around(
                place.hooked(self.plan), work, facts=self._facts(place), after=_after
            )
        except HookSkipped as skipped:
            return BatchSummary(batch=place.batch.number, skipped=skipped.message)

    async def _call_owed(self, place: Place, summary: BatchSummary | None) -> None:
        """The step had come to its end, and the run was killed before all its `post` hooks had."""
        if self.hooks is not None:
            facts = self._facts(place)
            facts = replace(facts, state=HookState.DONE) if summary is None else await _after(facts, summary)
            await self._calls(self.hooks).catch_up(place.hooked(self.plan), facts)

    def _facts(self, place: Place) -> HookFacts:
        return HookFacts(
            run_id=self.invocation.run_id,
            plan=self.plan.name,
            batch=place.batch.number,
            pass_kind=place.kind,
            pass_number=place.number,
            trees=place.batch.trees,
            files=place.batch.files,
            size_bytes=place.batch.size_bytes,
            started_at_s=self.invocation.world.clock.now_s(),
        )


async def _after(facts: HookFacts, summary: BatchSummary) -> HookFacts:
    state = HookState.SKIPPED if summary.skipped else HookState.STOPPED if summary.stopped else HookState.DONE
    return replace(
        facts,
        state=state,
        copied_files=summary.files,
        copied_bytes=summary.size_bytes,
        attention=len(summary.bad),
    )
