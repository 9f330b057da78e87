"""Cutovers in the ledger of a real site, brought to any state as the program records them."""

from collections.abc import Sequence
from pathlib import Path

from migrator.cutover.model import CutoverAct, CutoverNotes, CutoverState, CutoverStep
from migrator.ledger.ledger import open_ledger

_STEPS = {
    CutoverState.FREEZING: (CutoverStep.FREEZE, CutoverState.FROZEN),
    CutoverState.FINAL_PASS: (CutoverStep.FINAL_PASS, CutoverState.FINAL_PASS),
    CutoverState.VERIFYING: (CutoverStep.VERIFY, CutoverState.VERIFIED),
    CutoverState.SWITCHING: (CutoverStep.SWITCH, CutoverState.SWITCHED),
    CutoverState.THAWING: (CutoverStep.THAW, CutoverState.THAWED),
    CutoverState.REVERTING: (CutoverStep.REVERT, CutoverState.REVERTED),
}
MOVED = (
    CutoverState.FREEZING,
    CutoverState.FINAL_PASS,
    CutoverState.VERIFYING,
    CutoverState.SWITCHING,
    CutoverState.THAWING,
)
FROZEN = MOVED[:1]
REVERTED = (CutoverState.FREEZING, CutoverState.REVERTING)


def cut_over(ledger_file: Path, user: str, intents: Sequence[CutoverState] = MOVED, *, plan: str | None = None) -> None:
    """A new attempt at the tree of a user, through these steps, each done."""
    ledger = open_ledger(ledger_file)
    try:
        latest = ledger.plans.latest()
        assert latest is not None
        name = plan or latest.name
        planned = next(one for one in ledger.facts.trees(name) if one.tree.user == user)
        record = ledger.cutovers.plan(
            plan=name, batch=planned.batch, tree=planned.tree, predicted_freeze_s=1.0, at_s=1.0
        )
        for intent in intents:
            step, result = _STEPS[intent]
            notes = CutoverNotes(frozen_top="{}", frozen_target_top="{}")
            made = ledger.cutovers.intend(
                record.id, CutoverAct(step=step, intent=intent, result=result), at_s=2.0, notes=notes
            )
            record = ledger.cutovers.finish(made, result, at_s=3.0)
    finally:
        ledger.close()
