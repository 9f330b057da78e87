"""`init` and `doctor` on a real volume: unmounted, with a brick down, mounted without ACLs, and with hosts that are fit."""

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace as change

from migrator.core.clock import SystemClock
from migrator.core.errors import Refused
from migrator.core.events import Finding, FindingStatus
from migrator.fs.model import SENTINEL_NAME
from migrator.gluster.volume import GlusterCommands, GlusterSource
from migrator.hosts.process import LocalProcesses
from migrator.site.config import Site
from migrator.site.load import load_site
from tests.doctor.test_doctor import doctor as doctor_of
from tests.site.test_init import init as init_site
from tests.support.cluster.fixtures import with_ssh
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.site import lab_site

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

SENTINEL = os.fsdecode(SENTINEL_NAME)


@pytest.fixture
def site(lab: LabHandle, tmp_path: Path) -> Iterator[Site]:
    """The lab's site, with a state directory and a target of its own; the lab's sentinels are left as they were."""
    loaded = load_site(lab.site_file)
    (tmp_path / "target").mkdir()
    section = change(loaded.site, state_dir=tmp_path / "state")
    yield change(loaded, site=section, target=change(loaded.target, mount=tmp_path / "target"))
    (lab.source / SENTINEL).unlink(missing_ok=True)


def source_of(site: Site) -> GlusterSource:
    assert site.source.volume is not None
    commands = GlusterCommands(LocalProcesses(), SystemClock(), volume=site.source.volume, gluster=site.source.gluster)
    return GlusterSource(os.fsencode(site.source.mount), commands)


init = partial(init_site, source_of=source_of)
doctor = partial(doctor_of, source_of=source_of)


def messages(found: dict[str, list[Finding]], check: str, status: FindingStatus) -> list[str]:
    return [finding.message for finding in found[check] if finding.status is status]


def test_a_healthy_volume_is_recorded_and_fit(lab: LabHandle, site: Site) -> None:
    result = init(site)
    assert result.source.filesystem == "fuse.glusterfs"
    assert result.source.device is None
    assert result.source.sentinel == "site-0001"
    assert (lab.source / SENTINEL).stat().st_mode & 0o7777 == 0o600
    found = doctor(site)
    for check in ("gluster", "source mount", "source ACLs", "target mount"):
        assert [finding.status for finding in found[check]] == [FindingStatus.OK], (check, found[check])
    assert messages(found, "source health", FindingStatus.OK) == [f"all {len(lab.bricks)} bricks are up"]


def test_an_unmounted_volume_is_told_and_never_recorded(lab: LabHandle, site: Site) -> None:
    with lab.source_unmounted(), pytest.raises(Refused, match="the source is no gluster file system but"):
        init(site)
    init(site)
    with lab.source_unmounted():
        with pytest.raises(Refused, match="the source is no gluster file system but"):
            init(site)
        (said,) = messages(doctor(site), "source mount", FindingStatus.FAILURE)
        assert "it is not mounted" in said
        assert os.listdir(lab.source) == []
    assert init(site).done == ()


def test_a_brick_that_is_down_is_named(lab: LabHandle, site: Site) -> None:
    init(site)
    brick = lab.bricks[0]
    with lab.brick_down(brick):
        said = messages(doctor(site), "source health", FindingStatus.FAILURE)
    assert f"brick {brick.name} is down" in said


def test_hosts_that_are_fit(lab: LabHandle, tmp_path: Path) -> None:
    with_ssh(lab)
    target = lab.target / "doctor"
    target.mkdir()
    try:
        with lab_site(lab, tmp_path / "site", target, via="auto", hosts=True) as site:
            site.json("init")
            findings = site.json("doctor", code=0)
            tuning = site.json("doctor", "--tuning", code=0)
    finally:
        shutil.rmtree(target)
    findings = [finding for finding in findings if finding["check"].startswith(("host", "bricks"))]
    assert {finding["check"]: finding["status"] for finding in findings} == {
        "bricks": "ok",
        **{f"host {host.address}": "ok" for host in lab.state.hosts},
    }
    assert "6 bricks on 3 hosts" in findings[-1]["message"]
    assert all("2 bricks of the volume" in finding["message"] for finding in findings[:-1])
    assert tuning["problems"] == []
    places = {place for finding in tuning["findings"] for place in finding["places"]}
    unknown = set(tuning["unknown"])
    for host in ("localhost", *(host.address for host in lab.state.hosts)):
        assert any(name.startswith(f"{host}: ") for name in places | unknown), (host, places, unknown)
    assert {one["key"] for one in tuning["findings"]} >= {"gluster.performance.open-behind"}
