"""The notice of a user in a real browser: readable by everybody, never wider than the screen, and nothing of a name runs."""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from msgspec.structs import replace
from playwright.sync_api import Browser

from migrator.fs.model import SurpriseKind
from migrator.notices.rules import user_notices
from migrator.notices.view import notice_document
from migrator.plan import model as plan
from migrator.reap.model import PlanReap, ReapedTree
from migrator.render.html import to_html
from migrator.site.model import ReapAction
from tests.notices.test_notices import ALICE, NOW_S, announced, facts, tree
from tests.report.browser.conftest import HOSTILE
from tests.report.browser.test_report_page import opened
from tests.support.making import made
from tests.support.plans import small_plan


@pytest.fixture(scope="module")
def notice_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A notice with everything in it."""
    user = HOSTILE[0].decode()
    path = b"/".join((b"home", *HOSTILE))
    whose = replace(ALICE, path=path, user=user)
    surprises = tuple(
        made(plan.Surprise, kind=kind, tree=path, count=3, detail=user, examples=(path,)) for kind in SurpriseKind
    )
    gains = tuple(
        plan.CleanUp(tree=path, kind=kind, files=2_000_000, size_bytes=2**40, earlier_s=1e5)
        for kind in plan.CleanUpKind
    )
    reaped = made(ReapedTree, tree=whose, action=ReapAction.SKIP, rule=user, files=17)
    document = replace(
        small_plan(),
        surprises=surprises,
        clean_ups=gains,
        tiny=(plan.TinyDirectory(tree=path, path=path + b"/runs", files=1_900_000),),
        reap=made(PlanReap, trees=(reaped,)),
    )
    given = facts(tree(whose, 1), document=document, told=(announced(NOW_S + 3600, of_tree=whose),))
    (notice,) = user_notices(given)
    file = tmp_path_factory.mktemp("notice") / "user.html"
    file.write_text(to_html(notice_document(notice)), encoding="utf-8")
    return file


@pytest.mark.parametrize("width", [400, 1280])
def test_everybody_can_read_a_notice(browser: Browser, notice_file: Path, width: int) -> None:
    viewport = {"width": width, "height": 800}
    with opened(browser, notice_file, viewport=viewport, bypass_csp=True) as (page, said):
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.title() != "run"
        assert page.locator("h2").count() == 4
        found = Axe().run(page)
    assert said == []
    assert [(one["id"], one["nodes"][0]["html"]) for one in found.response["violations"]] == []
