"""The audit after a rebalance: reads all bricks and reports what a move can leave behind."""

from migrator.bricks.add import model
from migrator.bricks.add.call import AdditionCall, Scan
from migrator.bricks.add.heal import NUDGE_AFTER_S
from migrator.catalog.model import CatalogRecord
from migrator.core.errors import MigratorError
from migrator.core.events import EventKind, Severity
from migrator.core.tasks import result_or_none
from migrator.core.units import format_duration, several

_SCANS = 2
"""Renames by users can make a single scan doubtful. A doubt counts if both scans find one."""

_PATIENCE_S = 900.0
"""How long the bricks may be unreadable. On copies that users write to, an entry has pending heals now and then."""


async def audit_rebalance(call: AdditionCall, record: model.AdditionRecord, scan: Scan) -> tuple[str, tuple[str, ...]]:
    """Scan all bricks for paths and files that exist twice, files that were moved in part, and directories that differ.
    Return a summary and the remaining doubts. A scan that fails is retried for a while, which is reported, and is then a
    doubt. The scan becomes the newest catalog.
    """
    doubts: tuple[str, ...] = ()
    clock, made = call.ports.clock, 0
    nudged_s = clock.monotonic_s()
    until_s = nudged_s + _PATIENCE_S
    reason, reported_s = "", nudged_s
    while made < _SCANS:
        try:
            catalog = await scan()
        except MigratorError as error:
            doubts = (f"the bricks could not be read after the rebalance: {error.message}",)
            now_s = clock.monotonic_s()
            if now_s >= until_s:
                break
            if error.message != reason and (not reason or now_s - reported_s >= NUDGE_AFTER_S):
                reason, reported_s = error.message, now_s
                left = format_duration(until_s - now_s)
                words = f"the audit waits, for at most {left}, until the bricks can be read: {reason}"
                call.emit(EventKind.ADDITION_STEP, Severity.INFO, record.subject(), words)
            if now_s - nudged_s >= NUDGE_AFTER_S:
                # By themselves the self-heal daemons look for pending heals every ten minutes. A volume without copies
                # refuses this.
                await result_or_none(call.ports.volume.heal())
                nudged_s = now_s
            await clock.sleep(call.request.poll_s)
            continue
        made += 1
        doubts = _doubts(catalog)
        if not doubts:
            return f"audit: {several(catalog.rows, 'path')} on all bricks, nothing twice and nothing half moved", ()
    for doubt in doubts:
        call.emit(EventKind.ADDITION_FAILED, Severity.WARNING, record.subject(), f"audit: {doubt}")
    return f"audit: {'; '.join(doubts)}", doubts


def _doubts(catalog: CatalogRecord) -> tuple[str, ...]:
    if catalog.via != "bricks":
        return ("the bricks could not be read after the rebalance", *catalog.way_reasons)
    if catalog.whole:
        return ()
    return catalog.reasons or ("the scan after the rebalance is not whole",)
