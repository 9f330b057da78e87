"""Waiting for self-heal of a replaced copy."""

from collections.abc import Sequence

from migrator.bricks.add import model
from migrator.bricks.add.call import AdditionCall
from migrator.bricks.add.rules import healed
from migrator.core.errors import ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.tasks import result_or_none
from migrator.core.units import HOUR_S, format_duration, several
from migrator.gluster.model import BrickHeal

_REPORT_EVERY_S = HOUR_S
NUDGE_AFTER_S = 60.0
"""The daemons are asked to heal if the pending heals have not changed for this long, and again after each such
interval. By themselves they do not retry for ten minutes after an attempt that came too early or found a file locked.
"""


async def until_healed(call: AdditionCall, record: model.AdditionRecord) -> None:
    """Return when no brick has pending heals. Their number is reported at first, then each time it has halved, and
    every hour. The self-heal daemons are asked to run if the number has not changed for a minute. Raises ToolFailed if
    it has not changed for the stall limit of a drain.
    """
    clock = call.ports.clock
    seen: Sequence[BrickHeal] | None = None
    changed_s = reported_s = nudged_s = clock.monotonic_s()
    reported_entries: int | None = None
    while True:
        found = await result_or_none(call.ports.volume.state_and_tasks())
        if found is not None and healed(record, found[0]):
            return
        heals = () if found is None else found[0].heals or ()
        waiting = [one for one in heals if one.entries != 0 or one.status != "Connected"]
        now_s = clock.monotonic_s()
        if waiting != seen:
            seen, changed_s, nudged_s = waiting, now_s, now_s
        if now_s - changed_s >= call.request.stall_s:
            raise _stalled(waiting, now_s - changed_s)
        if now_s - nudged_s >= NUDGE_AFTER_S:
            # A refusal, for instance while a brick comes up, is retried.
            await result_or_none(call.ports.volume.heal())
            nudged_s = now_s
        entries = sum(one.entries or 0 for one in waiting)
        if waiting and (
            reported_entries is None or entries <= reported_entries / 2 or now_s - reported_s >= _REPORT_EVERY_S
        ):
            reported_entries, reported_s = entries, now_s
            call.emit(EventKind.ADDITION_STEP, Severity.INFO, record.subject(), f"healing: {_pending(waiting)}")
        await clock.sleep(call.request.poll_s)


def _stalled(waiting: Sequence[BrickHeal], for_s: float) -> ToolFailed:
    return ToolFailed(
        f"{_pending(waiting)}, and that has not changed for {format_duration(for_s)}",
        cause="a copy is in split-brain, a brick is down, or its self-heal daemon does not run",
        hint="see `gluster volume heal VOLUME info split-brain` and `gluster volume status VOLUME`, resolve "
        "that, then run the same command again: it resumes waiting",
    )


def _pending(waiting: Sequence[BrickHeal]) -> str:
    if not waiting:
        return "pending heals are unknown"
    counted = [one for one in waiting if one.entries is not None and one.status == "Connected"]
    parts = [f"{several(one.entries or 0, 'entry', 'entries')} on {one.brick}" for one in counted]
    parts += [f"pending heals on {one.brick} are unknown ({one.status})" for one in waiting if one not in counted]
    return ("pending heals: " if counted else "") + ", ".join(parts)
