"""The entry of `brick add`."""

import posixpath
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from migrator.bricks.add import model
from migrator.bricks.add.rules import problems_before
from migrator.bricks.add.rules_guards import against
from migrator.bricks.add.stage import AdditionCall, AdditionLooker, AdditionWorld, hooked
from migrator.bricks.add.steps import AdditionMachine
from migrator.bricks.model import Ending
from migrator.bricks.shared import restore_left
from migrator.core.errors import Refused, UsageError
from migrator.core.events import EventKind
from migrator.gluster.model import VolumeState
from migrator.hooks.model import HookEvent, HookStage, HookStep
from migrator.hooks.rules import in_order
from migrator.hooks.stage import find_hooks
from migrator.operations.model import Act, Finished, Halt

if TYPE_CHECKING:
    from migrator.bricks.records import BrickLedger

VERB = "brick-add"


async def add_bricks(request: model.AdditionRequest, world: AdditionWorld) -> model.AdditionSummary:
    """Add bricks to the source volume, replace one brick by another, or give bricks to the target. After a crash, the same call
    resumes. A dry run makes the same checks and decisions, and changes nothing.

    Raises UsageError, Refused (by a hook, or by a check after the hooks), LockHeld, Interrupted, ToolFailed. The summary
    has the failed checks of an addition that is halted.
    """
    for name in request.bricks:
        host, separator, path = name.partition(":/")
        if not host or not separator or not path or posixpath.normpath(f"/{path}") != f"/{path}":
            raise UsageError(
                f"{name} is no brick", hint="name it as HOST:/PATH, with the host as in `gluster volume info`"
            )
    site = world.ledger.site.required()
    state, _ = await world.volume.state_and_tasks()
    known = world.ledger.additions.latest(state.volume_id, request.bricks, request.side)
    if known is not None and _begins_anew(known, state, request):
        known = None
    if known is not None and known.state not in model.UNTOUCHED_STATES and known.instead_of != request.instead_of:
        instead = "no other brick" if known.instead_of is None else known.instead_of
        raise UsageError(
            f"{known.shown_bricks} is being added in the place of {instead}",
            hint="run the same command as the first time: it resumes",
        )
    call = AdditionCall(world=world, request=request, site=site)
    if request.dry_run or known is None or known.state in model.UNTOUCHED_STATES:
        previewed = await _preview(call, state, known)
        if request.dry_run or previewed.ending is Ending.HALTED:
            return replace(previewed, dry_run=request.dry_run)

    async def work(call: AdditionCall) -> model.AdditionSummary:
        await restore_left(call, EventKind.ADDITION_STEP)
        known = world.ledger.additions.latest(state.volume_id, request.bricks, request.side)
        anew = known is not None and _begins_anew(known, state, request)
        return await _machine(call).bring(world.ledger.additions.plan(_planned(call, state), anew=anew))

    return await call.recorded(VERB, f"brick add {' '.join(request.bricks)}", work)


def _machine(call: AdditionCall) -> AdditionMachine:
    return AdditionMachine(call=call, looker=AdditionLooker(call=call), back=call.request.wish.take_back)


def _begins_anew(known: model.AdditionRecord, state: VolumeState, request: model.AdditionRequest) -> bool:
    """Whether a new attempt begins: bricks were drained since they were added, or the disk of a brick is to be exchanged again."""
    if known.state is model.AdditionState.FORGOTTEN:
        return True
    if known.state not in model.ADDITION_ENDED_STATES or known.side is model.AdditionSide.TARGET:
        return False
    if not {brick.name for brick in state.bricks}.intersection(known.bricks):
        return True
    in_place = request.instead_of in request.bricks
    if known.state is model.AdditionState.TAKEN_BACK:
        return not request.wish.take_back
    return in_place and (request.once_more or known.instead_of != request.instead_of)


def forget_addition(
    bricks: Sequence[str], side: model.AdditionSide, ledger: "BrickLedger", *, accept_hooks: bool, at_s: float
) -> model.AdditionRecord:
    """End a mistaken addition that has changed neither the volume nor the target. `accept_hooks`: also if pre-add hooks were
    called, which may have changed the host. May be called again. Raises UsageError and Refused.
    """
    shown = " ".join(bricks)
    known = [one for one in ledger.additions.all() if one.side is side and set(one.bricks) == set(bricks)]
    if not known:
        raise UsageError(
            f"no addition of {shown} to the {side.value} is known", hint="`migrator brick status` lists all additions"
        )
    record = known[-1]
    if record.state is model.AdditionState.FORGOTTEN:
        return record
    if record.state not in model.FORGETTABLE_STATES or model.AdditionState.RESETTING in record.times:
        raise Refused(
            f"the addition of {shown} is {record.state.value}, and cannot be forgotten",
            cause="it has changed the volume, the target or the brick",
            hint="`migrator brick add` with the same words resumes it",
        )
    step = ledger.hooks.latest(HookStep.ADD, hooked(record).key)
    if step is not None and ledger.hooks.of_step(step.id) and not accept_hooks:
        raise Refused(
            f"pre-add hooks were called for {shown}, and may have changed the host",
            cause="they make file systems, or give disks to the target",
            hint="look what they did there, undo it, then repeat the command with --accept-hooks",
        )
    if step is not None:
        ledger.hooks.close_step(step.id, state=model.AdditionState.FORGOTTEN.value, at_s=at_s)
    act = Act(
        step=model.AdditionStep.FORGET, intent=model.AdditionState.FORGOTTEN, result=model.AdditionState.FORGOTTEN
    )
    return ledger.additions.finish(
        ledger.additions.intend(record.id, act, at_s=at_s), model.AdditionState.FORGOTTEN, at_s=at_s
    )


def _planned(call: AdditionCall, state: VolumeState) -> model.AdditionRecord:
    return model.AdditionRecord(
        id=0,
        side=call.request.side,
        volume=state.volume,
        volume_id=state.volume_id,
        bricks=call.request.bricks,
        instead_of=call.request.instead_of,
        state=model.AdditionState.PLANNED,
        times={model.AdditionState.PLANNED: call.now_s()},
    )


async def _preview(call: AdditionCall, state: VolumeState, known: model.AdditionRecord | None) -> model.AdditionSummary:
    """The first step that the call would make. Changes neither Gluster nor the ledger."""
    record = known or _planned(call, state)
    machine = _machine(call)
    seen = await machine.looker.see(record)
    step = machine.next_step(record, seen)
    preview = machine.previewed(record, step)
    if isinstance(step, Halt | Finished):
        return preview
    if step.seen_done and step.step is model.AdditionStep.ADD:
        words = f"{record.shown_bricks} is in the volume already: it would resume with the fix-layout, and what follows that"
        return replace(preview, words=words)
    if step.step is not model.AdditionStep.PREPARE:
        return preview
    problems = () if seen is None else problems_before(record, seen, call.request.wish, prepared=True)
    if problems and not await _prepares(call):
        return machine.why_halted(record, against(record, problems))
    words = preview.words + (", and the pre-add hooks have to put this right" if problems else "")
    return replace(preview, words=words, reasons=problems)


async def _prepares(call: AdditionCall) -> bool:
    """Whether there are hooks that may make file systems and mount them."""
    found = await find_hooks(call.world.hooks, call.world.blocking)
    return bool(in_order(found.hooks, HookStage(step=HookStep.ADD, event=HookEvent.PRE)))
