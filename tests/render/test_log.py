"""Messages on standard error: levels, forms, and journald."""

import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.core.events import Event, EventKind, Severity
from migrator.render.log import MESSAGES, set_log
from migrator.render.progress import LineProgress, open_progress
from tests.support.cli_site import Site
from tests.support.fakes import VirtualClock

OTHER = logging.getLogger("migrator.hosts.process")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    yield
    set_log()


def written(**settings: Any) -> list[str]:
    stream = io.StringIO()
    set_log(stream=stream, **settings)
    OTHER.debug("detail of %s", "work")
    MESSAGES.info("news")
    MESSAGES.warning("doubt")
    MESSAGES.error("failed", extra={"cause": "a disk", "hint": ""})
    return stream.getvalue().splitlines()


def test_levels_choose_the_messages() -> None:
    assert written() == ["news", "doubt", "failed", "  cause: a disk"]
    assert written(quiet=True) == ["doubt", "failed", "  cause: a disk"]
    (detail, *others) = written(verbose=True)
    assert others == written()
    assert detail.startswith("debug: ")
    assert detail.endswith("detail of work")
    assert written() == others


def test_json_has_one_object_a_line_with_the_facts() -> None:
    lines = [json.loads(line) for line in written(as_json=True)]
    assert [line["level"] for line in lines] == ["info", "warning", "error"]
    assert lines[2] | {"at": ""} == {
        "at": "",
        "level": "error",
        "logger": "migrator.messages",
        "message": "failed",
        "cause": "a disk",
        "hint": "",
    }


def test_events_keep_kind_and_subject() -> None:
    stream = io.StringIO()
    set_log(stream=stream, as_json=True)
    event = Event(at_s=0.0, kind=EventKind.CHUNK_RETRIED, severity=Severity.WARNING, subject="chunk 7", message="bad")
    with LineProgress(VirtualClock()) as progress:
        progress.event(event)
    line = json.loads(stream.getvalue())
    assert (line["level"], line["kind"], line["subject"]) == ("warning", EventKind.CHUNK_RETRIED.value, "chunk 7")


def test_journald_gets_the_level_before_each_line(tmp_path: Path) -> None:
    with (tmp_path / "journal").open("w") as stream:
        found = os.fstat(stream.fileno())
        journal = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        set_log(stream=stream, environment=journal)
        MESSAGES.info("news")
        MESSAGES.warning("doubt")
        MESSAGES.error("failed", extra={"hint": "repair"})
        set_log(stream=stream, environment={"JOURNAL_STREAM": "1:1"})
        MESSAGES.error("elsewhere")
    lines = (tmp_path / "journal").read_text().splitlines()
    assert lines == ["<6>news", "<4>doubt", "<3>failed", "<3>  next:  repair", "elsewhere"]


@pytest.mark.parametrize("settings", [{"quiet": True}, {"verbose": True}, {"as_json": True}])
def test_progress_is_redrawn_only_among_messages_of_the_usual_level_and_form(settings: Any) -> None:
    set_log(**settings)
    assert isinstance(open_progress(Terminal(), VirtualClock()), LineProgress)
    set_log()
    assert not isinstance(open_progress(Terminal(), VirtualClock()), LineProgress)


class TestProgram:
    @pytest.fixture
    def site(self, tmp_path: Path) -> Site:
        for name in ("source/home/alice", "target"):
            (tmp_path / name).mkdir(parents=True)
        made = Site(directory=tmp_path, source=tmp_path / "source", target=tmp_path / "target")
        made.write()
        made.works("init")
        return made

    def test_quiet_prints_nothing_of_a_scan_and_json_only_objects(self, site: Site) -> None:
        assert site.call("-q", "scan", "--json").stderr == ""
        lines = site.call("-v", "--log-format", "json", "scan").stderr.splitlines()
        assert {json.loads(line)["level"] for line in lines} <= {"debug", "info"}

    def test_errors_are_messages_too(self, site: Site) -> None:
        done = site.call("--log-format", "json", "report", "--plan", "none")
        line = json.loads(done.stderr)
        assert (line["level"], bool(line["message"])) == ("error", True)

    @pytest.mark.parametrize("words", [["-v", "-q", "status"], ["status", "-v"], ["--log-format", "xml", "status"]])
    def test_options_that_make_no_sense_are_errors_of_usage(self, site: Site, words: list[str]) -> None:
        assert site.call(*words).returncode == 2
