"""How tops are written down, and what is seen of one on the target."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType
from migrator.cutover.model import FrozenTop, TopSeen
from migrator.cutover.rules import as_before, is_closed, opened_top, read_top, target_top, top_of, write_top
from migrator.fs.acl import GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, AclEntry, build_acl
from migrator.fs.model import TargetCapabilities
from tests.support.entries import entry

ROOT = {"uid": 0, "gid": 0}


def acl(*pairs: tuple[int, int]) -> bytes:
    return build_acl(tuple(AclEntry(tag=tag, id=7 if tag == USER else 0, permissions=value) for tag, value in pairs))


NAMED = acl((USER_OBJ, 7), (USER, 5), (GROUP_OBJ, 5), (MASK, 5), (OTHER, 0))
PLAIN = acl((USER_OBJ, 7), (GROUP_OBJ, 5), (OTHER, 0))


def top(**changes: Any) -> Entry:
    facts = {"mode": 0o2750, "ino": (1 << 64) - 5, "xattrs": {ACL_ACCESS: NAMED, b"user.a": b"b"}}
    return entry(b"home/al\xffice\n", **{"type": EntryType.DIRECTORY, **facts, **changes})


CLOSED = top(uid=0, gid=0, mode=0o700, xattrs={b"user.a": b"b"})

tops = st.builds(
    FrozenTop,
    tree=st.binary(min_size=1),
    ino=st.integers(0, (1 << 64) - 1),
    gfid=st.none() | st.binary(min_size=16, max_size=16),
    uid=st.integers(0, (1 << 32) - 1),
    gid=st.integers(0, (1 << 32) - 1),
    mode=st.integers(0, 0o7777),
    acl_access=st.none() | st.binary(),
    acl_default=st.none() | st.binary(),
)


@given(tops)
def test_a_top_comes_back_as_it_was_written_down(kept: FrozenTop) -> None:
    assert read_top(write_top(kept)) == kept


def test_a_closed_tree_is_one_that_only_this_program_enters() -> None:
    assert is_closed(CLOSED, **ROOT)
    for change in ({"uid": 5}, {"gid": 5}, {"mode": 0o755}, {"xattrs": {ACL_DEFAULT: NAMED}}, {"type": EntryType.FILE}):
        assert not is_closed(replace(CLOSED, **change), **ROOT)


def seen(now: Entry | None, wanted: FrozenTop | None) -> TopSeen:
    return target_top(now, wanted, **ROOT)[0]


def test_a_tree_that_nobody_opened_is_closed_or_strange() -> None:
    assert seen(CLOSED, None) is TopSeen.FROZEN
    assert seen(top(), None) is TopSeen.OTHER
    assert seen(None, None) is TopSeen.OTHER


def test_every_state_between_closed_and_open_is_known() -> None:
    wanted = top_of(top())
    assert seen(top(), wanted) is TopSeen.OPEN
    assert seen(CLOSED, wanted) is TopSeen.FROZEN
    # As `dress_directory` goes: bits of the owner alone, the owner, attributes, then the mode.
    for change in ({"uid": 1001, "gid": 1002}, {"uid": 1001, "gid": 1002, "xattrs": {ACL_DEFAULT: NAMED}}):
        assert seen(replace(CLOSED, **change), wanted) is TopSeen.PARTLY
    # As closing goes: the owner first.
    assert seen(top(uid=0, gid=0), wanted) is TopSeen.PARTLY


def test_what_its_user_made_of_an_open_top_is_open_and_another_owner_is_not() -> None:
    wanted = top_of(top())
    assert seen(top(mode=0o755, xattrs={}), wanted) is TopSeen.OPEN
    state, words = target_top(top(uid=77), wanted, **ROOT)
    assert state is TopSeen.OTHER
    assert "77:1002" in words[0]


def test_an_acl_that_the_mode_says_as_well_counts_as_none() -> None:
    wanted = top_of(top(xattrs={ACL_ACCESS: PLAIN}))
    assert seen(top(xattrs={}), wanted) is TopSeen.OPEN


def test_a_thaw_gives_what_the_target_keeps() -> None:
    everything = TargetCapabilities()
    like, now = top(), replace(CLOSED, ino=9)
    made = opened_top(like, now, everything)
    assert (made.ino, made.uid, made.gid, made.mode, made.acl_access) == (9, 1001, 1002, 0o2750, NAMED)
    assert as_before(CLOSED, made).xattrs == {b"user.a": b"b", ACL_ACCESS: NAMED}
    poor = opened_top(like, now, replace(everything, keeps_acls=False))
    assert poor.acl_access is None
