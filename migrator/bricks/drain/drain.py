"""The entry of `brick drain` and `brick stop`."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from migrator.bricks.drain import model
from migrator.bricks.drain.stage import DRAIN_STEPS, LOG, DrainCall, DrainLooker, DrainWorld, Guarding
from migrator.bricks.drain.steps import DrainMachine, owes_hooks, wipe_permission
from migrator.bricks.shared import Throttle, left_changed
from migrator.core.errors import Refused, UsageError
from migrator.core.events import EventKind, Severity
from migrator.gluster.model import VolumeState
from migrator.ledger.call import recorded_run
from migrator.ledger.model import SiteRecord
from migrator.operations.model import Finished, Halt

DRAIN_VERB, STOP_VERB = "brick-drain", "brick-stop"
_LOCK = "drain"
"""One call at a time drives a drain; a drain may be under way without a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The bricks as the volume and the ledger have them."""

    state: VolumeState
    seen: model.DrainSeen
    bricks: tuple[str, ...]
    known: model.DrainRecord | None


async def drain_bricks(request: model.DrainRequest, world: DrainWorld) -> model.DrainSummary:
    """Drain the bricks of one subvolume, from wherever that is; the same call resumes after any crash, also a drain
    that Gluster has continued. A dry run makes every check and decision, and changes nothing.

    Raises UsageError, Refused (a hook said no, the wrong word to confirm), LockHeld, Interrupted, ToolFailed; reasons
    against the drain are in the summary.
    """
    asked = await _asked(request, world)
    if asked.known is None and all(name not in _names(asked.state) for name in asked.bricks):
        raise UsageError(
            f"volume {asked.state.volume} has no brick {', '.join(asked.bricks)}",
            hint=f"bricks are named as in `migrator brick list`: {', '.join(sorted(_names(asked.state)))}",
        )
    site = _site(world)
    unmade = DrainCall(world=world, request=request, site=site, run_id=None)
    word: str | None = None
    problems: tuple[str, ...] = ()
    if request.confirm is not None or request.dry_run:
        word, problems = await wipe_permission(world, site, _record(asked, world.clock.now_s()))
    if request.confirm is not None and problems:
        raise Refused(
            f"{', '.join(asked.bricks)} may not be wiped, and nothing was done: {'; '.join(problems)}",
            hint="move what else is there to another disk, or drain without --confirm and wipe by hand",
        )
    if request.confirm not in (None, word):
        raise Refused(
            "the word to confirm does not belong to these bricks and their disks: nothing was done",
            hint="see the bricks and the word with --dry-run",
        )
    if asked.known is not None and _is_given_away(asked):
        words = f"there is nothing to do: {asked.known.shown_bricks} was drained and handed over before"
        return _nothing_to_do(unmade, asked.known, model.DrainEnding.DONE, words)
    if request.dry_run or _begins(asked):
        previewed = await _preview(unmade, asked)
        if request.dry_run or previewed.ending is model.DrainEnding.HALTED:
            return replace(previewed, dry_run=request.dry_run, confirm=word, wipe_problems=problems)

    def planned() -> model.DrainRecord:
        return world.ledger.drains.plan(
            volume=asked.state.volume,
            volume_id=asked.state.volume_id,
            bricks=asked.bricks,
            at_s=world.clock.now_s(),
            anew=_begins_anew(asked),
        )

    return await _make(DRAIN_VERB, request, world, site, planned, back=False)


async def stop_drain(request: model.DrainRequest, world: DrainWorld) -> model.DrainSummary:
    """Take a drain back: the bricks stay in the volume, files that were moved stay where they are, and the layout of
    directories is put right. Where that was done already, nothing is. Raises as `drain_bricks`; UsageError where this program
    has begun no drain of these bricks that could be taken back.
    """
    asked, site = await _asked(request, world), _site(world)
    unmade = DrainCall(world=world, request=request, site=site, run_id=None)
    known, owes = asked.known, not request.dry_run and _owes_hooks(asked, world)
    if known is not None and known.state is model.DrainState.STOPPED and not owes and _is_at_rest(asked, world):
        words = f"there is nothing to take back: the drain of {known.shown_bricks} was taken back before, "
        words += "and none is under way"
        return _nothing_to_do(unmade, known, model.DrainEnding.TAKEN_BACK, words)
    ended = known is None or known.state in model.DRAIN_ENDED_STATES
    if known is None or (ended and not owes and not left_changed(world.ledger, asked.state)):
        raise UsageError(
            f"no drain of {', '.join(asked.bricks)} is under way that this program began",
            hint="`migrator brick list` shows the tasks of Gluster; stop by hand what was begun by hand "
            "(`gluster volume remove-brick ... stop`, then `gluster volume rebalance VOLUME fix-layout start`)",
        )
    if request.dry_run:
        return await _preview(unmade, asked, back=True)
    return await _make(STOP_VERB, request, world, site, lambda: known, back=True)


def _owes_hooks(asked: _Asked, world: DrainWorld) -> bool:
    """Whether a drain was taken back by a call that was killed before all hooks after that were called."""
    known = asked.known
    return known is not None and known.state is model.DrainState.STOPPED and owes_hooks(world, known)


def _is_at_rest(asked: _Asked, world: DrainWorld) -> bool:
    """Whether nothing is left to be put back, and Gluster drains none of these bricks by another command."""
    drained = {name for task in asked.seen.tasks or () if task.unfinished for name in task.bricks}
    return not left_changed(world.ledger, asked.state) and not drained & set(asked.bricks)


def _is_given_away(asked: _Asked) -> bool:
    """Whether a drain has come to its very end, also where the program was killed before it could say so."""
    known = asked.known
    return (
        known is not None
        and known.state is model.DrainState.HANDED_OVER
        and not _names(asked.state) & set(known.bricks)
    )


def _nothing_to_do(
    call: DrainCall, record: model.DrainRecord, ending: model.DrainEnding, words: str
) -> model.DrainSummary:
    back = ending is model.DrainEnding.TAKEN_BACK
    return replace(_machine(call, back=back).summary(record, ending, words), dry_run=call.request.dry_run)


async def _asked(request: model.DrainRequest, world: DrainWorld) -> _Asked:
    state, tasks = await world.volume.state_and_tasks()
    bricks = tuple(dict.fromkeys(request.bricks))
    known = world.ledger.drains.latest(state.volume_id, bricks)
    seen = model.DrainSeen(state=state, tasks=tasks)
    return _Asked(state=state, seen=seen, bricks=bricks if known is None else known.bricks, known=known)


def _begins(asked: _Asked) -> bool:
    """Whether nothing of these bricks was touched yet."""
    return (
        asked.known is None
        or asked.known.state in model.DRAIN_ENDED_STATES | model.UNTOUCHED_STATES
        or _begins_anew(asked)
    )


def _begins_anew(asked: _Asked) -> bool:
    """Bricks that are in the volume again after a drain; while they are handed over, that may be its last step."""
    known = asked.known
    if known is None or known.state not in model.OUT_STATES - {model.DrainState.HANDING_OVER}:
        return False
    return set(known.bricks) <= _names(asked.state)


async def _preview(call: DrainCall, asked: _Asked, *, back: bool = False) -> model.DrainSummary:
    """What the call would begin with: neither Gluster nor the ledger is changed."""
    at_s = call.now_s()
    record = _record(asked, at_s)
    if record.state in model.UNTOUCHED_STATES and not back:
        # The hooks come first in the real run: the guards are asked here, before anything is written down.
        record = replace(
            record, state=model.DrainState.PREFLIGHT, times={**record.times, model.DrainState.PREFLIGHT: at_s}
        )
    machine = _machine(call, back=back)
    step = machine.decide(record, await machine.looker.see(record))
    if isinstance(step, Halt):
        return machine.why_halted(record, step)
    if isinstance(step, Finished):
        return machine.summary(record, model.DrainEnding.DONE, step.words)
    words = f"it would begin with: {step.step.value}" + (f" ({step.reason})" if step.reason else "")
    return machine.summary(record, model.DrainEnding.PLANNED, words)


def _record(asked: _Asked, at_s: float) -> model.DrainRecord:
    """The drain that the call continues, or that it would begin."""
    known = asked.known
    if known is not None and known.state not in model.DRAIN_ENDED_STATES and not _begins_anew(asked):
        return known
    return model.DrainRecord(
        id=0,
        volume=asked.state.volume,
        volume_id=asked.state.volume_id,
        bricks=asked.bricks,
        attempt=1,
        state=model.DrainState.PREFLIGHT,
        times={model.DrainState.PLANNED: at_s, model.DrainState.PREFLIGHT: at_s},
    )


def _machine(call: DrainCall, *, back: bool) -> DrainMachine:
    looker = DrainLooker(call=call, guarding=Guarding(call=call))
    return DrainMachine(call=call, looker=looker, throttle=_throttle(call), back=back)


def _throttle(call: DrainCall) -> Throttle:
    world, drains = call.world, call.world.ledger.drains
    return Throttle(call=call, volume=world.volume, rules=world.throttle, records=drains, notes=model.DrainNotes)


def _names(state: VolumeState) -> frozenset[str]:
    return frozenset(brick.name for brick in state.bricks)


def _site(world: DrainWorld) -> SiteRecord:
    site = world.ledger.site.read()
    if site is None:
        raise UsageError("this site has no ledger entry yet", hint="run `migrator init`")
    return site


async def _make(
    verb: str,
    request: model.DrainRequest,
    world: DrainWorld,
    site: SiteRecord,
    record_of: Callable[[], model.DrainRecord],
    *,
    back: bool,
) -> model.DrainSummary:
    """The call in the ledger, with its lock, its directory and its heartbeat."""
    purpose = f"{verb.replace('-', ' ')} {' '.join(request.bricks)}"
    with world.locks.hold(_LOCK, purpose), world.files.open(verb, world.clock.now_s()) as directory:
        async with recorded_run(
            world.ledger.runs,
            world.clock,
            verb=verb,
            pid=request.pid,
            directory=directory.path,
            log=LOG,
            heartbeat_interval_s=request.heartbeat_interval_s,
        ) as run:
            call = DrainCall(world=world, request=request, site=site, run_id=run.id, directory=directory.path)
            hooking = call.hooking()
            if hooking is not None:
                await hooking.begin(DRAIN_STEPS)
            await _restore_left(call)
            summary = await _machine(call, back=back).bring(record_of())
            run.exit_code = summary.exit_code
    return summary


async def _restore_left(call: DrainCall) -> None:
    """Put back what such drains have changed, so that it does not pass for what was there before. Raises ToolFailed."""
    drains = call.world.ledger.drains
    if drains.under_way():
        return
    state, _ = await call.world.volume.state_and_tasks()
    for record in left_changed(call.world.ledger, state):
        act = model.DrainAct(step=model.DrainStep.RESTORE, intent=record.state, result=record.state)
        step_id = drains.intend(record.id, act, at_s=call.now_s())
        words = await _throttle(call).restore(record)
        drains.finish(step_id, record.state, at_s=call.now_s(), message=words)
        call.say(EventKind.DRAIN_STEP, Severity.INFO, f"drain of {record.shown_bricks}", words)
