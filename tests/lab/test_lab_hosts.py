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


def test_hosts_are_reached_as_the_site_names_them(lab: LabHandle) -> None:
    sections = tomllib.loads(lab.site_file.read_text())["source"]["hosts"]
    assert set(sections) == {brick.name.partition(":")[0] for brick in lab.bricks}
    mark = lab.target / "seen-by-hosts"
    mark.write_text("here\n")
    try:
        for host in lab.state.hosts:
            section = sections[host.address]
            assert (section["ssh"], section["target"]) == (f"root@{host.address}", str(lab.target))
            assert section["options"] == ["-F", os.fsdecode(lab.state.ssh_config)]
            done = lab.ssh(host, f"hostname; id -u; cat {mark}; ls -d /srv/b*/data; ls -A {lab.source}")
            assert done.stderr == b""
            assert done.stdout.split() == [host.namespace.encode(), b"0", b"here", b"/srv/b1/data", b"/srv/b2/data"]
    finally:
        mark.unlink()


def test_ssh_to_one_host_fails_for_a_while(lab: LabHandle) -> None:
    other, *_, host = lab.state.hosts
    for fault, said in (
        (lab.key_refused, b"Permission denied"),
        (lab.host_key_changed, b"IDENTIFICATION HAS CHANGED"),
        (lab.sshd_down, b"Connection refused"),
    ):
        with fault(host):
            done = lab.ssh(host, "true")
            assert (done.returncode, said in done.stderr) == (255, True)
            assert lab.ssh(other, "true").returncode == 0
        assert lab.ssh(host, "true").returncode == 0


def test_one_host_loses_its_target_or_its_network_for_a_while(lab: LabHandle) -> None:
    first, host, _ = lab.state.hosts
    with lab.target_unmounted(host):
        assert lab.on_host(host, "mountpoint", "-q", lab.state.target).returncode != 0
        assert lab.on_host(first, "mountpoint", "-q", lab.state.target).returncode == 0
        assert lab.target.is_mount()
    assert lab.on_host(host, "mountpoint", "-q", lab.state.target).returncode == 0
    with lab.interface_down(host):
        # Asked in the host's own network, so the query does not wait for the interface.
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
