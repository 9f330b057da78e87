"""Benchmarks of a Gluster mount against local XFS, on several hosts over ssh, and what a kill leaves."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from migrator.bench.model import BENCH_NAME
from migrator.hosts.proc import carriers
from migrator.ledger.ledger import open_ledger
from tests.support.cluster.fixtures import with_ssh
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.site import LabSite, lab_site
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

OWN = os.fsdecode(BENCH_NAME)
ON_NAMES = ("make-directories", "remove-directories", "make-files", "remove-files", "ls", "du")


@pytest.fixture
def site(lab: LabHandle, tmp_path: Path) -> Iterator[LabSite]:
    with_ssh(lab)
    target = lab.target / "bench"
    target.mkdir()
    try:
        with lab_site(lab, tmp_path / "site", target, hosts=True) as made:
            made.json("init")
            yield made
    finally:
        shutil.rmtree(target)


def on_bricks(lab: LabHandle) -> list[str]:
    return [brick.name for brick in lab.bricks if (lab.brick_directory(brick) / OWN).exists()]


def scanned(site: LabSite) -> set[bytes]:
    """The paths of all catalogs."""
    parts = (site.directory / "state/catalogs").glob("*/part-*.parquet")
    return {path or b"" for part in parts for path in pq.read_table(part, columns=["path"])["path"].to_pylist()}


def tokens(site: LabSite) -> list[str]:
    with open_ledger(site.directory / "state/ledger.db", read_only=True) as ledger:
        return [record.token for record in ledger.benchmarks.all()]


def test_suites_run_on_mounts_and_hosts_and_kills_leave_nothing(lab: LabHandle, site: LabSite) -> None:
    both = ("--on", "source", "--on", "target", "--runs", "1", "--scale", "0.003")
    summary = site.json("bench", "run", "--suite", "catalog", "--suite", "recursive", *both)
    assert summary["failures"] == []
    assert [place["filesystem"] for place in summary["results"][0]["record"]["places"]] == ["fuse.glusterfs", "xfs"]
    compared = {step["step"] for one in site.json("bench", "compare") for step in one["steps"] if step["contrasts"]}
    assert set(ON_NAMES) <= compared

    hosts = [host.address for host in lab.state.hosts[:2]]
    at_scale = ("--runs", "1", "--scale", "0.01")
    named = [word for host in hosts for word in ("--hosts", host)]
    summary = site.json("bench", "run", "--suite", "latency", "--on", "target", *named, *at_scale)
    for one in summary["results"][0]["measurements"]:
        assert set(one["by_host"]) == set(hosts)
        assert one["details"]["reads"] > 0

    # The hosts of the lab have no mount of the source.
    done = site.call("bench", "run", "--suite", "latency", "--on", "source", *named)
    assert done.returncode == 4, done.stderr
    assert f"host {hosts[0]}: the source" in done.stderr

    program = site.start("bench", "run", "--suite", "latency", "--on", "source", "--scale", "100")
    try:
        wait_for(lambda: len(carriers(tokens(site)[-1:])) == 1 and bool(on_bricks(lab)), "readers are at work")
        program.send_signal(signal.SIGKILL)
        program.wait()
        wait_for(lambda: not carriers(tokens(site)), "its processes have ended")
    finally:
        program.kill()
        program.wait()
    assert on_bricks(lab)
    for way in ("mount", "bricks"):
        site.json("scan", "--via", way)
        paths = scanned(site)
        assert any(path.startswith(b"home/") for path in paths)
        assert not [path for path in paths if path.startswith(BENCH_NAME)]
    cleaning = site.json("bench", "clean")
    assert len(cleaning["removed"]) == 1
    assert cleaning["left"] == []
    assert on_bricks(lab) == []
    assert OWN not in os.listdir(site.target)
