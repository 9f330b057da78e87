"""Closing records, findings and plans as documents."""

import io
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from migrator.core.entry import UserTree
from migrator.core.errors import ExitCode, UsageError
from migrator.core.events import failure, ok, warning
from migrator.core.units import several
from migrator.delta.model import ChangeKind, Changes, ChangeTally, TreeChanges
from migrator.plan.view import plan_document
from migrator.render.charts import sparkline
from migrator.render.document import FILE_CHARACTERS, LINE_CHARACTERS, NONE, Document, Table, shortened, when
from migrator.render.html import to_html
from migrator.render.terminal import print_document
from migrator.render.text import plain, to_json, to_markdown
from migrator.report.view_records import run_document
from migrator.report.view_status import finding_document
from migrator.transfer import model as transfer
from migrator.transfer.model import BatchSummary, RunSummary
from tests.support.plans import small_plan, usage


def text_of(document: Document) -> str:
    return to_markdown(document).replace("\\", "")


def tables_of(document: Document) -> list[Table]:
    return [block for section in document.sections for block in section.blocks if isinstance(block, Table)]


def summary(batch: BatchSummary, *, dry_run: bool = False) -> RunSummary:
    return RunSummary(
        run_id=None if dry_run else 4, directory=None if dry_run else "runs/4", dry_run=dry_run, batches=(batch,)
    )


def bad(path: bytes) -> transfer.FileProblem:
    return transfer.FileProblem(path=path, kind=transfer.FileProblemKind.BAD, errno=13, reason="Permission denied")


def test_a_dry_run_says_what_it_would_do() -> None:
    batch = BatchSummary(batch=1, left=(transfer.TreeWork(tree=b"home/a", chunks=2, files=30, size_bytes=2048),))
    document = run_document(summary(batch, dry_run=True))
    assert document.subtitle == "nothing was changed"
    (table,) = tables_of(document)
    assert (table.title, table.rows) == ("Would be done", (("home/a", "2", "30", "2.0 KiB"),))
    assert "delta pass" not in text_of(document)


def test_every_delta_pass_is_a_row_and_what_was_decided_after_it_a_sentence() -> None:
    counts = (1, 20, 300, 4000, 5, 6, 7)
    tallies = {kind: ChangeTally(paths=count, size_bytes=9) for kind, count in zip(ChangeKind, counts, strict=True)}
    trees = (TreeChanges(tree=b"home/a", names_before=9, bytes_before=9, by_kind=tallies),)
    first = transfer.DeltaSummary(
        number=3,
        files=4321,
        size_bytes=2048,
        elapsed_s=64.0,
        scan_s=10.0,
        changes=Changes(base="one", now="two", trees=trees),
        outcome=transfer.ConvergenceOutcome.CONVERGED,
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
        ("4", NONE, NONE, NONE, NONE, NONE, *numbers, NONE),
    )
    assert "Batch 1, delta pass 3: converged" in text_of(document)


def test_findings_put_failures_first() -> None:
    document = finding_document(
        [ok("rsync", "3.2.7"), failure("mount", "nothing\x1b is mounted", "mount it"), warning("clock", "2 s", "ntp")]
    )
    (table,) = tables_of(document)
    assert [row[:2] for row in table.rows] == [("FAILURE", "mount"), ("warning", "clock"), ("ok", "rsync")]
    assert table.rows[0][2] == r"nothing\x1b is mounted"
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
    parsed = json.loads(to_json(summary(BatchSummary(batch=1, nothing_to_do=True))))
    assert (parsed["exit_code"], parsed["nothing_to_do"]) == (0, True)
    assert parsed["batches"][0]["refused"] is False


def test_wording() -> None:
    assert [when(at_s) for at_s in (None, 0.0, 1e300)] == [NONE, "1970-01-01 00:00 UTC", "beyond all dates"]
    counted = (several(1, "file"), several(2000, "file"), several(0, "x waits", "x wait"))
    assert counted == ("1 file", "2,000 files", "0 x wait")
    assert [sparkline(values) for values in ([], [0.0, 0.0], [0.0, 7.0])] == ["", "▁▁", "▁█"]
    assert len(sparkline([1.0] * 1000)) == 60


@given(st.text(alphabet="ab /\u2026"), st.integers(10, 60))
def test_short_text_stays_and_long_text_is_bounded(text: str, most: int) -> None:
    short = shortened(text, most)
    if all(len(word) <= most for word in text.split(" ")) and len(text) <= 5 * most:
        assert short == text
    assert len(short) <= max(5 * most, 10)
    # Where the whole is cut, two words come to stand together.
    assert max(len(word) for word in short.split(" ")) <= 2 * most + 1


def test_tables_shorten_long_paths_in_their_middle_and_json_does_not() -> None:
    path = b"home/alice/" + b"d/" * 2000 + b"name"
    short = shortened(f"{path.decode()}: Permission denied", LINE_CHARACTERS)
    assert short.startswith("home/alice/d/d/")
    assert short.endswith("/d/name: Permission denied")
    assert len(short.partition(" ")[0]) == LINE_CHARACTERS
    work = transfer.TreeWork(tree=path, chunks=1, files=1, size_bytes=1)
    run = summary(BatchSummary(batch=1, bad=(bad(path),), left=(work,)))
    document = run_document(run)
    terminal = io.StringIO()
    print_document(Console(file=terminal, width=132), document)
    assert len(terminal.getvalue()) < 4000
    for line in to_markdown(document).splitlines():
        # What to do about it stands beside a path.
        assert len(line) <= FILE_CHARACTERS + 140
    assert "d/" * 200 not in to_html(document)
    assert path.decode() in to_json(run)
