"""Runs whose streams work on the nodes of a real Slurm cluster, and what happens when Slurm takes the nodes away."""

import os
import random
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.run_site import RealSite, fill_tree
from tests.support.slurm import Slurm
from tests.support.waiting import wait_for
from tests.support.xfs import XfsMount
from tests.transfer.test_run_faults import SLOWER, came_so_far

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]

_MOVERS = """movers = "slurm"
engine = "direct"
[slurm]
nodes = 2
jobs = 1
"""


@pytest.fixture
def slurm(cluster: Slurm) -> Iterator[Slurm]:
    """The cluster, with nothing running and all nodes idle."""
    yield cluster
    cluster.calm()
    assert not cluster.far_ends()


@pytest.fixture
def site(slurm: Slurm, scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> Iterator[RealSite]:
    """Two users with about 8 MiB together, planned; streams belong on nodes."""
    fill_tree(xfs_source.path / "home" / "alice", files=300, size_bytes=20_000)
    fill_tree(xfs_source.path / "home" / "bob", files=100, size_bytes=20_000, uid=60002)
    made = RealSite(scratch / "site", xfs_source, xfs_target)
    made.environment |= {"SLURM_CONF": os.fspath(slurm.config)}
    made.prepare(transfer=_MOVERS)
    try:
        yield made
    finally:
        made.kill_streams()


def test_a_job_that_is_cancelled_from_outside_costs_time_only(site: RealSite, slurm: Slurm) -> None:
    with site.started(*SLOWER) as process:
        wait_for(partial(came_so_far, site, process, 3), "attempts")
        for job in [job for job, state in slurm.jobs().items() if state == "RUNNING"][:1]:
            slurm.do("scancel", job)
        _, said = process.communicate(timeout=800)
        assert process.returncode == 0, said
    assert "is lost" in said
    assert site.differences() == ""


def test_kill_9_of_the_program_and_of_its_jobs_at_random_instants_loses_nothing(site: RealSite, slurm: Slurm) -> None:
    draw = random.Random(21)
    for number in range(4):
        before = site.attempts()
        with site.started(*SLOWER) as process:
            wait_for(partial(came_so_far, site, process, before + draw.randint(1, 2)), "attempts")
            if number % 2 == 0:
                slurm.do("scancel", draw.choice(sorted(slurm.jobs())))
            else:
                os.kill(draw.choice(slurm.far_ends()), signal.SIGKILL)
            process.kill()
            process.wait()
            # Without a pause, while what is left of the jobs is still at work.
            with site.started(*SLOWER) as again:
                wait_for(partial(came_so_far, site, again, site.attempts() + 1), "attempts")
                again.kill()
    done = site.run()
    assert done.returncode == 0, done.stderr
    assert site.differences() == ""
    assert not site.streams()
    assert "nothing was copied" in site.run().stderr
