"""Directories with owner, mode and ACLs: read on a brick, kept on disk, and given back through a mount."""

import asyncio
import os
import stat
import struct
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.bricks.known_directories import DirectoryFiles, MountedDirectories
from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT
from migrator.core.errors import MigratorError, ToolFailed
from migrator.gluster.model import Brick, BrickDirectory
from migrator.gluster.reports import HostDirectories
from tests.conftest import MakeXfs
from tests.support.brick_reports import brick_reports
from tests.support.hand_brick import MDATA, HandBrick

pytestmark = pytest.mark.needs_root


def walked(
    brick: HandBrick, *, volume: int = 1, only: Sequence[bytes] | None = None
) -> tuple[list[BrickDirectory], int]:
    at = Brick(name="gl1:/b", host="gl1", path=os.fsencode(brick.root), online=True)
    found: list[BrickDirectory] = []
    walks = HostDirectories(brick_reports())
    unseen = asyncio.run(walks.walk(at, volume_id=str(uuid.UUID(int=volume)), take=found.extend, only=only))
    return found, unseen


def make(path: Path, *, mode: int = 0o2750, uid: int = 20001, gid: int = 20002) -> Path:
    path.mkdir(parents=True)
    os.chown(path, uid, gid)
    path.chmod(mode)
    return path


def test_every_directory_of_a_brick_comes_after_the_one_that_it_lies_in(brick: HandBrick) -> None:
    fd = os.open(make(brick.root / "home" / "in\udcff er\n"), os.O_PATH)
    for _ in range(25):
        # Longer than a path may be.
        os.mkdir("z" * 200, dir_fd=fd)
        deeper = os.open("z" * 200, os.O_PATH, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(fd)
    subprocess.run(["setfacl", "-m", "u:9:rwx", "-d", "-m", "u:9:r-x", brick.root / "home"], check=True)
    brick.file("home/file")
    (brick.root / "home" / "symlink").symlink_to(brick.root / ".glusterfs")
    (brick.root / ".glusterfs-anonymous-inode-x").mkdir()
    brick.adopt()
    found, unseen = walked(brick)
    rows = {path: row for path, row in brick.rows().items() if row["type"] == "directory"}
    assert unseen == 0
    assert {one.path: (one.mode, one.uid, one.gid, one.inode) for one in found} == {
        path: (row["mode"], row["uid"], row["gid"], row["ino"]) for path, row in rows.items()
    }
    by_path = {one.path: one for one in found}
    for number, one in enumerate(found):
        above = one.path.rpartition(b"/")[0]
        assert one.above == (by_path[above].gfid if above else b"")
        assert not above or above in {earlier.path for earlier in found[:number]}
    home = brick.root / "home"
    assert by_path[b"home"].access == os.getxattr(home, ACL_ACCESS)
    assert by_path[b"home"].default == os.getxattr(home, ACL_DEFAULT)
    # One alone, without the one above it.
    deep = max(by_path, key=len)
    alone, unseen = walked(brick, only=[deep, b"gone", b"home/gone", b"home"])
    assert unseen == 0
    assert alone == [replace(by_path[deep], above=b""), by_path[b"home"]]
    value = os.getxattr(home, MDATA) if MDATA in os.listxattr(home) else None
    times = struct.unpack_from(">qQqQ", value, 9) if value else None
    told = (by_path[b"home"].changed_ns, by_path[b"home"].modified_ns)
    assert told == ((None, None) if times is None else (times[0] * 10**9 + times[1], times[2] * 10**9 + times[3]))


def test_a_foreign_directory_is_not_read_as_one_of_the_volume(brick: HandBrick) -> None:
    brick.adopt()
    make(brick.root / "past-gluster")
    assert walked(brick) == ([], 1)
    with pytest.raises(ToolFailed, match="no brick of this volume"):
        walked(brick, volume=2)


def facts(number: int, **changes: object) -> BrickDirectory:
    made = BrickDirectory(
        path=b"home/\xff%d" % number,
        gfid=number.to_bytes(16, "big"),
        above=b"a" * 16,
        mode=0o2750,
        uid=2**32 - 2,
        gid=1,
        access=b"\2\0",
        changed_ns=-(2**62),
        modified_ns=None,
    )
    return replace(made, **changes)


def test_only_a_complete_walk_is_kept(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path / "additions")
    every = [facts(number) for number in range(1200)]
    gfids = [one.gfid for one in every]
    with files.opened("3") as known:
        known.keep(every)
        assert known.of(gfids) == {one.gfid: one for one in every}
    with files.opened("3") as known:
        assert known.of(gfids) == {}
        known.keep(every)
        known.done()
        known.keep([facts(1, mode=0)])
    with files.opened("4") as other:
        assert other.of(gfids) == {}
    with files.opened("3") as known:
        assert known.of(gfids)[every[1].gfid] == every[1]
        known.keep([facts(1, path=b"renamed")])
        known.done()
        assert known.of([every[1].gfid])[every[1].gfid].path == b"renamed"
        known.remove()
    assert [path.name for path in (tmp_path / "additions").iterdir()] == ["4-directories.db"]
    with files.opened("3") as known:
        assert known.of(gfids) == {}
        known.remove()
        known.remove()


def test_a_torn_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "3-directories.db").write_bytes(b"torn" * 4096)
    with pytest.raises(MigratorError, match="cannot be read or written"), DirectoryFiles(tmp_path).opened("3"):
        raise AssertionError


def gfid_of(path: Path) -> bytes:
    """Such that its inode number is that of the directory."""
    return bytes(8) + path.stat().st_ino.to_bytes(8, "big")


def look(root: Path, name: str, gfid: bytes | None = None) -> BrickDirectory | None:
    mender = MountedDirectories(os.fsencode(root))
    return mender.look(os.fsencode(name), gfid_of(root / name) if gfid is None else gfid)


def owner(path: Path) -> tuple[int, int, int]:
    seen = path.lstat()
    return stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid


@pytest.mark.guarantee("brick-add")
def test_owner_mode_and_acls_come_back_together(make_xfs: MakeXfs) -> None:
    root = make_xfs().path
    path = make(root / "home" / "in\udcff er")
    subprocess.run(["setfacl", "-m", "u:9:rwx", "-d", "-m", "u:9:r-x", path], check=True)
    known = look(root, "home/in\udcff er")
    assert known is not None
    assert (known.mode, known.uid, known.gid) == (0o2770, 20001, 20002)
    assert known.access
    assert known.default

    subprocess.run(["setfacl", "-b", path], check=True)
    os.chown(path, 0, 0)
    path.chmod(0)
    seen = look(root, "home/in\udcff er")
    assert seen is not None
    assert seen.shut
    mender = MountedDirectories(os.fsencode(root))
    assert mender.put_back(seen, known)
    again = look(root, "home/in\udcff er")
    assert again is not None
    assert replace(again, changed_ns=known.changed_ns) == known

    # And what was inherited goes.
    bare = replace(known, access=b"", default=b"", mode=0o755)
    assert mender.put_back(again, bare)
    assert (os.listxattr(path), owner(path)) == ([], (0o755, 20001, 20002))
    # What is not known of ACLs stays as it is.
    subprocess.run(["setfacl", "-m", "u:9:rwx", path], check=True)
    seen = look(root, "home/in\udcff er")
    assert seen is not None
    assert mender.put_back(seen, replace(bare, access=None, default=None))
    assert ACL_ACCESS.decode() in os.listxattr(path)


@pytest.mark.guarantee("brick-add")
def test_a_replaced_or_changed_directory_is_not_touched(tmp_path: Path) -> None:
    path = make(tmp_path / "one")
    known = look(tmp_path, "one")
    assert known is not None
    os.chown(path, 0, 0)
    path.chmod(0)
    seen = look(tmp_path, "one")
    assert seen is not None
    path.chmod(0o711)
    mender = MountedDirectories(os.fsencode(tmp_path))
    assert not mender.put_back(seen, known)
    assert owner(path) == (0o711, 0, 0)

    path.rename(tmp_path / "kept")
    gfid = gfid_of(tmp_path / "kept")
    assert look(tmp_path, "one", gfid) is None
    make(path, mode=0, uid=0, gid=0)
    assert look(tmp_path, "one", gfid) is None
    assert not mender.put_back(seen, known)
    assert owner(path) == (0, 0, 0)
    path.rmdir()
    path.symlink_to("kept")
    assert look(tmp_path, "one", gfid) is None
    with pytest.raises(OSError, match="one"):
        mender.put_back(seen, known)
    assert owner(tmp_path / "kept") == (0o711, 0, 0)
