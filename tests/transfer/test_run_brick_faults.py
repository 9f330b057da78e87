"""What happens to migrations over bricks when bricks, hosts, connections or the program itself go down on the way."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from migrator.core.units import MIB
from migrator.hosts.proc import identity_of, lives
from migrator.lab.churn import lab_churn
from migrator.lab.model import LabHost
from tests.support.cluster.brick_runs import WORK, BrickRuns, brick_runs, standing_still, work_trees
from tests.support.cluster.fixtures import SMALL
from tests.support.cluster.handle import DEADLINE_S, LabHandle, WallClock, bring_up, take_down, wait_until
from tests.support.cluster.sides import digests

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root]

SLOW = ("--bwlimit", str(3 * MIB), "--jobs", "2")
"""A run that takes some seconds: there is a middle."""


@pytest.fixture(scope="module")
def work(lab: LabHandle) -> Iterator[LabHandle]:
    if not lab.state.ssh_config:
        pytest.skip("the lab has no sshd: " + "; ".join(lab.state.notes))
    with work_trees(lab) as made:
        yield made


@pytest.fixture
def runs(work: LabHandle, scratch: Path) -> Iterator[BrickRuns]:
    with brick_runs(work, scratch / "site") as made:
        yield made


@pytest.fixture
def leased(work: LabHandle, scratch: Path) -> Iterator[BrickRuns]:
    """With a lease whose end can be waited for, and that a pause of this machine does not end."""
    with brick_runs(work, scratch / "site", lease="8s") as made:
        yield made


def start_scan(runs: BrickRuns, host: LabHost) -> "subprocess.Popen[bytes]":
    scanning = runs.site.start("scan")
    runs.started.append(scanning)
    wait_until(lambda: bool(runs.far_ends(host)) or scanning.poll() is not None, "the host is reached")
    return scanning


@pytest.mark.exhaustive
def test_a_brick_that_goes_down_in_a_scan_is_told_of(runs: BrickRuns, work: LabHandle) -> None:
    brick, scans = work.bricks[3], 0
    host = work.host_of(brick)
    try:
        while True:
            wait_until(lambda: not runs.far_ends(host), "the host is left by whoever was there before")
            scanning = start_scan(runs, host)
            with standing_still(lambda: runs.far_ends(host)) as held:
                # Nothing was walked yet: its last look at the bricks is still to come.
                in_time = bool(held) and len(runs.rows("select 1 from scans")) == scans
                if in_time:
                    work.stop_brick(brick)
            if in_time:
                break
            runs.wait_for(scanning)
            scans += 1
            assert scans < 10, "no scan could be held before it began"
        runs.wait_for(scanning, code=3)
        again = runs.site.json("scan", code=3)
        assert again["via"] == "mount"
        for reasons in (again["reasons"], again["way_reasons"]):
            assert any(brick.name in reason and "down" in reason for reason in reasons)
    finally:
        work.start_bricks()
    (whole, reasons) = runs.rows("select whole, reasons from scans order by id")[scans]
    assert not whole
    assert brick.name in reasons


@pytest.mark.exhaustive
def test_a_brick_that_goes_down_in_a_run_stops_it_and_the_next_run_goes_on(runs: BrickRuns, work: LabHandle) -> None:
    runs.prepare()
    brick = work.bricks[2]
    process = runs.start(*SLOW)
    try:
        with runs.held_stream_on(process, brick=brick):
            work.stop_brick(brick)
        runs.wait_for(process, code=1)
        (said,) = runs.events("bricks-unfit")
        assert brick.name in said
        assert any(brick.name in message for message in runs.events("pool-stopped"))
        assert runs.left_running() == []
        assert runs.site.call("run", "--all", "--deltas", "0").returncode == 4
    finally:
        work.start_bricks()
    runs.run()
    runs.assert_equal()


@pytest.mark.guarantee("lost-host")
def test_chunks_of_a_host_that_is_cut_off_are_given_out_when_its_lease_is_over(
    leased: BrickRuns, work: LabHandle
) -> None:
    leased.prepare()
    host = work.state.hosts[2]
    process = leased.start(*SLOW)
    with ExitStack() as cut:
        with leased.held_stream_on(process, host):
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


@pytest.mark.exhaustive
def test_a_host_whose_network_is_down_stops_the_run_and_the_next_one_goes_on(
    leased: BrickRuns, work: LabHandle, request: pytest.FixtureRequest
) -> None:
    """The mount lacks its bricks as well, and hangs until it has noticed."""
    host = work.state.hosts[1]
    volume = work.state.spec.volume
    work.gluster("volume", "set", volume, "network.ping-timeout", "5")
    request.addfinalizer(lambda: work.gluster("volume", "reset", volume, "network.ping-timeout"))
    leased.prepare()
    process = leased.start(*SLOW)
    with ExitStack() as cut:
        with leased.held_stream_on(process, host):
            cut.enter_context(work.interface_down(host))
        leased.wait_for(process, code=1)
        wait_until(lambda: leased.left_running() == [] and not leased.far_ends(host), "the lease is over")
    leased.run()
    leased.assert_equal()


@pytest.mark.exhaustive
def test_a_far_end_that_is_killed_is_started_again(runs: BrickRuns, work: LabHandle) -> None:
    runs.prepare()
    host = work.state.hosts[1]
    process = runs.start(*SLOW)
    with runs.held_stream_on(process, host):
        killed = [identity for pid in runs.far_ends(host) if (identity := identity_of(pid)) is not None]
        for identity in killed:
            with suppress(ProcessLookupError):
                os.kill(identity.pid, signal.SIGKILL)
    runs.wait_for(process)
    assert not any(map(lives, killed))
    assert (len(runs.events("host-lost")), len(runs.events("host-found"))) == (1, 1)
    runs.assert_equal()


@pytest.mark.exhaustive
def test_a_program_that_is_killed_goes_on_where_it_was(runs: BrickRuns, work: LabHandle) -> None:
    runs.prepare()
    for _ in range(2):
        process = runs.start(*SLOW)
        with runs.held_stream_on(process):
            process.kill()
            process.wait()
    process = runs.start(*SLOW)
    # Its streams are the only ones when it gives chunks out.
    runs.wait_for_stream_on(process)
    with standing_still(lambda: [process.pid]):
        alive = runs.left_running()
        running = runs.rows("select id from attempts where state in ('intended', 'running')")
    assert len(alive) <= 4 * len(running)
    runs.wait_for(process)
    states = {state for (state,) in runs.rows("select distinct state from attempts")}
    assert states == {"succeeded", "interrupted"}
    assert runs.events("orphan-ended")
    runs.assert_equal()


@pytest.fixture(scope="module")
def own_lab(lab_parent: Path) -> Iterator[LabHandle]:
    """A volume whose files may be moved between bricks."""
    directory = lab_parent / "moving"
    try:
        yield bring_up(
            SMALL.__class__(
                directory=os.fsencode(directory),
                hosts=2,
                users=1,
                files=10,
                data_bytes=MIB,
                odd=False,
                brick_size_bytes=SMALL.brick_size_bytes,
                target_size_bytes=SMALL.target_size_bytes,
                reference_time_s=SMALL.reference_time_s,
            )
        )
    finally:
        take_down(directory)


@pytest.fixture
def moving(own_lab: LabHandle, scratch: Path) -> Iterator[BrickRuns]:
    if not own_lab.state.ssh_config:
        pytest.skip("the lab has no sshd: " + "; ".join(own_lab.state.notes))
    with work_trees(own_lab), brick_runs(own_lab, scratch / "site") as made:
        yield made


def is_quiet(lab: LabHandle) -> bool:
    """No task is under way or waits for its commit, and whoever moved files for it has ended: it is not waited for where one is
    stopped.
    """
    if any(lab.movers(host) for host in lab.state.hosts):
        return False
    tasks = lab.gluster("--xml", "volume", "status", "vol1", "tasks")
    return b"<task>" not in tasks or b"<status>3</status>" in tasks


@pytest.mark.exhaustive
@pytest.mark.guarantee("bricks-and-mount")
@pytest.mark.parametrize("task", ["drain", "rebalance"])
def test_while_files_are_moved_between_bricks_the_mount_is_read(moving: BrickRuns, task: str) -> None:
    lab = moving.lab
    moving.prepare()
    process = moving.start(*SLOW)
    leaving = lab.bricks[-1].name
    with moving.held_stream_on(process):
        if task == "drain":
            lab.gluster("volume", "remove-brick", "vol1", leaving, "start")
        else:
            lab.gluster("volume", "rebalance", "vol1", "start", "force")
    try:
        moving.wait_for(process)
        (said,) = moving.events("bricks-unfit")
        assert "task" in said
        assert ("localhost", "rsync", "succeeded") in moving.attempts()
    finally:
        if task == "drain":
            lab.gluster("volume", "remove-brick", "vol1", leaving, "stop")
    # Before that a verification is not whole.
    wait_until(lambda: is_quiet(lab), "the volume is quiet", deadline_s=3 * DEADLINE_S)
    lab.let_client_know()
    moving.assert_equal(but_times_of_directories=True)
    moving.prepare()
    moving.run("--plan", "plan-0002")
    moving.assert_equal()


@pytest.mark.exhaustive
def test_renames_during_a_run_are_mended_by_the_next_scan(moving: BrickRuns) -> None:
    lab = moving.lab
    tree = lab.source / WORK / "ann"
    moving.prepare()

    async def churn(process: "subprocess.Popen[bytes]") -> None:
        stop = asyncio.Event()
        churning = asyncio.create_task(
            lab_churn(
                os.fsencode(lab.source),
                [f"{WORK}/ben".encode()],
                journal=os.fsencode(moving.site.directory / "journal"),
                rate_per_s=40.0,
                seed=3,
                clock=WallClock(),
                stop=stop,
            )
        )
        try:
            await asyncio.to_thread(rename_all, process)
        finally:
            stop.set()
            await churning

    def rename_all(process: "subprocess.Popen[bytes]") -> None:
        moving.wait_for_stream_on(process)
        round_number = 0
        # At the end they have other names than were planned: what was copied by those is left over on the target.
        while process.poll() is None or round_number % 2 == 0:
            for number in range(2, 12):
                old, new = (
                    tree / "one" / f"{stem}-{number}" for stem in ("big", "moved")[:: 1 - 2 * (round_number % 2)]
                )
                old.rename(new)
            round_number += 1

    process = moving.start(*SLOW)
    asyncio.run(churn(process))
    # A file that was between two names at every look needs attention; the next passes bring it.
    moving.wait_for(process, or_code=3)
    assert moving.left_running() == []
    moving.prepare()
    moving.run("--plan", "plan-0002")
    # Names that are gone on the source stay on the target, and are told of.
    for verified in moving.site.json("verify", "--all", code=3):
        assert verified["whole"], verified["reasons"]
        assert set(verified["differences"]) <= {"extra", "hard-links"}, verified["examples"]
    for user in ("ann", "ben"):
        there, here = digests(lab.source / WORK / user), digests(moving.site.target / WORK / user)
        assert there == {path: here.get(path) for path in there}
