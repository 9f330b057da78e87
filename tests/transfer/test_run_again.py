"""The real program over real file systems: what a later stream, a later run or a later plan has to make good."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.run_site import RealSite, fill_tree
from tests.support.waiting import wait_for
from tests.support.xfs import XfsMount

pytestmark = pytest.mark.needs_root


@pytest.fixture
def site(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> Iterator[RealSite]:
    made = RealSite(scratch / "site", xfs_source, xfs_target)
    try:
        yield made
    finally:
        made.kill_streams()


def test_a_stream_that_is_killed_alone_leaves_no_file_behind(site: RealSite) -> None:
    tree, there = site.source.path / "home" / "alice", site.target.path / "home" / "alice"
    tree.mkdir(parents=True)
    (tree / "big").write_bytes(os.urandom(20_000_000))
    site.prepare()
    with site.started("--bwlimit", "4MiB") as process:
        wait_for(lambda: list(there.glob(".big.*")) or process.poll() is not None, "a temporary file")
        site.kill_streams()
        _, said = process.communicate(timeout=600)
        assert process.returncode == 0, said
    assert os.listdir(there) == ["big"]


@pytest.mark.guarantee("source-read-only")
def test_scans_passes_and_verifications_write_nothing_to_the_source(site: RealSite) -> None:
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
