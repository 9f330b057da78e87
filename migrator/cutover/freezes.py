"""The parts of freezes, by the ledger."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from migrator.core.states import PassKind
from migrator.cutover.model import CutoverRecord
from migrator.cutover.model_freezes import FreezePart, FreezeSpent
from migrator.cutover.rules_freezes import freeze_parts

if TYPE_CHECKING:
    from migrator.cutover.records import CutoverLedger


def parts_of_freeze(ledger: "CutoverLedger", record: CutoverRecord, *, now_s: float) -> Mapping[FreezePart, float]:
    """The parts of the freeze of a cutover, up to now if it lasts; empty before it."""
    if record.frozen_at_s is None:
        return {}
    end_s = now_s if record.thawed_at_s is None else record.thawed_at_s
    finals = [
        one.scan_s or 0.0
        for one in ledger.passes.over_tree(record.tree.path)
        if one.kind is PassKind.FINAL and record.frozen_at_s <= one.started_at_s <= end_s
    ]
    steps = ledger.cutovers.steps(record.id)
    return freeze_parts(record, steps, scan_s=sum(finals) if finals else None, until_s=now_s)


def ended_freezes(ledger: "CutoverLedger", *, now_s: float) -> tuple[FreezeSpent, ...]:
    """Every freeze that has ended, the newest first."""
    found = [
        FreezeSpent(
            tree=one.tree,
            plan=one.plan,
            batch=one.batch,
            freeze_s=one.freeze_s,
            predicted_freeze_s=one.predicted_freeze_s,
            parts_s=parts_of_freeze(ledger, one, now_s=now_s),
        )
        for one in ledger.cutovers.all()
        if one.freeze_s is not None
    ]
    return tuple(reversed(found))
