"""What happens to migrations over bricks when bricks, hosts, connections or the program itself go down on the way."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from migrator.core.units import MIB
from tests.support.cluster.brick_runs import BrickRuns, brick_runs, work_trees
from tests.support.cluster.fixtures import lab_of, with_ssh
from tests.support.cluster.handle import LabHandle
from tests.support.waiting import wait_for

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
@pytest.mark.guarantee("bricks-and-mount")
def test_bricks_are_read_again_when_a_glusterd_that_was_down_is_back(leased: BrickRuns, work: LabHandle) -> None:
    leased.prepare()
    process = leased.start(*SLOW)
    with leased.held_stream_on(process):
        with work.glusterd_down(work.state.hosts[2]):
            wait_for(lambda: bool(leased.events("bricks-unfit")), "the mount is read")
        wait_for(lambda: bool(leased.events("bricks-fit")), "the bricks are read again")
    leased.wait_for(process)
    (said,) = leased.events("bricks-unfit")
    assert "until the volume is well" in said
    # What was read of a brick meanwhile did not count.
    assert leased.rows("select 1 from attempts where state = 'interrupted'")
    leased.assert_equal()


@pytest.fixture(scope="module")
def own_lab(lab_parent: Path) -> Iterator[LabHandle]:
    """A volume whose files may be moved between bricks."""
    with lab_of(lab_parent / "moving", hosts=2, users=1, files=10, data_bytes=MIB, odd=False) as made:
        yield made


@pytest.fixture
def moving(own_lab: LabHandle, scratch: Path) -> Iterator[BrickRuns]:
    with_ssh(own_lab)
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
    wait_for(lambda: is_quiet(lab), "the volume is quiet")
    lab.let_client_know()
    moving.assert_equal(but_times_of_directories=True)
    moving.prepare()
    moving.run("--plan", "plan-0002")
    moving.assert_equal()
