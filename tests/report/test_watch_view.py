"""The live view: what a window of which size shows, that nothing ever leaves it, and its lines without a terminal."""

import io
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console
from rich.screen import Screen

from migrator.app.ledger import MigrationLedger
from migrator.core.blocker import Blocker
from migrator.core.events import Event, EventKind, Severity
from migrator.core.states import PassKind
from migrator.cutover.model import CutoverState
from migrator.cutover.rules_states import frozen_users
from migrator.render.document import Bar
from migrator.report.model import MigrationStatus, ProgressCounts, RunLife, WatchFacts
from migrator.report.view_status import status_document
from migrator.report.view_watch import change_lines, screen
from migrator.report.watch import read_watch
from migrator.transfer.model import Sample
from tests.render.test_hostile import HOSTILE, assert_safe_text
from tests.render.test_hostile import text_of as decoded
from tests.report.serving import site_of_weeks
from tests.report.test_status import T0_S
from tests.support.facts import AT_S
from tests.support.records import SITE, at_work, files
from tests.support.report_world import Weeks
from tests.support.watch_facts import stream, watched

FACTS = watched()
STATUS = FACTS.status
RUN, BATCH = STATUS.runs[0], STATUS.batches[0]


def drawn(facts: WatchFacts, width: int, height: int, problem: str = "") -> str:
    """What a terminal of this size shows."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, height=height, color_system=None)
    console.print(Screen(screen(facts, problem, height=height)))
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().split("\n")[:height])


def changed(**fields: object) -> WatchFacts:
    return replace(FACTS, news=(), status=replace(STATUS, **fields))


@given(
    width=st.integers(20, 260),
    height=st.integers(4, 70),
    name=st.one_of(
        st.binary(min_size=1, max_size=40), st.text(min_size=1).map(lambda text: text.encode("utf-8", "replace"))
    ),
)
def test_nothing_leaves_a_window_of_any_size(width: int, height: int, name: bytes) -> None:
    lines = drawn(watched(b"home/" + name, decoded(name)), width, height, decoded(name)).split("\n")[:-1]
    assert len(lines) == height
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_text_and_nothing_else(name: bytes) -> None:
    facts = watched(b"home/" + name, decoded(name))
    for line in drawn(facts, 200, 50, decoded(name)).split("\n"):
        for character in line:
            assert unicodedata.category(character)[0] != "C", hex(ord(character))
    for line in change_lines(None, facts):
        assert "\n" not in line
        assert_safe_text(line)


def test_of_empty_files_alone_the_share_is_that_of_files_everywhere() -> None:
    tally = ProgressCounts(total_files=4, done_files=3, total_users=1)
    seen = replace(changed(overall=tally), streams=())
    (line,) = [line for line in drawn(seen, 80, 24).splitlines() if line.startswith("copied")]
    assert "75.0 %  0 B of 0 B, 3 of 4 files" in line
    assert line.count("█") == pytest.approx(3 * line.count("░"), abs=3)
    blocks = [block for section in status_document(seen.status).sections for block in section.blocks]
    bar = next(block for block in blocks if isinstance(block, Bar))
    assert (bar.share, bar.text) == (0.75, "75.0 % of the files copied, 3 of 4")


KILLED = replace(RUN, life=RunLife.KILLED, silent_s=7.0)
ENDED = replace(RUN, life=RunLife.ENDED, finished_at_s=AT_S - 60, exit_code=3)
BACK = replace(
    STATUS.cutovers[0],
    state=CutoverState.CARRYING_BACK,
    times={CutoverState.ROLLBACK_FREEZING: STATUS.at_s - 90.0, CutoverState.CARRYING_BACK: STATUS.at_s},
)
OLD = replace(STATUS.events[0], at_s=AT_S - 3 * 86400)
VERBS = (replace(RUN, id=2, verb="brick-drain", pid=4712), RUN, replace(RUN, id=0, pid=4000, life=RunLife.KILLED))


@pytest.mark.parametrize(
    ("facts", "said", "not_said"),
    [
        pytest.param(changed(frozen=frozen_users((BACK,), at_work=lambda _: False)), ("carrying-back  for 1 min 30 s",), (), id="frozen"),
        pytest.param(changed(runs=(KILLED,)), ("was killed 7.0 s ago", "was 3.0 MiB/s"), (), id="killed"),
        pytest.param(
            replace(changed(runs=(ENDED,)), streams=()),
            ("run (process 4711)  ended 1 min ago with exit code 3",),
            ("\nstreams",),
            id="ended",
        ),
        pytest.param(
            changed(runs=VERBS), ("brick-drain (process 4712)", "run (process 4711)"), ("4000",), id="newest of each verb"
        ),
        pytest.param(
            replace(FACTS, streams=(stream(1), stream(2, batch=2, pass_kind=PassKind.DELTA, pass_number=3))),
            ("batch 2 delta 3, chunk 12",),
            (),
            id="streams of two passes",
        ),
        pytest.param(
            changed(events=(STATUS.events[0], OLD)),
            ("events     00:53:20 error", "           2025-11-17 00:53:20 error"),
            (),
            id="date of old events",
        ),
        pytest.param(
            WatchFacts(status=MigrationStatus(at_s=AT_S, site=None)), ("no runs yet", "there is no plan yet"), (), id="empty"
        ),
    ],
)  # fmt: skip
def test_content_of_the_screen(facts: WatchFacts, said: tuple[str, ...], not_said: tuple[str, ...]) -> None:
    shown = drawn(facts, 120, 40)
    assert all(words in shown for words in said), shown
    assert not any(words in shown for words in not_said)


def test_docs_reports_explains_every_part_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")
    table = page.partition("| --- | --- |")[2].partition("\n\n")[0]
    explained = {name for row in re.findall(r"^\| ([^|]+) \|", table, flags=re.MULTILINE) for name in row.split(", ")}
    labels = [line[:11].strip() for line in drawn(FACTS, 100, 60).splitlines()[1:-1]]
    assert {re.sub(r"\d+$", "", label).strip() for label in labels} - {""} == explained


# --- Without a terminal


FIRST = """\
00:53:20 run (process 4711): for 16 min 40 s, last heartbeat 2.0 s ago
00:53:20 copied: 41.3 %: 620 B of 1.5 KiB, 4 of 15 files, about 2 h 30 min left
00:53:20 blocked: alice: on alice, migrator verify --user-batch 1
00:53:20 next: alice: copied by alice, migrator verify --user-batch 2
00:53:20 error: alice: m alice"""


def lines(before: WatchFacts | None, now: WatchFacts) -> list[str]:
    return list(change_lines(before, now))


def test_first_everything_is_printed_then_changes_and_events() -> None:
    assert STATUS.forecast is not None
    assert "\n".join(lines(None, FACTS)) == FIRST
    assert lines(FACTS, FACTS) == ["00:53:20 error: alice: m alice"]
    later = changed(
        at_s=AT_S + 2,
        runs=(replace(RUN, silent_s=4.0),),
        forecast=replace(STATUS.forecast, made_at_s=AT_S + 2),
        blocked=(replace(STATUS.blocked[0], on="no heartbeat for 33 s"),),
    )
    assert lines(FACTS, later) == [], "passing time is no change"
    now = changed(
        overall=replace(STATUS.overall, done_files=5),
        runs=(replace(RUN, life=RunLife.KILLED),),
        blocked=(Blocker(subject="run", on="process 7 was killed", hint="h"),),
    )
    assert [line.split(" ", 1)[1] for line in lines(FACTS, now)] == [
        "run (process 4711): was killed 2.0 s ago: run the same command again to resume",
        "copied: 41.3 %: 620 B of 1.5 KiB, 5 of 15 files, about 2 h 30 min left",
        "blocked: run: process 7 was killed, h",
    ]


@pytest.fixture
def ledger(ledger: MigrationLedger) -> MigrationLedger:
    ledger.site.create(SITE)
    return ledger


def copying(ledger: MigrationLedger, *spans: float) -> int:
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


def add_event(ledger: MigrationLedger, message: str) -> None:
    event = Event(at_s=T0_S, kind=EventKind.RUN_STARTED, severity=Severity.INFO, subject="s", message=message)
    ledger.events.add(event)


def test_rates_have_a_place_for_pauses_and_stay_when_the_run_has_ended(ledger: MigrationLedger) -> None:
    run_id = copying(ledger, 5.0, 125.0)
    rates = read_watch(ledger, now_s=T0_S + 126.0, holders=at_work((1, "d"))).rates
    assert [rate > 0 for rate in rates] == [True, False, True]
    ledger.runs.finish(run_id, T0_S + 130.0, 0)
    assert read_watch(ledger, now_s=T0_S + 9e5).rates == rates


def test_between_two_looks_nothing_keeps_the_log_from_being_written_back(
    ledger: MigrationLedger, tmp_path: Path
) -> None:
    copying(ledger, 5.0)
    add_event(ledger, "before it is watched")
    file = tmp_path / "ledger.db"
    with MigrationLedger.open(file, read_only=True) as reader:
        before = read_watch(reader, now_s=T0_S + 6.0)
        assert before.news == ()
        add_event(ledger, "while it is watched")
        writer = sqlite3.connect(file, timeout=0.0)
        try:
            # Whoever still reads an older state makes this busy.
            busy, *_ = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            writer.close()
        assert busy == 0
        after = read_watch(reader, now_s=T0_S + 7.0, before=before)
        assert [new.message for new in after.news] == ["while it is watched"]
        assert read_watch(reader, now_s=T0_S + 8.0, before=after).news == ()


# --- The program itself, in a terminal and in a pipe


@contextmanager
def watching(directory: Path, stdout: int) -> Iterator["subprocess.Popen[bytes]"]:
    # What a shell begins in the background ignores Ctrl-C, and so would all that these tests begin.
    argv = ["env", "--default-signal=INT", sys.executable, "-m", "migrator"]
    argv += ["--site", str(site_of_weeks(directory, Weeks(users=3, chunks=30)))]
    argv += ["status", "--watch", "--interval", "10min"]
    process = subprocess.Popen(argv, stdout=stdout, stderr=subprocess.PIPE)
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
        os.close(theirs)
        # The last side is closed: a read fails once everything was read.
        with suppress(OSError):
            while piece := os.read(ours, 65536):
                shown += piece
        assert shown.endswith(b"\x1b[?25h\x1b[?1049l")
    os.close(ours)


def test_a_pipe_gets_plain_lines_until_nobody_reads(tmp_path: Path) -> None:
    with watching(tmp_path, subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().decode().rstrip("\n").isprintable()
        process.stdout.close()
        process.stdout = None
        assert process.wait(timeout=600) == 0
