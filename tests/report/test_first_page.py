"""The first page of status, report and plan: what management reads alone."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from migrator.plan.view import plan_document
from migrator.render.document import Document, Table, first_page
from migrator.render.html import to_html
from migrator.render.terminal import print_document
from migrator.render.text import to_markdown
from migrator.report.model import Blocker, StatusFacts
from migrator.report.view import report_document
from migrator.report.view_status import status_document
from tests.support.facts import AT_S, report
from tests.support.plans import small_plan

MANY = tuple(Blocker(subject=f"batch {number}", on="it is not verified", hint="migrator verify") for number in range(9))


def documents() -> tuple[Document, Document]:
    made = report()
    status = replace(made.status, blocked=MANY)
    return status_document(status), report_document(replace(made, status=status))


@pytest.mark.parametrize("document", documents(), ids=("status", "report"))
class TestFirstPage:
    def test_it_comes_first_and_fits_on_a_screen(self, document: Document) -> None:
        flags = [section.first_page for section in document.sections]
        assert flags == sorted(flags, reverse=True)
        stream = io.StringIO()
        print_document(Console(file=stream, width=132), first_page(document, "migrator status --details"))
        shown = stream.getvalue()
        assert len(shown.splitlines()) <= 40
        assert shown.rstrip().endswith("Details: migrator status --details")
        assert "41.3 % of the bytes copied" in shown
        assert "expected end" in shown

    def test_further_blockers_are_among_the_details(self, document: Document) -> None:
        found = {section.title: section for section in document.sections}
        rows = [
            row[0]
            for title in ("Blocked", "Also blocked")
            for block in found[title].blocks
            if isinstance(block, Table)
            for row in block.rows
        ]
        assert rows == [one.subject for one in MANY]
        assert not found["Also blocked"].first_page

    def test_on_paper_the_details_begin_on_a_page_of_their_own(self, document: Document) -> None:
        assert to_html(document).count('class="page-end"') == 1


def test_a_plan_begins_with_one_screen() -> None:
    problems = tuple(f"user {number} would exceed their limit" for number in range(9))
    document = plan_document(replace(small_plan(), problems=problems, catalog_whole=False))
    assert [section.first_page for section in document.sections].index(False) == 1
    stream = io.StringIO()
    print_document(Console(file=stream, width=132), first_page(document, "migrator report --plan plan --details"))
    shown = stream.getvalue()
    assert len(shown.splitlines()) <= 40
    assert "The scan behind this plan is not whole" in shown
    for said in ("1.5 KiB in 15 files", "1 min 30 s with 4 streams", "alice", "for every batch"):
        assert said in shown
    assert shown.rstrip().endswith("Details: migrator report --plan plan --details")
    every = to_markdown(document)
    assert all(problem in every for problem in problems)


def test_nothing_is_promised_where_there_are_no_details() -> None:
    whole = status_document(StatusFacts(at_s=AT_S, site=None))
    page = replace(whole, sections=whole.sections[:1])
    assert "Details" in str(first_page(whole, "migrator status --details"))
    assert "Details" not in str(first_page(page, "migrator status --details"))
