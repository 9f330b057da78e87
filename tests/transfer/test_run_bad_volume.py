"""Migrations from a replicated volume that is not well: a brick goes down, glusterd is busy, a file is in split-brain."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from migrator.core.units import MIB
from migrator.lab.model import VolumeType
from tests.support.cluster.brick_runs import BrickRuns, brick_runs, standing_still, work_trees
from tests.support.cluster.fixtures import lab_of, with_ssh
from tests.support.cluster.handle import LabHandle
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

SPLIT = "work/ann/one/small-3"
SLOW = ("--bwlimit", str(3 * MIB), "--jobs", "2")


@pytest.fixture(scope="module")
def lab(lab_parent: Path) -> Iterator[LabHandle]:
    spec = {"volume_type": VolumeType.DISTRIBUTED_REPLICATE, "users": 1, "files": 10, "data_bytes": MIB, "odd": False}
    with lab_of(lab_parent / "bad", **spec) as made:
        yield with_ssh(made)


@pytest.fixture
def runs(lab: LabHandle, scratch: Path) -> Iterator[BrickRuns]:
    with work_trees(lab), brick_runs(lab, scratch / "site") as made:
        wait_for(lambda: not pending(lab), "everything is healed")
        made.prepare()
        yield made


def pending(lab: LabHandle) -> bool:
    healed = lab.gluster("--xml", "volume", "heal", "vol1", "info").count(b"<numberOfEntries>0<")
    return healed < len(lab.bricks)


def test_bricks_are_read_again_when_a_brick_is_back_and_healed(lab: LabHandle, runs: BrickRuns) -> None:
    process = runs.start(*SLOW)
    with runs.held_stream_on(process):
        with lab.brick_down(lab.bricks[-1]):
            wait_for(lambda: runs.events("bricks-unfit"), "the bricks are not read")
        wait_for(lambda: runs.events("bricks-fit"), "the bricks are read again")
    runs.wait_for(process)
    assert runs.events("host-lost") == []
    runs.assert_equal()


def test_a_glusterd_that_is_busy_for_a_minute_stops_nothing(lab: LabHandle, runs: BrickRuns) -> None:
    process = runs.start(*SLOW)
    pids = {pid for host in lab.state.hosts if (pid := lab.glusterd_pid(host)) is not None}
    with runs.held_stream_on(process), standing_still(lambda: pids):
        time.sleep(60)
    runs.wait_for(process)
    assert runs.events("host-lost", "run-stopped") == []
    runs.assert_equal()


def test_a_file_in_split_brain_is_named_and_everything_else_arrives(lab: LabHandle, runs: BrickRuns) -> None:
    split = lab.source / SPLIT
    options = {f"cluster.{kind}-self-heal": "off" for kind in ("data", "metadata", "entry")}
    options |= {"cluster.self-heal-daemon": "off", "cluster.quorum-type": "none"}
    for name, value in options.items():
        lab.gluster("volume", "set", "vol1", name, value)
    runs.prepare()
    bricks = [brick for brick in lab.bricks if (lab.brick_directory(brick) / SPLIT).exists()]
    for kept in bricks:
        with ExitStack() as down:
            for brick in bricks:
                if brick is not kept:
                    lab.stop_brick(brick)
            down.callback(lab.start_bricks)
            split.write_text(f"as {kept.name} has it")
    with pytest.raises(OSError, match="Input/output error"):
        split.read_bytes()
    ((bad,),) = (batch["bad"] for batch in runs.run(code=3)["batches"])
    assert (bad["path"], bad["reason"]) == (SPLIT, "Input/output error: its copies are in split-brain (data)")
    # Its heal is pending all the time: the mount is read instead of the bricks of its set, and the other set by its hosts.
    (said,) = runs.events("bricks-unfit")
    assert said.startswith("3 bricks of sets with pending heals are not read now")
    assert runs.hosts_of() == {host.address for host in lab.state.hosts} | {"localhost"}
    (verified,) = runs.site.json("verify", "--all", code=4)
    assert verified["differences"] == {"unreadable": 1}, verified
    assert "source-brick" in runs.site.call("status", "--details").stdout
    for name in options:
        lab.gluster("volume", "reset", "vol1", name)
    lab.gluster("volume", "heal", "vol1", "split-brain", "source-brick", bricks[1].name, f"/{SPLIT}")
    wait_for(lambda: not pending(lab), "everything is healed")
    lab.let_client_know()
    runs.run("--deltas", "1")
    runs.assert_equal()
