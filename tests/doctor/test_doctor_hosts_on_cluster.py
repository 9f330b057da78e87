"""`doctor` on a real cluster with real sshd: hosts that are fit. What can be wrong with one is in test_doctor_hosts."""

import shutil
from pathlib import Path

import pytest

from tests.support.cluster.fixtures import with_ssh
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.site import lab_site

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]


def test_hosts_that_are_fit(lab: LabHandle, tmp_path: Path) -> None:
    with_ssh(lab)
    target = lab.target / "doctor"
    target.mkdir()
    try:
        with lab_site(lab, tmp_path / "site", target, via="auto", hosts=True) as site:
            site.json("init")
            findings = site.json("doctor", code=0)
    finally:
        shutil.rmtree(target)
    findings = [finding for finding in findings if finding["check"].startswith(("host", "bricks"))]
    assert {finding["check"]: finding["status"] for finding in findings} == {
        "bricks": "ok",
        **{f"host {host.address}": "ok" for host in lab.state.hosts},
    }
    assert "6 bricks on 3 hosts" in findings[-1]["message"]
    assert all("2 bricks of the volume" in finding["message"] for finding in findings[:-1])
