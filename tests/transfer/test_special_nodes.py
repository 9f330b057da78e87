"""Sockets, FIFOs, devices and symlinks on a target that answers with errors, or shows other modes, as BeeGFS does."""

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from migrator.core.entry import ACL_DEFAULT, SYMLINK_MODE
from migrator.core.states import ChunkKind
from migrator.fs.reading import ReadingFileSystem
from migrator.site.model import DIRECT
from migrator.transfer.model import AttemptVerdict
from tests.conftest import MakeXfs
from tests.gluster.walks import run_walk
from tests.support.beegfs_like import BEEGFS_CAPABILITIES, beegfs_like, missing_for_fuse
from tests.support.entries import acl
from tests.support.native_builds import built
from tests.support.run_site import RealSite
from tests.support.streams import Streams, make_trees
from tests.support.xfs import XfsMount
from tests.transfer.native_copy import engine_named

pytestmark = pytest.mark.needs_root

TREE = b"home/odd"
SHARED_ACL = acl(7, 7, 7, 7, 0)
DIRECTORIES = ("plain", "shared")
NODES = ("fifo", "socket", "device")


@pytest.fixture
def like_beegfs(make_xfs: MakeXfs) -> Iterator[Path]:
    if reason := missing_for_fuse():
        pytest.skip(f"needs FUSE: {reason}")
    with beegfs_like(make_xfs().path) as mounted:
        yield mounted


@pytest.fixture
def umask() -> Iterator[None]:
    """That of the program."""
    before = os.umask(0o027)
    yield
    os.umask(before)


def make_nodes(directory: Path) -> None:
    before = os.umask(0)
    os.mkfifo(directory / "fifo", 0o666)
    os.mknod(directory / "socket", stat.S_IFSOCK | 0o777)
    os.mknod(directory / "device", stat.S_IFCHR | 0o626, os.makedev(1, 3))
    os.umask(before)


def modes(tree: Path) -> dict[str, int]:
    names = [f"{directory}/{node}" for directory in DIRECTORIES for node in NODES]
    return {name: (tree / name).lstat().st_mode for name in names}


@pytest.mark.usefixtures("umask")
def test_symlinks_are_read_with_one_mode_whatever_is_shown(like_beegfs: Path) -> None:
    for directory in DIRECTORIES:
        (like_beegfs / directory).mkdir()
    os.setxattr(like_beegfs / "shared", ACL_DEFAULT, SHARED_ACL)
    paths = [f"{directory}/link" for directory in DIRECTORIES]
    for path in paths:
        (like_beegfs / path).symlink_to("nowhere")
    assert [stat.S_IMODE((like_beegfs / path).lstat().st_mode) for path in paths] == [0o750, 0o750]
    walked = run_walk([str(built())], like_beegfs, mount=True).rows
    assert {walked[path.encode()]["mode"] for path in paths} == {SYMLINK_MODE}
    with closing(ReadingFileSystem(os.fsencode(like_beegfs))) as reading:
        assert {seen.mode for path in paths if (seen := reading.look(path.encode()))} == {SYMLINK_MODE}


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("name", [DIRECT, "rsync"])
def test_nodes_get_their_modes_whatever_a_chmod_answers(xfs_source: XfsMount, like_beegfs: Path, name: str) -> None:
    source, target = make_trees(xfs_source.path, like_beegfs, tree=TREE)
    for directory in DIRECTORIES:
        (source / directory).mkdir()
        make_nodes(source / directory)
    os.setxattr(source / "shared", ACL_DEFAULT, SHARED_ACL)
    directories = [TREE + b"/" + directory.encode() for directory in DIRECTORIES]
    nodes = [b"/".join((directory, node.encode())) for directory in directories for node in NODES]
    streams = Streams(engine_named(name), xfs_source.path, like_beegfs, BEEGFS_CAPABILITIES)

    def copy() -> int:
        files = 0
        order = (
            (ChunkKind.DIRECTORIES, directories),
            (ChunkKind.FILES, nodes),
            (ChunkKind.DIRECTORY_TIMES, directories),
        )
        for kind, paths in order:
            ran = streams.run(paths, tree=TREE, kind=kind)
            assert (ran.outcome.verdict, ran.outcome.suspects) == (AttemptVerdict.DONE, ()), ran
            files += ran.outcome.counters.files if kind is ChunkKind.FILES else 0
        return files

    assert copy() == len(nodes)
    assert modes(target) == modes(source)
    if name == DIRECT:
        # Devices have lost their numbers, and are made anew.
        assert copy() == len(DIRECTORIES)
        for path in modes(source):
            (source / path).chmod(0o604)
        assert copy() == len(nodes)
        assert modes(target) == modes(source)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("engine", ["auto", "rsync"])
def test_delta_passes_bring_changed_modes_of_nodes(
    scratch: Path, xfs_source: XfsMount, like_beegfs: Path, engine: str
) -> None:
    source, target = (place / os.fsdecode(TREE) for place in (xfs_source.path, like_beegfs))
    for directory in DIRECTORIES:
        (source / directory).mkdir(parents=True)
        make_nodes(source / directory)
    os.setxattr(source / "shared", ACL_DEFAULT, SHARED_ACL)
    site = RealSite(scratch / "site", xfs_source, replace(xfs_source, path=like_beegfs))
    site.prepare(target="inodes_free = 100000")

    def copy() -> None:
        done = site.run("--engine", engine, "--deltas", "3")
        assert done.returncode == 0, done.stderr
        assert modes(target) == modes(source)
        verified = site.migrator("verify", "--user-batch", "1")
        assert verified.returncode == 0, verified.stdout + verified.stderr

    copy()
    for path, mode in zip(modes(source), cycle((0o604, 0o777, 0o020, 0)), strict=False):
        (source / path).chmod(mode)
    copy()
