"""Waiting until GlusterFS has filled a copy that was exchanged."""

from collections.abc import Sequence

from migrator.domain.addition import AdditionRecord
from migrator.domain.brick import BrickHeal
from migrator.domain.errors import ToolFailed
from migrator.domain.events import EventKind, Severity
from migrator.domain.units import HOUR_S, format_duration, several
from migrator.stages.bricks.add_context import AdditionCall, subject_of
from migrator.stages.bricks.add_seeing import told

_TELL_EVERY_S = HOUR_S
NUDGE_AFTER_S = 60.0
"""For so long the same may wait before the daemons are asked to look, and again after as long. A look that came too early, or found
a file locked, is not made again by themselves for ten minutes.
"""


async def until_healed(call: AdditionCall, record: AdditionRecord) -> None:
    """Return when nothing waits to be healed on any brick. How much waits is told at first, then whenever it has become half of
    that, and every hour. Where the same waits for a minute, the self-heal daemons are asked to look. Raises ToolFailed where it has
    waited for as long as a drain may stand still.
    """
    clock = call.world.clock
    seen: Sequence[BrickHeal] | None = None
    changed_s = told_s = nudged_s = clock.monotonic_s()
    told_entries: int | None = None
    while True:
        found = await told(call.world.volume.state_and_tasks())
        heals = () if found is None else found[0].heals or ()
        waiting = [one for one in heals if one.entries != 0 or one.status != "Connected"]
        # A brick that was just put in is not listed at once, and what waits for it neither.
        if record.bricks[0] in {one.brick for one in heals} and not waiting:
            return
        now_s = clock.monotonic_s()
        if waiting != seen:
            seen, changed_s, nudged_s = waiting, now_s, now_s
        if now_s - changed_s >= call.request.stall_s:
            raise _stalled(waiting, now_s - changed_s)
        if now_s - nudged_s >= NUDGE_AFTER_S:
            # Where it is refused, as while a brick comes up, it is asked for again.
            await told(call.world.volume.heal())
            nudged_s = now_s
        entries = sum(one.entries or 0 for one in waiting)
        if waiting and (told_entries is None or entries <= told_entries / 2 or now_s - told_s >= _TELL_EVERY_S):
            told_entries, told_s = entries, now_s
            call.say(EventKind.ADDITION_STEP, Severity.INFO, subject_of(record), f"healing: {_words(waiting)}")
        await clock.sleep(call.request.poll_s)


def _stalled(waiting: Sequence[BrickHeal], for_s: float) -> ToolFailed:
    return ToolFailed(
        f"{_words(waiting)}, and that has not changed for {format_duration(for_s)}",
        cause="a copy is in split-brain, a brick is down, or its self-heal daemon does not run",
        hint="see `gluster volume heal VOLUME info split-brain` and `gluster volume status VOLUME`, put that right, "
        "then run the same command again: it goes on waiting",
    )


def _words(waiting: Sequence[BrickHeal]) -> str:
    if not waiting:
        return "what waits to be healed is not known"
    counted = [one for one in waiting if one.entries is not None and one.status == "Connected"]
    parts = [f"{several(one.entries or 0, 'entry', 'entries')} on {one.brick}" for one in counted]
    parts += [f"what waits on {one.brick} is not known ({one.status})" for one in waiting if one not in counted]
    return ("waiting to be healed: " if counted else "") + ", ".join(parts)
