"""After a rebalance: all bricks are read, and what a move can leave behind is told."""

from migrator.domain.addition import AdditionRecord
from migrator.domain.errors import MigratorError
from migrator.domain.events import EventKind, Severity
from migrator.domain.scan import CatalogRecord
from migrator.domain.units import several
from migrator.stages.bricks.add_context import AdditionCall, Scan, subject_of
from migrator.stages.bricks.add_healing import NUDGE_AFTER_S
from migrator.stages.bricks.add_seeing import told

_SCANS = 2
"""Users who rename meanwhile can make one look doubtful; what both find is there."""

_PATIENCE_S = 900.0
"""How long a volume may be in no state to be read: of copies that users write to, some entry waits to be healed now and then."""


async def audit_bricks_after(call: AdditionCall, record: AdditionRecord, scan: Scan) -> tuple[str, tuple[str, ...]]:
    """A scan of all bricks: paths and files that are there twice, files that are half moved, directories that are not the same.
    Returns what it came to, and the doubts that are left. A scan that cannot be made is a doubt. The catalog is the newest one then.
    """
    doubts: tuple[str, ...] = ()
    clock, made = call.world.clock, 0
    nudged_s = clock.monotonic_s()
    until_s = nudged_s + _PATIENCE_S
    while made < _SCANS:
        try:
            catalog = await scan()
        except MigratorError as error:
            doubts = (f"the bricks could not be read after the rebalance: {error.message}",)
            now_s = clock.monotonic_s()
            if now_s >= until_s:
                break
            if now_s - nudged_s >= NUDGE_AFTER_S:
                # Self-heal daemons would look for what waits every ten minutes. Refused where there are none.
                await told(call.world.volume.heal())
                nudged_s = now_s
            await clock.sleep(call.request.poll_s)
            continue
        made += 1
        doubts = _doubts(catalog)
        if not doubts:
            return f"audit: {several(catalog.rows, 'path')} on all bricks, nothing twice and nothing half moved", ()
    for doubt in doubts:
        call.say(EventKind.ADDITION_FAILED, Severity.WARNING, subject_of(record), f"audit: {doubt}")
    return f"audit: {'; '.join(doubts)}", doubts


def _doubts(catalog: CatalogRecord) -> tuple[str, ...]:
    if catalog.via != "bricks":
        return ("the bricks could not be read after the rebalance", *catalog.way_reasons)
    if catalog.whole:
        return ()
    return catalog.reasons or ("the scan after the rebalance is not whole",)
