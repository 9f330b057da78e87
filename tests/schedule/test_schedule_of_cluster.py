"""The conversion schedule of `plan` on a real cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeXfs
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.site import LabSite, lab_site

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]


@pytest.fixture
def site(lab: LabHandle, tmp_path: Path, make_xfs: MakeXfs) -> Iterator[LabSite]:
    if not lab.state.ssh_config:
        pytest.skip("the lab has no sshd: " + "; ".join(lab.state.notes))
    with lab_site(lab, tmp_path / "site", make_xfs().path, via="auto", hosts=True) as made:
        made.json("init")
        yield made


def test_every_brick_and_every_server_of_the_volume_has_its_day(lab: LabHandle, site: LabSite) -> None:
    site.json("scan", "--via", "mount")
    blind = site.json("plan")["plan"]["schedule"]
    assert "migrator scan --via bricks" in blind["problem"]
    assert "There is no schedule" in site.call("plan", "--details").stdout

    site.json("scan", "--via", "bricks")
    schedule = site.json("plan")["plan"]["schedule"]
    assert schedule["problem"] is None
    outcome = schedule["orders"][0]["outcome"]
    assert outcome["obstacle"] is None
    steps = outcome["subvolumes"]
    assert {brick for step in steps for brick in step["bricks"]} == {brick.name for brick in lab.bricks}
    assert [step["retired"] for step in steps] == [False] * (len(lab.bricks) - 1) + [True]
    # Bricks of the lab are far from full: all but one could go at once, and the last waits for the purge of everybody.
    assert all(step["cleared_day"] < 30 for step in steps[:-1])
    assert steps[-1]["cleared_day"] >= 30
    hosts = {host["host"]: host["free_day"] for host in outcome["hosts"]}
    assert set(hosts) == {host.address for host in lab.state.hosts}
    assert max(hosts.values()) == outcome["done_day"]

    shown = site.call("plan", "--details")
    assert shown.returncode == 0
    assert "When bricks can be cleared" in shown.stdout
    assert "What if, by day" in shown.stdout
