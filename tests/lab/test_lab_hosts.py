"""The hosts of a lab as a program outside reaches them: over ssh, with the target mounted; and how tests break that."""

import os
import tomllib

import pytest

from tests.support.cluster.handle import LabHandle

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
