"""Migrations over the bricks of a real cluster: who copies what, and what happens when bricks, hosts or connections go down."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from migrator.core.units import MIB
from tests.support.cluster.brick_runs import WORK, BrickRuns, brick_runs, work_trees
from tests.support.cluster.fixtures import lab_of, with_ssh
from tests.support.cluster.handle import LabHandle
from tests.support.waiting import wait_for
from tools.known_writer import Writer

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root]

SLOW = ("--bwlimit", str(3 * MIB), "--jobs", "2")
"""A run that takes some seconds: there is a middle."""


@pytest.fixture(scope="module")
def work(lab: LabHandle) -> Iterator[LabHandle]:
    with_ssh(lab)
    with work_trees(lab) as made:
        yield made


@pytest.fixture
def leased(work: LabHandle, scratch: Path) -> Iterator[BrickRuns]:
    """With a lease whose end can be waited for, and that a pause of this machine does not end."""
    with brick_runs(work, scratch / "site", lease="8s") as made:
        yield made


@pytest.mark.guarantee("lost-host")
def test_chunks_of_a_host_that_is_cut_off_are_given_out_when_its_lease_is_over(
    leased: BrickRuns, work: LabHandle
) -> None:
    leased.prepare()
    host = work.state.hosts[2]
    process = leased.start(*SLOW)
    with ExitStack() as cut:
        with leased.held_stream_on(process, host.address):
            cut.enter_context(work.ssh_cut(host))
        leased.wait_for(process)
        assert leased.left_running() == []
    again = leased.rows(
        "select first.finished_at_s, second.started_at_s, second.host from attempts first join attempts second"
        " on second.chunk_id = first.chunk_id and second.number = first.number + 1"
        " where first.host = ? and first.state = 'interrupted'",
        host.address,
    )
    assert again
    assert all(ended_at_s <= started_at_s for ended_at_s, started_at_s, _ in again)
    assert {name for _, _, name in again} == {"localhost"}
    (said,) = leased.events("host-lost")
    assert host.address in said
    assert leased.events("bricks-unfit") == []
    leased.assert_equal()


@pytest.fixture
def moving(lab_parent: Path, scratch: Path) -> Iterator[BrickRuns]:
    """On a volume whose files may be moved between bricks."""
    with lab_of(lab_parent / "moving", hosts=2, users=1, files=10, data_bytes=MIB, odd=False) as lab:
        with_ssh(lab)
        with work_trees(lab), brick_runs(lab, scratch / "site") as made:
            yield made


def is_quiet(lab: LabHandle) -> bool:
    """No task is in progress, and its rebalance processes have ended."""
    if any(lab.movers(host) for host in lab.state.hosts):
        return False
    tasks = lab.gluster("--xml", "volume", "status", "vol1", "tasks")
    return b"<task>" not in tasks or b"<status>3</status>" in tasks


@pytest.mark.exhaustive
@pytest.mark.guarantee("bricks-and-mount")
def test_while_files_are_moved_between_bricks_the_mount_is_read(moving: BrickRuns) -> None:
    moving.prepare()
    process = moving.start(*SLOW)
    with moving.held_stream_on(process):
        moving.lab.gluster("volume", "rebalance", "vol1", "start", "force")
    moving.wait_for(process)
    (said,) = moving.events("bricks-unfit")
    assert "task" in said
    assert ("localhost", "direct", "succeeded") in moving.attempts()
    # Before that a verification is not whole.
    wait_for(lambda: is_quiet(moving.lab), "the volume is quiet")
    moving.lab.let_client_know()
    moving.assert_equal(but_times_of_directories=True)
    moving.prepare()
    moving.run("--plan", "plan-0002")
    moving.assert_equal()


@pytest.mark.exhaustive
@pytest.mark.guarantee("drain-commit")
def test_a_drain_is_committed_while_a_batch_is_copied_and_users_work(moving: BrickRuns) -> None:
    site, target = moving.site, moving.site.target / WORK
    brick = moving.lab.bricks[0].name
    drain = ("brick", "drain", brick, "--accept-open-files")
    moving.prepare()
    with Writer(moving.lab.source / WORK / "ben" / "busy") as users:
        assert site.json(*drain, "--no-commit")["ending"] == "waits"
        process = moving.start(*SLOW, "--deltas", "1")
        with moving.held_stream_on(process, "localhost"):
            assert site.json(*drain)["ending"] == "done"
            assert brick.encode() not in moving.lab.gluster("volume", "info", "vol1")
            wait_for(lambda: any(target.glob("ann/one/small-*")), "another stream goes on")
            gone = next(target.glob("ann/one/small-*"))
            (moving.lab.source / WORK / "ann" / "one" / gone.name).unlink()
        moving.wait_for(process)
    # The delta pass after the commit has deleted too.
    assert not gone.exists()
    moving.run("--deltas", "1")
    assert (users.lost(), users.errors) == ([], [])
    assert len(list(target.glob("ben/busy/*/*"))) == len(users.contents)
    moving.assert_equal()


@pytest.fixture
def runs(work: LabHandle, scratch: Path) -> Iterator[BrickRuns]:
    with brick_runs(work, scratch / "site") as made:
        yield made


def addresses(lab: LabHandle) -> set[str]:
    return {host.address for host in lab.state.hosts}


def test_a_whole_migration_runs_on_the_brick_servers(work: LabHandle, scratch: Path) -> None:
    with brick_runs(work, scratch / "site", trees="home/*", range_size="1MiB", chunk_size="16MiB") as runs:
        planned = sum(batch["size_bytes"] for batch in runs.prepare()["batches"])
        summaries = runs.run()["batches"]
        assert [summary["bad"] for summary in summaries] == [[]] * len(summaries)
        assert {host for host, _, _ in runs.attempts()} <= addresses(work) | {"localhost"}
        from_bricks = [attempt for attempt in runs.attempts() if attempt[0] != "localhost"]
        assert {host for host, _, _ in from_bricks} == addresses(work)
        assert {(engine, state) for _, engine, state in from_bricks} == {("direct", "succeeded")}
        assert runs.attempts("ranges"), "the big files were copied in ranges"
        assert runs.events("chunk-retried", "host-lost", "bricks-unfit") == []
        assert sum(summary["size_bytes"] for summary in summaries) == planned
        runs.assert_equal()


def test_files_arrive_as_the_mount_shows_them_if_the_bricks_differ(work: LabHandle, runs: BrickRuns) -> None:
    tree = work.source / "work/ann/odd"
    (tree / "old").mkdir(parents=True)
    for number in range(4):
        (tree / f"both-{number}").write_text("setgid and sticky")
        (tree / f"both-{number}").chmod(0o3755)
        (tree / f"closed-{number}").write_bytes(bytes(5000))
        (tree / f"closed-{number}").chmod(0o1000)
    os.utime(tree / "old", ns=(0, -631_152_000 * 10**9))
    # The kernel shows the time that was set until its cache ends.
    wait_for(lambda: (tree / "old").stat().st_mtime_ns == 0, "Gluster shows its own time")
    plan = runs.prepare()
    assert any("4 files have both the setgid and the sticky bit" in problem for problem in plan["problems"])
    runs.run()
    copy = runs.site.target / "work/ann/odd"
    modes = {path.name: path.stat().st_mode & 0o7777 for path in copy.iterdir()}
    assert modes == {"old": 0o755} | {
        f"{kind}-{n}": mode for kind, mode in (("both", 0o755), ("closed", 0o1000)) for n in range(4)
    }
    assert (copy / "old").stat().st_mtime_ns == (tree / "old").stat().st_mtime_ns == 0
    assert {(copy / f"closed-{number}").stat().st_size for number in range(4)} == {5000}
    runs.site.json("verify", "--all")
    shutil.rmtree(tree)


@pytest.mark.guarantee("far-target")
def test_nothing_is_written_on_a_host_without_the_target(runs: BrickRuns, work: LabHandle) -> None:
    host = work.state.hosts[0]
    runs.prepare()
    with work.target_unmounted(host):
        runs.run()
        # Seen as the host sees it: the directory beneath its mount.
        assert work.on_host(host, "ls", "-A", work.state.target).stdout == b""
    assert runs.hosts_of() == (addresses(work) - {host.address}) | {"localhost"}
    # Told again where the run lasts for so long that the host is tried again.
    assert {"the target is not mounted" in said for said in runs.events("host-lost")} == {True}
    runs.assert_equal()
