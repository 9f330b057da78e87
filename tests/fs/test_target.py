"""What every target does with single files and with user trees, on XFS and on a file system with BeeGFS's limits."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType
from migrator.core.units import MIB
from migrator.fs.model import TargetCapabilities
from migrator.fs.rules import compare, compare_tree_root
from migrator.fs.writing import MountedTarget
from tests.fs.target_sides import DEFAULT_ACL, Sides, leads_nowhere
from tests.support.beegfs_like import BEEGFS_CAPABILITIES, beegfs_like, missing_for_fuse

pytestmark = pytest.mark.needs_root


def test_files_arrive_with_all_that_is_theirs(sides: Sides) -> None:
    path = sides.source_path / "file"
    path.write_bytes(os.urandom(3 * MIB + 17))
    os.chown(path, 1001, 1002)
    path.chmod(0o6751)
    os.setxattr(path, b"user.binary", bytes(range(256)))
    os.setxattr(path, b"trusted.secret", b"never carried")
    os.setxattr(path, ACL_ACCESS, DEFAULT_ACL)
    # A change of the owner removes it.
    os.setxattr(path, b"security.capability", b"\x01\x00\x00\x02" + b"\x00\x20\x00\x00" + bytes(12))
    os.utime(path, ns=(1_500_000_000_123_456_789, -1_500_000_001))
    for _ in range(2):
        sides.copy(b"file")
        sides.assert_equal(b"file")
        assert "trusted.secret" not in os.listxattr(sides.target_path / "file")
    assert sides.arrived(b"file").mode == sides.entry(b"file").mode
    assert sides.leftovers() == []


def test_holes_stay_holes(sides: Sides) -> None:
    path = sides.source_path / "sparse"
    with path.open("wb") as file:
        file.truncate(200 * MIB)
        os.pwrite(file.fileno(), b"middle", 100 * MIB)
        os.pwrite(file.fileno(), b"last", 150 * MIB)
    (sides.source_path / "hole").touch()
    os.truncate(sides.source_path / "hole", 5 * MIB + 1)
    for name in (b"sparse", b"hole"):
        sides.copy(name)
        sides.assert_equal(name)
        assert sides.arrived(name).blocks * 512 < MIB


def test_rights_from_the_directorys_default_acl_are_removed(sides: Sides) -> None:
    for root in (sides.source_path, sides.target_path):
        (root / "directory").mkdir()
    (sides.source_path / "directory" / "file").write_bytes(b"x")
    (sides.source_path / "directory" / "inner").mkdir()
    os.mkfifo(sides.source_path / "directory" / "fifo", 0o640)
    os.setxattr(sides.target_path / "directory", ACL_DEFAULT, DEFAULT_ACL)
    for name in (b"directory/file", b"directory/inner", b"directory/fifo"):
        sides.copy(name)
        sides.assert_equal(name)
        assert not sides.arrived(name).xattrs


def test_every_other_type_arrives(sides: Sides) -> None:
    root = sides.source_path
    (root / "directory").mkdir(mode=0o1751)
    os.setxattr(root / "directory", ACL_DEFAULT, DEFAULT_ACL)
    (root / "directory" / "content").touch()
    (root / "link").symlink_to("/nowhere/at all")
    os.mkfifo(root / "fifo")
    os.mknod(root / "socket", stat.S_IFSOCK | 0o755)
    os.mknod(root / "block", stat.S_IFBLK | 0o660, os.makedev(7, 300))
    os.mknod(root / "character", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    for name in (b"directory", b"link", b"fifo", b"socket", b"block", b"character"):
        os.chown(root / os.fsdecode(name), 1001, 1002, follow_symlinks=False)
        times = (1_500_000_000_500_000_000, 1_600_000_000_999_999_999)
        os.utime(root / os.fsdecode(name), ns=times, follow_symlinks=False)
        for _ in range(2):
            sides.copy(name)
            sides.assert_equal(name)
    assert list((sides.target_path / "directory").iterdir()) == []
    assert sides.leftovers() == []


@pytest.mark.parametrize("existing", ["file", "symlink", "fifo"])
def test_an_existing_entry_is_replaced(sides: Sides, existing: str) -> None:
    kept = sides.target_path / "kept"
    kept.write_bytes(b"kept")
    for old in ("file", "directory", "link"):
        path = sides.target_path / old
        match existing:
            case "file":
                path.touch()
            case "symlink":
                path.symlink_to("kept")
            case _:
                os.mkfifo(path)
    (sides.source_path / "file").write_bytes(b"new")
    (sides.source_path / "directory").mkdir()
    (sides.source_path / "link").symlink_to("elsewhere")
    for name in (b"file", b"directory", b"link"):
        sides.copy(name)
        sides.assert_equal(name)
    assert kept.read_bytes() == b"kept"


def test_paths_longer_than_the_kernel_takes_at_once(sides: Sides) -> None:
    path = b"/".join([b"d" * 250] * 40)
    for depth in range(1, 41):
        directory = path[: depth * 251 - 1]
        with sides.source.beneath.parent(directory) as (fd, name):
            os.mkdir(name, dir_fd=fd)
        sides.copy(directory)
    with sides.source.beneath.parent(path + b"/file\n") as (fd, name):
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    sides.copy(path + b"/file\n")
    sides.assert_equal(path + b"/file\n")
    sides.target.remove_leftover(path + b"/file\n")
    assert sides.target.look(path + b"/file\n") is None


def test_links_are_made_and_made_again(sides: Sides) -> None:
    root = sides.target_path
    (root / "directory").mkdir()
    (root / "first").write_bytes(b"first")
    (root / "other").write_bytes(b"other")
    (root / "second").write_bytes(b"a different file")
    for _ in range(2):
        for name in (b"directory/new\n", b"second", b"first"):
            sides.target.link(b"first", name)
            assert (root / os.fsdecode(name)).samefile(root / "first")
    assert (root / "first").stat().st_nlink == 3
    assert (root / "other").read_bytes() == b"other"
    with pytest.raises(FileNotFoundError):
        sides.target.link(b"missing", b"second")
    assert (root / "second").samefile(root / "first")
    assert sides.leftovers() == []


def test_leftovers_are_removed_and_directories_are_not(sides: Sides) -> None:
    (sides.target_path / "directory").mkdir()
    (sides.target_path / "directory" / ".file.AbC123").touch()
    sides.target.remove_leftover(b"directory/.file.AbC123")
    sides.target.remove_leftover(b"directory/.file.AbC123")
    sides.target.remove_leftover(b"nowhere/.file.AbC123")
    with pytest.raises(IsADirectoryError):
        sides.target.remove_leftover(b"directory")


def test_the_probe_finds_what_the_file_system_is_known_to_keep(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    # The stock client of BeeGFS on Linux 6.1 refuses every removal of an ACL.
    monkeypatch.setattr(os, "removexattr", refuse)
    found = sides.target.probe()
    if sides.capabilities == BEEGFS_CAPABILITIES:
        assert found == BEEGFS_CAPABILITIES
    else:
        # XFS itself takes symlinks of 1,023 bytes and ACLs of 5,461 entries, less than the kernel's limits.
        assert found == replace(TargetCapabilities(), max_symlink_target_bytes=1023, max_acl_entries=5461)
    assert list(sides.target_path.iterdir()) == []


@pytest.mark.parametrize("passes_acls_on", [True, False])
def test_the_probe_finds_whether_new_files_inherit_default_acls(scratch: Path, passes_acls_on: bool) -> None:
    if reason := missing_for_fuse():
        pytest.skip(f"needs FUSE: {reason}")
    expected = replace(BEEGFS_CAPABILITIES, inherits_default_acls=passes_acls_on)
    with beegfs_like(scratch, passes_acls_on=passes_acls_on) as mounted:
        target = MountedTarget(os.fsencode(mounted))
        for umask in (0, 0o027, 0o077):
            before = os.umask(umask)
            try:
                assert target.probe() == expected
            finally:
                os.umask(before)
        assert list(mounted.iterdir()) == []
        target.close()


@pytest.mark.guarantee("closed-trees")
def test_parents_have_the_sources_owner_and_mode_and_the_tree_is_closed(sides: Sides) -> None:
    tree = sides.source_path / "home" / "group" / "alice"
    tree.mkdir(parents=True)
    for path, owner, mode in ((tree.parent.parent, 5, 0o2751), (tree.parent, 6, 0o750), (tree, 7, 0o755)):
        os.chown(path, owner, owner)
        path.chmod(mode)
    os.setxattr(sides.target_path, ACL_DEFAULT, DEFAULT_ACL)
    like = [sides.entry(b"home"), sides.entry(b"home/group")]
    for _ in range(2):
        sides.target.make_parents(b"home/group/alice", like)
        for above in (b"home", b"home/group"):
            made, wanted = sides.arrived(above), sides.entry(above)
            assert (made.mode, made.uid, made.gid) == (wanted.mode, wanted.uid, wanted.gid)
            assert not made.xattrs
        closed = sides.arrived(b"home/group/alice")
        assert (closed.mode, closed.uid, closed.gid, dict(closed.xattrs)) == (0o700, 0, 0, {})
        # Made once, a directory above is left alone; the tree is closed again.
        (sides.target_path / "home" / "group" / "alice").chmod(0o777)
    assert sides.leftovers() == []


@pytest.mark.parametrize("in_the_way", [b"home", b"home/alice"])
@pytest.mark.parametrize("kind", ["file", "symlink"])
def test_an_entry_in_place_of_a_tree_is_an_error_and_stays(sides: Sides, in_the_way: bytes, kind: str) -> None:
    (sides.source_path / "home" / "alice").mkdir(parents=True)
    outside = sides.source_path / "outside"
    outside.mkdir()
    path = sides.target_path / os.fsdecode(in_the_way)
    path.parent.mkdir(exist_ok=True)
    path.write_text("kept") if kind == "file" else path.symlink_to(outside)
    with pytest.raises(OSError, check=leads_nowhere):
        sides.target.make_parents(b"home/alice", [sides.entry(b"home")])
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755
    assert list(outside.iterdir()) == []


def test_trees_made_at_once_share_their_parents(sides: Sides) -> None:
    trees = [b"a/b/c/tree-%d" % number for number in range(16)]
    for tree in trees:
        (sides.source_path / os.fsdecode(tree)).mkdir(parents=True)
    threads = [threading.Thread(target=sides.target.make_parents, args=(tree, ())) for tree in trees]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path.name for path in (sides.target_path / "a" / "b" / "c").iterdir()) == sorted(
        os.fsdecode(tree).rpartition("/")[2] for tree in trees
    )


TOP_TIMES = (1_500_000_000_000_000_000, 1_600_000_000_000_000_000)


def source_top(sides: Sides, mode: int, acls: dict[bytes, bytes]) -> Entry:
    """The tree of alice on the source, and her closed one on the target."""
    top = sides.source_path / "home" / "alice"
    top.mkdir(parents=True)
    os.chown(top, 1001, 1002)
    top.chmod(mode)
    os.setxattr(top, b"user.note", b"hers")
    for name, value in acls.items():
        os.setxattr(top, name, value)
    os.utime(top, ns=TOP_TIMES)
    sides.target.make_parents(b"home/alice", [sides.entry(b"home")])
    (sides.target_path / "home" / "alice" / "letter").write_text("hers")
    return sides.entry(b"home/alice")


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o2770, 0o1777, 0o500, 0o7711])
def test_an_opened_tree_is_as_the_sources_and_a_closed_one_roots_again(sides: Sides, mode: int) -> None:
    like = source_top(sides, mode, {})
    for _ in range(2):
        sides.target.open_tree(b"home/alice", like)
        sides.target.open_tree(b"home/alice", like)
        opened = sides.arrived(b"home/alice")
        assert compare(like, opened, sides.capabilities).differences == []
        assert (opened.mode, opened.uid, opened.gid) == (mode, 1001, 1002)
        assert opened.mtime_ns == TOP_TIMES[1]
        sides.target.close_tree(b"home/alice")
        sides.target.close_tree(b"home/alice")
        closed = sides.arrived(b"home/alice")
        assert compare_tree_root(like, closed, owner=(os.geteuid(), os.getegid())).differences == []
    assert (sides.target_path / "home" / "alice" / "letter").read_text() == "hers"


def test_an_opened_tree_has_the_acls_of_the_sources_and_no_others(sides: Sides) -> None:
    if not sides.capabilities.keeps_acls:
        pytest.skip("keeps no ACLs")
    like = source_top(sides, 0o750, {ACL_ACCESS: DEFAULT_ACL, ACL_DEFAULT: DEFAULT_ACL})
    os.setxattr(sides.target_path / "home" / "alice", ACL_DEFAULT, DEFAULT_ACL)
    sides.target.open_tree(b"home/alice", like)
    assert compare(like, sides.arrived(b"home/alice"), sides.capabilities).differences == []
    assert {ACL_ACCESS, ACL_DEFAULT} <= sides.arrived(b"home/alice").xattrs.keys()
    without = replace(like, mode=0o750, xattrs={})
    sides.target.open_tree(b"home/alice", without)
    assert compare(without, sides.arrived(b"home/alice"), sides.capabilities).differences == []
    sides.target.open_tree(b"home/alice", like)
    sides.target.close_tree(b"home/alice")
    closed = sides.arrived(b"home/alice")
    assert not {ACL_ACCESS, ACL_DEFAULT} & closed.xattrs.keys()
    assert closed.mode == 0o700


def test_a_lost_acl_gives_the_group_no_further_rights(sides: Sides) -> None:
    """The mode of what has an ACL shows the mask (7 here) in the place of the group's bits (5)."""
    like = source_top(sides, 0o700, {ACL_ACCESS: DEFAULT_ACL})
    assert like.mode == 0o775
    without = replace(sides.capabilities, keeps_acls=False)
    target = MountedTarget(sides.target.root, without)
    target.open_tree(b"home/alice", like)
    opened = sides.arrived(b"home/alice")
    assert (opened.mode, ACL_ACCESS in opened.xattrs) == (0o755, False)
    assert compare(like, opened, without).differences == []
    target.close()


def test_opening_and_closing_make_no_tree_and_follow_nothing(sides: Sides) -> None:
    like = source_top(sides, 0o755, {})
    outside = sides.source_path / "outside"
    outside.mkdir(mode=0o711)
    (sides.target_path / "home" / "link").symlink_to(outside)
    (sides.target_path / "home" / "file").touch()
    (sides.target_path / "way").symlink_to(sides.target_path / "home")
    for tree in (b"home/link", b"home/file", b"way/alice", b"home/nobody", b"nowhere/alice"):
        for act in (lambda tree: sides.target.open_tree(tree, like), sides.target.close_tree):
            with pytest.raises(OSError, check=lambda error: leads_nowhere(error) or error.errno == errno.ENOENT):
                act(tree)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o711
    assert sides.arrived(b"home/alice").mode == 0o700
    assert sorted(path.name for path in (sides.target_path / "home").iterdir()) == ["alice", "file", "link"]
    with pytest.raises(OSError, check=leads_nowhere):
        sides.target.open_tree(b"home/alice", replace(like, type=EntryType.FILE))
    assert sides.arrived(b"home/alice").mode == 0o700
