"""What every target does with the user trees themselves: made closed, opened at the cutover, closed again."""

import errno
import os
import stat
import threading
from dataclasses import replace

import pytest

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType
from migrator.fs.rules import compare, compare_tree_root
from migrator.fs.writing import MountedTarget
from tests.fs.target_sides import DEFAULT_ACL, Sides, leads_nowhere

pytestmark = pytest.mark.needs_root


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
def test_what_is_in_the_way_of_a_tree_is_an_error_and_stays(sides: Sides, in_the_way: bytes, kind: str) -> None:
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


def test_where_the_acl_is_lost_the_group_gets_no_more_than_it_had(sides: Sides) -> None:
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
