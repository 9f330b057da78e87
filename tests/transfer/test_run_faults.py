"""The real program over real file systems that fail: kills, signals, full, read-only, frozen, cut off from power."""

import random
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.run_site import RealSite, fill_tree, unfreeze
from tests.support.waiting import wait_for
from tests.support.xfs import XfsMount

pytestmark = pytest.mark.needs_root

SLOW = ("--bwlimit", "1500KiB")
SLOWER = ("--bwlimit", "500KiB")
"""For what must happen before the run has come to its end: a third of a minute, and a stream a few seconds."""


@pytest.fixture
def site(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> Iterator[RealSite]:
    """Two users with about 10 MiB together, planned."""
    yield from made_site(scratch, xfs_source, xfs_target)


def made_site(
    scratch: Path, source: XfsMount, target: XfsMount, transfer: str = "", **environment: str
) -> Iterator[RealSite]:
    fill_tree(source.path / "home" / "alice", files=400, size_bytes=20_000)
    fill_tree(source.path / "home" / "bob", files=100, size_bytes=20_000, uid=60002)
    made = RealSite(scratch / "site", source, target)
    made.environment |= environment
    made.prepare(transfer=transfer)
    try:
        yield made
    finally:
        made.kill_streams()


@pytest.mark.guarantee("kill-9")
def test_kill_9_at_random_instants_loses_nothing(site: RealSite) -> None:
    draw = random.Random(20)
    for _ in range(4):
        before = site.attempts()
        with site.started(*SLOW) as process:
            enough = before + draw.randint(1, 4)
            wait_for(partial(came_so_far, site, process, enough), "attempts")
            if draw.random() < 0.5:
                process.send_signal(signal.SIGKILL)
            else:
                site.kill_streams()
    done = site.run()
    assert done.returncode == 0, done.stderr
    assert site.differences() == ""
    assert not site.streams()
    leftovers = [path for path in (site.target.path / "home").rglob(".*") if path.name.count(".") >= 2]
    assert leftovers == []
    again = site.run()
    assert "nothing was copied" in again.stderr


@pytest.mark.guarantee("kill-9")
def test_a_target_cut_off_from_power_has_what_was_done(site: RealSite) -> None:
    with site.started(*SLOW) as process:
        wait_for(lambda: site.attempts() >= 6, "some chunks")
        process.kill()
        process.wait()
        site.kill_streams()
    subprocess.run(["xfs_io", "-x", "-c", "shutdown", str(site.target.path)], check=True)
    site.target.mount_again()
    done = site.run()
    assert done.returncode == 0, done.stderr
    assert site.differences() == ""


@pytest.mark.exhaustive
def test_a_frozen_target_is_stuck_and_does_not_hold_the_program(
    scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount
) -> None:
    for site in made_site(scratch, xfs_source, xfs_target, 'stall_timeout = "5s"'):
        try:
            with site.started(*SLOWER) as process:
                wait_for(site.streams, "streams")
                subprocess.run(["fsfreeze", "--freeze", str(xfs_target.path)], check=True)
                _, said = process.communicate(timeout=600)
                assert process.returncode == 1, said
                assert "stood still" in said
        finally:
            unfreeze(xfs_target)
        wait_for(partial(has_no_streams, site), "the end of the streams")
        site.write()  # a disk that is only busy may stand still for longer
        assert site.run().returncode == 0
        assert site.differences() == ""


def came_so_far(site: RealSite, process: "subprocess.Popen[str]", attempts: int) -> bool:
    return site.attempts() >= attempts or process.poll() is not None


def has_no_streams(site: RealSite) -> bool:
    return not site.streams()


@pytest.mark.guarantee("source-read-only")
def test_scans_passes_and_verifications_write_nothing_to_the_source(
    scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount
) -> None:
    site = RealSite(scratch / "site", xfs_source, xfs_target)
    tree = site.source.path / "home" / "alice"
    fill_tree(tree, files=20, size_bytes=100)
    site.write()
    assert site.migrator("init").returncode == 0
    site.source.remount("ro")
    for words in (["scan"], ["plan", "--activate"]):
        assert site.migrator(*words).returncode == 0
    assert site.run().returncode == 0
    site.source.remount("rw")
    (tree / "later").write_text("later")
    (tree / "d0" / "f0007").rename(tree / "renamed")
    site.source.remount("ro")
    done = site.run("--deltas", "1")
    assert done.returncode == 0, done.stderr
    assert site.migrator("verify", "--user-batch", "1").returncode == 0
    assert site.differences() == ""
