"""A headless Chromium for the tests of pages, and the report of a migration in its fifth week."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, sync_playwright

from migrator.app.ledger import MigrationLedger
from migrator.render.html import to_html
from migrator.report.report import read_report
from migrator.report.view import report_document
from tests.support.facts import report
from tests.support.report_world import OnePlan, Weeks

DEADLINE_MS = 120_000
HOSTILE = (
    b"<script>document.title='run'</script>",
    b"<img src=x onerror=\"document.title='run'\">",
    b"\"'><svg onload=document.title='run'>",
    "\u202egpj.exe\u2066".encode(),
    b"invalid \xff\xfe\xc3(",
    b"new\nline\x1b[31m",
    b"x" * 240,
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one file: as long as Playwright is there an event loop runs, and no other test of the process can have one."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("there is no chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=DEADLINE_MS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("report")
    weeks = Weeks(names=HOSTILE)
    weeks.fill(directory / "ledger.db")
    with MigrationLedger.open(directory / "ledger.db", read_only=True) as ledger:
        facts = read_report(ledger, OnePlan(plan=weeks.plan), now_s=weeks.now_s)
    hostile = report(HOSTILE[0], HOSTILE[0].decode())
    names = ("since", "bricks", "reaped", "benchmarks", "verifications")
    others = {name: getattr(hostile, name) for name in names}
    facts = replace(facts, incidents=(*facts.incidents, *hostile.incidents), **others)
    file = directory / "report.html"
    file.write_text(to_html(report_document(facts)), encoding="utf-8")
    return file
