"""The hosts of a lab as a program outside reaches them: over ssh, with the target mounted; and how tests break that."""

import os
import signal
import subprocess
import tomllib
from contextlib import suppress

import pytest

from tests.support.cluster.handle import LabHandle, is_alive

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]


@pytest.fixture(autouse=True)
def needs_sshd(lab: LabHandle) -> None:
    if not lab.state.ssh_config:
        pytest.skip("the lab has no sshd: " + "; ".join(lab.state.notes))


def test_a_host_is_reached_over_ssh_and_sees_its_bricks_and_the_target(lab: LabHandle) -> None:
    mark = lab.target / "seen-by-hosts"
    mark.write_text("here\n")
    try:
        for host in lab.state.hosts:
            done = lab.ssh(host, f"hostname; id -u; cat {mark}; ls -d /srv/b*/data; ls -A {lab.source}")
            assert done.stderr == b""
            assert done.stdout.split() == [host.namespace.encode(), b"0", b"here", b"/srv/b1/data", b"/srv/b2/data"]
    finally:
        mark.unlink()


def test_its_site_names_every_host_as_the_volume_does(lab: LabHandle) -> None:
    sections = tomllib.loads(lab.site_file.read_text())["source"]["hosts"]
    assert set(sections) == {brick.name.partition(":")[0] for brick in lab.bricks}
    for host in lab.state.hosts:
        section = sections[host.address]
        assert section["ssh"] == f"root@{host.address}"
        assert section["target"] == str(lab.target)
        assert section["options"] == ["-F", os.fsdecode(lab.state.ssh_config)]


def test_a_host_refuses_the_key_and_takes_it_again(lab: LabHandle) -> None:
    host = lab.state.hosts[0]
    with lab.key_refused(host):
        done = lab.ssh(host, "true")
        assert (done.returncode, b"Permission denied" in done.stderr) == (255, True)
        assert lab.ssh(lab.state.hosts[1], "true").returncode == 0
    assert lab.ssh(host, "true").returncode == 0


def test_a_host_shows_another_key_and_its_own_again(lab: LabHandle) -> None:
    host = lab.state.hosts[1]
    with lab.host_key_changed(host):
        done = lab.ssh(host, "true")
        assert (done.returncode, b"IDENTIFICATION HAS CHANGED" in done.stderr) == (255, True)
    assert lab.ssh(host, "true").returncode == 0


def test_nothing_listens_on_a_host_for_a_while(lab: LabHandle) -> None:
    host = lab.state.hosts[2]
    with lab.sshd_down(host):
        done = lab.ssh(host, "true")
        assert (done.returncode, b"Connection refused" in done.stderr) == (255, True)
    assert lab.ssh(host, "true").returncode == 0


def test_the_target_is_unmounted_on_one_host_only(lab: LabHandle) -> None:
    first, second, _ = lab.state.hosts
    with lab.target_unmounted(second):
        assert lab.on_host(second, "mountpoint", "-q", lab.state.target).returncode != 0
        assert lab.on_host(first, "mountpoint", "-q", lab.state.target).returncode == 0
        assert lab.target.is_mount()
    assert lab.on_host(second, "mountpoint", "-q", lab.state.target).returncode == 0


def test_a_host_is_cut_off_and_comes_back(lab: LabHandle) -> None:
    host = lab.state.hosts[1]
    with lab.interface_down(host):
        # Asked in the host's own network, where nothing waits for a reply of nobody.
        assert lab.on_host(host, "ip", "route", "show").stdout == b""
        assert is_alive(lab.glusterd_pid(host) or 0)
    assert lab.ssh(host, "true").returncode == 0
    assert all(pid > 0 for pid in lab.brick_pids().values())


def test_open_connections_are_dropped(lab: LabHandle) -> None:
    host = lab.state.hosts[0]
    argv = ["ssh", "-F", os.fsdecode(lab.state.ssh_config), f"root@{host.address}", "echo $$; exec sleep infinity"]
    connection = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert connection.stdout is not None
    sleeper = int(connection.stdout.readline())
    try:
        lab.drop_connections(host)
        assert connection.wait(timeout=600) == 255
        assert lab.ssh(host, "true").returncode == 0
    finally:
        connection.kill()
        connection.wait()
        connection.stdout.close()
        with suppress(ProcessLookupError):
            os.kill(sleeper, signal.SIGKILL)
