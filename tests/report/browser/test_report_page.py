"""The report in a real browser: it opens, shows its charts, runs nothing, prints whole, and can be read by everybody."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.report.browser.conftest import DEADLINE_MS

pytestmark = pytest.mark.exhaustive

A4_TEXT_PX = 680
"""The width between the margins of the style's page: 180 mm."""

A4_TEXT_HEIGHT_PX = 1009
"""The height between them: 267 mm."""

CUT = """() => [...document.querySelectorAll('table, dl, svg.chart, p, h2')]
    .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map(one => one.closest('section')?.querySelector('h2')?.textContent + ': ' + one.tagName)"""
OVERFULL = """() => [...document.querySelectorAll('td, th')]
    .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent)"""


UNFOLD = "() => document.querySelectorAll('details').forEach(one => { one.open = true; })"

BAD_LABELS = """() => [...document.querySelectorAll('svg.chart')].flatMap(chart => {
  const edge = chart.getBoundingClientRect(), title = chart.querySelector('title').textContent, bad = [];
  const labels = [...chart.querySelectorAll('text')].map(one => [one.textContent, one.getBoundingClientRect()]);
  const over = (one, other) => one.left < other.right - 1 && other.left < one.right - 1
    && one.top < other.bottom - 2 && other.top < one.bottom - 2;
  const swatches = [...chart.querySelectorAll('text.legend')].map(one => one.previousElementSibling.getBoundingClientRect());
  labels.forEach(([words, at], index) => {
    if (at.left < edge.left - 1 || at.right > edge.right + 1 || at.bottom > edge.bottom + 1) bad.push(`${title}: ${words} is cut`);
    for (const [further, place] of labels.slice(index + 1)) if (over(at, place)) bad.push(`${title}: ${words} lies on ${further}`);
    for (const swatch of swatches) {
      const middle = (swatch.top + swatch.bottom) / 2;
      if (swatch.left < at.right - 1 && at.left < swatch.right - 1 && at.top < middle && middle < at.bottom)
        bad.push(`${title}: ${words} lies on a colour of the legend`);
    }
  });
  return bad;
})"""


@contextmanager
def opened(browser: Browser, file: Path, **settings: Any) -> Iterator[tuple[Page, list[str]]]:
    """The page, and what went wrong on it or was asked of anybody else."""
    context = browser.new_context(**settings)
    try:
        context.set_default_timeout(DEADLINE_MS)
        page = context.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if request.url != file.as_uri() else None)
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.goto(file.as_uri())
        yield page, said
    finally:
        context.close()


def test_it_opens_without_a_word_and_fetches_nothing(browser: Browser, page_file: Path) -> None:
    with opened(browser, page_file) as (page, said):
        page.wait_for_load_state("networkidle")
        assert page.title().startswith("Migration of rehearsal, report as of ")
        headings = page.locator("h2").all_inner_texts()
    assert said == []
    assert headings[:2] == ["Verdict", "Progress"]
    assert {
        "Expected dates",
        "This week",
        "Room",
        "Timeline",
        "Users moved",
        "Bricks cleared",
        "Users",
        "Capacity",
        "Details",
        "Throughput",
        "Incidents",
        "Users by size",
    } <= set(headings)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_it(browser: Browser, page_file: Path, scheme: str) -> None:
    with opened(browser, page_file, color_scheme=scheme, bypass_csp=True) as (page, _):
        page.evaluate(UNFOLD)
        found = Axe().run(page)
    assert [(one["id"], one["nodes"][0]["html"]) for one in found.response["violations"]] == []
    assert "color-contrast" in {one["id"] for one in found.response["passes"]}


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_it_is_never_wider_than_the_screen_and_no_label_of_a_chart_is_cut_or_lies_on_another(
    browser: Browser, page_file: Path, width: int
) -> None:
    with opened(browser, page_file, viewport={"width": width, "height": 800}) as (page, _):
        page.evaluate(UNFOLD)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate(BAD_LABELS) == []


def test_figures_and_rows_unfold_by_the_keyboard(browser: Browser, page_file: Path) -> None:
    with opened(browser, page_file) as (page, _):
        fold = page.locator("details.figures").first
        assert not fold.locator("table").is_visible()
        fold.locator("summary").focus()
        page.keyboard.press("Enter")
        assert fold.locator("table").is_visible()


def test_nothing_is_cut_on_paper_which_is_white_whatever_the_screen_is(browser: Browser, page_file: Path) -> None:
    paper: dict[str, Any] = {"viewport": {"width": A4_TEXT_PX, "height": 1000}, "color_scheme": "dark"}
    with opened(browser, page_file, **paper) as (page, _):
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        assert page.evaluate(CUT) == []
        assert page.evaluate(OVERFULL) == []
        assert page.evaluate(BAD_LABELS) == []
        assert (
            page.evaluate("document.querySelector('section.page-end').getBoundingClientRect().bottom")
            <= A4_TEXT_HEIGHT_PX
        )
        assert page.evaluate("getComputedStyle(document.querySelector('thead')).display") == "table-header-group"
        assert page.evaluate("getComputedStyle(document.querySelector('tbody tr')).breakInside") == "avoid"
        assert page.evaluate("getComputedStyle(document.querySelector('figure')).breakInside") == "avoid"
        pdf = page.pdf(prefer_css_page_size=True)
    assert pdf.startswith(b"%PDF-")
    sizes = {
        tuple(round(float(figure)) for figure in box.split()) for box in re.findall(rb"/MediaBox \[([^]]+)\]", pdf)
    }
    assert sizes == {(0, 0, 595, 842)}
