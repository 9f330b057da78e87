"""What `report` reads of the ledger of a migration in its fifth week."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.ledger.ledger import Ledger, open_ledger
from migrator.render.text import to_json, to_markdown
from migrator.report.model import ReportFacts, Standing
from migrator.report.report import read_earlier, read_report
from migrator.report.view import report_document
from tests.support.report_world import BEGAN_S, DAY_S, OnePlan, Weeks

WEEKS = Weeks()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    file = tmp_path_factory.mktemp("weeks") / "ledger.db"
    WEEKS.fill(file, share=0.6)
    with open_ledger(file, read_only=True) as opened:
        yield opened


def read(ledger: Ledger, now_s: float = WEEKS.now_s) -> ReportFacts:
    return read_report(ledger, OnePlan(WEEKS.plan), now_s=now_s)


def test_a_pause_makes_it_later_and_the_next_report_says_so(ledger: Ledger, tmp_path: Path) -> None:
    before = read(ledger)
    (tmp_path / "report.json").write_text(to_json(before))
    later = read_report(ledger, OnePlan(WEEKS.plan), now_s=WEEKS.now_s + 10 * DAY_S, earlier=read_earlier(tmp_path))
    assert later.since is not None
    assert later.since.standing is Standing.BEHIND
    assert later.since.end_moved_s is not None
    assert later.since.end_moved_s > 10 * DAY_S
    assert later.since.expected_bytes == pytest.approx(before.status.overall.left_bytes / 2, rel=0.35)
    assert "no stream has run since then" in later.since.reasons
    text = to_markdown(report_document(later))
    assert "behind: the expected end is" in text


def test_nothing_is_forecast_of_what_is_done_or_was_not_begun(ledger: Ledger, tmp_path: Path) -> None:
    assert read(ledger, BEGAN_S).forecast is None
    WEEKS.fill(tmp_path / "ledger.db", share=1.01)
    with open_ledger(tmp_path / "ledger.db", read_only=True) as done:
        facts = read(done)
        assert facts.forecast is None
        assert "everything that is planned was copied" in to_markdown(report_document(facts))
        few = replace(facts, plan=None, plan_problem="gone")
        assert "gone" in to_markdown(report_document(few))
