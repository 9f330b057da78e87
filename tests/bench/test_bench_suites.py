"""`bench run` on real directories: every suite, several hosts, what fails, what is left."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.bench import model as bench
from migrator.bench.bench import LOCK, clean_up, run_benchmarks
from migrator.bench.hosts import WorkDirectory
from migrator.bench.suites import suite
from migrator.core.errors import ExitCode, LockHeld, Refused, ToolFailed
from migrator.fs.model import BENCH_NAME
from migrator.hosts.ports import HostLost
from tests.bench.bench_world import TOKEN, BenchSite, bench_site
from tests.support.making import made

TINY = 0.0002


@pytest.fixture
def site(tmp_path: Path) -> Iterator[BenchSite]:
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        root.mkdir()
    with MigrationLedger.open(tmp_path / "ledger.db", create=True) as ledger:
        yield bench_site(ledger, tmp_path, *(os.fsencode(root) for root in roots))


def ran(site: BenchSite, *suites: bench.SuiteName, **changes: object) -> bench.BenchmarkSummary:
    return asyncio.run(run_benchmarks(request(site, *suites, **changes), site.world))


def own_directory(site: BenchSite, place: int = 0) -> Path:
    return Path(os.fsdecode(site.places[place].root)) / os.fsdecode(BENCH_NAME)


def request(site: BenchSite, *suites: bench.SuiteName, **changes: object) -> bench.BenchmarkRequest:
    made = bench.BenchmarkRequest(suites=suites, places=site.places, hosts=("localhost",), runs=1, scale=TINY)
    return replace(made, **changes)


def work_path(directory: WorkDirectory) -> Path:
    return Path(os.fsdecode(directory.place.root)) / os.fsdecode(BENCH_NAME) / directory.name / directory.part


def left_in(site: BenchSite) -> list[str]:
    return [name for place in site.places for name in os.listdir(os.fsdecode(place.root))]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(set(bench.SuiteName) - {bench.SuiteName.CONSISTENCY}))
def test_every_suite_is_measured_on_both_and_leaves_nothing(site: BenchSite, name: bench.SuiteName) -> None:
    summary = ran(site, name)
    assert summary.exit_code is ExitCode.DONE, summary.failures
    (result,) = summary.results
    assert result.record.state is bench.BenchmarkState.DONE
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
        if one.unit is bench.FigureUnit.MILLISECONDS:
            latencies = [one.details[name] for name in ("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")]
            assert latencies == sorted(latencies)
            assert one.details["reads"] >= 17
            assert one.value == pytest.approx(one.details["mean_ms"])
        if one.step.startswith("random"):
            assert one.details["bytes_per_s"] == pytest.approx(one.value * 4096, rel=0.01)
            assert one.details["p99_ms"] > 0


def test_runs_alternate_and_caches_that_could_not_be_dropped_are_recorded(site: BenchSite) -> None:
    site.workloads.really_drop = os.geteuid() == 0
    site.workloads.dropped = False
    summary = ran(site, bench.SuiteName.RECURSIVE, runs=2)
    assert {one.cold for one in summary.results[0].measurements} == {os.geteuid() == 0}
    order = [(one.run, one.place) for one in summary.results[0].measurements if one.step == "du"]
    assert order == [(run, label) for run in (1, 2) for label in ("source", "target")]
    assert any(one.load_average > 0 for one in summary.results[0].measurements)


def test_several_hosts_begin_every_step_at_one_agreed_time(site: BenchSite) -> None:
    hosts = ("one", "two", "host with a /")
    (result,) = ran(site, bench.SuiteName.RECURSIVE, places=site.places[:1], hosts=hosts).results
    for one in result.measurements:
        assert set(one.by_host) == set(hosts)
        assert one.value == pytest.approx(sum(one.by_host.values()) / 3)
        starts = {start for _, step, start in site.workloads.starts if step == one.step}
        assert len(starts) == 1
        assert None not in starts
    assert left_in(site) == []


Fault = Callable[[WorkDirectory], None]


def damage(directory: WorkDirectory) -> None:
    with (work_path(directory) / "medium/000003").open("r+b") as file:
        file.write(b"\xff")


def lose(directory: WorkDirectory) -> None:
    if directory.host == "two":
        raise HostLost("host two does not answer")


def hide(directory: WorkDirectory) -> None:
    (work_path(directory) / "tree").rename(work_path(directory) / "other")


@pytest.mark.parametrize(
    ("name", "at", "fault", "said"),
    [
        (bench.SuiteName.TRANSFER, "download-medium", damage, ("another content",)),
        (bench.SuiteName.RECURSIVE, "du", lose, ("recursive: host two does not answer",)),
        (bench.SuiteName.RECURSIVE, "ls", hide, ("ls -lR on source", "No such file or directory")),
    ],
)
def test_failed_steps_fail_their_suite_only(
    site: BenchSite, name: bench.SuiteName, at: str, fault: Fault, said: tuple[str, ...]
) -> None:
    def before(directory: WorkDirectory, step: bench.Step) -> None:
        if step.name == at:
            fault(directory)

    site.workloads.before = before
    summary = ran(site, name, bench.SuiteName.LATENCY, places=site.places[:1], hosts=("one", "two"))
    assert summary.exit_code is ExitCode.FAILED
    (failure,) = summary.failures
    assert all(words in failure for words in said)
    assert [result.record.state for result in summary.results] == [
        bench.BenchmarkState.FAILED,
        bench.BenchmarkState.DONE,
    ]
    assert left_in(site) == []


def sees(**facts: int | None) -> Callable[[BenchSite], None]:
    """Every place has this room."""

    def arrange(site: BenchSite) -> None:
        site.workloads.change = lambda seen: structs.replace(seen, **facts)

    return arrange


def without_mount(site: BenchSite) -> None:
    site.absent = frozenset({"two"})


@pytest.mark.parametrize(
    ("name", "arrange", "said"),
    [
        (bench.SuiteName.STREAMING, sees(free_bytes=1 << 20), r"1\.0 MiB free"),
        (bench.SuiteName.RECURSIVE, sees(free_inodes=None), "does not report"),
        (bench.SuiteName.RECURSIVE, sees(free_inodes=10), "10 more files"),
        (bench.SuiteName.RECURSIVE, without_mount, "host two: source is not mounted"),
    ],
)
def test_refused_benchmarks_write_nothing(
    site: BenchSite, name: bench.SuiteName, arrange: Callable[[BenchSite], None], said: str
) -> None:
    arrange(site)
    with pytest.raises(Refused, match=said):
        ran(site, name, hosts=("one", "two"))
    assert left_in(site) == []
    assert list(site.ledger.benchmarks.all()) == []


def test_a_dry_run_shows_the_real_commands_and_makes_nothing(site: BenchSite) -> None:
    site.workloads.missing = frozenset({"fio"})
    # Also while another call is at work, which prevents a real run.
    with site.locks.hold("a test", LOCK):
        with pytest.raises(LockHeld):
            ran(site, bench.SuiteName.RECURSIVE)
        summary = ran(site, bench.SuiteName.STREAMING, bench.SuiteName.RANDOM, dry_run=True)
    planned, _ = summary.suites
    assert " ".join(planned.steps[0].lanes[9]) == "dd if=/dev/zero of=many-9 bs=1M count=1 conv=fsync"
    assert planned.steps[-1].name == "one-read"
    assert summary.notes[-1].endswith("fio is not installed on localhost")
    assert left_in(site) == []
    assert list(site.ledger.benchmarks.all()) == []


def started(site: BenchSite, places: tuple[bench.MeasuredFileSystem, ...]) -> bench.BenchmarkRecord:
    running = {"state": bench.BenchmarkState.RUNNING, "hosts": ("localhost",), "token": TOKEN}
    return site.ledger.benchmarks.start(made(bench.BenchmarkRecord, scale=TINY, places=places, **running))


def begun(site: BenchSite) -> str:
    """What a killed call leaves: its record, and its directory with something in it. Returns the directory's name."""
    record = started(site, site.places)
    place = own_directory(site, 1)
    (place / record.directory / "host-00/d").mkdir(parents=True)
    place.chmod(0o700)
    return record.directory


def test_the_next_call_takes_away_what_a_killed_one_left(site: BenchSite) -> None:
    begun(site)
    ran(site, bench.SuiteName.LATENCY, places=site.places[:1])
    assert left_in(site) == []
    states = [record.state for record in site.ledger.benchmarks.all()]
    assert states == [bench.BenchmarkState.INTERRUPTED, bench.BenchmarkState.DONE]


def test_cleaning_leaves_what_is_another_sites(site: BenchSite) -> None:
    name = begun(site)
    own = own_directory(site, 1)
    (own / "12345678-000001").mkdir()
    cleaning = asyncio.run(clean_up(site.places, "localhost", site.world))
    assert [path.rpartition("/")[2] for path in cleaning.removed] == [name]
    assert len(cleaning.left) == 1
    assert "12345678-000001 is another site's" in cleaning.left[0]
    assert cleaning.exit_code is ExitCode.ATTENTION
    assert os.listdir(own) == ["12345678-000001"]


@pytest.mark.parametrize("kind", ["open", "symlink"])
def test_a_directory_that_others_can_change_is_not_worked_in(site: BenchSite, kind: str, tmp_path: Path) -> None:
    place = own_directory(site)
    if kind == "open":
        place.mkdir()
        place.chmod(0o755)
    else:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ToolFailed, match="only this user"):
        ran(site, bench.SuiteName.RECURSIVE)
    assert not any((tmp_path / "elsewhere").iterdir()) if kind == "symlink" else not any(place.iterdir())


def test_a_directory_that_was_exchanged_meanwhile_is_not_worked_in(site: BenchSite, tmp_path: Path) -> None:
    """Somebody who may rename in the root puts a symlink there, with one of his own below it."""
    precious, evil = tmp_path / "precious", tmp_path / "evil"
    precious.write_text("content")
    own = own_directory(site)

    def exchange(directory: WorkDirectory, step: bench.Step) -> None:
        if step.name == "parallel-write":
            own.rename(tmp_path / "moved")
            part = evil / directory.name / directory.part
            part.mkdir(parents=True)
            (part / "many-0").symlink_to(precious)
            own.symlink_to(evil)

    site.workloads.before = exchange
    summary = ran(site, bench.SuiteName.STREAMING, places=site.places[:1])
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
        summary = ran(site, bench.SuiteName.RECURSIVE, places=site.places[:1], runs=2)
    finally:
        unmount()
    assert "is not what it was when this benchmark began" in summary.failures[0]
    assert {one.run for one in summary.results[0].measurements} == {1}
    assert left_in(site) == []


@pytest.mark.parametrize("removing", [True, False])
def test_a_cancelled_call_removes_what_it_made(site: BenchSite, removing: bool) -> None:
    async def cancelled() -> None:
        task = asyncio.ensure_future(run_benchmarks(request(site, bench.SuiteName.LATENCY, scale=10.0), site.world))
        loop = asyncio.get_running_loop()

        def cancel_soon(_directory: WorkDirectory, step: bench.Step) -> None:
            if step.unit is bench.FigureUnit.MILLISECONDS:
                loop.call_later(0.2, task.cancel)

        site.workloads.before = cancel_soon
        if removing:
            # Once more, while it removes.
            site.workloads.removing = task.cancel
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert left_in(site) == []
    assert [record.state for record in site.ledger.benchmarks.all()] == [bench.BenchmarkState.INTERRUPTED]
