"""What is left on a brick made by hand, as its host sees it, and what a recovery does with names on a real file system."""

import asyncio
import hashlib
import mmap
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.bricks.recover.model import BrickLeftovers, Leftover
from migrator.bricks.recover.stage import MountedVolumeRecovery
from migrator.core.entry import ACL_ACCESS, EntryType
from migrator.core.errors import ToolFailed
from migrator.gluster.looks import HostLeftovers
from migrator.gluster.model import Brick
from migrator.lab.odd import acl_value
from tests.conftest import MakeXfs
from tests.support.hand_brick import LINKTO, HandBrick
from tests.support.holders import holding
from tests.support.making import made
from tests.support.one_host import OneHost
from tests.support.xfs import run_tool

pytestmark = pytest.mark.needs_root

HOSTILE = "-x\n\udcff y"


@pytest.fixture
def mounted(make_xfs: MakeXfs) -> Iterator[Path]:
    """A file system in a mount namespace of its own, which processes of this machine do not see."""
    path = make_xfs().path
    with holding("", prefix=("unshare", "-m")) as holder:
        run_tool("umount", str(path))
        yield Path(f"/proc/{holder}/root{path}")


@pytest.fixture
def drained(mounted: Path) -> HandBrick:
    """A drained brick: directories, a link-to file, Gluster's own, and what was left."""
    brick = HandBrick(root=mounted / "brick")
    brick.make_root()
    brick.file("home/linkto", b"", mode=0o1000, linkto=True)
    brick.file("home/deep/er/stale", b"stale mark", linkto=True)
    os.link(brick.root / "home/deep/er/stale", brick.root / f"home/{HOSTILE}")
    brick.file("home/moving", b"moving", mode=0o3640, linkto=True)
    (brick.root / "home/symlink").symlink_to("/etc/passwd")
    os.link(brick.root / "home/symlink", brick.root / "home/symlink2", follow_symlinks=False)
    os.mkfifo(brick.root / "home/fifo")
    brick.adopt()
    brick.file("home/raw", b"no gfid")
    return brick


def brick_of(drained: HandBrick) -> Brick:
    return Brick(name="gl1:/b", host="gl1", path=os.fsencode(drained.root), online=True)


def look(drained: HandBrick, *, digests: bool = True) -> BrickLeftovers:
    volume_id = str(uuid.UUID(int=drained.seed))
    return asyncio.run(HostLeftovers(OneHost()).look(brick_of(drained), volume_id=volume_id, digests=digests))


def by_name(found: BrickLeftovers) -> dict[bytes, Leftover]:
    return {one.names[0]: one for one in found.found}


def test_everything_but_directories_and_link_to_files_is_left_with_all_its_names(drained: HandBrick) -> None:
    acl = acl_value(owner=6, group=4, other=0, mask=6, users={20500: 6})
    os.setxattr(drained.root / "home/raw", ACL_ACCESS, acl)
    os.setxattr(drained.root / "home/raw", "user.kept", b"v")
    found = look(drained)
    assert found.unseen == ()
    left = by_name(found)
    hostile = b"home/" + os.fsencode(HOSTILE)
    assert set(left) == {hostile, b"home/fifo", b"home/moving", b"home/raw", b"home/symlink"}
    stale, raw, symlink = left[hostile], left[b"home/raw"], left[b"home/symlink"]
    assert stale.names == (hostile, b"home/deep/er/stale")
    assert (stale.link_count, len(stale.gfid), stale.digest) == (2, 16, hashlib.sha256(b"stale mark").digest())
    assert (raw.gfid, raw.link_count, raw.own_times) == (b"", 1, None)
    assert raw.xattrs == {ACL_ACCESS: acl, b"user.kept": b"v"}
    assert (symlink.type, symlink.target, symlink.link_count) == (EntryType.SYMLINK, b"/etc/passwd", 2)
    assert symlink.digest == hashlib.sha256(b"/etc/passwd").digest()
    assert (left[b"home/fifo"].type, left[b"home/fifo"].digest) == (EntryType.FIFO, b"")
    # Gluster's own bits while it moves a file.
    assert left[b"home/moving"].mode == 0o640
    assert not any(one.open for one in found.found)


def test_probes_are_nobodys_data_and_whatever_else_lies_with_them_is(drained: HandBrick) -> None:
    for name in ("probe-03", "entry-15", "complete", "thesis"):
        drained.file(f".migrator-probe/{name}", b"x")
    drained.file("home/.migrator-probe/probe-03", b"x")
    left = set(by_name(look(drained, digests=False)))
    assert {name for name in left if b"probe" in name} == {b".migrator-probe/thesis", b"home/.migrator-probe/probe-03"}


def test_what_is_open_or_mapped_by_anybody_is_told(drained: HandBrick) -> None:
    with open(drained.root / "home/raw", "rb"):
        assert {name for name, one in by_name(look(drained)).items() if one.open} == {b"home/raw"}
    fd = os.open(drained.root / "home/moving", os.O_RDONLY)
    mapped = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    os.close(fd)
    try:
        # Closed, and mapped still: Python's map keeps a descriptor of its own, which counts as well.
        assert {name for name, one in by_name(look(drained)).items() if one.open} == {b"home/moving"}
    finally:
        mapped.close()
    assert not any(one.open for one in look(drained).found)


def test_a_descriptor_that_no_process_shows_is_told(drained: HandBrick) -> None:
    """As one that was handed into a container that nobody may look into: the kernel counts it all the same."""
    here, there = socket.socketpair()
    with here, there:
        fd = os.open(drained.root / "home/raw", os.O_RDONLY)
        socket.send_fds(here, [b"-"], [fd])
        os.close(fd)
        assert {name for name, one in by_name(look(drained)).items() if one.open} == {b"home/raw"}
    assert not any(one.open for one in look(drained).found)


def test_what_waits_to_be_healed_is_told_by_counters_that_are_not_zero(drained: HandBrick) -> None:
    nothing, blamed = bytes(12), bytes(11) + b"\1"
    drained.file("home/in/good")
    for name in ("home/raw", "home/in/good"):
        os.setxattr(drained.root / name, "trusted.afr.vol1-client-1", nothing)
    # Set whenever somebody works in it.
    os.setxattr(drained.root / "home/in", "trusted.afr.dirty", blamed)
    found = by_name(look(drained))
    assert [found[name].pending for name in (b"home/raw", b"home/in/good")] == [(), ()]
    os.setxattr(drained.root / "home/raw", "trusted.afr.vol1-client-1", blamed)
    os.setxattr(drained.root / "home/in", "trusted.afr.vol1-client-0", blamed)
    found = by_name(look(drained))
    assert found[b"home/raw"].pending == ("trusted.afr.vol1-client-1",)
    assert found[b"home/in/good"].pending == ("trusted.afr.vol1-client-0",)


def test_what_a_loop_device_has_is_open(drained: HandBrick) -> None:
    image = drained.file("home/image", bytes(1 << 20))
    device = run_tool("losetup", "--find", "--show", str(image)).strip()
    try:
        assert by_name(look(drained))[b"home/image"].open
    finally:
        run_tool("losetup", "-d", device)
    assert not by_name(look(drained))[b"home/image"].open


def test_content_is_handed_out_only_while_it_is_what_was_seen(drained: HandBrick, tmp_path: Path) -> None:
    left = by_name(look(drained))[b"home/raw"]
    pieces: list[bytes] = []

    async def take(piece: bytes) -> None:
        pieces.append(piece)

    async def read() -> None:
        leftovers = HostLeftovers(OneHost())
        await leftovers.look(brick_of(drained), volume_id=str(uuid.UUID(int=drained.seed)), digests=False)
        await leftovers.read(brick_of(drained), left, take)

    asyncio.run(read())
    assert b"".join(pieces) == b"no gfid"
    path = drained.root / "home/raw"
    path.write_bytes(b"NO GFID")
    with pytest.raises(ToolFailed, match="it changed"):
        asyncio.run(read())
    # Swapped for a symlink that leads out of the brick.
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    path.unlink()
    path.symlink_to(secret)
    pieces.clear()
    with pytest.raises(ToolFailed):
        asyncio.run(read())
    assert pieces == []


def test_a_directory_that_is_swapped_for_a_symlink_leads_nowhere(drained: HandBrick, tmp_path: Path) -> None:
    (tmp_path / "inner").write_bytes(b"outside")
    (drained.root / "home/outside").symlink_to(tmp_path)
    assert not any(b"inner" in name for one in look(drained).found for name in one.names)
    assert os.getxattr(drained.root / "home/linkto", LINKTO)


def test_a_link_to_file_that_has_content_is_left_and_told_apart(drained: HandBrick) -> None:
    drained.file("home/filling", b"half", mode=0o1000, linkto=True)
    left = by_name(look(drained))
    assert [name for name, one in left.items() if one.link_to] == [b"home/filling"]
    assert left[b"home/filling"].digest == hashlib.sha256(b"half").digest()


WORK = ".migrator-recover"


def leftover() -> Leftover:
    return made(
        Leftover,
        brick="gl1:/b",
        names=(b"home/a",),
        type=EntryType.FILE,
        gfid=b"g" * 16,
        inode=1,
        link_count=1,
        mode=0o640,
        mtime_ns=5,
        ctime_ns=5,
        atime_ns=5,
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/a").write_bytes(b"the leftover")
    return tmp_path


def recovery(root: Path) -> MountedVolumeRecovery:
    return MountedVolumeRecovery(os.fsencode(root))


@pytest.mark.guarantee("drain-recover")
@pytest.mark.parametrize("how", ["owner", "mode", "symlink"])
def test_a_directory_of_its_name_that_a_user_has_made_is_left_as_it_is(root: Path, how: str) -> None:
    made = root / WORK if how != "symlink" else root / "home/theirs"
    made.mkdir(mode=0o700)
    for inner in ("copy", "aside"):
        (made / inner).mkdir()
    (made / "copy/thesis").write_bytes(b"of the user")
    if how == "owner":
        os.chown(made, 20500, 20500)
    elif how == "mode":
        made.chmod(0o755)
    else:
        (root / WORK).symlink_to(made)
    # Named as the copy would be: it must not be taken for it either.
    os.link(root / "home/a", made / "copy" / os.fsdecode(leftover().key))
    before = sorted(str(path) for path in root.rglob("*"))
    tries: tuple[Callable[[MountedVolumeRecovery], Any], ...] = (
        lambda one: one.copy_inode(leftover()),
        lambda one: one.begin_copy(leftover()),
        lambda one: one.set_aside(b"home/a"),
        lambda one: one.put_back(b"home/a"),
        lambda one: one.drop_copy(leftover()),
        lambda one: one.tidy(()),
    )
    for attempt in tries:
        with pytest.raises((PermissionError, NotADirectoryError)):
            attempt(recovery(root))
    assert sorted(str(path) for path in root.rglob("*")) == before


@pytest.mark.guarantee("drain-recover")
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_takes_the_name_in_the_moment_in_which_it_is_set_aside_keeps_it(
    root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = os.rename
    calls: list[bytes] = []

    def rename(source: Any, target: Any, **places: Any) -> None:
        if not calls:
            right(root / "home/a", root / "home/elsewhere")
            if kind == "file":
                (root / "home/a").write_bytes(b"new")
            else:
                (root / "home/a").mkdir()
                (root / "home/a/inner").write_bytes(b"inner")
        calls.append(source)
        right(source, target, **places)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(OSError, match="took its name"):
        recovery(root).set_aside(b"home/a")
    assert calls
    found = root / "home/a" if kind == "file" else root / "home/a/inner"
    assert found.read_bytes() == (b"new" if kind == "file" else b"inner")
    assert not (root / WORK / "aside/home/a").exists()
    assert (root / "home/elsewhere").read_bytes() == b"the leftover"


def test_what_was_set_aside_comes_back_and_what_has_its_name_stays(root: Path) -> None:
    one = recovery(root)
    one.set_aside(b"home/a")
    assert not (root / "home/a").exists()
    (root / "home/a").write_bytes(b"new")
    with pytest.raises(FileExistsError):
        one.put_back(b"home/a")
    (root / "home/a").unlink()
    one.put_back(b"home/a")
    one.tidy(())
    assert (root / "home/a").read_bytes() == b"the leftover"
    assert not (root / WORK).exists()
