"""`bench run` on real directories: every suite, several hosts, what fails, what is left."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from migrator.bench.hosts import WorkDirectory
from migrator.bench.model import (
    BENCH_NAME,
    BenchmarkRecord,
    BenchmarkRequest,
    BenchmarkState,
    Measurement,
    Place,
    Step,
    SuiteName,
    Unit,
)
from migrator.bench.stage import LOCK, clean_up, run_benchmarks
from migrator.bench.suites import suite
from migrator.core.errors import ExitCode, LockHeld, Refused, ToolFailed
from migrator.hosts.ports import HostLost
from migrator.ledger.ledger import open_ledger
from tests.bench.bench_world import TOKEN, BenchSite, bench_site

TINY = 0.0002


@pytest.fixture
def site(tmp_path: Path) -> Iterator[BenchSite]:
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        root.mkdir()
    with open_ledger(tmp_path / "ledger.db", create=True) as ledger:
        yield bench_site(ledger, tmp_path, *(os.fsencode(root) for root in roots))


def request(site: BenchSite, *suites: SuiteName, **changes: object) -> BenchmarkRequest:
    made = BenchmarkRequest(suites=suites, places=site.places, hosts=("localhost",), runs=1, scale=TINY, watch_s=0.0)
    return replace(made, **changes)  # type: ignore[arg-type]


def work_path(directory: WorkDirectory) -> Path:
    return Path(os.fsdecode(directory.place.root)) / os.fsdecode(BENCH_NAME) / directory.name / directory.part


def left_in(site: BenchSite) -> list[str]:
    return [name for place in site.places for name in os.listdir(os.fsdecode(place.root))]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", list(SuiteName))
def test_every_suite_is_measured_on_both_and_leaves_nothing(site: BenchSite, name: SuiteName) -> None:
    summary = asyncio.run(run_benchmarks(request(site, name), site.world))
    assert summary.exit_code is ExitCode.DONE, summary.failures
    (result,) = summary.results
    assert result.record.state is BenchmarkState.DONE
    assert all(place.filesystem for place in result.record.places)
    wanted = [
        (place.label, step.name, step.unit)
        for place in site.places
        for step in suite(name, TINY).steps
        if step.unit is not None and not site.workloads.missing.intersection(step.programs)
    ]
    assert [(one.place, one.step, one.unit) for one in result.measurements] == wanted
    assert all(one.value > 0 and one.run == 1 and one.cold for one in result.measurements)
    assert tuple(site.ledger.benchmarks.measurements(result.record.id)) == result.measurements
    assert left_in(site) == []
    for one in result.measurements:
        check_details(one)


def check_details(one: Measurement) -> None:
    """What is measured beside the figure."""
    details = one.details
    if one.unit is Unit.MILLISECONDS:
        assert details["p50_ms"] <= details["p90_ms"] <= details["p99_ms"] <= details["p999_ms"] <= details["max_ms"]
        assert details["reads"] >= 17
        assert one.value == pytest.approx(details["mean_ms"])
    if one.step.startswith("random"):
        assert details["bytes_per_s"] == pytest.approx(one.value * 4096, rel=0.01)
        assert details["p99_ms"] > 0


def test_runs_alternate_between_the_file_systems(site: BenchSite) -> None:
    summary = asyncio.run(run_benchmarks(request(site, SuiteName.RECURSIVE, runs=2), site.world))
    order = [(one.run, one.place) for one in summary.results[0].measurements if one.step == "du"]
    assert order == [(run, label) for run in (1, 2) for label in ("source", "target")]
    looks = [one.background for one in summary.results[0].measurements]
    assert all(look and look[0].load_average is not None for look in looks)


def test_caches_are_dropped_and_a_host_that_may_not_is_told(site: BenchSite) -> None:
    site.workloads.really_drop = os.geteuid() == 0
    site.workloads.dropped = False
    summary = asyncio.run(run_benchmarks(request(site, SuiteName.RECURSIVE, places=site.places[:1]), site.world))
    assert {one.cold for one in summary.results[0].measurements} == {os.geteuid() == 0}


def test_several_hosts_begin_every_step_at_one_agreed_time(site: BenchSite) -> None:
    hosts = ("one", "two", "host with a /")
    wanted = request(site, SuiteName.RECURSIVE, places=site.places[:1], hosts=hosts)
    (result,) = asyncio.run(run_benchmarks(wanted, site.world)).results
    for one in result.measurements:
        assert set(one.by_host) == set(hosts)
        assert one.value == pytest.approx(sum(one.by_host.values()) / 3)
        starts = {start for _, step, start in site.workloads.starts if step == one.step}
        assert len(starts) == 1
        assert None not in starts
    assert left_in(site) == []


def test_a_file_that_comes_back_different_fails_the_suite_and_not_the_others(site: BenchSite) -> None:
    def damage(directory: WorkDirectory, step: Step) -> None:
        if step.name == "download-medium":
            with (work_path(directory) / "medium/000003").open("r+b") as file:
                file.write(b"\xff")

    site.workloads.before = damage
    summary = asyncio.run(run_benchmarks(request(site, SuiteName.TRANSFER, SuiteName.RECURSIVE), site.world))
    assert summary.exit_code is ExitCode.FAILED
    assert "another content" in summary.failures[0]
    assert [result.record.state for result in summary.results] == [BenchmarkState.FAILED, BenchmarkState.DONE]
    assert summary.results[0].measurements[-1].step == "download-medium"
    assert left_in(site) == []


def test_a_host_that_is_lost_in_a_step_fails_the_suite_and_not_the_others(site: BenchSite) -> None:
    def lose(directory: WorkDirectory, step: Step) -> None:
        if step.name == "du" and directory.host == "two":
            raise HostLost("host two does not answer")

    site.workloads.before = lose
    wanted = request(site, SuiteName.RECURSIVE, SuiteName.LATENCY, places=site.places[:1], hosts=("one", "two"))
    summary = asyncio.run(run_benchmarks(wanted, site.world))
    assert summary.failures == ("recursive: host two does not answer",)
    assert [result.record.state for result in summary.results] == [BenchmarkState.FAILED, BenchmarkState.DONE]
    assert left_in(site) == []


def test_a_program_that_fails_is_told_with_its_words(site: BenchSite) -> None:
    def spoil(directory: WorkDirectory, step: Step) -> None:
        if step.name == "ls":
            (work_path(directory) / "tree").rename(work_path(directory) / "other")

    site.workloads.before = spoil
    summary = asyncio.run(run_benchmarks(request(site, SuiteName.RECURSIVE), site.world))
    assert "ls -lR on source" in summary.failures[0]
    assert "No such file or directory" in summary.failures[0]
    assert left_in(site) == []


def test_what_is_not_installed_leaves_its_step_out(site: BenchSite) -> None:
    site.workloads.missing = frozenset({"mdtest", "ior", "grep"})
    (result,) = asyncio.run(run_benchmarks(request(site, SuiteName.RECURSIVE), site.world)).results
    assert {one.step for one in result.measurements} == {"ls", "du"}
    assert result.record.notes == ("left out: grep -ri: grep is not installed on localhost",)


def test_too_little_room_refuses_before_anything_is_made(site: BenchSite) -> None:
    site.workloads.change = lambda seen: structs.replace(seen, free_bytes=1 << 20)
    with pytest.raises(Refused, match=r"1\.0 MiB free"):
        asyncio.run(run_benchmarks(request(site, SuiteName.STREAMING), site.world))
    site.workloads.change = lambda seen: structs.replace(seen, free_inodes=None)
    with pytest.raises(Refused, match="does not report"):
        asyncio.run(run_benchmarks(request(site, SuiteName.RECURSIVE), site.world))
    assert left_in(site) == []
    assert list(site.ledger.benchmarks.all()) == []


def test_a_host_without_the_file_system_is_not_filled(site: BenchSite) -> None:
    site.absent = frozenset({"two"})
    with pytest.raises(Refused, match="host two: source is not mounted"):
        asyncio.run(run_benchmarks(request(site, SuiteName.RECURSIVE, hosts=("one", "two")), site.world))
    assert left_in(site) == []


def test_a_dry_run_shows_the_real_commands_and_makes_nothing(site: BenchSite) -> None:
    site.workloads.missing = frozenset({"ior"})
    # Also while another call is at work.
    with site.locks.hold(LOCK, "a test"):
        summary = asyncio.run(run_benchmarks(request(site, SuiteName.STREAMING, dry_run=True), site.world))
    (planned,) = summary.suites
    assert " ".join(planned.steps[0].lanes[9]) == "dd if=/dev/zero of=many-9 bs=1M count=1 conv=fsync"
    assert planned.steps[-1].name == "one-read"
    assert summary.notes[-1].endswith("ior is not installed on localhost")
    assert left_in(site) == []
    assert list(site.ledger.benchmarks.all()) == []


def test_two_calls_do_not_measure_each_other(site: BenchSite) -> None:
    with site.locks.hold(LOCK, "a test"), pytest.raises(LockHeld):
        asyncio.run(run_benchmarks(request(site, SuiteName.RECURSIVE), site.world))


def started(site: BenchSite, places: tuple[Place, ...]) -> BenchmarkRecord:
    return site.ledger.benchmarks.start(
        BenchmarkRecord(
            id=0,
            suite=SuiteName.CATALOG,
            scale=TINY,
            seed=1,
            runs=1,
            places=places,
            hosts=("localhost",),
            token=TOKEN,
            state=BenchmarkState.RUNNING,
            started_at_s=1.0,
        )
    )


def begun(site: BenchSite) -> str:
    """What a killed call leaves: its record, and its directory with something in it. Returns the directory's name."""
    record = started(site, site.places)
    place = Path(os.fsdecode(site.places[1].root)) / os.fsdecode(BENCH_NAME)
    (place / record.directory / "host-00/d").mkdir(parents=True)
    place.chmod(0o700)
    return record.directory


def test_what_a_killed_call_left_is_taken_away_by_the_next(site: BenchSite) -> None:
    name = begun(site)
    # Also where the next call is about another file system.
    wanted = request(site, SuiteName.RECURSIVE, places=site.places[:1])
    summary = asyncio.run(run_benchmarks(wanted, site.world))
    assert [path.rpartition("/")[2] for path in summary.removed] == [name]
    assert left_in(site) == []
    states = [record.state for record in site.ledger.benchmarks.all()]
    assert states == [BenchmarkState.INTERRUPTED, BenchmarkState.DONE]


def test_cleaning_leaves_what_is_another_sites(site: BenchSite) -> None:
    name = begun(site)
    own = Path(os.fsdecode(site.places[1].root)) / os.fsdecode(BENCH_NAME)
    (own / "12345678-000001").mkdir()
    cleaning = asyncio.run(clean_up(site.places, "localhost", site.world))
    assert [path.rpartition("/")[2] for path in cleaning.removed] == [name]
    assert len(cleaning.left) == 1
    assert "12345678-000001 is another site's" in cleaning.left[0]
    assert cleaning.exit_code is ExitCode.ATTENTION
    assert os.listdir(own) == ["12345678-000001"]


@pytest.mark.parametrize("kind", ["open", "symlink"])
def test_a_directory_that_others_can_change_is_not_worked_in(site: BenchSite, kind: str, tmp_path: Path) -> None:
    place = Path(os.fsdecode(site.places[0].root)) / os.fsdecode(BENCH_NAME)
    if kind == "open":
        place.mkdir()
        place.chmod(0o755)
    else:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ToolFailed, match="only this user"):
        asyncio.run(run_benchmarks(request(site, SuiteName.RECURSIVE), site.world))
    assert not any((tmp_path / "elsewhere").iterdir()) if kind == "symlink" else not any(place.iterdir())


def test_a_directory_that_was_exchanged_meanwhile_is_not_worked_in(site: BenchSite, tmp_path: Path) -> None:
    """Somebody who may rename in the root puts a symlink there, with one of his own below it."""
    precious, evil = tmp_path / "precious", tmp_path / "evil"
    precious.write_text("content")
    own = Path(os.fsdecode(site.places[0].root)) / os.fsdecode(BENCH_NAME)

    def exchange(directory: WorkDirectory, step: Step) -> None:
        if step.name == "parallel-write":
            own.rename(tmp_path / "moved")
            part = evil / directory.name / directory.part
            part.mkdir(parents=True)
            (part / "many-0").symlink_to(precious)
            own.symlink_to(evil)

    site.workloads.before = exchange
    summary = asyncio.run(run_benchmarks(request(site, SuiteName.STREAMING, places=site.places[:1]), site.world))
    assert "only this user" in summary.failures[0]
    assert precious.read_text() == "content"
    assert [path.name for path in evil.rglob("*") if path.is_file()] == ["many-0"]


@pytest.mark.needs_root
def test_a_file_system_that_is_unmounted_meanwhile_is_not_measured_as_the_directory_below_it(site: BenchSite) -> None:
    root = os.fsdecode(site.places[0].root)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "benchmarks", root], check=True)
    mounted = True

    def unmount() -> None:
        nonlocal mounted
        if mounted:
            subprocess.run(["umount", "-l", root], check=True)
            mounted = False

    site.workloads.removing = unmount
    try:
        wanted = request(site, SuiteName.RECURSIVE, places=site.places[:1], runs=2)
        summary = asyncio.run(run_benchmarks(wanted, site.world))
    finally:
        unmount()
    assert "is not what it was when this benchmark began" in summary.failures[0]
    assert {one.run for one in summary.results[0].measurements} == {1}
    assert left_in(site) == []


def test_what_is_killed_between_two_steps_of_making_leaves_nothing_for_ever(site: BenchSite) -> None:
    name = begun(site)
    own = Path(os.fsdecode(site.places[1].root)) / os.fsdecode(BENCH_NAME)
    shutil.rmtree(own / name)
    assert asyncio.run(clean_up(site.places, "localhost", site.world)).exit_code is ExitCode.DONE
    assert left_in(site) == []


def test_what_lies_on_a_file_system_that_is_not_mounted_now_is_not_forgotten(site: BenchSite) -> None:
    """A directory that was named with --on: nothing was recorded of it but its kind."""
    name = begun(site)
    other = replace(site.places[1], filesystem="beegfs")
    record = site.ledger.benchmarks.all()[-1]
    site.ledger.benchmarks.finish(record.id, BenchmarkState.INTERRUPTED, at_s=2.0)
    lost = started(site, (other,))
    cleaning = asyncio.run(clean_up((), "localhost", site.world))
    assert "beegfs" in cleaning.left[0]
    assert site.ledger.benchmarks.read(lost.id).state is BenchmarkState.RUNNING
    assert left_in(site) == [BENCH_NAME.decode()]
    assert name


def test_a_call_that_is_cancelled_while_it_removes_goes_on_to_remove(site: BenchSite) -> None:
    async def cancelled() -> None:
        task = asyncio.ensure_future(
            run_benchmarks(request(site, SuiteName.RECURSIVE, places=site.places[:1]), site.world)
        )
        site.workloads.removing = task.cancel
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert left_in(site) == []


def test_a_cancelled_call_removes_what_it_made(site: BenchSite) -> None:
    async def cancelled() -> None:
        task = asyncio.ensure_future(run_benchmarks(request(site, SuiteName.LATENCY, scale=10.0), site.world))
        loop = asyncio.get_running_loop()

        def cancel_soon(_directory: WorkDirectory, step: Step) -> None:
            if step.unit is Unit.MILLISECONDS:
                loop.call_later(0.2, task.cancel)

        site.workloads.before = cancel_soon
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert left_in(site) == []
    assert [record.state for record in site.ledger.benchmarks.all()] == [BenchmarkState.INTERRUPTED]
