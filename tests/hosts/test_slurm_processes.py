"""The contract of processes, over a node of a real Slurm cluster."""

import asyncio
from collections.abc import Iterator

import pytest

from migrator.hosts.ports import Processes
from tests.hosts import test_processes
from tests.hosts.test_processes import runner, token
from tests.support.slurm import Slurm, suite_over

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]
globals().update(suite_over(test_processes, "processes"))
__all__ = ["runner", "token"]


@pytest.fixture
def processes(slurm: Slurm, runner: asyncio.Runner) -> Iterator[Processes]:
    """Those of a node."""
    hosts = slurm.hosts()
    yield runner.run(hosts.reach("slurm-1")).processes
    runner.run(hosts.close())
