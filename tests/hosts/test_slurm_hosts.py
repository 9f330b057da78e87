"""The contracts of hosts, executors and processes, over a node of a real Slurm cluster."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.hosts.local import LocalHost
from migrator.hosts.ports import Processes
from tests.hosts import test_executors, test_hosts, test_processes
from tests.hosts.test_executors import TestConfined, World
from tests.hosts.test_hosts import Reached
from tests.hosts.test_processes import runner, token
from tests.support.slurm import Slurm, suite_over

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]
globals().update(suite_over(test_hosts, "reached"), **suite_over(test_executors, "world"))
globals().update(suite_over(test_processes, "processes"))
__all__ = ["TestConfined", "runner", "token"]


@pytest.fixture
def reached(slurm: Slurm) -> Iterator[Reached]:
    """A node, reached; its job is gone afterwards."""
    hosts = slurm.hosts()
    made = Reached(LocalHost())
    made.host = made.do(hosts.reach("slurm-1"))
    yield made
    made.do(hosts.close())
    made.close()
    assert not slurm.jobs()
    assert not slurm.far_ends()


@pytest.fixture
def world(slurm: Slurm, scratch: Path) -> Iterator[World]:
    """An executor on a node."""
    hosts = slurm.hosts()
    runner = asyncio.Runner()
    made = World(scratch, runner.run(hosts.reach("slurm-1")), runner=runner)
    yield made
    made.in_loop(hosts.close())
    made.close()
    assert not slurm.jobs()


@pytest.fixture
def processes(slurm: Slurm, runner: asyncio.Runner) -> Iterator[Processes]:
    """Those of a node."""
    hosts = slurm.hosts()
    yield runner.run(hosts.reach("slurm-1")).processes
    runner.run(hosts.close())


def test_the_job_is_known(reached: Reached, slurm: Slurm) -> None:
    facts = reached.do(reached.host.facts())
    assert slurm.jobs() == {facts.job: "RUNNING"}
    assert (facts.name, facts.node_name) == ("slurm-1", os.uname().nodename)
