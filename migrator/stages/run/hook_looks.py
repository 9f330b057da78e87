"""Which hooks belong to a step of a run, and which of them were called."""

from dataclasses import dataclass

from migrator.decide.hooks import in_order, problem_words, shown, would_be_called
from migrator.domain.errors import Refused
from migrator.domain.hooks import HookEvent, HookOutcome, HooksFound, HookStage, HookStep
from migrator.domain.paths import show
from migrator.domain.plan import Batch, Plan
from migrator.domain.run import GuardFinding
from migrator.domain.states import ChunkState, PassKind, PassState
from migrator.ports.hooks import Hooks, HookStepRecord
from migrator.stages.run.context import World

_LOOK_TIMEOUT_S = 30.0


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

    def stage(self, event: HookEvent) -> HookStage:
        """One side of it."""
        return HookStage(step=self.step, event=event)


async def find_hooks(world: World, hooks: Hooks) -> HooksFound:
    """The hooks as they lie there now, with what speaks against them. Raises Refused where nobody can tell."""
    try:
        return await world.blocking(hooks.find, timeout_s=_LOOK_TIMEOUT_S)
    except (OSError, TimeoutError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise Refused(
            f"the hooks in {show(hooks.directory)} cannot be looked at: {why}",
            cause="the file system that holds [site] hooks_dir does not answer, or has an error",
            hint="mend it, or name another directory in site.toml; then run the same command again",
        ) from error


async def preview_hooks(
    world: World, hooks: Hooks | None, plan: Plan, batch: Batch, *, idle: bool
) -> tuple[tuple[str, ...], GuardFinding]:
    """For a dry run: the hooks that a run over the batch would call, in order, and what speaks against them."""
    if hooks is None:
        return (), GuardFinding(guard="hooks", problems=())
    found = await find_hooks(world, hooks)
    finding = GuardFinding(guard="hooks", problems=problem_words(found))
    if not idle:
        return would_be_called(found.hooks, (HookStep.BATCH, HookStep.PASS)), finding
    owed: list[str] = []
    delta = world.ledger.passes.find(plan.name, batch.number, PassKind.DELTA)
    passes = [Place(batch=batch, kind=PassKind.SEED)]
    passes += [Place(batch=batch, kind=PassKind.DELTA, number=delta.number)] if delta else []
    for place in (*passes, Place(batch=batch)):
        step = world.ledger.hooks.open_since(place.step, subject_of(plan, place))
        if step is not None:
            called = called_hooks(world, place, step)
            after = in_order(found.hooks, place.stage(HookEvent.POST))
            owed += [shown(hook) for hook in after if hook.name not in called]
    return tuple(owed), finding


def is_seeded(world: World, plan: Plan, batch: Batch) -> bool:
    """Whether the seed pass has nothing to do any more."""
    record = world.ledger.passes.find(plan.name, batch.number, PassKind.SEED)
    if record is None or record.state is not PassState.DONE:
        return False
    return not world.ledger.passes.totals(record.id).chunks.get(ChunkState.FAILED, 0)


def subject_of(plan: Plan, place: Place) -> str:
    """How the ledger names a step."""
    return f"plan {plan.name}: {place.words}"


def called_hooks(world: World, place: Place, step: HookStepRecord) -> frozenset[bytes]:
    """The `post` hooks of a step that have come to their end."""
    stage = place.stage(HookEvent.POST).name
    return frozenset(
        call.name
        for call in world.ledger.hooks.of_step(step.id)
        if call.stage == stage and call.outcome not in (None, HookOutcome.INTERRUPTED)
    )


def refuse_hooks(found: HooksFound) -> None:
    """Raises Refused where anything speaks against calling hooks, with every reason."""
    if found.problems:
        raise Refused(
            "; ".join(problem_words(found)),
            cause="a hook does what it likes as the user that runs this program: nobody else may be able to change it",
            hint="mend each as it says (`migrator doctor` lists them too), then run the same command again",
        )
