"""What every ledger does with what was predicted after passes."""

from dataclasses import replace

import pytest

from migrator.core.states import PassKind
from migrator.ledger.ledger import Ledger
from migrator.transfer.model import ConvergenceOutcome, ConvergenceRecord, Prediction, TreeChurn

HOSTILE = (b"-rf", b"new\nline", b"\xff\xfe", b"a" * 255, b"<script>", b"tab\t|`'\"%41\\")
PREDICTION = Prediction(
    next_pass_s=12.5,
    freeze_s=1e9 / 3,
    least_freeze_s=0.0,
    churn_files_per_h=40.25,
    churn_bytes_per_h=2.0**50,
    trees=tuple(TreeChurn(tree=name, files_per_h=0.1, bytes_per_h=2.0**40) for name in HOSTILE),
)


def pass_of(ledger: Ledger, *, plan: str = "p", batch: int = 1) -> int:
    made = ledger.passes.start(
        plan=plan, batch=batch, kind=PassKind.SEED, catalog="c1", chunk_list="list", chunks=(), at_s=5.0
    )
    return made.id


def record(pass_id: int, batch: int = 1, outcome: ConvergenceOutcome = ConvergenceOutcome.GO_ON) -> ConvergenceRecord:
    return ConvergenceRecord(
        pass_id=pass_id, at_s=7.25, batch=batch, outcome=outcome, max_freeze_s=600.0, prediction=PREDICTION
    )


@pytest.mark.parametrize("outcome", list(ConvergenceOutcome))
def test_come_back_as_recorded(ledger: Ledger, outcome: ConvergenceOutcome) -> None:
    made = record(pass_of(ledger), outcome=outcome)
    assert list(ledger.predictions.of_batch("p", 1)) == []
    ledger.predictions.record(made)
    assert list(ledger.predictions.of_batch("p", 1)) == [made]


def test_one_a_pass_the_last_one_said(ledger: Ledger) -> None:
    made = record(pass_of(ledger))
    for _ in range(2):
        ledger.predictions.record(made)
        assert list(ledger.predictions.of_plan("p")) == [made]
    later = replace(
        made, at_s=9.0, outcome=ConvergenceOutcome.CONVERGED, prediction=replace(PREDICTION, freeze_s=1.0, trees=())
    )
    ledger.predictions.record(later)
    assert list(ledger.predictions.of_plan("p")) == [later]


def test_by_batch_and_by_plan_in_the_order_of_passes(ledger: Ledger) -> None:
    first, other, elsewhere = pass_of(ledger), pass_of(ledger, batch=2), pass_of(ledger, plan="q")
    for made in (record(elsewhere), record(other, 2), record(first)):
        ledger.predictions.record(made)
    assert list(ledger.predictions.of_batch("p", 1)) == [record(first)]
    assert list(ledger.predictions.of_batch("p", 2)) == [record(other, 2)]
    assert list(ledger.predictions.of_batch("p", 3)) == []
    assert list(ledger.predictions.of_plan("p")) == [record(first), record(other, 2)]
    assert list(ledger.predictions.of_plan("q")) == [record(elsewhere)]
