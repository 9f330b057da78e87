"""Closing records, findings and plans as documents; tables in the width that there is; progress, never in the way."""

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from migrator.cli.global_options import output_width
from migrator.core.entry import UserTree
from migrator.core.errors import ExitCode, UsageError
from migrator.core.events import Event, EventKind, Severity, failure, ok, warning
from migrator.core.progress import RunProgress, ScanProgress, StreamProgress, VerifyProgress
from migrator.core.units import several
from migrator.plan.view import plan_document
from migrator.render import document as doc
from migrator.render.charts import sparkline
from migrator.render.html import to_html
from migrator.render.live import ErrorConsole, LiveProgress
from migrator.render.log import set_log
from migrator.render.progress import LINE_INTERVAL_S, LineProgress, open_progress
from migrator.render.terminal import column_widths, print_document
from migrator.render.text import plain, to_json, to_markdown
from migrator.report.view_records import run_document
from migrator.report.view_status import finding_document
from migrator.transfer import model as transfer
from migrator.transfer.delta.model import ChangeKind, Changes, ChangeTally, TreeChanges
from migrator.transfer.model_convergence import ConvergenceOutcome
from migrator.transfer.model_runs import BatchSummary, DeltaSummary, RunSummary, TreeWork
from tests.support.fakes import VirtualClock
from tests.support.making import made
from tests.support.plans import small_plan, usage
from tests.support.time_zone import time_zone


def text_of(document: doc.Document) -> str:
    return to_markdown(document).replace("\\", "")


def tables_of(document: doc.Document) -> list[doc.Table]:
    return [block for section in document.sections for block in section.blocks if isinstance(block, doc.Table)]


def summary(batch: BatchSummary, *, dry_run: bool = False) -> RunSummary:
    return made(RunSummary, run_id=None if dry_run else 4, dry_run=dry_run, batches=(batch,))


def bad(path: bytes) -> transfer.FileProblem:
    return transfer.FileProblem(path=path, kind=transfer.FileProblemKind.BAD, errno=13, reason="Permission denied")


def test_a_dry_run_says_what_it_would_do() -> None:
    batch = BatchSummary(batch=1, left=(TreeWork(tree=b"home/a", chunks=2, files=30, size_bytes=2048),))
    document = run_document(summary(batch, dry_run=True))
    assert document.subtitle == "nothing was changed"
    (table,) = tables_of(document)
    assert (table.title, table.rows) == ("Would be done", (("home/a", "2", "30", "2.0 KiB"),))
    assert "delta pass" not in text_of(document)


def test_every_delta_pass_is_a_row_and_what_was_decided_after_it_a_sentence() -> None:
    counts = (1, 20, 300, 4000, 5, 6, 7)
    tallies = {kind: ChangeTally(paths=count, size_bytes=9) for kind, count in zip(ChangeKind, counts, strict=True)}
    trees = (TreeChanges(tree=b"home/a", names_before=9, bytes_before=9, by_kind=tallies),)
    first = DeltaSummary(
        number=3,
        files=4321,
        size_bytes=2048,
        elapsed_s=64.0,
        scan_s=10.0,
        changes=Changes(base="one", now="two", trees=trees),
        outcome=ConvergenceOutcome.CONVERGED,
        freeze_s=90.0,
        sentence="batch 1, delta pass 3: converged",
    )
    stopped = replace(first, number=4, changes=None, outcome=None, freeze_s=None, sentence="")
    document = run_document(summary(BatchSummary(batch=1, files=4321, deltas=(first, stopped))))
    (table,) = tables_of(document)
    assert table.title == "Delta passes"
    numbers = ("4,321", "2.0 KiB", "10 s", "1 min 4 s")
    assert table.rows == (
        ("3", "1", "4,320", "5", "6", "7", *numbers, "1 min 30 s"),
        ("4", doc.NONE, doc.NONE, doc.NONE, doc.NONE, doc.NONE, *numbers, doc.NONE),
    )
    assert "Batch 1, delta pass 3: converged" in text_of(document)


def test_findings_put_failures_first() -> None:
    document = finding_document(
        [ok("rsync", "3.2.7"), failure("mount", "nothing\x1b is mounted", "mount it"), warning("clock", "2 s", "ntp")]
    )
    (table,) = tables_of(document)
    assert table.rows == (("rsync", "3.2.7"),)
    shown = [block.text for block in document.sections[0].blocks if isinstance(block, doc.Paragraph)]
    assert shown[:2] == [r"FAILURE: mount: nothing\x1b is mounted", "To do: mount it"]
    assert shown[2:4] == ["warning: clock: 2 s", "To do: ntp"]
    assert document.subtitle == "1 failure, 1 warning, 1 ok."
    assert "Fix the failures" in text_of(document)
    assert "Fix" not in text_of(finding_document([ok("rsync", "3.2.7")]))


def test_a_plan_ranks_by_bytes_and_says_when_the_source_is_half_empty() -> None:
    light, heavy = (usage(UserTree(path=b"h/" + n.encode(), user=n), size, 10) for n, size in (("l", 10), ("h", 90)))
    plan = replace(small_plan(), ranking=(light, heavy), size_bytes=100, outside=usage(light.tree, 7, 3))
    document = plan_document(plan, ranking_rows=1)
    ranking = tables_of(document)[1]
    assert [row[1] for row in ranking.rows] == ["h"]
    assert ranking.rows[0][4] == "90.0 %"
    assert "1 more are not shown" in ranking.note
    assert "Outside every user tree lie 3 files with 7 B" in text_of(document)


def test_json_has_properties_and_a_form_of_every_value() -> None:
    assert plain({b"\xff": {ExitCode.DONE}, 3: (None, True, float("nan"), float("inf"), 1.5)}) == {
        "%FF": [0],
        "3": [None, True, None, None, 1.5],
    }
    assert plain(UsageError("m", cause="c", hint="h")) == {"message": "m", "cause": "c", "hint": "h"}
    assert plain("a\udcff") == "a\\udcff"
    with pytest.raises(TypeError, match="object"):
        plain(object())
    assert plain(Changes(base="a", now="b", trees=())) == {"base": "a", "now": "b", "trees": []}
    parsed = json.loads(to_json(summary(BatchSummary(batch=1, nothing_to_do=True))))
    assert (parsed["exit_code"], parsed["nothing_to_do"]) == (0, True)
    assert parsed["batches"][0]["refused"] is False


def test_wording() -> None:
    assert [doc.when(at_s) for at_s in (None, 0.0, 1e300)] == [doc.NONE, "1970-01-01 00:00 UTC", "beyond all dates"]
    with time_zone("Asia/Kathmandu"):
        assert doc.when(0.0) == "1970-01-01 05:30 +0530"
    counted = (several(1, "file"), several(2000, "file"), several(0, "x waits", "x wait"))
    assert counted == ("1 file", "2,000 files", "0 x wait")
    assert [sparkline(values) for values in ([], [0.0, 0.0], [0.0, 7.0])] == ["", "▁▁", "▁█"]
    assert len(sparkline([1.0] * 1000)) == 60


@given(st.text(alphabet="ab /\u2026"), st.integers(10, 60))
def test_short_text_stays_and_long_text_is_bounded(text: str, most: int) -> None:
    short = doc.shortened(text, most)
    if all(len(word) <= most for word in text.split(" ")) and len(text) <= 5 * most:
        assert short == text
    assert len(short) <= max(5 * most, 10)
    # Where the whole is cut, two words come to stand together.
    assert max(len(word) for word in short.split(" ")) <= 2 * most + 1


def test_tables_shorten_long_paths_in_their_middle_and_json_does_not() -> None:
    path = b"home/alice/" + b"d/" * 2000 + b"name"
    short = doc.shortened(f"{path.decode()}: Permission denied", doc.LINE_CHARACTERS)
    assert short.startswith("home/alice/d/d/")
    assert short.endswith("/d/name: Permission denied")
    assert len(short.partition(" ")[0]) == doc.LINE_CHARACTERS
    work = TreeWork(tree=path, chunks=1, files=1, size_bytes=1)
    run = summary(BatchSummary(batch=1, bad=(bad(path),), left=(work,)))
    document = run_document(run)
    terminal = io.StringIO()
    print_document(Console(file=terminal, width=132), document)
    assert len(terminal.getvalue()) < 4000
    for line in to_markdown(document).splitlines():
        # What to do about it stands beside a path.
        assert len(line) <= doc.FILE_CHARACTERS + 140
    assert "d/" * 200 not in to_html(document)
    assert path.decode() in to_json(run)


@given(
    st.lists(
        st.tuples(
            st.builds(
                doc.Column,
                name=st.text("ab ", max_size=12),
                right=st.booleans(),
                wide=st.booleans(),
                paths=st.just(False),
            ),
            st.text("xyz ", max_size=60),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(min_value=1, max_value=200),
)
def test_widths_fit_and_break_only_what_may_be_folded(cells: list[tuple[doc.Column, str]], width: int) -> None:
    columns, row = [column for column, _ in cells], tuple(cell for _, cell in cells)
    widths = column_widths(columns, [row], width)
    if widths is None:
        assert 2 * len(cells) + sum(max(len(cell), len(column.name)) for column, cell in cells) > width
        return
    assert sum(widths) + 2 * len(widths) <= width
    for column, cell, given_width in zip(columns, row, widths, strict=True):
        assert given_width >= (min(len(cell), 24) if column.wide else len(cell))


@pytest.mark.parametrize(
    ("columns", "is_terminal", "width"),
    [("80", False, 80), ("80", True, 80), (None, False, 132), (None, True, None), ("0", False, 132), ("x", True, None)],
)
def test_columns_are_honoured(columns: str | None, is_terminal: bool, width: int | None) -> None:
    environment = {} if columns is None else {"COLUMNS": columns}
    assert output_width(environment, is_terminal=is_terminal) == width


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def scan(rows: int) -> ScanProgress:
    return ScanProgress(elapsed_s=10.0, rows=rows, directories_waiting=2, problems=1)


def run(streams: int = 2) -> RunProgress:
    return RunProgress(
        batch=3,
        step="files",
        elapsed_s=60.0,
        files=50,
        size_bytes=2**30,
        total_files=200,
        total_bytes=2**32,
        rate_bytes_per_s=2.0**20,
        rate_files_per_s=12.0,
        eta_s=None,
        bad_files=1,
        streams=tuple(
            made(StreamProgress, stream=number, host="gl1", tree=b"home/\x1b[31m\n\xff", total_bytes=10)
            for number in range(streams)
        ),
    )


VERIFY = VerifyProgress(batch=3, elapsed_s=61.0, paths=1, total_paths=0, size_bytes=0, total_bytes=0, differences=2)
EVENT = Event(
    at_s=1_763_600_000.0,
    kind=EventKind.CHUNK_RETRIED,
    severity=Severity.WARNING,
    subject="chunk 7",
    message="bad\r\nnews \x1b[2J\u202e",
)


@contextmanager
def messages_on(stream: TextIO) -> Iterator[None]:
    set_log(stream=stream)
    try:
        yield
    finally:
        set_log()


class TestLines:
    def test_come_at_most_every_few_seconds(self) -> None:
        stream, clock = io.StringIO(), VirtualClock()
        with messages_on(stream), LineProgress(clock) as progress:
            for turn in range(int(LINE_INTERVAL_S * 8) * 2):
                progress.show(scan(turn))
                clock.at_s += 0.125
        lines = stream.getvalue().splitlines()
        assert [int(re.search(r"scan: (\d+)", line).group(1)) for line in lines] == [0, 40, 79]  # type: ignore[union-attr]

    def test_begin_when_a_scan_has_found_something(self) -> None:
        stream = io.StringIO()
        with messages_on(stream), LineProgress(VirtualClock()) as progress:
            progress.show(replace(scan(0), problems=0))
            progress.show(replace(scan(3), problems=0))
        assert re.findall(r"scan: (\d+)", stream.getvalue()) == ["3"]
        with messages_on(empty := io.StringIO()), LineProgress(VirtualClock()) as progress:
            progress.show(replace(scan(0), problems=0))
        assert empty.getvalue() == ""

    def test_say_what_matters(self) -> None:
        stream, clock = io.StringIO(), VirtualClock()
        with messages_on(stream), LineProgress(clock, interval_s=0.0) as progress:
            progress.show(run())
            progress.show(VERIFY)
            progress.event(EVENT)
        assert stream.getvalue().splitlines() == [
            "batch 3 files: 25.0 %, 1.0 GiB of 4.0 GiB, 50 of 200 files, 1.0 MiB/s, 12 files/s, 2 streams, "
            "time left unknown, 1 bad file",
            f"verify batch 3: {doc.NONE}, 1 of 0 paths, 0 B of 0 B compared, content of 0 B read, 2 differences, 1 min 1 s",
            r"00:53:20 warning: chunk 7: bad\x0d\x0anews \x1b[2J\xe2\x80\xae",
        ]

    def test_go_nowhere_when_nobody_reads(self) -> None:
        with messages_on(Closed()), LineProgress(VirtualClock()) as progress:
            progress.show(scan(1))
            progress.event(EVENT)
        stream = io.StringIO()
        stream.close()
        with messages_on(stream), LineProgress(VirtualClock()) as progress:
            progress.show(scan(1))


class TestLiveView:
    def test_shows_streams_and_ends_with_the_last_snapshot(self) -> None:
        stream, clock = Terminal(), VirtualClock()
        console = ErrorConsole(
            file=stream, force_terminal=True, width=120, height=40, color_system=None, highlight=False
        )
        with LiveProgress(console, clock) as progress:
            progress.show(run(20))
            drawn = stream.getvalue()
            progress.show(run(1))
            assert stream.getvalue() == drawn
            clock.at_s += 1.0
            progress.event(EVENT)
            progress.show(scan(5))
            progress.show(scan(6))
        written = stream.getvalue()
        assert r"home/\x1b[31m\x0a\xff" in written
        assert "and 4 more streams" in written
        assert "scan: 6 paths" in written.splitlines()[-1]
        assert r"bad\x0d\x0anews \x1b[2J" in written
        # Nothing of a name or a message reaches the terminal as a sequence of its own.
        assert "\x1b[31m" not in written
        assert "\x1b[2J" not in written
        assert "\u202e" not in written


def test_the_view_suits_the_stream() -> None:
    assert isinstance(open_progress(Terminal(), VirtualClock()), LiveProgress)
    assert isinstance(open_progress(io.StringIO(), VirtualClock()), LineProgress)
