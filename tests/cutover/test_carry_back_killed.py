"""`kill -9` in every phase of carrying back: made again, it brings the source to what the target is."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.hosts import proc
from tests.conftest import MakeXfs
from tests.cutover.carry_child import PHASES, ask
from tests.support.back_world import BackWorld
from tests.support.delta_changes import build, change, let_settle, write
from tests.support.run_site import DEADLINE_S, REPOSITORY, RealSite

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]

RENAMED = 800
SENT = 400


@pytest.fixture
def world(scratch: Path, make_xfs: MakeXfs) -> Iterator[BackWorld]:
    """A user who was switched, and has changed everything since, with much to rename and some to send."""
    site = RealSite(scratch / "site", make_xfs(), make_xfs())
    made = BackWorld(site)
    build(made.source)
    for number in range(RENAMED):
        write(made.source / "old names" / f"{number}", f"renamed {number}")
    let_settle()
    site.prepare()
    assert site.run().returncode == 0
    made.switch()
    change(made.target)
    (made.target / "new names").mkdir()
    for number in range(RENAMED):
        (made.target / "old names" / f"{number}").rename(made.target / "new names" / f"{number:05d}")
    for number in range(SENT):
        write(made.target / "sent" / f"{number}", f"{number:04d}" * 4000)
    let_settle()
    made.freeze_target()
    # What is sent takes some seconds.
    site.write(transfer='bwlimit = "2MiB"')
    yield made
    end_streams(made)


def end_streams(world: BackWorld) -> None:
    tokens = [
        str(token) for (token,) in ask(world, "SELECT token FROM attempts WHERE state IN ('intended', 'running')")
    ]
    for process in (process for found in proc.carriers(tokens).values() for process in found):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, 9)


@contextlib.contextmanager
def started(world: BackWorld, phase: str) -> Iterator["subprocess.Popen[str]"]:
    words = (str(world.site.file), str(world.site.source.path), phase)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cutover.carry_child", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=REPOSITORY,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=DEADLINE_S)


def kill_in(world: BackWorld, phase: str) -> bool:
    """Kill it as soon as it is seen in a phase; whether that was before its end."""
    with started(world, phase) as process:
        deadline = time.monotonic() + DEADLINE_S
        while process.poll() is None:
            assert time.monotonic() < deadline, "the phase was not seen"
            if PHASES[phase](world):
                process.kill()
                return process.wait() != 0
            time.sleep(0.001)
        assert process.returncode == 0, process.communicate()
    return False


@pytest.mark.parametrize("phase", PHASES)
def test_what_was_killed_is_made_anew_and_comes_to_the_same(world: BackWorld, phase: str) -> None:
    assert kill_in(world, phase)
    copied, proof = world.seen()
    assert copied is None or copied.finished_at_s is None
    assert proof is None
    world.site.write()
    world.carry()
    world.proves()
    assert not list(world.site.source.path.rglob(".migrator-copy-*"))
