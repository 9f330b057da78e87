"""Which hooks belong to a step of a run."""

from dataclasses import dataclass

from migrator.decide.hooks import in_order, problem_words, shown, would_be_called
from migrator.domain.hooks import HookEvent, HookStep
from migrator.domain.plan import Batch, Plan
from migrator.domain.run import GuardFinding
from migrator.domain.states import ChunkState, PassKind, PassState
from migrator.ports.hooks import Hooks
from migrator.stages.hooking import HookedStep, called_hooks, find_hooks
from migrator.stages.run.context import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A step of a run: a batch, or with `kind` one pass over it; `number` is that of a delta pass."""

    batch: Batch
    kind: PassKind | None = None
    number: int | None = None

    @property
    def step(self) -> HookStep:
        """What hooks are called around."""
        return HookStep.BATCH if self.kind is None else HookStep.PASS

    @property
    def words(self) -> str:
        """For people."""
        if self.kind is None:
            return f"batch {self.batch.number}"
        number = "" if self.number is None else f" {self.number}"
        return f"the {self.kind.value} pass{number} over batch {self.batch.number}"

    def hooked(self, plan: Plan) -> HookedStep:
        """As hooks are called around it."""
        return HookedStep(
            step=self.step,
            key=f"plan {plan.name}: {self.words}",
            subject=f"batch {self.batch.number}",
            words=self.words,
        )


async def preview_hooks(
    world: World, hooks: Hooks | None, plan: Plan, batch: Batch, *, idle: bool
) -> tuple[tuple[str, ...], GuardFinding]:
    """For a dry run: the hooks that a run over the batch would call, in order, and what speaks against them."""
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
    """Whether the seed pass has nothing to do any more."""
    record = world.ledger.passes.find(plan.name, batch.number, PassKind.SEED)
    if record is None or record.state is not PassState.DONE:
        return False
    return not world.ledger.passes.totals(record.id).chunks.get(ChunkState.FAILED, 0)
