"""Cutovers in the ledger of a real site, brought to any state as the program records them."""

from collections.abc import Sequence
from pathlib import Path

from migrator.cutover.model import CutoverNotes, CutoverStep, act_of
from migrator.ledger.ledger import open_ledger

MOVED = (CutoverStep.FREEZE, CutoverStep.FINAL_PASS, CutoverStep.VERIFY, CutoverStep.SWITCH, CutoverStep.THAW)
FROZEN = MOVED[:1]
REVERTED = (CutoverStep.FREEZE, CutoverStep.REVERT)


def cut_over(ledger_file: Path, user: str, steps: Sequence[CutoverStep] = MOVED, *, plan: str | None = None) -> None:
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
        notes = CutoverNotes(frozen_top="{}", frozen_target_top="{}")
        for act in map(act_of, steps):
            made = ledger.cutovers.intend(record.id, act, at_s=2.0, notes=notes)
            record = ledger.cutovers.finish(made, act.result, at_s=3.0)
    finally:
        ledger.close()
