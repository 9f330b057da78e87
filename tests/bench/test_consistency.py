"""The suite `consistency`: on one directory that two hosts share, with faults of each kind, and on two mounts of a volume."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.bench import far_consistency as far
from migrator.bench import model
from migrator.bench.bench import run_benchmarks
from migrator.bench.rules import compare
from migrator.bench.suites import suite
from migrator.core.errors import ExitCode, UsageError
from tests.bench.bench_world import BenchSite, bench_site, cli_site
from tests.support.cluster.clients import another_client
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.site import lab_site

CHECKS = [step.name for step in suite(model.SuiteName.CONSISTENCY, 0.01).steps]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[BenchSite]:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with MigrationLedger.open(tmp_path / "ledger.db", create=True) as ledger:
        yield bench_site(ledger, tmp_path, os.fsencode(tmp_path / "one"), os.fsencode(tmp_path / "two"))


def ran(site: BenchSite, *hosts: str, places: int = 1) -> model.BenchmarkSummary:
    suites = (model.SuiteName.CONSISTENCY,)
    request = model.BenchmarkRequest(suites=suites, places=site.places[:places], hosts=hosts, runs=1)
    # Without patience each check looks once: what is wrong then stays so.
    return asyncio.run(run_benchmarks(request, replace(site.world, patience_ms=0)))


def verdicts(summary: model.BenchmarkSummary) -> dict[str, tuple[str, str]]:
    (comparison,) = compare(summary.results)
    return {step.step: (side.verdict, "; ".join(side.evidence)) for step in comparison.steps for side in step.sides}


def cut(path: Path, size_bytes: int = 3) -> None:
    os.truncate(path, path.stat().st_size - size_bytes)


Fault = Callable[[Path], object]
FAULTS: dict[str, tuple[str, Fault, str]] = {
    "create": ("@change files-1 1", lambda shared: (shared / "files-1/f3").unlink(), "f3: missing: ENOENT"),
    "append": ("@change files-1 2", lambda shared: cut(shared / "files-1/f0"), "f0: short: "),
    "replace": ("@change files-1 3", lambda shared: (shared / "files-1/f1").write_text("old"), "f1: wrong: 3 bytes"),
    "rename": ("@change files-1 4", lambda shared: (shared / "files-1/f2").touch(), "f2: stale: is gone"),
    "unlink": ("@change files-1 5", lambda shared: (shared / "files-1/g2").touch(), "g2: stale: is gone"),
    # The reader has no patience either: it reads once.
    "replace-under-readers": ("@wait-for reading", lambda _shared: None, "the last content was never seen (1 of 1"),
    "append-together": ("@append appended-1 4", lambda shared: cut(shared / "appended-1", 64), " lost"),
    "lock-fcntl": ("@wait-for held-0-1", lambda shared: (shared / "lock-0-1").unlink(), "the lock: granted"),
    "lock-flock": ("@wait-for held-1-1", lambda shared: (shared / "lock-1-1").unlink(), "the lock: granted"),
    "small-writers": ("@see small-1", lambda shared: (shared / "small-1/w7-1").mkdir(), "writes failed: EISDIR"),
}


def test_each_fault_is_found_by_its_check_with_the_evidence(site: BenchSite) -> None:
    left = dict(FAULTS)

    def after(argv: str, shared: Path) -> None:
        for name, (begin, fault, _) in list(left.items()):
            if argv.startswith(begin):
                del left[name]
                fault(shared)

    site.workloads.after_check = after
    summary = ran(site, "one", "two")
    assert left == {}
    assert summary.exit_code is ExitCode.FAILED
    found = verdicts(summary)
    for name, (_, _, said) in FAULTS.items():
        assert found[name][0].startswith("wrong for good or lost"), name
        assert said in found[name][1]
        assert "run 1: two: " in found[name][1] or "run 1: one: " in found[name][1]
    for name in set(CHECKS) - set(FAULTS):
        assert found[name] == (found[name][0], "")
        assert found[name][0].startswith("at once")
    assert os.listdir(os.fsdecode(site.places[0].root)) == []


def test_another_file_system_at_the_path_of_the_second_mount_ends_the_suite(site: BenchSite) -> None:
    summary = ran(site, "one", f"two:{os.fsdecode(site.places[1].root)}")
    assert summary.exit_code is ExitCode.FAILED
    assert "no other host sees any file that one made" in summary.failures[0]
    assert [list(Path(os.fsdecode(place.root)).iterdir()) for place in site.places] == [[], []]


@pytest.mark.parametrize(
    ("hosts", "places", "said"), [(("one",), 1, "two clients"), (("one", "one:/second"), 2, "one file system")]
)
def test_impossible_checks_are_refused(site: BenchSite, hosts: tuple[str, ...], places: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ran(site, *hosts, places=places)


def test_late_is_told_from_lost() -> None:
    problems = {"late": "missing: ENOENT", "lost": "short: 3 bytes"}

    def pause(_seconds: float) -> None:
        problems.pop("late", None)

    found = far.watch(["right", *problems], lambda _: dict(problems), 1, pause)
    assert (found["checked"], found["late"], found["wrong"]) == (3, 1, 1)
    assert found["evidence"][:2] == ["for good: 1 short", "lost: short: 3 bytes"]
    assert "late: missing: ENOENT; right within" in found["evidence"][2]


def test_stale_reads_and_lost_appends_are_found(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("half")
    found = far.keep_reading(1, str(path), str(tmp_path / "ready"), 3, 0)
    assert found["wrong"] == 2
    assert "4 bytes that were never there" in found["evidence"][0]
    path.write_bytes(far._record(0, 0) * 2 + far._record(0, 1)[:40] + far._record(1, 0)[:24])
    found = far.see_records(1, str(path), 2, 2, 0)
    assert (found["checked"], found["wrong"]) == (4, 5)
    assert found["evidence"][0] == "for good: 3 lost, 1 doubled, 1 overlapping"


@pytest.mark.exhaustive
def test_as_it_is_typed(tmp_path: Path) -> None:
    made = cli_site(tmp_path)
    words = ("bench", "run", "--suite", "consistency", "--on", "target", "--runs", "1", "--json")
    done = made.call(*words, "--hosts", "localhost", "--hosts", f"localhost:{made.target}")
    assert done.returncode == ExitCode.DONE, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert [one["step"] for one in result["measurements"]] == CHECKS
    assert any("are one mount of target" in note for note in result["record"]["notes"])
    shown = made.call("bench", "compare").stdout
    assert "Checks" in shown
    assert "at once: " in shown


@pytest.mark.exhaustive
@pytest.mark.cluster
@pytest.mark.needs_root
def test_two_mounts_of_a_volume(lab: LabHandle, tmp_path: Path, scratch: Path) -> None:
    words = ("bench", "run", "--suite", "consistency", "--on", "source", "--runs", "2", "--json")
    with lab_site(lab, scratch / "site", lab.target) as site, another_client(lab, tmp_path / "second"):
        site.call("init")
        done = site.call(*words, "--hosts", "localhost", "--hosts", f"localhost:{tmp_path / 'second'}")
    measured = json.loads(done.stdout)["results"][0]["measurements"]
    assert [one["step"] for one in measured] == CHECKS * 2
    # What GlusterFS 10 does wrong: docs/bench.md.
    wrong = {one["step"] for one in measured if one["details"]["wrong"]}
    assert wrong <= {"replace-under-readers", "race-mkdir"}
    assert done.returncode == ExitCode.FAILED if wrong else done.returncode in (ExitCode.DONE, ExitCode.ATTENTION)
