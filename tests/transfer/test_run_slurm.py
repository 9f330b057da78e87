"""Runs on nodes of a real Slurm that takes them away, and over a target whose storage server goes (a frozen XFS and recorded answers of `beegfs`)."""

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.beegfs_tool import FakeTool, fake_tool, targets
from tests.support.run_site import RealSite, unfreeze
from tests.support.slurm import Slurm
from tests.support.waiting import wait_for
from tests.support.xfs import XfsMount
from tests.transfer.test_run_faults import SLOW, SLOWER, came_so_far, made_site

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]

_MOVERS = """movers = "slurm"
engine = "direct"
[slurm]
nodes = 2
jobs = 1
"""


@pytest.fixture
def site(slurm: Slurm, scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> Iterator[RealSite]:
    """Streams belong on nodes."""
    yield from made_site(scratch, xfs_source, xfs_target, _MOVERS, SLURM_CONF=os.fspath(slurm.config))


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


STALL = 'stall_timeout = "12s"'
LOST = targets("", changes={"target_storage_201": {"last_contact": "61s ago"}})


def as_beegfs(site: RealSite, directory: Path, *, more: str = "") -> FakeTool:
    """From now on site.toml says that the target is a BeeGFS."""
    tool = fake_tool(directory / "bin")
    old = f'kind = "posix"\nmount = "{site.target.path}"\n'
    text = site.file.read_text()
    assert text.count(old) == 1
    new = f'kind = "beegfs"\nmount = "{site.target.path}"\nbeegfs = "{tool.program}"\n{more}'
    site.file.write_text(text.replace(old, new))
    return tool


def lists(tool: FakeTool) -> int:
    return sum(words[:2] == ["target", "list"] for words in tool.asked)


def test_streams_wait_for_a_storage_server_and_go_on_after_its_return(
    scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount
) -> None:
    for site in made_site(scratch, xfs_source, xfs_target, STALL):
        tool = as_beegfs(site, scratch, more='stripe_count = 2\nchunk_size = "1MiB"\n')
        try:
            with site.started(*SLOW) as process:
                wait_for(site.streams, "streams")
                subprocess.run(["fsfreeze", "--freeze", str(xfs_target.path)], check=True)
                tool.tell(LOST)
                wait_for(partial(is_told, site, process), "the outage")
                before = lists(tool)
                # Looks are made every 10 s: by then the stall timeout is over twice.
                wait_for(partial(has_looked, tool, process, before + 3), "three more looks")
                assert process.poll() is None
                unfreeze(xfs_target)
                tool.tell(targets(""))
                _, said = process.communicate(timeout=600)
                assert process.returncode == 0, said
        finally:
            unfreeze(xfs_target)
        assert "target_storage_201" in said
        assert "answer again" in said
        assert site.differences() == ""
        home = xfs_target.path / "home"
        assert tool.stripes == {str(home / user): (2, 1 << 20) for user in ("alice", "bob")}


def is_told(site: RealSite, process: "subprocess.Popen[str]") -> bool:
    """By what lies in the ledger's file and its journal."""
    content = b"".join(file.read_bytes() for file in site.ledger.parent.glob("ledger.db*"))
    return b"storage-lost" in content or process.poll() is not None


def has_looked(tool: FakeTool, process: "subprocess.Popen[str]", times: int) -> bool:
    return lists(tool) >= times or process.poll() is not None
