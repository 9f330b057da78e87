"""`report` as its users call it: files, CSV, the comparison with the report before, PDF, and sending."""

import csv
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from migrator.app.ledger import MigrationLedger
from migrator.core.errors import Refused, UsageError
from migrator.core.paths import show
from migrator.render.document import when
from migrator.render.text import plain, to_json, to_markdown
from migrator.report.kept_reports import read_earlier
from migrator.report.model import (
    DEFAULT_SETTINGS,
    EarlierReports,
    ForecastSettings,
    Goal,
    Milestone,
    Punctuality,
    ReportFacts,
)
from migrator.report.report import read_report
from migrator.report.serve import published_routes
from migrator.report.status import read_metrics, read_status
from migrator.report.view import report_document, to_csv
from migrator.report.view_status import status_document
from migrator.report.view_watch import screen
from migrator.report.watch import read_watch
from tests.render.test_hostile import HOSTILE, assert_safe_text, text_of
from tests.report.serving import serving, site_of_weeks
from tests.support.cli_site import Site
from tests.support.facts import report
from tests.support.hook_site import HookSite
from tests.support.report_world import BEGAN_S, DAY_S, OnePlan, Weeks

TOKEN = "0123456789abcdef!"
FILES = ["report.csv", "report.html", "report.json", "report.md"]


@pytest.fixture(scope="module")
def hook_site(tmp_path_factory: pytest.TempPathFactory) -> HookSite:
    """One site for all: batch 1 is copied, batch 2 is not."""
    directory = tmp_path_factory.mktemp("site")
    made = HookSite(site=Site(directory=directory, source=directory / "source", target=directory / "target"))
    made.prepare()
    code, said = made.run()
    assert code == 0, said
    return made


def kept_reports(hook_site: HookSite) -> Path:
    """The directory of kept reports, without those of other tests."""
    place = hook_site.site.directory / "state" / "reports"
    shutil.rmtree(place, ignore_errors=True)
    return place


def facts(directory: Path) -> Any:
    return json.loads((directory / "report.json").read_text())


@pytest.mark.needs_root
class TestReport:
    def test_every_report_is_kept_whatever_it_replaces(self, hook_site: HookSite, tmp_path: Path) -> None:
        place, kept = tmp_path / "weekly", kept_reports(hook_site)
        hook_site.site.works("report", "--output", str(place))
        assert sorted(file.name for file in place.iterdir()) == [*FILES, "users"]
        assert sorted(os.listdir(place / "users")) == ["alice.html", "alice.txt", "bob.html", "bob.txt"]
        assert (place / "users" / "bob.txt").stat().st_mode == (place / "report.md").stat().st_mode
        first = facts(place)
        assert first["since"] is None
        assert first["promise"]["plan"] == first["status"]["plan"]["name"]
        hook_site.site.works("report")
        hook_site.site.works("report", "--output", str(place))
        since = facts(place)["since"]
        assert since["earlier"]["at_s"] == first["status"]["at_s"]
        assert since["done_bytes"] == 0
        # One that is only shown is kept once a day.
        assert [facts(one) for one in sorted(kept.iterdir())] == [first, facts(place)]

    def test_a_report_that_cannot_be_kept_is_shown(self, hook_site: HookSite) -> None:
        kept = kept_reports(hook_site)
        kept.touch()
        try:
            done = hook_site.site.call("report", "--json")
            assert done.returncode == 0
            assert json.loads(done.stdout)["since"] is None
            assert "cannot be kept" in done.stderr
        finally:
            kept.unlink()

    def test_no_baseline_without_an_expected_end(self, hook_site: HookSite) -> None:
        hook_site.site.fails(4, "report", "--baseline", says=("no expected end of copying",))

    @pytest.mark.exhaustive
    def test_since_names_the_report_to_compare_with(self, hook_site: HookSite, tmp_path: Path) -> None:
        hook_site.site.works("report", "--output", str(tmp_path / "one"))
        hook_site.site.works("report", "--output", str(tmp_path / "two"), "--since", str(tmp_path / "one"))
        assert facts(tmp_path / "two")["since"]["earlier"]["at_s"] == facts(tmp_path / "one")["status"]["at_s"]
        (tmp_path / "other").write_text("{}")
        hook_site.site.fails(
            2, "report", "--since", str(tmp_path / "other"), says=("is not a report of migrator", "report.json")
        )


@pytest.mark.needs_root
class TestPdf:
    @pytest.mark.exhaustive
    @pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no chromium")
    def test_the_page_is_printed_on_a4(self, hook_site: HookSite, tmp_path: Path) -> None:
        hook_site.site.works("report", "--output", str(tmp_path), "--pdf")
        printed = (tmp_path / "report.pdf").read_bytes()
        assert printed.startswith(b"%PDF-")
        assert re.search(rb"/MediaBox \[0 0 59[45]\S* 84[12]\S*\]", printed)

    def test_without_a_browser(self, hook_site: HookSite, tmp_path: Path) -> None:
        done = hook_site.site.call("report", "--output", str(tmp_path), "--pdf", path=str(tmp_path))
        assert done.returncode == 1
        assert "there is no Chromium on this machine" in done.stderr
        assert sorted(file.name for file in tmp_path.iterdir()) == FILES


READER = 65534


@pytest.mark.needs_root
class TestReaderWithoutRoot:
    """An ordinary user who is in the group of a directory for reports."""

    def call(self, program: str, *words: str) -> "subprocess.CompletedProcess[str]":
        # Not that of .venv, which may be in a directory of root.
        argv = ["/usr/bin/python3", "-c", program, *words]
        as_reader: dict[str, Any] = {"user": READER, "group": READER, "extra_groups": ()}
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600, **as_reader)

    def test_they_read_the_files_and_change_nothing(self, hook_site: HookSite, scratch: Path) -> None:
        place = scratch / "weekly"
        place.mkdir()
        os.chown(place, 0, READER)
        place.chmod(0o2750)
        hook_site.site.works("report", "--output", str(place))
        read = "import pathlib, sys; print(*(len(one.read_bytes()) for one in pathlib.Path(sys.argv[1]).rglob('*.*')))"
        done = self.call(read, str(place))
        assert sorted(map(int, done.stdout.split())) == sorted(file.stat().st_size for file in place.rglob("*.*"))
        for change in (
            "(place / 'new').touch()",
            "(place / 'report.html').unlink()",
            "(place / 'report.md').open('a')",
        ):
            done = self.call(f"import pathlib, sys; place = pathlib.Path(sys.argv[1]); {change}", str(place))
            assert "PermissionError" in done.stderr
        assert self.call(read, str(hook_site.site.directory / "state")).returncode != 0
        others = {file.stat().st_mode & 0o007 for file in (place, *place.rglob("*"))}
        assert others == {0}

    @pytest.mark.exhaustive
    @pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no chromium")
    def test_they_read_the_pdf(self, hook_site: HookSite, scratch: Path) -> None:
        os.chown(scratch, 0, READER)
        scratch.chmod(0o2750)
        hook_site.site.works("report", "--output", str(scratch), "--pdf")
        read = "import pathlib, sys; print((pathlib.Path(sys.argv[1]) / 'report.pdf').read_bytes()[:5].decode())"
        assert self.call(read, str(scratch)).stdout == "%PDF-\n"

    def test_an_ordinary_user_serves_them_to_others(self, hook_site: HookSite, scratch: Path) -> None:
        place, token = scratch / "published", scratch / "token"
        place.mkdir()
        os.chown(place, 0, READER)
        place.chmod(0o2750)
        token.write_text(f"{TOKEN}\n")
        os.chown(token, READER, READER)
        token.chmod(0o600)
        words = ("serve", "--published", str(place), "--listen", "127.0.0.1:0", "--token-file", str(token))
        nowhere = scratch / "no-site.toml"
        with pytest.raises(Refused):
            published_routes(place, FILES)
        hook_site.site.works("report", "--output", str(place))
        authorized = f"Authorization: Bearer {TOKEN}"
        with serving(nowhere, *words, user=READER) as server:
            status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
            assert re.findall(r"^(?:Uid|Gid|CapEff):\t(.*)$", status, re.MULTILINE) == [
                *["\t".join([str(READER)] * 4)] * 2,
                "0" * 16,
            ]
            for name in FILES:
                assert server.get(f"/{name}", authorized).body == (place / name).read_bytes()
            page = server.get("/", authorized)
            assert page.body == (place / "report.html").read_bytes()
            assert "script-src" not in page.headers["Content-Security-Policy"]
            assert server.get("/").status == 401
            assert json.loads(server.get("/healthz").body)["status"] == "ok"
            # Notices are for one user each, and metrics need the ledger.
            for name in ("report.pdf", "metrics", "users/", "users/../report.md", "../token", "..%2ftoken"):
                assert server.get(f"/{name}", authorized).status == 404
            hook_site.site.works("report", "--output", str(place))
            assert server.get("/", authorized).body == (place / "report.html").read_bytes()
            (place / "report.html").unlink()
            assert (server.get("/healthz").status, server.get("/", authorized).status) == (503, 404)

    @pytest.mark.parametrize("verb", ["report", "status", "serve", "metrics"])
    def test_the_ledger_is_not_theirs(self, scratch: Path, verb: str) -> None:
        site_file = site_of_weeks(scratch, Weeks(users=3, chunks=30))
        (scratch / "state").chmod(0o700)
        enter = "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); sys.argv[0] = 'migrator'"
        program = f"import migrator.cli.main; from migrator.__main__ import program; {enter}; program()"
        argv = [sys.executable, "-c", program, "--site", str(site_file), verb, "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 1
        assert "report --output" in json.loads(done.stdout)["error"]["hint"]


@pytest.mark.needs_root
class TestSend:
    def test_nobody_would_send_it(self, hook_site: HookSite) -> None:
        hook_site.site.fails(4, "report", "--send", says=("post-report.d", "50-mail-report"))

    @pytest.mark.exhaustive
    def test_the_hook_gets_the_directory_and_a_failure_is_told(self, hook_site: HookSite, tmp_path: Path) -> None:
        seen, kept = tmp_path / "seen", kept_reports(hook_site)
        text = f'echo "$MIGRATOR_REPORT" >> {seen}; ls "$MIGRATOR_REPORT" >> {seen}; [ "$MIGRATOR_NOTICES" = "$MIGRATOR_REPORT/users" ]'
        hook = hook_site.hook("post-report.d/50-send", text)
        try:
            hook_site.site.works("report", "--send")
            hook_site.site.works("report", "--send", "--output", str(tmp_path / "out"))
            directory, *files = seen.read_text().splitlines()
            assert files == [*FILES, "users", str(tmp_path / "out"), *FILES, "users"]
            assert Path(directory).parent == kept
            hook.write_text("#!/bin/sh\nexit 7\n")
            done = hook_site.site.call("report", "--send")
            assert done.returncode == 1
            assert "was not sent" in done.stderr
            # The report that was not sent is not compared with.
            hook.write_text("#!/bin/sh\nexit 0\n")
            hook_site.site.works("report", "--send")
            sent = facts(tmp_path / "out")["status"]["at_s"]
            assert [facts(one)["since"]["earlier"]["at_s"] for one in sorted(kept.iterdir())[-2:]] == [sent, sent]
        finally:
            hook.unlink()


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


class TestCsv:
    def test_every_value_of_the_json_form_has_a_row(self) -> None:
        facts = report()
        found = {(table, row, column): value for table, row, column, value in rows(to_csv(facts))[1:]}
        assert found["", "", "status.overall.done_bytes"] == "620"
        assert found["status.trees", "2", "tree.user"] == "alice2"
        assert found["days", "5", "size_bytes"] == str(2**40 + 1)
        assert found["status.forecast.cone", "1", "left_bytes"] == "880.0"

        def leaves(value: object) -> int:
            if isinstance(value, dict):
                return sum(map(leaves, value.values()))
            if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
                return sum(map(leaves, value))
            return 1

        assert len(found) == leaves(plain(facts))

    @pytest.mark.parametrize("name", HOSTILE)
    def test_names_are_one_cell_and_no_formula(self, name: bytes) -> None:
        text = to_csv(report(name, text_of(name)))
        assert_safe_text(text)
        assert all(len(row) == 4 for row in rows(text))

    @pytest.mark.parametrize("name", ["=1+1", "+1", "-rf", "@SUM(A1)", "\tx"])
    def test_a_formula_is_text(self, name: str) -> None:
        found = {column: value for _, _, column, value in rows(to_csv(report(b"home/x", name)))}
        shown = show(name.encode()) if name.isprintable() else "\\x09x"
        assert found["status.site"] == (f"'{shown}" if name.isprintable() else shown)

    def test_negative_numbers_are_numbers(self) -> None:
        assert to_csv({"moved_s": -1.5}).splitlines()[1] == ",,moved_s,-1.5"


class TestEarlier:
    def test_one_without_a_forecast(self, tmp_path: Path) -> None:
        document = json.loads(to_json(report()))
        del document["status"]["forecast"]
        (tmp_path / "report.json").write_text(json.dumps(document))
        found = read_earlier(tmp_path)
        assert found.likely_at_s is None

    @pytest.mark.parametrize("content", ["", "[]", "{}", '{"status": 7}', "\x00", '{"status": {"at_s": null}}'])
    def test_invalid_reports_are_refused(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "other.json").write_text(content)
        with pytest.raises(UsageError, match="is not a report of migrator"):
            read_earlier(tmp_path / "other.json")

    def test_missing_reports_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="cannot be read"):
            read_earlier(tmp_path)


WEEKS = Weeks()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MigrationLedger]:
    file = tmp_path_factory.mktemp("weeks") / "ledger.db"
    WEEKS.fill(file, share=0.6)
    with MigrationLedger.open(file, read_only=True) as opened:
        yield opened


def read(ledger: MigrationLedger, now_s: float = WEEKS.now_s) -> ReportFacts:
    return read_report(ledger, OnePlan(plan=WEEKS.plan), now_s=now_s)


def test_a_pause_makes_it_later_and_the_next_report_says_so(ledger: MigrationLedger, tmp_path: Path) -> None:
    before = read(ledger)
    (tmp_path / "report.json").write_text(to_json(before))
    later = read_report(
        ledger,
        OnePlan(plan=WEEKS.plan),
        now_s=WEEKS.now_s + 10 * DAY_S,
        against=EarlierReports(earlier=read_earlier(tmp_path)),
    )
    assert later.since is not None
    assert later.since.standing is Punctuality.BEHIND
    assert later.since.end_moved_s is not None
    assert later.since.end_moved_s > 10 * DAY_S
    assert later.since.expected_bytes == pytest.approx(before.status.overall.left_bytes / 2, rel=0.35)
    assert "no stream has run since then" in later.since.reasons
    assert later.verdict is not None
    assert " later than in the last report" in later.verdict.sentence


def test_every_form_shows_the_same_end_for_the_same_instant(ledger: MigrationLedger) -> None:
    read_plan = OnePlan(plan=WEEKS.plan).read
    facts = read(ledger)
    forecast, dates = facts.status.forecast, facts.status.milestones
    assert forecast is not None
    status = read_status(ledger, now_s=WEEKS.now_s, read_plan=read_plan)
    watched = read_watch(ledger, now_s=WEEKS.now_s, read_plan=read_plan)
    assert status.forecast == watched.status.forecast == forecast
    assert status.milestones == watched.status.milestones == dates
    assert tuple(replace(one, promised_at_s=None) for one in facts.milestones) == dates
    copied, *later = dates
    assert (copied.goal, copied.at_s, copied.latest_at_s) == (Goal.COPIED, forecast.likely_at_s, forecast.latest_at_s)
    assert [one.goal for one in later] == [Goal.VERIFIED, Goal.MOVED, Goal.PURGED, Goal.CLEARED, Goal.COMPLETE]
    for before, after in pairwise(dates):
        for at_s, next_s in zip(bounds(before), bounds(after), strict=True):
            assert at_s <= next_s
    metrics = {one.name: one.samples for one in read_metrics(ledger, now_s=WEEKS.now_s, read_plan=read_plan)}
    assert [one.value for one in metrics["migrator_copy_left_seconds"]] == [forecast.left_s]
    exported = {
        (one.labels["goal"], one.labels["bound"]): one.value for one in metrics["migrator_expected_timestamp_seconds"]
    }
    names = ("earliest", "likely", "latest")
    assert exported == {
        (one.goal.value, name): at_s for one in dates for name, at_s in zip(names, bounds(one), strict=True)
    }
    last = [one.free_at_s for one in facts.bricks if one.free_at_s is not None]
    assert max(last) == pytest.approx(dates[-2].at_s), "the last brick is cleared when all are"
    screens = "".join(segment.text for segment in Console(width=200).render(screen(watched, height=50)))
    shown_by = {to_markdown(status_document(status)): dates, to_markdown(report_document(facts)): dates}
    shown_by[screens] = (copied, dates[-1])
    for text, shown in shown_by.items():
        for at_s in (at_s for one in shown for at_s in bounds(one)):
            assert when(at_s) in text.replace("\\", "")


def bounds(one: Milestone) -> tuple[float, float, float]:
    assert one.earliest_at_s is not None
    assert one.at_s is not None
    assert one.latest_at_s is not None
    return one.earliest_at_s, one.at_s, one.latest_at_s


def test_configured_growth_counts_until_it_is_measured(ledger: MigrationLedger, tmp_path: Path) -> None:
    few = Weeks(days=5)
    few.fill(tmp_path / "ledger.db", share=0.2)
    settings = ForecastSettings(growth_bytes_per_day=sum(few.sizes) // 100)
    with MigrationLedger.open(tmp_path / "ledger.db", read_only=True) as young:
        ends = {
            at_s: [read_status(one, now_s=at_s, settings=how).forecast for how in (DEFAULT_SETTINGS, settings)]
            for one, at_s in ((young, few.now_s), (ledger, WEEKS.now_s))
        }
    without, counted = (one.left_s for one in ends[few.now_s] if one is not None)
    assert counted == pytest.approx(-100 * DAY_S * math.log(1 - without / DAY_S / 100), rel=0.05)
    assert ends[WEEKS.now_s][0] == ends[WEEKS.now_s][1], "a month of samples of the source shows none"


def test_nothing_is_forecast_of_what_is_done_or_was_not_begun(ledger: MigrationLedger, tmp_path: Path) -> None:
    assert read(ledger, BEGAN_S).status.forecast is None
    WEEKS.fill(tmp_path / "ledger.db", share=1.01)
    with MigrationLedger.open(tmp_path / "ledger.db", read_only=True) as done:
        facts = read(done)
        assert facts.status.forecast is None
        assert "everything in the plan is copied" in to_markdown(report_document(facts))
        few = replace(facts, plan=None, plan_problem="gone")
        assert "gone" in to_markdown(report_document(few))
