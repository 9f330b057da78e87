"""Reports of unusual migrations in a real browser: nothing is wider than the screen, and everybody can read them.

Pictures of them are left in the temporary directory of each test: `pytest --basetemp=DIRECTORY` names it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from msgspec.structs import replace
from playwright.sync_api import Browser

from migrator.app.ledger import MigrationLedger
from migrator.render.html import to_html
from migrator.report.model import ReportFacts
from migrator.report.report import read_report
from migrator.report.view import report_document
from tests.report.browser.test_report_page import A4_TEXT_HEIGHT_PX, A4_TEXT_PX, BAD_LABELS, UNFOLD, opened
from tests.support.report_world import BEGAN_S, DAY_S, OnePlan, Weeks, facts_of

pytestmark = pytest.mark.exhaustive

WIDTHS = (400, 1280)
CUT_ON_PAGE_ONE = """() => [...document.querySelectorAll('.first .scroll')]
    .filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent.slice(0, 60))"""
OUTSIDE = """() => [...document.querySelectorAll('body *')].filter(one => !one.closest('.scroll *, svg'))
    .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map(one => one.tagName + ' ' + one.textContent.slice(0, 60))"""


def empty(directory: Path) -> ReportFacts:
    with MigrationLedger.open(directory / "ledger.db", create=True) as ledger:
        return read_report(ledger, OnePlan(plan=Weeks().plan), now_s=Weeks().now_s)


def planned(directory: Path) -> ReportFacts:
    """There is a plan, and nothing was copied."""
    return at_time(directory, BEGAN_S - 1800.0)


def clock_set_back(directory: Path) -> ReportFacts:
    """Most records are from the future."""
    return at_time(directory, BEGAN_S + 5 * DAY_S)


def at_time(directory: Path, now_s: float) -> ReportFacts:
    weeks = Weeks()
    weeks.fill(directory / "ledger.db")
    with MigrationLedger.open(directory / "ledger.db", read_only=True) as ledger:
        return read_report(ledger, OnePlan(plan=weeks.plan), now_s=now_s)


def gaps(directory: Path) -> ReportFacts:
    """Samples of two weeks are missing, and so is the plan's document."""
    facts = facts_of(directory, days=30, share=0.6)
    from_s, to_s = BEGAN_S + 8 * DAY_S, BEGAN_S + 22 * DAY_S
    lost = {
        name: tuple(one for one in getattr(facts, name) if not from_s < one.at_s < to_s)
        for name in ("done", "days", "capacity")
    }
    return replace(facts, plan=None, plan_problem="the document is missing", **lost)


STORIES: Mapping[str, Callable[[Path], ReportFacts]] = {
    "late": lambda place: facts_of(place, days=30, share=0.6),
    "young": lambda place: facts_of(place, days=0.5, share=0.01),
    "finished": lambda place: facts_of(place, days=56, share=1.01, moved=24, drained=4, purged=24),
    "not-purged": lambda place: facts_of(place, days=56, share=1.01, moved=24, drained=4),
    "empty": empty,
    "planned": planned,
    "clock-set-back": clock_set_back,
    "gaps": gaps,
    "one-user": lambda place: facts_of(place, days=30, share=0.6, users=1, moved=1),
    "years": lambda place: facts_of(place, days=900, share=0.7, chunks=2400),
}


def check(browser: Browser, place: Path, name: str, facts: ReportFacts, *, by_axe: bool = True) -> None:
    file = place / f"{name}.html"
    file.write_text(to_html(report_document(facts)), encoding="utf-8")
    for width in WIDTHS:
        with opened(browser, file, viewport={"width": width, "height": 900}, bypass_csp=True) as (page, said):
            page.screenshot(path=place / f"{name}-{width}.png", full_page=True)
            found = Axe().run(page).response["violations"] if width == min(WIDTHS) and by_axe else []
            page.evaluate(UNFOLD)
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert page.evaluate(CUT_ON_PAGE_ONE) == []
            assert page.evaluate(OUTSIDE) == []
            assert page.evaluate(BAD_LABELS) == []
            assert said == []
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
    with opened(browser, file, viewport={"width": A4_TEXT_PX, "height": 1000}) as (page, _):
        page.emulate_media(media="print")
        bottoms = page.evaluate(
            "[...document.querySelectorAll('.first')].map(one => one.getBoundingClientRect().bottom)"
        )
        assert max(bottoms) <= A4_TEXT_HEIGHT_PX


@pytest.mark.parametrize("name", STORIES)
def test_it_can_be_read_on_a_phone_and_on_a_desk(browser: Browser, tmp_path: Path, name: str) -> None:
    check(browser, tmp_path, name, STORIES[name](tmp_path))


def test_five_thousand_users(browser: Browser, tmp_path: Path) -> None:
    """Its elements are those of the others, and too many for axe."""
    facts = facts_of(tmp_path, days=30, share=0.6, users=5000, chunks=5000, moved=600)
    check(browser, tmp_path, "five-thousand", facts, by_axe=False)
