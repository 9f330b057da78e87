"""`report` as its users call it: files, the comparison with the report before, PDF, and sending."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_site import Site
from tests.support.hook_site import HookSite

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


def facts(directory: Path) -> Any:
    return json.loads((directory / "report.json").read_text())


@pytest.mark.needs_root
class TestReport:
    def test_writes_every_form_and_compares_with_what_lay_there(self, hook_site: HookSite, tmp_path: Path) -> None:
        place = tmp_path / "weekly"
        hook_site.site.works("report", "--output", str(place))
        assert sorted(file.name for file in place.iterdir()) == FILES
        first = facts(place)
        assert first["since"] is None
        hook_site.site.works("report", "--output", str(place))
        since = facts(place)["since"]
        assert isinstance(since, dict)
        assert since["earlier"]["at_s"] == first["status"]["at_s"]
        assert since["done_bytes"] == 0

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


@pytest.mark.needs_root
class TestSend:
    def test_nobody_would_send_it(self, hook_site: HookSite) -> None:
        hook_site.site.fails(4, "report", "--send", says=("post-report.d", "50-mail-report"))

    @pytest.mark.exhaustive
    def test_the_hook_gets_the_directory_and_a_failure_is_told(self, hook_site: HookSite, tmp_path: Path) -> None:
        seen = tmp_path / "seen"
        hook = hook_site.hook(
            "post-report.d/50-send", f'echo "$MIGRATOR_REPORT" >> {seen}; ls "$MIGRATOR_REPORT" >> {seen}'
        )
        try:
            hook_site.site.works("report", "--send")
            hook_site.site.works("report", "--send", "--output", str(tmp_path / "out"))
            directory, *files = seen.read_text().splitlines()
            assert files == [*FILES, str(tmp_path / "out"), *FILES]
            kept = hook_site.site.directory / "state" / "reports"
            assert Path(directory).parent == kept
            hook.write_text("#!/bin/sh\nexit 7\n")
            done = hook_site.site.call("report", "--send")
            assert done.returncode == 1
            assert "was not sent" in done.stderr
            newest = max(kept.iterdir())
            assert facts(newest)["since"]["earlier"]["at_s"] == facts(Path(directory))["status"]["at_s"]
        finally:
            hook.unlink()
