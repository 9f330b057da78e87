"""What status and report say about delta passes."""

import json
from dataclasses import replace

from migrator.core.states import PassKind, PassState
from migrator.render.document import Paragraph, Table
from migrator.render.text import to_json, to_markdown
from migrator.report.model import BatchFacts, PassFacts
from migrator.report.view import report_document
from migrator.report.view_status import status_document
from migrator.transfer.model import ConvergenceOutcome
from migrator.transfer.view import OUTCOMES, convergence_blocks
from tests.support.facts import convergence, report

BATCH = report().status.batches[0]


def delta(number: int, state: PassState = PassState.DONE, kind: PassKind = PassKind.DELTA) -> PassFacts:
    return PassFacts(
        id=number, batch=1, kind=kind, number=number, state=state, started_at_s=1.0, finished_at_s=2.0, catalog="c"
    )


def rows(*batches: BatchFacts) -> list[tuple[str, ...]]:
    return [row for block in convergence_blocks(batches) if isinstance(block, Table) for row in block.rows]


def test_a_batch_with_its_last_prediction() -> None:
    batch = replace(BATCH, passes=(delta(1), delta(2), delta(3, PassState.STOPPED), delta(4, kind=PassKind.SEED)))
    assert rows(batch) == [
        (
            "1",
            "2",
            "no longer shrinks",
            "2025-11-20 00:52 UTC",
            "1,234.5",
            "2.0 GiB",
            "home/alice (75.0 %)",
            "1 min 30 s",
            "20 min",
            "10 min",
        )
    ]


def test_churn_without_bytes_has_no_share() -> None:
    record = convergence()
    still = tuple(replace(tree, bytes_per_h=0.0) for tree in record.prediction.trees)
    (row,) = rows(replace(BATCH, convergence=replace(record, prediction=replace(record.prediction, trees=still))))
    assert row[6] == "home/alice"


def test_every_outcome_has_words() -> None:
    assert set(OUTCOMES) == set(ConvergenceOutcome)
    assert len(set(OUTCOMES.values())) == len(ConvergenceOutcome)


def test_status_and_report_and_json_have_it() -> None:
    facts = report()
    for document in (status_document(facts.status), report_document(facts)):
        assert "no longer shrinks" in to_markdown(document)
    blocks = [block for block in convergence_blocks(facts.status.batches) if isinstance(block, Paragraph)]
    assert len(blocks) == 1
    read = json.loads(to_json(facts.status))["batches"][0]["convergence"]
    assert (read["outcome"], read["prediction"]["freeze_s"]) == ("no-longer-shrinks", 1200.0)
    assert read["prediction"]["trees"][0]["tree"] == "home/alice"
