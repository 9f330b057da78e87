"""Looks at a real ledger, one after the other, and beside a writer."""

import os
import pty
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from migrator.core.events import Event, EventKind, Severity
from migrator.core.states import PassKind
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.report.watch import read_watch
from migrator.transfer.model import Sample
from tests.report.serving import site_of_weeks
from tests.report.test_status import T0_S
from tests.support.records import SITE, files
from tests.support.report_world import Weeks


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "ledger.db", create=True) as made:
        made.site.create(SITE)
        yield made


def copying(ledger: Ledger, *spans: float) -> int:
    """A run that began at T0_S, and was sampled so many seconds later."""
    run_id = ledger.runs.start(verb="run", pid=1, at_s=T0_S, directory="d")
    pass_id = ledger.passes.start(
        plan="p", batch=1, kind=PassKind.SEED, catalog="c", chunk_list="l", chunks=[files(1, 100)], at_s=T0_S
    ).id
    for after_s in spans:
        one = Sample(at_s=T0_S + after_s, interval_s=5.0, attempt_id=None, streams=1, files=1, size_bytes=500)
        ledger.samples.add(pass_id, [one])
    ledger.runs.heartbeat(run_id, T0_S + max(spans))
    return run_id


def add_event(ledger: Ledger, message: str) -> None:
    event = Event(at_s=T0_S, kind=EventKind.RUN_STARTED, severity=Severity.INFO, subject="s", message=message)
    ledger.events.add(event)


def test_news_are_what_came_since_the_look_before(ledger: Ledger) -> None:
    add_event(ledger, "old")
    first = read_watch(ledger, now_s=T0_S)
    assert first.news == ()
    add_event(ledger, "new")
    second = read_watch(ledger, now_s=T0_S, before=first)
    assert [event.message for event in second.news] == ["new"]
    assert read_watch(ledger, now_s=T0_S, before=second).news == ()


def test_rates_have_a_place_for_pauses_and_stay_when_the_run_has_ended(ledger: Ledger) -> None:
    run_id = copying(ledger, 5.0, 125.0)
    rates = read_watch(ledger, now_s=T0_S + 126.0).rates
    assert [rate > 0 for rate in rates] == [True, False, True]
    ledger.runs.finish(run_id, T0_S + 130.0, 0)
    assert read_watch(ledger, now_s=T0_S + 9e5).rates == rates


def test_between_two_looks_nothing_keeps_the_log_from_being_written_back(ledger: Ledger, tmp_path: Path) -> None:
    copying(ledger, 5.0)
    file = tmp_path / "ledger.db"
    with open_ledger(file, read_only=True) as reader:
        before = read_watch(reader, now_s=T0_S + 6.0)
        add_event(ledger, "while it is watched")
        writer = sqlite3.connect(file, timeout=0.0)
        try:
            # Whoever still reads an older state makes this busy.
            busy, *_ = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            writer.close()
        assert busy == 0
        assert [event.message for event in read_watch(reader, now_s=T0_S + 7.0, before=before).news] == [
            "while it is watched"
        ]


# --- The program itself, in a terminal and in a pipe


@contextmanager
def watching(directory: Path, stdout: int) -> Iterator["subprocess.Popen[bytes]"]:
    # What a shell begins in the background ignores Ctrl-C, and so would all that these tests begin.
    argv = ["env", "--default-signal=INT", sys.executable, "-m", "migrator"]
    argv += ["--site", str(site_of_weeks(directory, Weeks(users=3, chunks=30)))]
    process = subprocess.Popen(
        [*argv, "status", "--watch", "--interval", "10min"], stdout=stdout, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_terminal_is_restored_when_it_ends(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with watching(tmp_path, theirs) as process:
        shown = b""
        while b"Migration of" not in shown:
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=600) == 0
        assert os.read(ours, 65536).endswith(b"\x1b[?25h\x1b[?1049l")
    os.close(ours)
    os.close(theirs)


def test_a_pipe_gets_plain_lines_until_nobody_reads(tmp_path: Path) -> None:
    with watching(tmp_path, subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().decode().rstrip("\n").isprintable()
        process.stdout.close()
        process.stdout = None
        assert process.wait(timeout=600) == 0
