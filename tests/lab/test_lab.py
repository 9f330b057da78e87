"""The lab on a real cluster: what comes up holds what it should, and nothing stays when it is taken down."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from migrator.core.errors import Refused
from migrator.hosts.proc import carriers, identity_of, lives
from migrator.lab.machine import loops_beneath, mounts_beneath, processes_in
from migrator.lab.model import LabKind, LabPhase, LabSpec, VolumeType
from migrator.lab.record import read_record
from tests.support.cluster.fixtures import MakeLab
from tests.support.cluster.handle import LabHandle, bring_up, take_down
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]


def remains_of(directory: Path, token: str | None) -> list[str]:
    """Everything that is left: files, mounts, loop devices, namespaces, processes. Empty after a good `down`."""
    real = os.path.realpath(os.fsencode(directory))
    prefix = LabSpec(directory=real).name_prefix
    found = [f"file {entry}" for entry in directory.parent.iterdir() if directory.name in entry.name]
    found += [f"mount {mounted.point!r}" for mounted in mounts_beneath(real)]
    found += [f"loop {device}" for device in loops_beneath(real)]
    namespaces = Path("/run/netns")
    if namespaces.is_dir():
        found += [f"namespace {entry.name}" for entry in namespaces.iterdir() if entry.name.startswith(prefix)]
    if token is not None:
        found += [f"process {identity.pid}" for identity in carriers([token]).get(token, ())]
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                arguments = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if real + b"/" in arguments:
                found.append(f"process {process.name}: {arguments!r}")
    return found


def test_down_leaves_nothing_of_a_cluster_that_hangs_nor_who_stands_in_its_namespaces(make_lab: MakeLab) -> None:
    handle = make_lab(files=40, users=1, data_bytes=100_000, odd=False)
    directory, token = Path(os.fsdecode(handle.state.spec.directory)), handle.state.token
    assert remains_of(directory, token)
    holders = [identity for pid in processes_in(handle.state.namespaces) if (identity := identity_of(pid)) is not None]
    assert len(holders) > 3
    source_fd = os.open(handle.state.source, os.O_RDONLY)
    visitor = subprocess.Popen(["nsenter", f"--net=/run/netns/{handle.state.client_namespace}", "sleep", "infinity"])
    try:
        wait_for(lambda: visitor.pid in processes_in(handle.state.namespaces), "somebody is in the namespace")
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
    assert not any(map(lives, holders))
    assert not take_down(directory), "there is nothing more"


def test_a_dispersed_volume(make_lab: MakeLab) -> None:
    handle = make_lab(
        volume_type=VolumeType.DISPERSE, bricks_per_host=1, users=1, files=10, data_bytes=9000, odd=False, ssh=False
    )
    answer = handle.gluster("--xml", "volume", "info", handle.state.spec.volume)
    assert b"<disperseCount>3</disperseCount>" in answer
    assert "source.hosts" not in handle.site_file.read_text()


def test_a_failed_up_leaves_nothing(make_lab: MakeLab, lab_parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("migrator.lab.up.fill", broken)
    before = set(lab_parent.iterdir())
    with pytest.raises(OSError, match="Input/output error"):
        make_lab(hosts=1, bricks_per_host=1)
    assert set(lab_parent.iterdir()) == before


def test_a_directory_in_use_is_refused(lab: LabHandle) -> None:
    assert read_record(lab.state.spec.directory).phase is LabPhase.UP
    with pytest.raises(Refused, match="not empty"):
        bring_up(lab.state.spec)
    assert lab.state.spec.kind is LabKind.GLUSTER
