"""The contract of processes, over a node of a real Slurm cluster."""

import asyncio
from collections.abc import Iterator

import pytest

from migrator.hosts.ports import Processes
from tests.hosts import test_processes
from tests.hosts.test_processes import runner, token
from tests.support.slurm import Slurm, missing_for_slurm, running_slurm, suite_over

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]
globals().update(suite_over(test_processes, "processes"))
__all__ = ["runner", "token"]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """One cluster for all of them."""
    if reason := missing_for_slurm():
        pytest.skip(f"needs a real Slurm: {reason}")
    with running_slurm() as made:
        yield made


@pytest.fixture
def processes(slurm: Slurm, monkeypatch: pytest.MonkeyPatch, runner: asyncio.Runner) -> Iterator[Processes]:
    """Those of a node."""
    monkeypatch.setenv("SLURM_CONF", str(slurm.config))
    hosts = slurm.hosts()
    yield runner.run(hosts.reach("slurm-1")).processes
    runner.run(hosts.close())
