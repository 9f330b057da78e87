"""The live page in a real browser: it opens without a word, and shows what has changed in the ledger."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from migrator.app.ledger import MigrationLedger
from migrator.core.events import Event, EventKind, Severity
from tests.report.browser.conftest import DEADLINE_MS, HOSTILE
from tests.report.serving import serving, site_of_weeks
from tests.support.making import made
from tests.support.report_world import Weeks

pytestmark = pytest.mark.exhaustive

NEWS = "the storage of <b>rack 7</b> does not answer"


def test_it_keeps_itself_up_to_date_and_says_when_it_cannot(browser: Browser, tmp_path: Path) -> None:
    weeks = Weeks(users=9, chunks=90, names=HOSTILE)
    site_file = site_of_weeks(tmp_path, weeks)
    token = tmp_path / "token"
    token.write_text("a-token-of-at-least-16-characters")
    token.chmod(0o600)
    words = ("serve", "--listen", "127.0.0.1:0", "--interval", "1s", "--token-file", str(token))
    context = browser.new_context(viewport={"width": 500, "height": 700})
    try:
        with serving(site_file, *words) as served:
            context.set_default_timeout(DEADLINE_MS)
            expect.set_options(timeout=DEADLINE_MS)
            page = context.new_page()
            said: list[str] = []
            asked: set[str] = set()
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("request", lambda request: asked.add(request.url))
            page.goto(f"{served.url}?token={token.read_text()}")
            assert page.url == served.url
            asked.clear()
            expect(page.locator("#live")).to_have_text("Read anew every 1 seconds.")
            first = page.title()
            fold = page.locator("details.figures").nth(1)
            fold.locator("summary").click()
            wide = page.locator("main .scroll").last
            wide.evaluate("one => { one.scrollLeft = 40; one.focus(); }")
            shift = wide.evaluate("one => one.scrollLeft")

            with MigrationLedger.open(tmp_path / "state" / "ledger.db") as ledger:
                facts = {"kind": EventKind.STORAGE_LOST, "severity": Severity.ERROR, "message": NEWS}
                ledger.events.add(made(Event, at_s=weeks.now_s, **facts))
            expect(page.locator("main")).to_contain_text(NEWS)
            assert asked == {served.url}
            assert fold.get_attribute("open") is not None
            assert page.locator("details[open]").count() == 1
            assert said == []
            assert first.startswith("Migration of ")
            assert shift > 0
            assert page.locator("main .scroll").last.evaluate("one => one.scrollLeft") == shift
            assert page.evaluate("document.activeElement.className") == "scroll"
            assert page.locator("main").count() == page.locator("header").count() == 1
        expect(page.locator("#live")).to_contain_text("Not read anew since")
        expect(page.locator("#live")).to_have_class("alert")
        expect(page.locator("main")).to_contain_text(NEWS)
        assert page.title() != "run"
    finally:
        context.close()
