"""`metrics`: Prometheus takes them, they are the ledger's sums, counters never go down, and unknown values are left out."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from migrator.bricks.drain.model import DrainSample
from migrator.core.events import Event, EventKind, Severity
from migrator.core.probe import Probe, ProbeSide, ProbeTimes
from migrator.core.states import ChunkKind, ChunkState
from migrator.core.windows import WindowStanding
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.report import model
from migrator.report.metrics import read_metrics
from migrator.report.model import MetricFamily, MetricKind, RunLife
from migrator.report.rules_metrics import families
from migrator.transfer import model as transfer
from migrator.transfer.model import Sample, StreamCounters
from tests.report.serving import site_of_weeks
from tests.support.facts import report
from tests.support.operations import AUDIT, CHECK, COMMIT, START, WATCH, do
from tests.support.records import attempt, end
from tests.support.report_world import DAY_S, Weeks
from tests.support.volumes import drain_sample

HOSTILE = (b'"quoted" \\ {x="y"}', b"invalid \xff\xfe", b"new\nline\x1b[31m", "\u202egpj".encode())
BRICK = 'gl1:/b"\\{}\n\u202e\udcff'


@pytest.fixture
def site_file(tmp_path: Path) -> Path:
    weeks = Weeks(users=8, chunks=80, names=HOSTILE)
    file = site_of_weeks(tmp_path, weeks)
    with open_ledger(tmp_path / "state" / "ledger.db") as ledger:
        fill(ledger, weeks.now_s)
    return file


def fill(ledger: Ledger, now_s: float) -> None:
    run = ledger.runs.start(verb="run", pid=1, at_s=now_s - 50, directory="runs/1")
    ledger.runs.finish(run, now_s - 20, 4)
    ledger.runs.start(verb="run", pid=os.getpid(), at_s=now_s, directory="runs/2")
    first = ledger.drains.plan(volume="vol1", volume_id="v", bricks=(BRICK,), at_s=now_s - DAY_S)
    do(ledger.drains, first, CHECK, START, at_s=now_s - DAY_S)
    other = ledger.drains.plan(volume="vol1", volume_id="v", bricks=("gl2:/b", "gl3:/b"), at_s=now_s - DAY_S)
    do(ledger.drains, other, CHECK, START, WATCH, AUDIT, COMMIT, at_s=now_s - DAY_S)
    ledger.drains.add_samples(
        first.id,
        [
            counted(now_s - 3600, "t1", "gl1", 10, 1000),
            counted(now_s - 1800, "t1", "gl1", 30, 3000),
            counted(now_s - 1800, "t1", "gl2", 5, 500),
            counted(now_s - 60, "t2", "gl1", 2, 200, failures=3),
        ],
    )
    times = ProbeTimes(create_s=0.1, write_s=0.2, sync_s=0.9, stat_s=0.01, unlink_s=0.02, readdir_s=0.03)
    ledger.probes.add(Probe(side=ProbeSide.SOURCE, at_s=now_s - 5, times=times))
    for _ in range(3):
        event = Event(
            at_s=now_s, kind=EventKind.CHUNK_FAILED, severity=Severity.ERROR, subject=HOSTILE[2].decode(), message="m"
        )
        ledger.events.add(event)


def counted(at_s: float, task: str, host: str, files: int, size_bytes: int, *, failures: int = 0) -> DrainSample:
    return drain_sample(files, size_bytes, at_s=at_s, task_id=task, host=host, failures=failures)


def read(site_file: Path, now_s: float) -> tuple[MetricFamily, ...]:
    with open_ledger(site_file.parent / "state" / "ledger.db", read_only=True) as ledger:
        return read_metrics(ledger, now_s=now_s)


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


def test_what_a_host_had_moved_before_its_reboot_counts(site_file: Path) -> None:
    weeks = Weeks(users=8, chunks=80, names=HOSTILE)
    with open_ledger(site_file.with_name("state") / "ledger.db") as ledger:
        first = next(one for one in ledger.drains.all() if one.bricks == (BRICK,))
        at_work = replace(counted(weeks.now_s - 50, "t2", "gl2", 40, 4000), runtime_s=9000.0)
        rebooted = replace(counted(weeks.now_s - 40, "t2", "gl2", 3, 300), runtime_s=10.0)
        ledger.drains.add_samples(first.id, [at_work, rebooted])
    found = read(site_file, weeks.now_s)
    assert values(found, "gluster_moved_files_total") == {("drain", "gl1"): 32.0, ("drain", "gl2"): 48.0}
    assert values(found, "gluster_moved_bytes_total")["drain", "gl2"] == 4800.0
    moved = sum(values(found, "gluster_moved_files_total").values())
    assert moved == sum(values(found, "drain_moved_files").values())


def test_they_are_the_sums_of_the_ledger(site_file: Path) -> None:
    weeks = Weeks(users=8, chunks=80, names=HOSTILE)
    found = read(site_file, weeks.now_s)
    assert sum(values(found, "planned_bytes").values()) == pytest.approx(sum(weeks.sizes), rel=1e-6)
    for name, labels, value in (
        ("attention_files", ("1",), 1.0),
        ("events_total", ("chunk-failed", "error"), 3.0),
        ("run_state", ("run", "at-work"), 1.0),
        ("drain_state", ("gl2:/b,gl3:/b", "committed"), 1.0),
        ("cutovers", ("thawed",), 5.0),
    ):
        assert values(found, name)[labels] == value
    for name, expected in (
        ("runs_total", {("run", "4"): 1.0}),
        ("gluster_moved_files_total", {("drain", "gl1"): 32.0, ("drain", "gl2"): 5.0}),
        ("gluster_moved_bytes_total", {("drain", "gl1"): 3200.0, ("drain", "gl2"): 500.0}),
        ("gluster_move_failures_total", {("drain", "gl1"): 3.0, ("drain", "gl2"): 0.0}),
        ("probe_latency_seconds", {("source",): 0.1}),
        ("verifications_total", {("yes",): 1.0, ("no",): 0.0}),
        ("frozen_users", {(): 0.0}),
    ):
        assert values(found, name) == expected
    assert next(one for one in found if one.name == "migrator_freeze_seconds").samples[-2].value == 5.0
    attempts = values(found, "attempts_total")
    assert set(attempts) == {("gl1", "direct", "succeeded")}
    assert values(found, "attempt_bytes_total")[("gl1", "direct")] == pytest.approx(
        sum(values(found, "copied_bytes").values())
    )
    assert values(found, "filesystem_free_bytes")[("target",)] > 0


def test_counters_never_go_down_whatever_comes(site_file: Path) -> None:
    weeks = Weeks(users=8, chunks=80, names=HOSTILE)
    before = read(site_file, weeks.now_s)
    with open_ledger(site_file.parent / "state" / "ledger.db") as ledger:
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
    assert risen >= {
        "migrator_stream_bytes_total",
        "migrator_runs_total",
        "migrator_gluster_moved_bytes_total",
        "migrator_events_total",
    }
    assert values(after, "attempts_total")[("gl9", "rsync", "failed")] == 1.0
    assert values(after, "streams") == {}


def go_on(ledger: Ledger, now_s: float) -> None:
    """A run is killed and comes again, a chunk fails, a drain is stopped and begun anew."""
    newest = ledger.runs.latest()
    assert newest is not None
    ledger.runs.finish(newest.id, now_s + 1, 4)
    pass_id = next(iter(ledger.passes.of_plan("week1"))).id
    ledger.samples.add(
        pass_id, [Sample(at_s=now_s + 2, interval_s=1.0, attempt_id=None, streams=1, files=1, size_bytes=9)]
    )
    last = next(one.id for one in ledger.passes.of_plan("week1") if one.batch == 8)
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
def test_what_is_refused(site_file: Path, words: tuple[str, ...], code: int, said: bytes) -> None:
    done = call(site_file, *words)
    assert done.returncode == code
    assert said in done.stderr


# --- From facts


GOVERNOR = transfer.GovernorRecord(
    at_s=1.0,
    run_id=1,
    gate=transfer.Gate.OPEN,
    bound=transfer.Bound.LATENCY,
    streams=3,
    most=8,
    hosts=(("gl1", 2), ("localhost", 1)),
    bwlimit_bytes_per_s=None,
    reason="",
    max_latency_s=0.05,
)


def window(when: str, changes_at_s: float | None) -> WindowStanding:
    return WindowStanding(
        when=when, jobs=None, bwlimit_bytes_per_s=None, holds=True, changes_at_s=changes_at_s, changes=""
    )


NIGHTS, ALWAYS = window("Mon-Fri 19:00-07:00", 500.0), window("00:00-24:00", None)
EMPTY = model.StatusFacts(at_s=100.0, site=None)
FACTS = model.MetricFacts(
    status=EMPTY,
    sums=model.MetricSums(),
    runs=(),
    capacity=(),
    governing=transfer.GoverningFacts(
        governor=GOVERNOR,
        windows=(NIGHTS, ALWAYS, NIGHTS),
        loads=(transfer.HostLoad(host="gl1", at_s=90.0, load=3.5),),
    ),
    frozen_since_s=(),
    version="1",
    read_s=0.5,
)


@pytest.mark.parametrize("life", [RunLife.AT_WORK, RunLife.KILLED, RunLife.ENDED])
def test_streams_and_limits_of_a_run_that_is_not_at_work_are_left_out(life: RunLife) -> None:
    run = replace(report().status.runs[0], verb="run", life=life)
    others = replace(run, verb="brick-drain", life=RunLife.AT_WORK)
    sums = model.MetricSums(counts={"streams": [(4, "gl1", "brick"), (1, "gl1", "mount")]})
    found = families(replace(FACTS, runs=(run, others), sums=sums))
    for name, there in (
        ("streams", {("gl1", "brick"): 4.0, ("gl1", "mount"): 1.0}),
        ("allowed_streams", {(): 3.0}),
        ("governor_bound", {("latency",): 1.0}),
        ("host_allowed_streams", {("gl1",): 2.0, ("localhost",): 1.0}),
        ("probe_latency_limit_seconds", {(): 0.05}),
        ("host_load", {("gl1",): 3.5}),
    ):
        assert values(found, name) == (there if life is RunLife.AT_WORK else {})
    assert values(found, "host_load_limit") == values(found, "bandwidth_limit_bytes_per_second") == {}
    assert values(found, "window_change_timestamp_seconds") == {("Mon-Fri 19:00-07:00",): 500.0}
    # Of two samples with the same labels Prometheus would accept none, nor any other metric.
    holds = next(family for family in found if family.name == "migrator_window_holds")
    assert sorted(sample.labels["window"] for sample in holds.samples) == ["00:00-24:00", "Mon-Fri 19:00-07:00"]
