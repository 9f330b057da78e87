"""Owners with other numbers on the target: the map itself, ACLs against setfacl, and both ways through a target."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT
from migrator.fs.model import TargetCapabilities
from migrator.fs.rules_owners import SAME_OWNERS, OwnerMap, between, owner_map, taken_ids
from migrator.fs.writing import MountedTarget
from tests.fs.target_sides import Sides
from tests.transfer.native_copy import copy_entries

IDS = st.integers(1, 12) | st.integers(1, 2**32 - 2)
PAIRS = st.lists(st.tuples(IDS, IDS), unique_by=(lambda pair: pair[0], lambda pair: pair[1]), max_size=9)

OWNERS = owner_map([(61001, 71001), (61002, 61003), (61003, 61002)], [(61001, 71009)])


@given(PAIRS, st.lists(IDS, max_size=20))
def test_every_id_has_a_way_back_and_listed_ones_their_new_number(pairs: list[tuple[int, int]], ids: list[int]) -> None:
    owners = owner_map(pairs, ())
    for old, new in pairs:
        assert owners.uid(old) == new
    near = {*ids, *(one for pair in pairs for one in pair)}
    assert len({owners.uid(one) for one in near}) == len(near)
    for one in near:
        assert owners.inverse.uid(owners.uid(one)) == owners.uid(owners.inverse.uid(one)) == one
        assert owners.gid(one) == one
    for one in near - {one for pair in pairs for one in pair}:
        assert owners.uid(one) == one


@given(PAIRS, PAIRS, IDS)
def test_from_one_file_system_to_another(users: list[tuple[int, int]], groups: list[tuple[int, int]], one: int) -> None:
    owners = owner_map(users, groups)
    assert between(SAME_OWNERS, owners) == owners
    assert between(owners, SAME_OWNERS) == owners.inverse
    assert not between(owners, owners)
    other = owner_map(groups, users)
    assert between(owners, other).uid(owners.uid(one)) == other.uid(one)


@given(PAIRS, st.frozensets(IDS, max_size=9))
def test_no_two_owners_in_use_become_one(pairs: list[tuple[int, int]], in_use: frozenset[int]) -> None:
    new = dict(pairs)
    stays_or_as_listed = [new.get(one, one) for one in in_use]
    twice = {one for one in stays_or_as_listed if stays_or_as_listed.count(one) > 1}
    assert twice <= set(taken_ids(pairs, in_use))
    assert all(one in in_use and one not in new for one in taken_ids(pairs, in_use))


def set_acl(path: Path, *options: str) -> None:
    subprocess.run(["setfacl", *options, str(path)], check=True)


@pytest.fixture
def acls(tmp_path: Path) -> tuple[bytes, bytes]:
    """The ACL of one file, and that of another which names the same people by their numbers on the target."""
    here, there = tmp_path / "here", tmp_path / "there"
    for path, users, groups in (
        (here, "u:61001:r,u:61002:rw,u:61003:x,u:500:rwx", "g:61001:r,g:61002:w"),
        (there, "u:71001:r,u:61003:rw,u:61002:x,u:500:rwx", "g:71009:r,g:61002:w"),
    ):
        path.touch(mode=0o640)
        set_acl(path, "-m", f"{users},{groups}")
    return os.getxattr(here, ACL_ACCESS), os.getxattr(there, ACL_ACCESS)


def test_acls_are_those_that_setfacl_makes(acls: tuple[bytes, bytes]) -> None:
    here, there = acls
    assert OWNERS.acl(here) == there != here
    assert OWNERS.inverse.acl(there) == here


@given(st.binary(max_size=80))
def test_other_values_than_acls_stay(value: bytes) -> None:
    assert OWNERS.acl(value) == value or len(value) >= 12


@pytest.mark.needs_root
def test_the_target_has_its_own_numbers_and_shows_those_of_the_source(scratch: Path) -> None:
    for side in ("source", "target"):
        (scratch / side).mkdir()
    sides = Sides(scratch / "source", scratch / "target", TargetCapabilities())
    sides.target.close()
    sides.target = MountedTarget(sides.target.root, TargetCapabilities(), owners=OWNERS)
    home, tree = scratch / "source" / "home", scratch / "source" / "home" / "ann"
    tree.mkdir(parents=True)
    (tree / "file").write_text("content")
    (tree / "link").symlink_to("file")
    (tree / "sub").mkdir()
    for path in (home, tree, tree / "file", tree / "link", tree / "sub"):
        os.chown(path, 61001, 61001, follow_symlinks=False)
    set_acl(tree / "file", "-m", "u:61002:r")
    for top in (tree, tree / "sub"):
        set_acl(top, "-m", "d:u:61003:rx")
    sides.target.make_parents(b"home/ann", [sides.entry(b"home")])
    paths = [b"home/ann/" + name for name in (b"file", b"link", b"sub")]
    assert not copy_entries(sides.source_path, sides.target_path, [*map(sides.entry, paths)], owners=OWNERS)
    for name in paths:
        sides.assert_equal(name)
    sides.target.open_tree(b"home/ann", sides.entry(b"home/ann"))
    sides.assert_equal(b"home/ann")
    there = scratch / "target" / "home"
    for path in (there, there / "ann", *(there / "ann" / name for name in ("file", "link", "sub"))):
        assert (path.lstat().st_uid, path.lstat().st_gid) == (71001, 71009), path
    assert os.getxattr(there / "ann" / "file", ACL_ACCESS) == OWNERS.acl(os.getxattr(tree / "file", ACL_ACCESS))
    assert os.getxattr(there / "ann", ACL_DEFAULT) == OWNERS.acl(os.getxattr(tree, ACL_DEFAULT))
    # What the target has otherwise is a difference: the number of the source is another owner there.
    os.chown(there / "ann" / "file", 61001, 61001)
    assert (sides.arrived(b"home/ann/file").uid, sides.entry(b"home/ann/file").uid) == (71001, 61001)


def test_no_map_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    entry = Sides(tmp_path, tmp_path, TargetCapabilities()).entry(b"file")
    assert OwnerMap().entry(entry) is entry
