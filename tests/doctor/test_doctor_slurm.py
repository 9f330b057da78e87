"""What `doctor` says of a real Slurm cluster."""

import asyncio
import shutil

import pytest

from migrator.core.events import Finding, FindingStatus
from migrator.doctor.hosts import examine_slurm
from migrator.hosts.process import LocalProcesses
from migrator.site.config import SlurmSection
from tests.support.slurm import Slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]


def finding(nodes: int, *options: str) -> Finding:
    section = SlurmSection(nodes=nodes, options=options)
    (found,) = asyncio.run(examine_slurm(LocalProcesses(), shutil.which, section))
    assert bool(found.fix) == (found.status is not FindingStatus.OK)
    return found


def test_enough_nodes_and_too_few(slurm: Slurm) -> None:
    for options in (("-p", "batch"), ("-pbatch",), ("--partition=batch",), ("--time=1:00", "--partition", "batch")):
        assert finding(3, *options).message == "3 of 3 nodes accept jobs, 3 at once are configured"
    assert finding(4).status is FindingStatus.WARNING


def test_a_drained_node_takes_no_jobs(slurm: Slurm) -> None:
    slurm.do("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
    found = finding(3)
    assert found.status is FindingStatus.WARNING
    assert "2 of 3 nodes accept jobs" in found.message
    assert "n2 drain" in found.message


def test_a_partition_that_is_not_there(slurm: Slurm) -> None:
    assert finding(1, "--partition=movers").status is FindingStatus.FAILURE


def test_the_controller_has_stopped(slurm: Slurm) -> None:
    slurm.stop_controller()
    found = finding(1)
    assert found.status is FindingStatus.FAILURE
    assert "is DOWN" in found.message
