"""What `status` and `report` say of cutovers that lie in a real ledger."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.core.entry import UserTree
from migrator.cutover.model import CutoverAct, CutoverNotes, CutoverRecord, CutoverState, CutoverStep
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.plan.document import PlanFiles
from migrator.render.text import to_json, to_markdown
from migrator.report.model import StatusFacts
from migrator.report.report import read_report
from migrator.report.status import read_status
from migrator.report.view import report_document
from migrator.report.view_status import status_document
from tests.support.plans import small_plan
from tests.support.records import SITE

T0_S = 1_763_600_000.0
S, Step = CutoverState, CutoverStep
ALICE, BOB, CAROL = (UserTree(path=f"home/{user}".encode(), user=user) for user in ("alice", "bob", "carol"))
TOPS = CutoverNotes(frozen_top="{}", frozen_target_top="{}")
ON_TARGET = (
    (Step.FREEZE, S.FREEZING, S.FROZEN),
    (Step.FINAL_PASS, S.FINAL_PASS, S.FINAL_PASS),
    (Step.VERIFY, S.VERIFYING, S.VERIFIED),
    (Step.SWITCH, S.SWITCHING, S.SWITCHED),
    (Step.THAW, S.THAWING, S.THAWED),
    (Step.RETAIN, S.THAWED, S.RETAINED),
)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "ledger.db", create=True) as made:
        made.site.create(SITE)
        made.plans.record(small_plan(), path="plans/plan.json", checksum="c")
        yield made


def attempt(ledger: Ledger, tree: UserTree, *, plan: str = "plan", predicted_s: float | None = 60.0) -> int:
    return ledger.cutovers.plan(plan=plan, batch=1, tree=tree, predicted_freeze_s=predicted_s, at_s=T0_S).id


def go(ledger: Ledger, cutover: int, steps: int, *, every_s: float = 10.0) -> CutoverRecord:
    """The first so many steps to the target, each done after so long."""
    for number, (step, intent, result) in enumerate(ON_TARGET[:steps]):
        at_s = T0_S + every_s * number
        act = CutoverAct(step=step, intent=intent, result=result)
        ledger.cutovers.finish(ledger.cutovers.intend(cutover, act, at_s=at_s, notes=TOPS), result, at_s=at_s + every_s)
    return ledger.cutovers.read(cutover)


def give_up(ledger: Ledger, cutover: int, reason: str) -> None:
    go(ledger, cutover, 1)
    act = CutoverAct(step=Step.REVERT, intent=S.REVERTING, result=S.REVERTED, reason=reason)
    ledger.cutovers.finish(ledger.cutovers.intend(cutover, act, at_s=T0_S + 90), S.REVERTED, at_s=T0_S + 100)


def status(ledger: Ledger, plan: str | None = None) -> StatusFacts:
    return read_status(ledger, now_s=T0_S + 1000, plan=plan)


def test_predicted_against_real_freeze_of_every_user(ledger: Ledger) -> None:
    go(ledger, attempt(ledger, ALICE), 6)
    give_up(ledger, attempt(ledger, BOB), "a file is open: mail\n.db")
    go(ledger, attempt(ledger, CAROL, predicted_s=None), 2)
    facts = status(ledger)
    assert [(one.tree.user, one.state, one.predicted_freeze_s, one.freeze_s) for one in facts.cutovers] == [
        ("alice", S.RETAINED, 60.0, 50.0),
        ("bob", S.REVERTED, 60.0, 100.0),
        ("carol", S.FINAL_PASS, None, None),
    ]
    waiting = {one.subject: f"{one.on} | {one.hint}" for one in facts.blocked if ": cutover" in one.subject}
    assert set(waiting) == {"bob: cutover", "carol: cutover"}
    assert "a file is open: mail\n.db" in waiting["bob: cutover"]
    assert "the user may not be able to work | migrator cutover --user carol" in waiting["carol: cutover"]
    whole = read_report(ledger, PlanFiles(Path("/nonexistent"), site_id=SITE.site_id), now_s=T0_S + 1000)
    for document in (status_document(facts), report_document(whole)):
        text = to_markdown(document)
        assert "1 user on the target, 1 user on the way, 1 user back on the source after an attempt" in text
        assert "2 users frozen, for at most 1 min 40 s; 1 freeze lasted no longer than predicted" in text
        assert "a file is open: mail" in text
        assert "16 min 40 s so far" in text
    assert '"freeze_s": 50.0' in to_json(facts)


def test_users_that_an_earlier_plan_moved_stay_in_sight(ledger: Ledger) -> None:
    moved, left = attempt(ledger, ALICE), attempt(ledger, BOB)
    go(ledger, moved, 6)
    go(ledger, left, 1)
    later = replace(small_plan(), name="plan-0002", created_at_s=small_plan().created_at_s + 1)
    ledger.plans.record(later, path="plans/plan-0002.json", checksum="d")
    give_up(ledger, attempt(ledger, CAROL, plan="plan-0002"), "no")
    for plan in (None, "plan"):
        facts = status(ledger, plan)
        assert [(one.plan, one.tree.user) for one in facts.cutovers] == [
            ("plan", "alice"),
            ("plan", "bob"),
            ("plan-0002", "carol"),
        ]
        assert {one.subject for one in facts.blocked} >= {"bob: cutover", "carol: cutover"}


def test_a_user_who_was_left_frozen_is_told_while_another_verb_is_at_work(ledger: Ledger) -> None:
    go(ledger, attempt(ledger, ALICE), 1)
    subjects = []
    for verb in ("run", "announce", "cutover", "rollback"):
        run = ledger.runs.start(verb=verb, pid=1, at_s=T0_S + 999, directory="runs/1")
        subjects.append("alice: cutover" in {one.subject for one in status(ledger).blocked})
        ledger.runs.finish(run, T0_S + 999, 0)
    assert subjects == [True, True, False, False]
