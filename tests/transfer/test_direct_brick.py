"""Copies from a brick: Gluster's own attributes and times, link-to files, and what rsync made of them before."""

import os
import struct
from pathlib import Path

import pytest

from migrator.core.states import ChunkKind
from migrator.gluster.model import BrickRules
from migrator.transfer.model import FileProblem, FileProblemKind, Verdict
from tests.support.streams import Streams, make_trees
from tests.support.xfs import XfsMount
from tests.transfer.native_copy import direct_engine

pytestmark = pytest.mark.needs_root

TREE = b"home/odd"
MDATA = "trusted.glusterfs.mdata"
LINKTO = "trusted.glusterfs.dht.linkto"
MTIME_NS = 1_234_567_890_123_456_789
BEFORE_1970_NS = -1_500_000_001
BRICK = BrickRules(times_from_mdata=True, distributed=True)


def mdata(mtime_ns: int) -> bytes:
    """The attribute's value: version, flags, then ctime, mtime and atime."""
    pair = divmod(mtime_ns, 1_000_000_000)
    return struct.pack(">BQ6q", 1, 7, 1_700_000_000, 1, *pair, 1_700_000_000, 2)


def on_brick(path: Path, *, mtime_ns: int | None = MTIME_NS, link_to: bool = False) -> None:
    """Give a path what Gluster keeps on a brick."""
    os.setxattr(path, "trusted.gfid", os.urandom(16), follow_symlinks=False)
    if mtime_ns is not None:
        os.setxattr(path, MDATA, mdata(mtime_ns), follow_symlinks=False)
    if link_to:
        os.setxattr(path, LINKTO, b"vol1-client-5\0")


def suspects_of(found: tuple[FileProblem, ...]) -> dict[bytes, FileProblemKind]:
    return {problem.path.rpartition(b"/")[2]: problem.kind for problem in found}


@pytest.fixture
def sides(xfs_source: XfsMount, xfs_target: XfsMount) -> tuple[Path, Path, Streams]:
    source, target = make_trees(xfs_source.path, xfs_target.path, tree=TREE)
    return source, target, Streams(direct_engine(), xfs_source.path, xfs_target.path, brick=BRICK)


def full(*names: str) -> list[bytes]:
    return [TREE + b"/" + name.encode() for name in names]


@pytest.mark.parametrize(("distributed", "mode"), [(True, 0o755), (False, 0o3755)])
def test_bits_that_the_mount_hides_stay_behind(
    xfs_source: XfsMount, xfs_target: XfsMount, distributed: bool, mode: int
) -> None:
    source, target = make_trees(xfs_source.path, xfs_target.path, tree=TREE)
    rules = BrickRules(times_from_mdata=True, distributed=distributed)
    streams = Streams(direct_engine(), xfs_source.path, xfs_target.path, brick=rules)
    for name in ("both", "one"):
        (source / name).write_text("content")
        on_brick(source / name)
    (source / "both").chmod(0o3755)
    (source / "one").chmod(0o2755)
    for _ in range(2):
        assert not streams.run(full("both", "one"), tree=TREE).outcome.suspects
        assert [(target / name).stat().st_mode & 0o7777 for name in ("both", "one")] == [mode, 0o2755]


@pytest.mark.guarantee("gluster-attributes")
def test_times_are_the_volume_s_and_its_attributes_stay_behind(sides: tuple[Path, Path, Streams]) -> None:
    source, target, streams = sides
    (source / "file").write_text("content")
    (source / "old").write_text("content")
    (source / "without").write_text("content")
    (source / "link").symlink_to("nowhere")
    os.mkfifo(source / "fifo")
    (source / "directory").mkdir()
    for name in ("file", "link", "fifo", "directory"):
        on_brick(source / name)
    on_brick(source / "old", mtime_ns=BEFORE_1970_NS)
    on_brick(source / "without", mtime_ns=None)
    os.setxattr(source / "file", "user.mine", b"1")
    names = ("file", "old", "without", "link", "fifo")
    assert not streams.run(full("directory"), tree=TREE, kind=ChunkKind.DIRECTORIES).outcome.suspects
    assert not streams.run(full(*names), tree=TREE).outcome.suspects
    assert not streams.run(full("directory"), tree=TREE, kind=ChunkKind.DIRECTORY_TIMES).outcome.suspects
    times = {name: (target / name).lstat().st_mtime_ns for name in (*names, "directory")}
    expected = dict.fromkeys((*names, "directory"), MTIME_NS)
    assert times == expected | {"old": BEFORE_1970_NS, "without": (source / "without").stat().st_mtime_ns}
    assert os.listxattr(target / "file") == ["user.mine"]
    for name in ("link", "fifo", "directory"):
        assert not os.listxattr(target / name, follow_symlinks=False)


def test_what_is_no_data_overwrites_nothing(sides: tuple[Path, Path, Streams]) -> None:
    source, target, streams = sides
    modes = {"link-to": 0o1000, "moving": 0o3644, "unclear": 0o644}
    for name, mode in modes.items():
        (source / name).write_text("half" if name == "moving" else "")
        (source / name).chmod(mode)
        on_brick(source / name, link_to=True)
        (target / name).write_text("whole")
    # A stale attribute on a file with content means nothing, nor does the mode alone.
    for name, mode in {"stale": 0o644, "sticky": 0o1000}.items():
        (source / name).write_text("content")
        (source / name).chmod(mode)
        on_brick(source / name, link_to=name == "stale")
    ran = streams.run(full(*modes, "stale", "sticky"), tree=TREE)
    assert ran.outcome.verdict is Verdict.DONE
    assert suspects_of(ran.outcome.suspects) == {name.encode(): FileProblemKind.MOVED for name in modes}
    assert {(target / name).read_text() for name in modes} == {"whole"}
    assert (target / "stale").read_text() == (target / "sticky").read_text() == "content"
    assert {path.name for path in target.iterdir()} == {*modes, "stale", "sticky"}
