"""What status and report say about cutovers."""

import json
from dataclasses import replace

from migrator.cutover.model import CutoverRecord, CutoverState
from migrator.cutover.view import cutover_blocks
from migrator.render.document import Paragraph
from migrator.render.text import to_json, to_markdown
from migrator.report.view import report_document
from migrator.report.view_status import status_document
from tests.support.facts import AT_S, report

(FACTS,) = report().status.cutovers
NONE = "\N{EN DASH}"


def in_state(state: CutoverState) -> CutoverRecord:
    return replace(FACTS, state=state, times={state: FACTS.since_s})


def test_says_where_users_are_and_how_the_predictions_held() -> None:
    some = [
        replace(
            in_state(state),
            frozen_at_s=AT_S,
            thawed_at_s=None if freeze_s is None else AT_S + freeze_s,
            predicted_freeze_s=predicted_s,
        )
        for state, freeze_s, predicted_s in (
            (CutoverState.RETAINED, 60.0, 60.0),
            (CutoverState.THAWED, 65.0, 60.0),
            (CutoverState.SWITCHED, None, 60.0),
            (CutoverState.ROLLED_BACK, 120.0, 60.0),
            (CutoverState.ROLLED_BACK, 180.0, None),
        )
    ]
    (said,) = [block for block in cutover_blocks(some, now_s=AT_S) if isinstance(block, Paragraph)]
    assert said.text == (
        "2 users on the target, 1 user on the way, 2 users back on the source after an attempt. "
        "4 users frozen, for at most 3 min; 2 freezes lasted no longer than predicted."
    )


def test_status_and_report_and_json_have_it() -> None:
    facts = report()
    for document in (status_document(facts.status), report_document(facts)):
        assert "cutover given up" in to_markdown(document)
    without = replace(facts.status, cutovers=())
    assert "Cutovers" not in [section.title for section in status_document(without).sections]
    (read,) = json.loads(to_json(facts.status))["cutovers"]
    assert (read["state"], read["freeze_s"], read["tree"]["path"]) == ("reverted", 60.0, "home/alice")
