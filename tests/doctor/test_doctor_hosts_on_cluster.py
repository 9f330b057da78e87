"""`doctor` on a real cluster with real sshd: hosts that are fit, and everything that can be wrong with one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from migrator.lab.model import LabBrick
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.site import LabSite, lab_site

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]


@contextmanager
def brick_covered(lab: LabHandle, brick: LabBrick) -> Iterator[None]:
    """An empty file system is in the place of a brick's own. Its process goes on, and what it is asked it looks for there."""
    host, path = lab.host_of(brick), os.fsdecode(lab.brick_path(brick))
    aside, point = "/srv/aside", os.path.dirname(path)
    # Every 30 s the process writes into this directory, by its path. Where it cannot, it tells that it is down, and ends.
    inside = f"{aside}/{os.path.basename(path)}/.glusterfs"
    for argv in (
        ("mkdir", "-p", aside),
        ("mount", "-t", "tmpfs", "tmpfs", aside),
        ("mkdir", "-p", inside),
        ("mount", "--move", aside, point),
    ):
        done = lab.on_host(host, *argv)
        assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        lab.unmount_on(host, point)
        # What clients asked the brick meanwhile, it looked for in the empty one: they may have given directories other layouts
        # on the other bricks.
        lab.let_client_know()


@dataclass(frozen=True)
class Examined:
    """A site over the session's lab, and what `doctor` says of its hosts."""

    lab: LabHandle
    site: LabSite

    def findings(self, *, code: int) -> list[dict[str, Any]]:
        document = self.site.json("doctor", code=code)
        found = document["findings"] if isinstance(document, dict) else document
        return [finding for finding in found if finding["check"].startswith(("host", "bricks"))]

    def wrong(self, *, code: int) -> dict[str, str]:
        """What is not well, by its check."""
        return {
            finding["check"]: finding["message"] for finding in self.findings(code=code) if finding["status"] != "ok"
        }


@pytest.fixture
def examined(lab: LabHandle, tmp_path: Path) -> Iterator[Examined]:
    if not lab.state.ssh_config:
        pytest.skip("the lab has no sshd: " + "; ".join(lab.state.notes))
    target = lab.target / "doctor"
    target.mkdir(exist_ok=True)
    try:
        with lab_site(lab, tmp_path / "site", target, via="auto", hosts=True) as site:
            site.json("init")
            yield Examined(lab, site)
    finally:
        for entry in target.iterdir():
            entry.unlink()
        target.rmdir()


def test_hosts_that_are_fit(examined: Examined) -> None:
    findings = examined.findings(code=0)
    assert {finding["check"]: finding["status"] for finding in findings} == {
        "bricks": "ok",
        **{f"host {host.address}": "ok" for host in examined.lab.state.hosts},
    }
    assert "6 bricks on 3 hosts" in findings[-1]["message"]
    assert all("2 bricks of the volume" in finding["message"] for finding in findings[:-1])


def test_a_host_refuses_the_key(examined: Examined) -> None:
    host = examined.lab.state.hosts[2]
    with examined.lab.key_refused(host):
        wrong = examined.wrong(code=1)
    assert "it refuses the key" in wrong.pop(f"host {host.address}")
    assert set(wrong) == {"bricks"}
    assert host.address in wrong["bricks"]


def test_a_brick_is_not_mounted_there(examined: Examined) -> None:
    """Its process goes on."""
    host = examined.lab.state.hosts[1]
    brick = next(one for one in examined.lab.bricks if (one.host, one.number) == (host.number, 1))
    with brick_covered(examined.lab, brick):
        wrong = examined.wrong(code=1)
    assert f"{host.address}:/srv/b1/data is no brick there" in wrong[f"host {host.address}"]
