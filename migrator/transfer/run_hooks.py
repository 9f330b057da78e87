"""The hooks around the batches and passes of a run."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.states import PassKind
from migrator.hooks.calls import HookedStep, Hooks, HookSkipped, StepHooks
from migrator.hooks.model import HookFacts, HookState, HookStep
from migrator.plan.model import Batch, Plan
from migrator.transfer.context import RunInvocation
from migrator.transfer.model_runs import BatchSummary

T = TypeVar("T")

RUN_STEPS = frozenset({HookStep.BATCH, HookStep.PASS})
"""The steps of `run`. Each command cleans up after its own calls."""


class RunStep(Struct, frozen=True, kw_only=True):
    """A step of a run: a batch, or (with `kind`) one pass over it. `number` is that of a delta pass."""

    batch: Batch
    kind: PassKind | None = None
    number: int | None = None

    def hooked(self, plan: Plan) -> HookedStep:
        """The step in the form that hooks receive."""
        words = subject = f"batch {self.batch.number}"
        if self.kind is not None:
            number = "" if self.number is None else f" {self.number}"
            words = f"the {self.kind.value} pass{number} over {subject}"
        step = HookStep.BATCH if self.kind is None else HookStep.PASS
        return HookedStep(step=step, key=f"plan {plan.name}: {words}", subject=subject, words=words)


@dataclass(slots=True, kw_only=True)
class RunHooks:
    """Calls the hooks around the steps of a run over one plan."""

    invocation: RunInvocation
    hooks: Hooks
    plan: Plan

    def steps(self) -> StepHooks:
        """Calls the hooks around any step."""
        invocation = self.invocation
        return StepHooks(ports=invocation.world, hooks=self.hooks, run_id=invocation.run_id, report=invocation.report)

    async def around(self, step: RunStep, work: Callable[[], Awaitable[BatchSummary]]) -> BatchSummary:
        """Do the work of a step, with its hooks before and after it. If a hook skips the step, the summary records it.

        Raises Refused if a `pre` hook refuses the step. Errors of the work propagate after the `post` hooks; on a
        cancellation these are not called, and the step stays open.
        """
        try:
            return await self.steps().around(step.hooked(self.plan), work, facts=self._facts(step), after=_after)
        except HookSkipped as skipped:
            return BatchSummary(batch=step.batch.number, skipped=skipped.message)

    async def catch_up(self, step: RunStep, summary: BatchSummary | None = None) -> None:
        """Call the overdue `post` hooks of an earlier run after a step that is done. May be called again."""
        facts = self._facts(step)
        facts = replace(facts, state=HookState.DONE) if summary is None else _after(facts, summary)
        await self.steps().catch_up(step.hooked(self.plan), facts)

    def _facts(self, step: RunStep) -> HookFacts:
        return HookFacts(
            run_id=self.invocation.run_id,
            plan=self.plan.name,
            batch=step.batch.number,
            pass_kind=step.kind,
            pass_number=step.number,
            trees=step.batch.trees,
            files=step.batch.files,
            size_bytes=step.batch.size_bytes,
            started_at_s=self.invocation.world.clock.now_s(),
        )


def _after(facts: HookFacts, summary: BatchSummary) -> HookFacts:
    state = HookState.SKIPPED if summary.skipped else HookState.STOPPED if summary.stopped else HookState.DONE
    return replace(
        facts,
        state=state,
        copied_files=summary.files,
        copied_bytes=summary.size_bytes,
        attention=len(summary.bad),
    )
