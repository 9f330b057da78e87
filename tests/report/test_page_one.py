"""The first page of a report: this week, who has to act, and what a manager finds on it at each stage of a migration."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.catalog.model import VerificationRecord
from migrator.core.entry import UserTree
from migrator.core.states import BatchState, ChunkState
from migrator.cutover.model import CutoverRecord, CutoverState
from migrator.render.document import Bar, NamedValues, Paragraph, Section, Table
from migrator.report import model, rules_history
from migrator.report.model import ReportFacts, TreeState
from migrator.report.report import read_report
from migrator.report.rules_blockers import blockers, next_steps
from migrator.report.view import report_document
from tests.support.facts import report
from tests.support.making import made
from tests.support.report_world import DAY_S, OnePlan, Weeks, facts_of

# --- This week

NOW_S = 100 * DAY_S
THIS, BEFORE = rules_history.spans(NOW_S, 10 * DAY_S)


def tree(path: bytes, user: str, state: TreeState = TreeState.MOVED) -> model.TreeStatus:
    return made(model.TreeStatus, tree=UserTree(path=path, user=user), state=state, plan="p", batch=1)


def cutover(path: bytes, thawed_day: float | None, *, froze_s: float = 60.0) -> CutoverRecord:
    thawed_at_s = None if thawed_day is None else thawed_day * DAY_S
    frozen_at_s = None if thawed_at_s is None else thawed_at_s - froze_s
    own = UserTree(path=path, user="u")
    return made(CutoverRecord, tree=own, state=CutoverState.THAWED, frozen_at_s=frozen_at_s, thawed_at_s=thawed_at_s)


def week(span: tuple[float, float], **facts: Any) -> model.WeekFacts:
    given: dict[str, Any] = {"work": None, "trees": (), "cutovers": (), "cleared": (), "added": (), "incidents": ()}
    return rules_history.week(span, **(given | facts))


def test_the_week_before_is_shown_when_there_was_one() -> None:
    assert (THIS, BEFORE) == ((93 * DAY_S, NOW_S), (86 * DAY_S, 93 * DAY_S))
    assert rules_history.spans(NOW_S, 95 * DAY_S) == (THIS,)


def test_a_user_is_moved_with_the_last_of_their_trees() -> None:
    trees = (tree(b"a", "ann"), tree(b"b", "ann"), tree(b"c", "bob"), tree(b"d", "cem", TreeState.COPIED))
    cutovers = [cutover(b"a", 87), cutover(b"b", 94), cutover(b"c", 90), cutover(b"d", 95)]
    weeks = [week(span, trees=trees, cutovers=cutovers).users_moved for span in (THIS, BEFORE)]
    assert weeks == [1, 1]
    one_left = (*trees[:1], replace(trees[1], state=TreeState.COPIED))
    assert rules_history.moved_at_s(one_left, cutovers) == {}


def test_freezes_count_whatever_came_of_them() -> None:
    """The user who was thawed on the source was frozen too."""
    cutovers = [cutover(b"a", 94, froze_s=500.0), cutover(b"a", 95), cutover(b"b", 90), cutover(b"c", None)]
    found = week(THIS, cutovers=cutovers)
    assert (found.freezes, found.longest_freeze_s) == (2, 500.0)


def test_a_time_belongs_to_one_week() -> None:
    cleared = [(93 * DAY_S, 2), (99 * DAY_S, 3)]
    assert [week(span, cleared=cleared).bricks_cleared for span in (THIS, BEFORE)] == [3, 2]


# --- Next steps

STATUS = report().status
BATCH = replace(
    STATUS.batches[0],
    chunks={ChunkState.DONE: 4},
    attention=model.AttentionCount(bad=0, vanished=0),
    verification=None,
)


def batch(number: int, state: BatchState, **changed: Any) -> model.BatchStatus:
    return replace(BATCH, number=number, state=state, **changed)


CLEAN = made(VerificationRecord, batch=3, whole=True)


def steps(*batches: model.BatchStatus, **facts: Any) -> list[str]:
    given: dict[str, Any] = {"site": "s", "scan": STATUS.scan, "plan": made(model.PlanFacts, name="p")}
    given |= {"batches": batches, "trees": (), "cutovers": (), "busy": ()}
    return [one.hint for one in next_steps(**(given | facts))]


@pytest.mark.parametrize(
    ("facts", "hints"),
    [
        ({"site": None, "scan": None, "plan": None}, ["migrator init"]),
        ({"scan": None, "plan": None}, ["migrator plan"]),
        ({"scan": None, "plan": None, "busy": ("scan",)}, []),
        ({"plan": None}, ["migrator plan"]),
        ({"batches": [batch(3, BatchState.PLANNED)]}, ["migrator run --user-batch 3"]),
        ({"batches": [batch(3, BatchState.PLANNED)], "busy": ("run",)}, []),
        ({"batches": [batch(3, BatchState.SEEDED), batch(4, BatchState.CONVERGING)]}, ["migrator verify --all"]),
        ({"batches": [batch(3, BatchState.SEEDED)], "over": (3,)}, []),
        # Verified, then copied again; differences are a blocker.
        ({"batches": [batch(3, BatchState.CONVERGING, verification=CLEAN)]}, ["migrator verify --user-batch 3"]),
        ({"batches": [batch(3, BatchState.CONVERGING, verification=replace(CLEAN, differences={"size": 1}))]}, []),
        ({"batches": [batch(3, BatchState.CONVERGING, verification=replace(CLEAN, whole=False))]}, []),
        # Files that failed are a blocker, not a next step.
        ({"batches": [batch(3, BatchState.SEEDED, attention=model.AttentionCount(bad=1, vanished=0))]}, []),
        ({"trees": [tree(b"a", "ann", TreeState.VERIFIED)]}, ["migrator cutover --user-batch 1 --dry-run"]),
        ({"trees": [replace(tree(b"a", "ann", TreeState.VERIFIED), plan="old")]}, []),
        (
            {
                "trees": [tree(b"a", "ann")],
                "cutovers": [replace(cutover(b"a", 1), state=CutoverState.RETAINED)],
            },
            ["migrator purge --all --dry-run"],
        ),
    ],
)
def test_the_next_step_of_everything_that_waits_for_one(facts: dict[str, Any], hints: list[str]) -> None:
    assert steps(**({"batches": ()} | facts)) == hints


# --- The page


def page(facts: ReportFacts) -> dict[str, Section]:
    return {section.title: section for section in report_document(facts).sections if section.first_page}


def table(section: Section) -> dict[str, tuple[str, ...]]:
    (found,) = [block for block in section.blocks if isinstance(block, Table)]
    return {row[0].partition(":")[0]: row[1:] for row in found.rows}


def test_no_two_sections_have_one_title(tmp_path: Path) -> None:
    titles = [section.title for section in report_document(facts_of(tmp_path, days=30, share=0.6)).sections]
    assert len(titles) > 15
    assert len(titles) == len(set(titles))


def test_a_late_migration(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, days=30, share=0.6)
    found = page(facts)
    assert list(found) == [
        "Verdict",
        "Progress",
        "Expected dates",
        "This week",
        "Blocked",
        "Next steps for operators",
        "Room",
    ]
    assert isinstance(found["Verdict"].blocks[0], Paragraph)
    assert found["Verdict"].blocks[0].alert
    bars = [block.text for block in found["Progress"].blocks if isinstance(block, Bar)]
    assert len(bars) == 6
    assert bars[0].startswith("20.8 % of the users moved")
    dates = table(found["Expected dates"])
    assert list(dates) == [
        "everything copied",
        "last user moved",
        "next brick cleared",
        "last brick cleared",
        "all done",
    ]
    for name, (expected, between, promised) in dates.items():
        assert expected < between.partition(" and ")[2]
        assert (promised == "\N{EN DASH}") == (name == "next brick cleared")
    this_week = table(found["This week"])
    assert this_week["users moved"] == ("0", "3")
    assert (this_week["bricks cleared"], this_week["bricks added"]) == (("0", "1"), ("0", "0"))
    assert this_week["bytes copied"] == ("5.5 TiB", "5.7 TiB")
    assert (this_week["new incidents"], this_week["incidents open now"]) == (("0", "0"), ("2", "\N{EN DASH}"))
    assert list(table(found["Blocked"])) == ["batch 6 (frank5)"]
    assert isinstance(found["Room"].blocks[0], NamedValues)
    assert [name for name, _ in found["Room"].blocks[0].pairs] == ["source", "target", "target when all is copied"]


def test_a_young_migration(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, days=0.5, share=0.01)
    found = page(facts)
    assert not any(isinstance(block, Table) for block in found["Blocked"].blocks)
    dates = table(found["Expected dates"])
    assert dates["everything copied"] == ("unknown", facts.milestones[0].unknown, "2025-11-18")
    assert dates["last user moved"][:2] == ("2025-11-18", facts.milestones[2].basis)
    assert len(table(found["This week"])["users moved"]) == 1


def test_a_finished_migration(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, days=56, share=1.01, moved=24, drained=4, purged=24)
    assert facts.verdict is not None
    assert facts.verdict.standing is model.Punctuality.BEHIND
    assert facts.verdict.reasons == ()
    assert all(one.done for one in facts.milestones)
    dates = table(page(facts)["Expected dates"])
    assert list(dates) == ["everything copied", "last user moved", "last brick cleared", "all done"]
    assert all(expected.startswith("done, ") for expected, *_ in dates.values())
    assert facts.status.blocked == ()


def test_a_migration_is_complete_with_its_last_purge(tmp_path: Path) -> None:
    (tmp_path / "left").mkdir()
    whole = facts_of(tmp_path, days=56, share=1.01, moved=24, drained=4, purged=24)
    left = facts_of(tmp_path / "left", days=56, share=1.01, moved=24, drained=4, purged=23)
    assert (whole.milestones[-1].done, left.milestones[-1].done) == (True, False)
    assert whole.verdict is not None
    assert left.verdict is not None
    assert whole.verdict.late_s == left.verdict.late_s
    assert whole.verdict.sentence != left.verdict.sentence


def test_failed_files_of_moved_users_block_nothing() -> None:
    bad = batch(3, BatchState.SEEDED, attention=model.AttentionCount(bad=1, vanished=0))
    given: dict[str, Any] = {"scan": None, "plan": made(model.PlanFacts, name="p"), "batches": [bad], "runs": ()}
    assert len(blockers(**given)) == 1
    assert blockers(**given, over=(3,)) == ()


def test_before_the_first_plan(tmp_path: Path) -> None:
    weeks = Weeks()
    with MigrationLedger.open(tmp_path / "ledger.db", create=True) as ledger:
        facts = read_report(ledger, OnePlan(plan=weeks.plan), now_s=weeks.now_s)
    found = page(facts)
    assert list(found) == ["Verdict", "Blocked", "Next steps for operators"]
    assert facts.verdict is not None
    assert facts.verdict.standing is model.Punctuality.UNKNOWN
