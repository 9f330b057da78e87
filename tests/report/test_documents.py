"""Status, report and plan as people read them: the first page, the head of a report, probes, and passes."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from migrator.plan.view import plan_document
from migrator.render.document import Document, Facts, Table, first_page
from migrator.render.html import to_html
from migrator.render.terminal import print_document
from migrator.render.text import to_markdown
from migrator.report.model import Blocker, ReportFacts, Tally, TreeState
from migrator.report.view import headline_blocks, report_document
from migrator.report.view_status import status_document
from tests.support.facts import report
from tests.support.plans import small_plan

REPORT = report()
STATUS, FORECAST = REPORT.status, REPORT.forecast

# --- The first page


MANY = tuple(Blocker(subject=f"batch {number}", on="it is not verified", hint="migrator verify") for number in range(9))
BLOCKED = replace(STATUS, blocked=MANY)


def printed(document: Document) -> str:
    stream = io.StringIO()
    print_document(Console(file=stream, width=132), document)
    return stream.getvalue().rstrip()


@pytest.mark.parametrize(
    "document", [status_document(BLOCKED), report_document(replace(REPORT, status=BLOCKED))], ids=("status", "report")
)
def test_the_first_page_fits_on_a_screen_and_further_blockers_are_details(document: Document) -> None:
    flags = [section.first_page for section in document.sections]
    assert flags == sorted(flags, reverse=True)
    shown = printed(first_page(document, "migrator status --details"))
    assert len(shown.splitlines()) <= 40
    assert shown.endswith("Details: migrator status --details")
    assert "41.3 % of the bytes copied" in shown
    assert "expected end" in shown
    found = {section.title: section for section in document.sections}
    tables = [block for title in ("Blocked", "Also blocked") for block in found[title].blocks]
    rows = [row[0] for block in tables if isinstance(block, Table) for row in block.rows]
    assert rows == [one.subject for one in MANY]
    assert not found["Also blocked"].first_page
    # On paper the details begin on a page of their own.
    assert to_html(document).count('class="page-end"') == 1


def test_a_plan_begins_with_one_screen() -> None:
    problems = tuple(f"user {number} would exceed their limit" for number in range(9))
    document = plan_document(replace(small_plan(), problems=problems, catalog_whole=False))
    assert [section.first_page for section in document.sections].index(False) == 1
    shown = printed(first_page(document, "migrator report --plan plan --details"))
    assert len(shown.splitlines()) <= 40
    assert "The scan behind this plan is not whole" in shown
    for said in ("1.5 KiB in 15 files", "1 min 30 s with 4 streams", "alice", "for every batch"):
        assert said in shown
    assert shown.endswith("Details: migrator report --plan plan --details")
    every = to_markdown(document)
    assert all(problem in every for problem in problems)


def test_nothing_is_promised_where_there_are_no_details() -> None:
    whole = status_document(STATUS)
    page = replace(whole, sections=whole.sections[:1])
    assert "Details" in str(first_page(whole, "migrator status --details"))
    assert "Details" not in str(first_page(page, "migrator status --details"))


# --- The head of a report


def told(facts: ReportFacts) -> dict[str, str]:
    (found,) = [block for block in headline_blocks(facts) if isinstance(block, Facts)]
    return dict(found.pairs)


COPYING, ATTENTION = TreeState.COPYING, TreeState.ATTENTION
ALL_BUT_ONE = Tally(total_bytes=100, done_bytes=99, total_files=10, done_files=9, total_users=1)


@pytest.mark.parametrize(
    ("tally", "state", "end"),
    [
        (Tally(total_users=2), COPYING, "not known: too little was copied to tell"),
        (Tally(total_users=2, done_users=2), COPYING, "everything that is planned was copied"),
        (ALL_BUT_ONE, COPYING, "not known"),
        (ALL_BUT_ONE, ATTENTION, "everything that is planned was copied, apart from 1 file that needs attention"),
    ],
)
def test_when_it_ends_without_a_forecast(tally: Tally, state: TreeState, end: str) -> None:
    trees = (replace(STATUS.trees[0], tally=tally, state=state),)
    found = told(replace(REPORT, forecast=None, status=replace(STATUS, overall=tally, trees=trees)))
    assert found["expected end of copying"].startswith(end)
