"""`metrics` is what Prometheus takes, and status, live view, report and metrics tell the same figures, which hold together."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from migrator.app.ledger import MigrationLedger
from migrator.bricks.progress import TaskSample
from migrator.core.events import Event, EventKind, Severity
from migrator.core.probe import Probe, ProbeSide, ProbeTimes
from migrator.core.states import ChunkKind, ChunkState
from migrator.core.windows import WindowStanding
from migrator.render.document import Document
from migrator.render.html import to_html
from migrator.render.text import to_json, to_markdown
from migrator.report import model
from migrator.report.prometheus import to_prometheus
from migrator.report.report import read_report
from migrator.report.rules_metrics import MetricFamily, MetricKind, families
from migrator.report.status import read_metrics, read_status
from migrator.report.view import report_document
from migrator.report.view_status import status_document
from migrator.report.view_watch import change_lines
from migrator.report.watch import read_watch
from migrator.transfer.model import Sample, StreamCounters
from migrator.transfer.model_governor import Bound, GoverningFacts, GovernorRecord, HostLoad
from tests.report.serving import site_of_weeks
from tests.report.test_watch_view import drawn
from tests.support.facts import report
from tests.support.making import made
from tests.support.operations import AUDIT, CHECK, COMMIT, START, WATCH, do, plan_drain
from tests.support.records import at_work, attempt, end
from tests.support.report_world import DAY_S, OnePlan, Weeks
from tests.support.time_zone import time_zone
from tests.support.volumes import drain_sample

HOSTILE = (b'"quoted" \\ {x="y"}', b"invalid \xff\xfe", b"new\nline\x1b[31m", "\u202egpj".encode())
BRICK = 'gl1:/b"\\{}\n\u202e\udcff'


@pytest.fixture(scope="module")
def site_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    weeks = Weeks(users=8, chunks=80, names=HOSTILE, drained=0)
    file = site_of_weeks(tmp_path_factory.mktemp("site"), weeks)
    with MigrationLedger.open(file.parent / "state" / "ledger.db") as ledger:
        fill(ledger, weeks.now_s)
    return file


def fill(ledger: MigrationLedger, now_s: float) -> None:
    run = ledger.runs.start(verb="run", pid=1, at_s=now_s - 50, directory="runs/1")
    ledger.runs.finish(run, now_s - 20, 4)
    ledger.runs.start(verb="run", pid=os.getpid(), at_s=now_s, directory="runs/2")
    first = plan_drain(ledger, (BRICK,), at_s=now_s - DAY_S)
    do(ledger.drains, first, CHECK, START, at_s=now_s - DAY_S)
    other = plan_drain(ledger, ("gl2:/b", "gl3:/b"), at_s=now_s - DAY_S)
    do(ledger.drains, other, CHECK, START, WATCH, AUDIT, COMMIT, at_s=now_s - DAY_S)
    ledger.drains.add_samples(
        first.id,
        [
            counted(now_s - 3600, "t1", "gl1", 10, 1000),
            counted(now_s - 1800, "t1", "gl1", 30, 3000),
            counted(now_s - 1800, "t1", "gl2", 5, 500),
            counted(now_s - 60, "t2", "gl1", 2, 200, failures=3),
            # It was rebooted.
            replace(counted(now_s - 50, "t2", "gl2", 40, 4000), runtime_s=9000.0),
            replace(counted(now_s - 40, "t2", "gl2", 3, 300), runtime_s=10.0),
        ],
    )
    times = ProbeTimes(create_s=0.1, write_s=0.2, sync_s=0.9, stat_s=0.01, unlink_s=0.02, readdir_s=0.03)
    ledger.probes.add(Probe(side=ProbeSide.SOURCE, at_s=now_s - 5, times=times))
    for _ in range(3):
        facts = {"kind": EventKind.CHUNK_FAILED, "severity": Severity.ERROR, "subject": HOSTILE[2].decode()}
        ledger.events.add(made(Event, at_s=now_s, **facts))


def counted(at_s: float, task: str, host: str, files: int, size_bytes: int, *, failures: int = 0) -> TaskSample:
    return drain_sample(files, size_bytes, at_s=at_s, task_id=task, host=host, failures=failures)


def read(site_file: Path, now_s: float) -> tuple[MetricFamily, ...]:
    with MigrationLedger.open(site_file.parent / "state" / "ledger.db", read_only=True) as ledger:
        return read_metrics(ledger, now_s=now_s, holders=at_work((os.getpid(), "runs/2")))


def values(found: Sequence[MetricFamily], name: str) -> dict[tuple[str, ...], float]:
    family = next(one for one in found if one.name == f"migrator_{name}")
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


def call(site_file: Path, *words: str) -> "subprocess.CompletedProcess[bytes]":
    argv = [sys.executable, "-m", "migrator", "--site", str(site_file), "metrics", *words]
    done = subprocess.run(argv, capture_output=True, check=False, timeout=600)
    assert b"Traceback" not in done.stderr
    return done


def test_prometheus_takes_them_whatever_things_are_called(site_file: Path) -> None:
    done = call(site_file)
    assert (done.returncode, done.stderr) == (0, b"")
    if (program := shutil.which("promtool")) is not None:
        checked = subprocess.run([program, "check", "metrics"], input=done.stdout, capture_output=True, check=False)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
    families = {family.name: family for family in text_string_to_metric_families(done.stdout.decode())}
    bricks = {sample.labels["brick"] for sample in families["migrator_drain_state"].samples}
    assert bricks == {'gl1:/b"\\{}\n\u202e\\udcff', "gl2:/b,gl3:/b"}
    for name in HOSTILE:
        assert name not in done.stdout
    by_name = {family["name"]: family for family in json.loads(call(site_file, "--json").stdout)}
    assert by_name["migrator_drain_failures"]["samples"][0]["value"] == 3.0


def test_they_are_the_sums_of_the_ledger(site_file: Path) -> None:
    weeks = Weeks(users=8, chunks=80, names=HOSTILE, drained=0)
    found = read(site_file, weeks.now_s)
    assert sum(values(found, "planned_bytes").values()) == pytest.approx(sum(weeks.sizes), rel=1e-6)
    for name, labels, value in (
        ("events_total", ("chunk-failed", "error"), 3.0),
        ("run_state", ("run", "at-work"), 1.0),
        ("drain_state", ("gl2:/b,gl3:/b", "committed"), 1.0),
    ):
        assert values(found, name)[labels] == value
    for name, expected in (
        ("runs_total", {("run", "0"): 1.0, ("run", "4"): 1.0}),
        ("gluster_moved_bytes_total", {("drain", "gl1"): 3200.0, ("drain", "gl2"): 4800.0}),
        ("probe_latency_seconds", {("source",): 0.1}),
    ):
        assert values(found, name) == expected
    assert next(one for one in found if one.name == "migrator_freeze_seconds").samples[-2].value == 5.0
    assert set(values(found, "attempts_total")) == {("gl1", "direct", "succeeded")}
    copied = sum(values(found, "copied_bytes").values())
    assert values(found, "attempt_bytes_total")["gl1", "direct"] == pytest.approx(copied)


def test_counters_never_go_down_whatever_comes(site_file: Path, tmp_path: Path) -> None:
    weeks = Weeks(users=8, chunks=80, names=HOSTILE, drained=0)
    site_file = shutil.copytree(site_file.parent, tmp_path / "own") / "site.toml"
    before = read(site_file, weeks.now_s)
    with MigrationLedger.open(site_file.parent / "state" / "ledger.db") as ledger:
        go_on(ledger, weeks.now_s)
    after = read(site_file, weeks.now_s + 600)
    risen = set()
    for old, new in zip(before, after, strict=True):
        if old.kind is not MetricKind.GAUGE:
            now = {(sample.name, tuple(sample.labels.items())): sample.value for sample in new.samples}
            for sample in old.samples:
                value = now[sample.name, tuple(sample.labels.items())]
                assert value >= sample.value, sample
                if value > sample.value:
                    risen.add(old.name)
    names = ("stream_bytes", "runs", "gluster_moved_bytes", "events")
    assert risen >= {f"migrator_{name}_total" for name in names}
    assert values(after, "attempts_total")[("gl9", "rsync", "failed")] == 1.0
    assert values(after, "streams") == {}


def go_on(ledger: MigrationLedger, now_s: float) -> None:
    """A run is killed and comes again, a chunk fails, a drain is stopped and begun anew."""
    newest = ledger.runs.latest()
    assert newest is not None
    ledger.runs.finish(newest.id, now_s + 1, 4)
    pass_id = next(iter(ledger.passes.of_plan("week1"))).id
    ledger.samples.add(pass_id, [made(Sample, at_s=now_s + 2, interval_s=1.0, streams=1, files=1, size_bytes=9)])
    last = max(one.id for one in ledger.passes.of_plan("week1"))
    chunk = ledger.passes.pending(last, ChunkKind.FILES, 1)[0]
    tried = attempt(ledger, chunk.id, "t", host="gl9", at_s=now_s + 3)
    counters = StreamCounters(files=1, size_bytes=5)
    end(ledger, tried, state="failed", chunk=ChunkState.PENDING, counters=counters, at_s=now_s + 4)
    ledger.drains.add_samples(ledger.drains.all()[0].id, [counted(now_s + 5, "t3", "gl1", 1, 10)])
    ledger.events.add(Event(at_s=now_s, kind=EventKind.CHUNK_FAILED, severity=Severity.ERROR, subject="s", message="m"))


def test_a_textfile_is_whole_and_for_everybody(site_file: Path, tmp_path: Path) -> None:
    place = tmp_path / "collector"
    place.mkdir()
    file = place / "migrator.prom"
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (place / ".migrator.prom.part").symlink_to(secret)
    done = call(site_file, "--textfile", str(file))
    assert (done.returncode, done.stdout) == (0, b"")
    assert os.listdir(place) == ["migrator.prom"]
    assert file.stat().st_mode & 0o777 == 0o644
    assert secret.read_text() == "secret"
    assert b"migrator_build_info" in file.read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--textfile", "/nonexistent/x.prom"), 1, b"cannot be written"),
        # node_exporter does not read other names.
        (("--textfile", "/tmp/migrator.txt"), 2, b"migrator.prom"),
        (("--interval", "10s"), 2, b""),
    ],
)
def test_invalid_options_are_refused(site_file: Path, words: tuple[str, ...], code: int, said: bytes) -> None:
    done = call(site_file, *words)
    assert done.returncode == code
    assert said in done.stderr


# --- From facts


HOSTS = (("gl1", 2), ("localhost", 1))
GOVERNOR = made(GovernorRecord, bound=Bound.LATENCY, streams=3, hosts=HOSTS, max_latency_s=0.05)


def window(when: str, changes_at_s: float | None) -> WindowStanding:
    return made(WindowStanding, when=when, holds=True, changes_at_s=changes_at_s)


NIGHTS, ALWAYS = window("Mon-Fri 19:00-07:00", 500.0), window("00:00-24:00", None)
LOADS = (HostLoad(host="gl1", at_s=90.0, load=3.5),)
GOVERNING = GoverningFacts(governor=GOVERNOR, windows=(NIGHTS, ALWAYS, NIGHTS), loads=LOADS)
FACTS = made(model.MetricFacts, sums={"freeze_seconds": ()}, governing=GOVERNING)


@pytest.mark.parametrize("life", [model.RunLife.AT_WORK, model.RunLife.KILLED, model.RunLife.ENDED])
def test_streams_and_limits_of_a_run_that_is_not_at_work_are_left_out(life: model.RunLife) -> None:
    run = replace(report().status.runs[0], verb="run", life=life)
    others = replace(run, verb="brick-drain", life=model.RunLife.AT_WORK)
    sums = {**FACTS.sums, "streams": [(4, "gl1", "brick"), (1, "gl1", "mount")]}
    governing = replace(GOVERNING, at_work=life is model.RunLife.AT_WORK)
    found = families(replace(FACTS, runs=(run, others), sums=sums, governing=governing))
    for name, there in (
        ("streams", {("gl1", "brick"): 4.0, ("gl1", "mount"): 1.0}),
        ("allowed_streams", {(): 3.0}),
        ("governor_bound", {("latency",): 1.0}),
        ("host_allowed_streams", {("gl1",): 2.0, ("localhost",): 1.0}),
        ("probe_latency_limit_seconds", {(): 0.05}),
        ("host_load", {("gl1",): 3.5}),
    ):
        assert values(found, name) == (there if life is model.RunLife.AT_WORK else {})
    assert values(found, "host_load_limit") == {}
    # Of two samples with the same labels Prometheus would accept none, nor any other metric.
    holds = next(family for family in found if family.name == "migrator_window_holds")
    assert sorted(sample.labels["window"] for sample in holds.samples) == ["00:00-24:00", "Mon-Fri 19:00-07:00"]


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

    status: model.MigrationStatus
    watch: model.WatchFacts
    report: model.ReportFacts
    metrics: tuple[MetricFamily, ...]

    @property
    def documents(self) -> tuple[Document, Document]:
        return status_document(self.status, tree_rows=None), report_document(self.report)


@pytest.fixture(scope="module", params=[0.001, 0.6, 1.01])
def look(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Look:
    return look_at(tmp_path_factory.mktemp("weeks") / "ledger.db", request.param)


def look_at(file: Path, share: float) -> Look:
    """A migration of which so much is copied, with hostile names, drains, and cutovers."""
    weeks = Weeks(users=8, chunks=80, names=HOSTILE, drained=0)
    weeks.fill(file, share=share)
    now_s = weeks.now_s
    with MigrationLedger.open(file) as ledger:
        fill(ledger, now_s)
        plans = OnePlan(plan=weeks.plan)
        return Look(
            status=read_status(ledger, now_s=now_s, attention_limit=200, events_limit=30, read_plan=plans.read),
            watch=read_watch(ledger, now_s=now_s, read_plan=plans.read),
            report=read_report(ledger, plans, now_s=now_s),
            metrics=read_metrics(ledger, now_s=now_s, read_plan=plans.read),
        )


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


def tallies(status: model.MigrationStatus) -> Iterator[model.ProgressCounts]:
    yield status.overall
    yield status.verified
    for batch in status.batches:
        yield batch.tally
    for tree in status.trees:
        yield tree.tally


def test_sums_fit(look: Look) -> None:
    status = look.status
    for tally in tallies(status):
        for name in ("bytes", "files", "users"):
            assert 0 <= getattr(tally, f"done_{name}") <= getattr(tally, f"total_{name}")
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
        assert sum(values(look.metrics, name).values()) == sum(getattr(one.tally, field) for one in status.batches)
    if status.plan is not None:
        assert values(look.metrics, "total_bytes") == {(): float(status.overall.total_bytes)}
        assert values(look.metrics, "total_copied_bytes") == {(): float(status.overall.done_bytes)}
        assert values(look.metrics, "moved_bytes") == {(): float(status.moved.done_bytes)}
        trees = Counter(tree.state for tree in status.trees)
        assert values(look.metrics, "trees") == {(state.value,): trees[state] for state in model.TreeState}
        assert values(look.metrics, "verified_bytes") == {(): float(status.verified.done_bytes)}
    assert sum(values(look.metrics, "cutovers").values()) == len(status.cutovers)
    frozen = [one.frozen_since_s for one in status.cutovers if one.frozen_since_s is not None]
    assert values(look.metrics, "frozen_users") == {(): len(frozen)}
    assert values(look.metrics, "freeze_oldest_start_timestamp_seconds").get(()) == min(frozen, default=None)
    assert sum(values(look.metrics, "attention_files").values()) == status.attention_total
    assert values(look.metrics, "blocked_subjects") == {(): len(status.blocked)}
    left = status.overall.left_files or status.overall.left_bytes
    first = None if status.forecast is None else status.forecast.left_s
    told = values(look.metrics, "copy_left_seconds").get(())
    assert told == (first if left or status.plan is None else 0.0)
    dates = values(look.metrics, "expected_timestamp_seconds")
    for date in status.milestones:
        for bound, at_s in (("earliest", date.earliest_at_s), ("likely", date.at_s), ("latest", date.latest_at_s)):
            assert dates.get((date.goal.value, bound)) == (None if date.done else at_s)
    for drain in status.drains:
        brick = ",".join(drain.bricks)
        assert values(look.metrics, "drain_left_bytes").get((brick,)) == drain.left_bytes
    moved = sum(drain.moved_bytes for drain in status.drains)
    assert sum(values(look.metrics, "gluster_moved_bytes_total").values()) == moved
    for sample in {sample.side: sample for sample in look.report.capacity}.values():
        assert values(look.metrics, "filesystem_free_bytes")[sample.side.value,] == sample.free_bytes
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


def test_pages_have_the_zone_of_the_machine_and_json_does_not(tmp_path: Path) -> None:
    look = look_at(tmp_path / "ledger.db", 0.6)
    here, as_json = [page for _, page in words(look)], to_json(look.report)
    with time_zone("Europe/Berlin"):
        there = [page for _, page in words(look)]
        assert to_json(look.report) == as_json
    assert any("UTC" in page for page in here)
    assert [page for page in there if "UTC" in page] == []
    # The migration begins in summer and is shown in winter.
    assert all(any(zone in page for page in there) for zone in (" CET", " CEST"))
