"""Owners with other numbers on the target, in what streams of both engines copy."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT
from migrator.core.states import ChunkKind
from migrator.fs.rules_owners import SAME_OWNERS, owner_map
from migrator.transfer.engines.direct import DirectEngine
from migrator.transfer.engines.rsync import RsyncEngine
from migrator.transfer.model import AttemptVerdict
from tests.support.run_site import RealSite
from tests.support.snapshots import mapped_snapshot, snapshot
from tests.support.streams import Streams, engine_of, make_trees
from tests.support.xfs import XfsMount
from tests.transfer.native_copy import direct_engine, listed, run_copy

pytestmark = pytest.mark.needs_root

TREE = b"home/ann"
OWNERS = owner_map([(61001, 71001), (61002, 61003), (61003, 61002)], [(61001, 71009)])
NAMES = [b"file", b"link", b"fifo", b"sub/deep"]


@pytest.fixture(params=[engine_of, direct_engine], ids=["rsync", "direct"])
def engine(request: pytest.FixtureRequest) -> DirectEngine | RsyncEngine:
    made: DirectEngine | RsyncEngine = request.param()
    return made


def fill(tree: Path) -> None:
    (tree / "sub").mkdir(parents=True, exist_ok=True)
    (tree / "file").write_text("content")
    (tree / "sub" / "deep").write_text("deep")
    (tree / "link").symlink_to("file")
    os.mkfifo(tree / "fifo")
    for path in (tree / "sub", *(tree / os.fsdecode(name) for name in NAMES)):
        os.chown(path, 61001, 61001, follow_symlinks=False)
    os.chown(tree / "sub" / "deep", 61002, 500)
    subprocess.run(["setfacl", "-m", "u:61002:r,u:61003:rw,u:61001:x,g:61001:r", str(tree / "file")], check=True)
    subprocess.run(["setfacl", "-m", "d:u:61001:rwx,d:u:61003:r", str(tree / "sub")], check=True)


def copy(streams: Streams) -> list[int]:
    """The bytes that each step has sent."""
    steps = (([b"sub"], ChunkKind.DIRECTORIES), (NAMES, ChunkKind.FILES), ([b"sub"], ChunkKind.DIRECTORY_TIMES))
    sent = []
    for names, kind in steps:
        ran = streams.run([TREE + b"/" + name for name in names], tree=TREE, kind=kind)
        assert ran.outcome.verdict is AttemptVerdict.DONE, ran
        assert not ran.outcome.suspects
        sent.append(ran.outcome.counters.size_bytes)
    return sent


def test_every_owner_and_acl_is_mapped_and_mapped_back(engine: DirectEngine | RsyncEngine, scratch: Path) -> None:
    source, target = make_trees(scratch / "s", scratch / "t", tree=TREE)
    (back,) = make_trees(scratch / "b", tree=TREE)
    fill(source)
    there = Streams(replace(engine, owners=OWNERS), scratch / "s", scratch / "t")
    assert sum(copy(there)) > 0
    assert (target / "link").lstat().st_uid == 71001
    assert (target / "file").stat().st_gid == 71009
    assert (target / "sub" / "deep").stat().st_uid == 61003
    assert os.getxattr(target / "file", ACL_ACCESS) == OWNERS.acl(os.getxattr(source / "file", ACL_ACCESS))
    assert os.getxattr(target / "sub", ACL_DEFAULT) == OWNERS.acl(os.getxattr(source / "sub", ACL_DEFAULT))
    assert mapped_snapshot(source, OWNERS) == mapped_snapshot(target, SAME_OWNERS)
    # An owner that was not mapped before is corrected, without the content.
    os.chown(target / "sub" / "deep", 61002, 500)
    os.chown(target / "link", 61001, 61001, follow_symlinks=False)
    copy(there)
    assert mapped_snapshot(source, OWNERS) == mapped_snapshot(target, SAME_OWNERS)
    copy(Streams(replace(engine, owners=OWNERS.inverse), scratch / "t", scratch / "b"))
    assert snapshot(os.fsencode(source)) == snapshot(os.fsencode(back))


@pytest.mark.parametrize("name", ["rsync", "fpsync"])
def test_runs_map_owners_and_their_changes_with_other_engines(
    name: str, scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount
) -> None:
    """A driver copies with the numbers of the source, and the chunks that follow correct them."""
    if name == "fpsync" and not all(map(shutil.which, ("fpsync", "fpart"))):
        pytest.skip("fpsync is not installed")
    site = RealSite(scratch / "site", xfs_source, xfs_target)
    source, target = (side.path / os.fsdecode(TREE) for side in (xfs_source, xfs_target))
    fill(source)
    site.write()
    pairs = "{ 61001 = 71001, 61002 = 61003, 61003 = 61002 }"
    keys = f'trees = ["home/*"]\nuid_map = {pairs}\ngid_map = {{ 61001 = 71009 }}'
    site.file.write_text(site.file.read_text().replace('trees = ["home/*"]', keys))
    for verb in (
        ["init"],
        ["scan"],
        ["plan"],
        ["run", "--deltas", "0", "--engine", name, "--all"],
        ["verify", "--all"],
    ):
        done = site.migrator(*verb)
        assert done.returncode == 0, done.stderr
    assert mapped_snapshot(source, OWNERS) == mapped_snapshot(target, SAME_OWNERS)
    os.chown(source / "file", 61003, 61001)
    assert site.run("--engine", name, "--deltas", "1").returncode == 0
    assert mapped_snapshot(source, OWNERS) == mapped_snapshot(target, SAME_OWNERS)


@pytest.mark.parametrize("pairs", ["", "1", "1:", ":1", "1:2:3", "2:1,1:2", "1:2,1:3", "x:1", "1:4294967296", "-1:2"])
def test_malformed_pairs_are_refused(scratch: Path, pairs: str) -> None:
    source, target = make_trees(scratch / "s", scratch / "t", tree=TREE)
    assert run_copy(source, target, listed(), "--uids", pairs).returncode == 64
    assert run_copy(source, target, listed(), "--uids", "1:2,2:1").returncode == 0
