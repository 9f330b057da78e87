"""What `status` and `report` say of cutovers that lie in a real ledger."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.core.entry import UserTree
from migrator.cutover.model import CutoverAct, CutoverNotes, CutoverRecord, CutoverState, CutoverStep
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.report.model import StatusFacts
from migrator.report.status import read_status
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
