"""Whatever state a migration is in: status, the live view, the report in all its forms, and metrics tell the same figures, which
hold together, and none of them is one that cannot be.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator.ledger.ledger import open_ledger
from migrator.render.document import Document
from migrator.render.html import to_html
from migrator.render.prometheus import to_prometheus
from migrator.render.text import to_json, to_markdown
from migrator.report.metrics import read_metrics
from migrator.report.model import MetricFamily, ReportFacts, StatusFacts, Tally, TreeState, WatchFacts
from migrator.report.report import read_report
from migrator.report.status import read_status
from migrator.report.view import report_document
from migrator.report.view_status import status_document
from migrator.report.view_watch import change_lines
from migrator.report.watch import read_watch
from tests.report.test_metrics import HOSTILE, fill
from tests.report.test_watch_view import drawn
from tests.support.report_world import OnePlan, Weeks

_CANNOT_BE = (
    re.compile(r"\b(nan|inf|infinity|none|null)\b", re.IGNORECASE),
    re.compile(r"(?<![\w.,-])-\d"),
    re.compile(r"\b(19\d\d|0001)-\d\d-\d\d"),
)
_SHARE = re.compile(r"(\d[\d,]*(?:\.\d+)?) %")
_MAY_EXCEED = re.compile(r"\d+ % of the expected \S+ \S+|the pace was \d+ % of that")


@dataclass(frozen=True)
class Look:
    """Everything that is told of one ledger at one moment."""

    status: StatusFacts
    watch: WatchFacts
    report: ReportFacts
    metrics: tuple[MetricFamily, ...]

    @property
    def documents(self) -> tuple[Document, Document]:
        return status_document(self.status, tree_rows=None), report_document(self.report)


@pytest.fixture(scope="module", params=[0.001, 0.6, 1.01])
def look(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Look:
    return look_at(tmp_path_factory.mktemp("weeks") / "ledger.db", request.param)


def look_at(file: Path, share: float) -> Look:
    """A migration of which so much is copied, with hostile names, drains, and cutovers."""
    weeks = Weeks(users=8, chunks=80, names=HOSTILE)
    weeks.fill(file, share=share)
    now_s = weeks.now_s
    with open_ledger(file) as ledger:
        fill(ledger, now_s)
        return Look(
            status=read_status(ledger, now_s=now_s, attention_limit=200, events_limit=30),
            watch=read_watch(ledger, now_s=now_s),
            report=read_report(ledger, OnePlan(weeks.plan), now_s=now_s),
            metrics=read_metrics(ledger, now_s=now_s),
        )


def values(look: Look, name: str) -> dict[tuple[str, ...], float]:
    """One metric by its labels."""
    family = next(one for one in look.metrics if one.name == f"migrator_{name}")
    return {tuple(one.labels.values()): one.value for one in family.samples}


def words(look: Look) -> Iterator[tuple[str, str]]:
    """All that people read, by where it stands."""
    for document in look.documents:
        yield "markdown", to_markdown(document)
        for chart in re.findall(r"<text[^>]*>([^<]*)", to_html(document)):
            yield "chart", chart
    for width, height in ((80, 24), (200, 60)):
        yield "watch", drawn(look.watch, width, height)
    yield "changes", "\n".join(change_lines(None, look.watch))


def test_nothing_is_told_that_cannot_be(look: Look) -> None:
    for place, text in words(look):
        for line in text.split("\n"):
            for pattern in _CANNOT_BE:
                assert not pattern.search(line), f"{place}: {line}"
            for share in _SHARE.findall(_MAY_EXCEED.sub("", line)):
                assert float(share.replace(",", "")) <= 100.0, f"{place}: {line}"


def tallies(status: StatusFacts) -> Iterator[Tally]:
    yield status.overall
    yield status.verified
    for batch in status.batches:
        yield batch.tally
    for tree in status.trees:
        yield tree.tally


def test_sums_fit(look: Look) -> None:
    status = look.status
    for tally in tallies(status):
        for done, total in (
            (tally.done_bytes, tally.total_bytes),
            (tally.done_files, tally.total_files),
            (tally.done_users, tally.total_users),
        ):
            assert 0 <= done <= total
    for name in ("total_bytes", "done_bytes", "total_files", "done_files"):
        whole = getattr(status.overall, name)
        assert sum(getattr(tree.tally, name) for tree in status.trees) == whole
    assert status.moved.done_bytes <= status.verified.done_bytes <= status.overall.done_bytes
    assert status.verified_content_bytes <= status.verified.done_bytes
    if status.plan is not None and not any(batch.passes for batch in status.batches) and look.report.plan is not None:
        # Before anything is copied, what is to be copied is what the plan's lists have.
        assert status.overall.total_bytes == sum(batch.size_bytes for batch in look.report.plan.batches)
        assert status.overall.total_files == sum(batch.files for batch in look.report.plan.batches)


def test_metrics_are_those_of_the_status(look: Look) -> None:
    status = look.status
    for name, field in (
        ("planned_bytes", "total_bytes"),
        ("copied_bytes", "done_bytes"),
        ("planned_files", "total_files"),
        ("copied_files", "done_files"),
    ):
        assert sum(values(look, name).values()) == float(sum(getattr(one.tally, field) for one in status.batches))
    if status.plan is not None:
        assert values(look, "total_bytes") == {(): float(status.overall.total_bytes)}
        assert values(look, "total_copied_bytes") == {(): float(status.overall.done_bytes)}
        assert values(look, "moved_bytes") == {(): float(status.moved.done_bytes)}
        trees = Counter(tree.state for tree in status.trees)
        assert values(look, "trees") == {(state.value,): trees[state] for state in TreeState}
        assert values(look, "verified_bytes") == {(): float(status.verified.done_bytes)}
        assert values(look, "verified_content_bytes") == {(): float(status.verified_content_bytes)}
    assert sum(values(look, "cutovers").values()) == len(status.cutovers)
    frozen = [one.frozen_since_s for one in status.cutovers if one.frozen_since_s is not None]
    assert values(look, "frozen_users") == {(): len(frozen)}
    assert values(look, "freeze_oldest_start_timestamp_seconds").get(()) == min(frozen, default=None)
    assert sum(values(look, "attention_files").values()) == status.attention_total
    assert sum(values(look, "vanished_files").values()) == status.vanished_total
    assert values(look, "blocked_subjects") == {(): len(status.blocked)}
    left = status.overall.left_files or status.overall.left_bytes
    first = status.estimates[0].left_s if status.estimates else None
    told = values(look, "copy_left_seconds").get(())
    assert told == (first if left or status.plan is None else 0.0)
    for drain in status.drains:
        brick = ",".join(drain.bricks)
        for name in ("left_bytes", "left_files", "left_seconds"):
            assert values(look, f"drain_{name}").get((brick,)) == getattr(drain, name.replace("seconds", "s"))
        assert values(look, "drain_moved_files")[brick,] == drain.moved_files
    assert sum(values(look, "gluster_moved_files_total").values()) == sum(drain.moved_files for drain in status.drains)
    for sample in {sample.side: sample for sample in look.report.capacity}.values():
        assert values(look, "filesystem_free_bytes")[sample.side.value,] == sample.free_bytes
    for family in look.metrics:
        for one in family.samples:
            assert one.value == one.value
            assert one.value >= 0.0 or family.name.endswith("timestamp_seconds"), (family.name, one)
    assert to_prometheus(look.metrics).count(b"# HELP") == len(look.metrics)


def test_report_and_live_view_are_of_the_same_status(look: Look) -> None:
    status = json.loads(to_json(look.status))
    assert json.loads(to_json(look.report))["status"] == status
    of_watch = json.loads(to_json(look.watch.status))
    cut = ("attention", "events")
    assert {key: value for key, value in of_watch.items() if key not in cut} == {
        key: value for key, value in status.items() if key not in cut
    }


def test_no_page_depends_on_the_zone_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = list(words(look_at(tmp_path / "here.db", 0.6)))
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        there = list(words(look_at(tmp_path / "there.db", 0.6)))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert here == there
