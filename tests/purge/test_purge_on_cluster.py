"""Purging a user tree of a real volume: through the mount, and no trace of it is left on any brick."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from migrator.cutover.model import CutoverState
from migrator.cutover.writers import brick_writers
from migrator.gluster.volume import GlusterSource
from migrator.hosts.process import LocalProcesses
from migrator.purge.model import PurgeOutcome
from tests.cutover.test_freezing_on_cluster import gluster
from tests.purge.purge_site import PurgeSite, purge_site
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.hosts import LabHosts
from tests.support.run_site import fill_tree
from tests.support.snapshots import snapshot
from tests.support.waiting import wait_for
from tests.support.xfs import XfsMount

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

FILES = 120
NEIGHBOUR = "purge-neighbour"


def fill(tree: Path) -> None:
    tree.rmdir()
    fill_tree(tree, files=FILES, size_bytes=3000)


def on_bricks(lab: LabHandle) -> set[tuple[str, str]]:
    """Every name that the bricks have, those that Gluster keeps by gfid too."""
    found: set[tuple[str, str]] = set()
    for brick in lab.bricks:
        root = lab.brick_directory(brick)
        for above, directories, files in os.walk(root):
            relative = os.path.relpath(above, root)
            if relative.startswith(".glusterfs") and relative.count("/") != 2:
                continue
            found.update((brick.name, f"{relative}/{name}") for name in (*directories, *files))
    return {(brick, name) for brick, name in found if "/changelogs/" not in name and "/indices/" not in name}


def unnamed(lab: LabHandle) -> Iterator[Path]:
    """What bricks keep by gfid alone."""
    for brick in lab.bricks:
        for above, _, files in os.walk(lab.brick_directory(brick) / ".glusterfs"):
            for path in (Path(above, name) for name in files if len(name) == 36):
                with suppress(FileNotFoundError):
                    if path.lstat().st_nlink == 1 and not path.is_symlink():
                        yield path


def removed(path: Path) -> bool:
    """Right after a brick was down, directories may not be whole yet."""
    shutil.rmtree(path, ignore_errors=True)
    return not path.exists()


@pytest.fixture
def neighbour(lab: LabHandle) -> Iterator[Path]:
    """Another user's tree."""
    path = lab.source / "home" / NEIGHBOUR
    fill_tree(path, files=20, size_bytes=100)
    try:
        yield path
    finally:
        wait_for(partial(removed, path), f"{path.name} is removed")


@pytest.fixture
def site(lab: LabHandle, neighbour: Path, scratch: Path, xfs_target: XfsMount) -> Iterator[PurgeSite]:
    before = on_bricks(lab)
    source: GlusterSource = gluster(lab)
    try:
        with purge_site(scratch / "site", lab.source, xfs_target.path, fill, tree=b"home/purged") as made:
            made.read_by = source
            made.search = partial(brick_writers, LabHosts(lab), LabHosts(lab).names, source, LocalProcesses())
            assert on_bricks(lab) - before
            yield made
    finally:
        source.close()
        for left in (lab.source / "home/purged", lab.source / ".migrator-purge"):
            wait_for(partial(removed, left), f"{left.name} is removed")


def test_nothing_of_it_is_left_on_any_brick_and_the_others_are_untouched(
    lab: LabHandle, site: PurgeSite, neighbour: Path
) -> None:
    shared = neighbour / "shared"
    os.link(site.source / "d1/f0001", shared)
    content = shared.read_bytes()
    kept = snapshot(os.fsencode(neighbour))
    own = {(brick, name) for brick, name in on_bricks(lab) if "home/purged" not in name}
    done = site.purge()
    assert (done.outcome, done.findings, done.reasons, done.outside) == (PurgeOutcome.PURGED, (), (), 1)
    assert site.state is CutoverState.PURGED
    assert {name for _, name in on_bricks(lab) if "home/purged" in name or ".migrator-purge" in name} == set()
    gone = own - on_bricks(lab)
    assert all("/.glusterfs/" in f"/{name}" for _, name in gone)
    assert shared.read_bytes() == content
    after = snapshot(os.fsencode(neighbour))
    assert {name: facts for name, facts in after.items() if name != b"shared"} == {
        name: facts for name, facts in kept.items() if name != b"shared"
    }
    # What Gluster keeps by gfid is what is named, and no more: files of the tree have left nothing behind. A brick keeps one that
    # is removed until the client has closed it, which is after the program has.
    wait_for(lambda: not any(unnamed(lab)), "nothing is kept that has no name")


@pytest.fixture(params=["every", 0, 1, 2])
def full_bricks(request: pytest.FixtureRequest, lab: LabHandle, site: PurgeSite) -> Iterator[Path]:
    """Every brick, or one, is below `storage.reserve`: no name can be made there. At the last block Gluster stops a brick."""
    full = lab.bricks if request.param == "every" else [lab.bricks[request.param]]
    filled = [lab.brick_directory(brick).parent / "filled" for brick in full]
    probes = [lab.source / f"probe-{number}" for number in range(64)]
    least = len(probes) if request.param == "every" else 1

    def refused() -> int:
        """How many names are refused: each brick has some of them, and looks at its room every 5 s."""
        count = 0
        for probe in probes:
            try:
                probe.mkdir()
                probe.rmdir()
            except OSError as error:
                count += error.errno == errno.ENOSPC
        return count

    try:
        for path in filled:
            room = os.statvfs(path.parent)
            with path.open("wb") as file:
                left = room.f_blocks // 250
                os.posix_fallocate(file.fileno(), 0, (room.f_bavail - left) * room.f_frsize)
        wait_for(lambda: refused() >= least, "the bricks are full")
        yield site.source
    finally:
        for path in filled:
            path.unlink(missing_ok=True)
        wait_for(lambda: not refused(), "the bricks have room again")


def test_the_tree_is_freed_in_place_where_the_bricks_are_full(
    lab: LabHandle, site: PurgeSite, full_bricks: Path
) -> None:
    done = site.purge()
    assert (done.outcome, done.findings, done.reasons) == (PurgeOutcome.PURGED, (), ())
    assert not full_bricks.exists()
    assert {name for _, name in on_bricks(lab) if "home/purged" in name or ".migrator-purge" in name} == set()
