"""The entry of `brick drain` and `brick stop`."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from migrator.bricks.drain import model
from migrator.bricks.drain.stage import DrainCall, DrainLooker, DrainWorld
from migrator.bricks.drain.steps import DrainMachine, wipe_permission
from migrator.bricks.model import Ending
from migrator.bricks.shared import restore_left
from migrator.core.errors import Refused, UsageError
from migrator.core.events import EventKind
from migrator.gluster.model import VolumeState

DRAIN_VERB, STOP_VERB = "brick-drain", "brick-stop"


class _Asked(Struct, frozen=True, kw_only=True):
    """The bricks as the volume and the ledger have them."""

    state: VolumeState
    seen: model.DrainSeen
    bricks: tuple[str, ...]
    known: model.DrainRecord | None

    @property
    def names(self) -> frozenset[str]:
        """The bricks of the volume."""
        return frozenset(brick.name for brick in self.state.bricks)

    @property
    def begins_anew(self) -> bool:
        """Whether the bricks are in the volume again after a drain; while they are handed over, that may be its last step."""
        known = self.known
        if known is None or known.state not in model.OUT_STATES - {model.DrainState.HANDING_OVER}:
            return False
        return set(known.bricks) <= self.names

    @property
    def continued(self) -> model.DrainRecord | None:
        """The drain that a call continues; one that has come to its very end too, while its bricks are out of the volume."""
        known = self.known
        if known is None or known.state is model.DrainState.STOPPED or self.begins_anew:
            return None
        handed_over = known.state is model.DrainState.HANDED_OVER
        return None if handed_over and self.names & set(known.bricks) else known


async def drain_bricks(request: model.DrainRequest, world: DrainWorld) -> model.DrainSummary:
    """Drain the bricks of one subvolume. After a crash, the same call resumes, even if Gluster has continued the drain. A dry run
    makes every check and decision, and changes nothing.

    Raises UsageError, Refused (by a hook, or a wrong confirmation word), LockHeld, Interrupted, ToolFailed. The summary has the
    failed checks.
    """
    asked = await _asked(request, world)
    if asked.known is None and all(name not in asked.names for name in asked.bricks):
        raise UsageError(
            f"volume {asked.state.volume} has no brick {', '.join(asked.bricks)}",
            hint=f"bricks are named as in `migrator brick list`: {', '.join(sorted(asked.names))}",
        )
    site = world.ledger.site.required()
    record, word = _record(asked, world.clock.now_s()), None
    problems: tuple[str, ...] = ()
    if request.confirm is not None or request.dry_run:
        word, problems = await wipe_permission(world, site, record)
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
    call = DrainCall(world=world, request=request, site=site)
    begins = asked.continued is None or asked.continued.state in model.UNTOUCHED_STATES
    if request.dry_run or begins:
        previewed = await _preview(call, record)
        if request.dry_run or previewed.ending is Ending.HALTED:
            return replace(previewed, dry_run=request.dry_run, confirm=word, wipe_problems=problems)

    def planned() -> model.DrainRecord:
        return asked.continued or world.ledger.drains.plan(record, anew=asked.begins_anew)

    return await _make(DRAIN_VERB, call, planned, back=False)


async def stop_drain(request: model.DrainRequest, world: DrainWorld) -> model.DrainSummary:
    """Stop a drain: the bricks stay in the volume, moved files stay where they are, and a fix-layout restores the layout of
    directories. May be called again. Raises as `drain_bricks`, and UsageError if this program has begun no drain of these bricks
    that can be stopped.
    """
    asked, site = await _asked(request, world), world.ledger.site.required()
    known = asked.known
    drained = {name for task in asked.seen.tasks if task.unfinished for name in task.bricks}
    if known is None or (known.state is model.DrainState.STOPPED and drained & set(asked.bricks)):
        raise UsageError(
            f"no drain of {', '.join(asked.bricks)} is in progress that this program began",
            hint="`migrator brick list` shows the tasks of Gluster; stop by hand what was begun by hand "
            "(`gluster volume remove-brick ... stop`, then `gluster volume rebalance VOLUME fix-layout start`)",
        )
    call = DrainCall(world=world, request=request, site=site)
    if request.dry_run:
        return await _preview(call, known, back=True)
    return await _make(STOP_VERB, call, lambda: known, back=True)


async def _asked(request: model.DrainRequest, world: DrainWorld) -> _Asked:
    state, tasks = await world.volume.state_and_tasks()
    bricks = tuple(dict.fromkeys(request.bricks))
    known = world.ledger.drains.latest(state.volume_id, bricks)
    seen = model.DrainSeen(state=state, tasks=tasks)
    return _Asked(state=state, seen=seen, bricks=bricks if known is None else known.bricks, known=known)


async def _preview(call: DrainCall, record: model.DrainRecord, *, back: bool = False) -> model.DrainSummary:
    """The first step that the call would make. Changes neither Gluster nor the ledger."""
    if record.state in model.UNTOUCHED_STATES and not back:
        # The hooks come first in the real run: the guards are asked here, before anything is written down.
        times = {**record.times, model.DrainState.PREFLIGHT: call.now_s()}
        record = replace(record, state=model.DrainState.PREFLIGHT, times=times)
    machine = _machine(call, back=back)
    return machine.previewed(record, machine.decide(record, await machine.looker.see(record)))


def _record(asked: _Asked, at_s: float) -> model.DrainRecord:
    """The drain that the call continues, or that it would begin."""
    return asked.continued or model.DrainRecord(
        id=0,
        volume=asked.state.volume,
        volume_id=asked.state.volume_id,
        bricks=asked.bricks,
        attempt=1,
        state=model.DrainState.PLANNED,
        times={model.DrainState.PLANNED: at_s},
    )


def _machine(call: DrainCall, *, back: bool) -> DrainMachine:
    return DrainMachine(call=call, looker=DrainLooker(call=call), back=back)


async def _make(
    verb: str, call: DrainCall, record_of: Callable[[], model.DrainRecord], *, back: bool
) -> model.DrainSummary:
    async def work(call: DrainCall) -> model.DrainSummary:
        await restore_left(call, EventKind.DRAIN_STEP)
        return await _machine(call, back=back).bring(record_of())

    return await call.recorded(verb, f"{verb.replace('-', ' ')} {' '.join(call.request.bricks)}", work)
