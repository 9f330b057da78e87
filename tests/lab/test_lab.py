"""The lab on a real cluster: what comes up holds what it should, and nothing stays when it is taken down."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.core.errors import Refused, ToolFailed
from migrator.hosts.proc import identity_of, lives
from migrator.lab.machine import processes_in
from migrator.lab.model import LabKind, LabPhase, OddKind, VolumeType
from migrator.lab.record import read_record
from tests.support.cluster.fixtures import MakeLab
from tests.support.cluster.handle import LabHandle, bring_up, take_down, wait_until
from tests.support.cluster.lab_remains import remains_of
from tests.support.lab_churn import churn, comparable, covered_differences
from tests.support.lab_facts import ODD_PROOFS, walk

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

NOT_ON_GLUSTER = {OddKind.FILE_CAPABILITY}
"""The FUSE client refuses security.capability unless it is mounted with another option."""


def test_every_odd_kind_is_on_the_mount(lab: LabHandle) -> None:
    lab.drop_client_cache()  # what a client remembers it shows, also where the bricks could not give it
    heaviest = lab.state.trees[:3]
    for tree in heaviest:
        facts = walk(lab.state.source + b"/" + tree)
        missing = {kind for kind in OddKind if not any(ODD_PROOFS[kind](path, fact) for path, fact in facts.items())}
        assert missing == NOT_ON_GLUSTER
    assert {note.split(":")[0] for note in lab.state.notes} == {
        f"no odd file of kind {kind}" for kind in NOT_ON_GLUSTER
    }


def test_every_brick_has_files_and_the_wrapper_asks_the_cluster(lab: LabHandle) -> None:
    assert len(lab.bricks) == 6
    for brick in lab.bricks:
        home = lab.brick_directory(brick) / "home"
        assert any(files for _, _, files in os.walk(os.fsencode(home)))
    answer = lab.gluster("--xml", "volume", "info", lab.state.spec.volume)
    assert b"<brickCount>6</brickCount>" in answer
    assert all(pid > 0 for pid in lab.brick_pids().values())


def test_a_brick_and_a_management_daemon_go_down_and_come_back(lab: LabHandle) -> None:
    brick = lab.bricks[1]
    before = sorted(walk(lab.state.source + b"/shared"))
    with lab.brick_down(brick):
        assert lab.brick_pids()[brick.name] == -1
    assert lab.brick_pids()[brick.name] > 0
    assert sorted(walk(lab.state.source + b"/shared")) == before
    with lab.glusterd_down(lab.state.hosts[1]):
        wait_until(lambda: len(lab.brick_pids()) == 4, "the others have noticed")
    assert len(lab.brick_pids()) == 6


def test_down_leaves_nothing_and_may_be_called_again(make_lab: MakeLab) -> None:
    handle = make_lab(files=40, users=1, data_bytes=100_000, odd=False)
    directory, token = Path(os.fsdecode(handle.state.spec.directory)), handle.state.token
    assert remains_of(directory, token)
    holders = [identity for pid in processes_in(handle.state.namespaces) if (identity := identity_of(pid)) is not None]
    assert len(holders) > 3
    assert take_down(directory)
    assert remains_of(directory, token) == []
    assert not any(map(lives, holders))
    assert not take_down(directory)


def test_down_ends_a_cluster_that_hangs_and_who_stands_in_its_namespaces(make_lab: MakeLab) -> None:
    handle = make_lab(files=5, users=1, data_bytes=1000, odd=False)
    directory, token = Path(os.fsdecode(handle.state.spec.directory)), handle.state.token
    source_fd = os.open(handle.state.source, os.O_RDONLY)
    visitor = subprocess.Popen(["nsenter", f"--net=/run/netns/{handle.state.client_namespace}", "sleep", "infinity"])
    try:
        wait_until(lambda: visitor.pid in processes_in(handle.state.namespaces), "somebody is in the namespace")
        pids = handle.brick_pids().values()
        assert min(pids) > 0, "each is one process"
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        assert take_down(directory)
        assert visitor.wait() == -signal.SIGKILL
    finally:
        os.close(source_fd)
        visitor.kill()
        visitor.wait()
    assert remains_of(directory, token) == []


def test_down_spares_who_uses_the_target_and_says_so(make_lab: MakeLab) -> None:
    handle = make_lab(hosts=1, bricks_per_host=1, files=5, users=1, data_bytes=1000, odd=False)
    directory, token = Path(os.fsdecode(handle.state.spec.directory)), handle.state.token
    fd = os.open(handle.state.target, os.O_RDONLY)
    try:
        with pytest.raises(ToolFailed, match="is in use") as raised:
            take_down(directory)
        assert "may be called again" in raised.value.hint
    finally:
        os.close(fd)
    assert take_down(directory)
    assert remains_of(directory, token) == []


def test_two_labs_stand_side_by_side(lab: LabHandle, make_lab: MakeLab) -> None:
    other = make_lab(hosts=1, bricks_per_host=1, users=1, files=20, data_bytes=10_000, odd=False)
    # The second lab's hosts were made while the first was mounted: they must not keep its mounts alive.
    holder = other.state.hosts[0].holder_pid
    assert lab.state.source not in Path(f"/proc/{holder}/mountinfo").read_bytes()
    assert set(other.state.namespaces).isdisjoint(lab.state.namespaces)
    directory, token = Path(os.fsdecode(other.state.spec.directory)), other.state.token
    assert take_down(directory)
    assert remains_of(directory, token) == []
    assert all(pid > 0 for pid in lab.brick_pids().values())
    assert walk(lab.state.source + b"/shared")


@pytest.mark.parametrize(
    ("volume_type", "bricks", "wanted"),
    [
        (VolumeType.DISTRIBUTED_ARBITER, 2, b"<arbiterCount>1</arbiterCount>"),
        (VolumeType.DISTRIBUTED_REPLICATE, 2, b"<distCount>2</distCount>"),
        (VolumeType.DISPERSE, 1, b"<disperseCount>3</disperseCount>"),
    ],
)
def test_other_types_of_volume(make_lab: MakeLab, volume_type: VolumeType, bricks: int, wanted: bytes) -> None:
    handle = make_lab(
        volume_type=volume_type, bricks_per_host=bricks, users=1, files=10, data_bytes=9000, odd=False, ssh=False
    )
    answer = handle.gluster("--xml", "volume", "info", handle.state.spec.volume)
    assert wanted in answer
    assert (b"<replicaCount>3</replicaCount>" in answer) == (volume_type is not VolumeType.DISPERSE)
    assert "source.hosts" not in handle.site_file.read_text()


UP_SCRIPT = """
import asyncio, os, sys
from migrator.hosts.process import LocalProcesses
from migrator.lab.model import LabSpec
from migrator.lab.up import lab_up
from tests.support.cluster.handle import WallClock
def said(step):
    print(step, flush=True)
spec = LabSpec(directory=os.fsencode(sys.argv[1]), users=4, files=300, data_bytes=1000000, reference_time_s=0)
asyncio.run(lab_up(spec, LocalProcesses(), WallClock(), on_step=said))
"""


@pytest.mark.parametrize("number", range(6))
def test_down_cleans_up_after_a_kill_at_any_instant(lab_parent: Path, number: int) -> None:
    directory = lab_parent / f"killed-{number}"
    delay_s = random.Random(number).choice((0.3, 0.6, 1.0, 2.0, 4.0, 7.0)) * random.uniform(0.7, 1.3)
    up = subprocess.Popen([sys.executable, "-c", UP_SCRIPT, str(directory)], stdout=subprocess.PIPE)
    try:
        up.wait(timeout=delay_s)
    except subprocess.TimeoutExpired:
        up.kill()
        up.wait()
    finally:
        assert up.stdout is not None
        up.stdout.close()
    token = read_record(os.fsencode(directory)).token if directory.exists() else None
    take_down(directory)
    assert remains_of(directory, token) == []


def test_a_failed_up_leaves_nothing(make_lab: MakeLab, lab_parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("migrator.lab.up.fill", broken)
    before = set(lab_parent.iterdir())
    with pytest.raises(OSError, match="Input/output error"):
        make_lab(hosts=1, bricks_per_host=1)
    assert set(lab_parent.iterdir()) == before


def test_a_directory_in_use_is_refused(make_lab: MakeLab, lab: LabHandle) -> None:
    assert read_record(lab.state.spec.directory).phase is LabPhase.UP
    with pytest.raises(Refused, match="not empty"):
        bring_up(lab.state.spec)
    with pytest.raises(Refused, match="network namespace"):
        make_lab(prefix=lab.state.spec.name_prefix)
    assert lab.state.spec.kind is LabKind.GLUSTER


def test_users_at_work_on_the_mount_are_in_the_journal(make_lab: MakeLab, scratch: Path) -> None:
    handle = make_lab(users=2, files=150, data_bytes=1_000_000)
    before = comparable(handle.state)
    summary = churn(handle.state, scratch / "journal", 300, seed=3)
    handle.drop_client_cache()
    assert len(covered_differences(before, comparable(handle.state), scratch / "journal")) > 100
    assert summary.refused < 40
