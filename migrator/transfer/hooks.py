"""Hooks around batches and passes."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import TypeVar

from migrator.core.states import ChunkState, PassKind, PassState
from migrator.hooks.model import HookEvent, HookFacts, HookState, HookStep
from migrator.hooks.rules import in_order, problem_words, shown, would_be_called
from migrator.hooks.stage import HookedStep, Hooks, HookSkipped, StepHooks, called_hooks, find_hooks
from migrator.ledger.model import SiteRecord
from migrator.plan.model import Batch, Plan
from migrator.transfer.context import Invocation, World
from migrator.transfer.model import BatchSummary, GuardFinding

# Which hooks belong to a step of a run.


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A step of a run: a batch, or (with `kind`) one pass over it. `number` is that of a delta pass."""

    batch: Batch
    kind: PassKind | None = None
    number: int | None = None

    @property
    def step(self) -> HookStep:
        """The kind of step for hooks."""
        return HookStep.BATCH if self.kind is None else HookStep.PASS

    @property
    def words(self) -> str:
        """For display."""
        if self.kind is None:
            return f"batch {self.batch.number}"
        number = "" if self.number is None else f" {self.number}"
        return f"the {self.kind.value} pass{number} over batch {self.batch.number}"

    def hooked(self, plan: Plan) -> HookedStep:
        """The step in the form that hooks receive."""
        return HookedStep(
            step=self.step,
            key=f"plan {plan.name}: {self.words}",
            subject=f"batch {self.batch.number}",
            words=self.words,
        )


async def preview_hooks(
    world: World, hooks: Hooks | None, plan: Plan, batch: Batch, *, idle: bool
) -> tuple[tuple[str, ...], GuardFinding]:
    """For a dry run: the hooks that a run over the batch would call, in order, and their problems."""
    if hooks is None:
        return (), GuardFinding(guard="hooks", problems=())
    found = await find_hooks(hooks, world.blocking)
    finding = GuardFinding(guard="hooks", problems=problem_words(found))
    if not idle:
        return would_be_called(found.hooks, (HookStep.BATCH, HookStep.PASS)), finding
    owed: list[str] = []
    delta = world.ledger.passes.find(plan.name, batch.number, PassKind.DELTA)
    passes = [Place(batch=batch, kind=PassKind.SEED)]
    passes += [Place(batch=batch, kind=PassKind.DELTA, number=delta.number)] if delta else []
    for place in (*passes, Place(batch=batch)):
        hooked = place.hooked(plan)
        step = world.ledger.hooks.open_since(hooked.step, hooked.key)
        if step is not None:
            after = hooked.stage(HookEvent.POST)
            called = called_hooks(world.ledger.hooks, after, step)
            owed += [shown(hook) for hook in in_order(found.hooks, after) if hook.name not in called]
    return tuple(owed), finding


def is_seeded(world: World, plan: Plan, batch: Batch) -> bool:
    """Whether the seed pass has nothing left to do."""
    record = world.ledger.passes.find(plan.name, batch.number, PassKind.SEED)
    if record is None or record.state is not PassState.DONE:
        return False
    return not world.ledger.passes.totals(record.id).chunks.get(ChunkState.FAILED, 0)


# Running the hooks around batches and passes, and around the steps of cutovers.


RUN_STEPS = frozenset({HookStep.BATCH, HookStep.PASS})
"""The steps of `run`. Each command cleans up after its own calls."""

T = TypeVar("T")
Work = Callable[[], Awaitable[BatchSummary]]


@dataclass(slots=True, kw_only=True)
class Hooking:
    """Calls the hooks of one run; `hooks` is None if there are none."""

    invocation: Invocation
    hooks: Hooks | None
    plan: Plan
    site: SiteRecord

    async def begin(self, steps: Collection[HookStep] = RUN_STEPS) -> None:
        """Check all hooks, and end orphaned calls of a killed run around these steps. Call it before any other work.
        Raises Refused if a hook is invalid, or an orphaned call cannot be ended.
        """
        if self.hooks is not None:
            await self._calls(self.hooks).begin(steps)

    async def around(self, place: Place, work: Work, *, idle: bool) -> BatchSummary:
        """Run the work, with the hooks of its step before and after it. `idle`: there is nothing to do; then only
        overdue `post` hooks of a killed run are called.

        If a hook skips the step, the summary records it. Raises Refused if a `pre` hook refuses the step. Errors of the
        work propagate after the `post` hooks; on a cancellation these are not called, and the step stays open.
        """
        if self.hooks is None:
            return await work()
        if idle:
            summary = await work()
            await self.catch_up(place, summary)
            return summary
        try:
            return await self._calls(self.hooks).around(
                place.hooked(self.plan), work, facts=self._facts(place), after=_after
            )
        except HookSkipped as skipped:
            return BatchSummary(batch=place.batch.number, skipped=skipped.message)

    async def catch_up(self, place: Place, summary: BatchSummary | None = None) -> None:
        """Call the overdue `post` hooks of an earlier run after a step that is done. May be called again."""
        if self.hooks is not None:
            facts = self._facts(place)
            facts = replace(facts, state=HookState.DONE) if summary is None else await _after(facts, summary)
            await self._calls(self.hooks).catch_up(place.hooked(self.plan), facts)

    def steps(self) -> StepHooks | None:
        """Calls the hooks around other steps; None if there are none."""
        return None if self.hooks is None else self._calls(self.hooks)

    def _calls(self, hooks: Hooks) -> StepHooks:
        world = self.invocation.world
        return StepHooks(
            ports=world,
            hooks=hooks,
            site=self.site,
            source_root=world.source.root,
            target_root=world.target.root,
            run_id=self.invocation.run_id,
            say=self.invocation.say,
        )

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
