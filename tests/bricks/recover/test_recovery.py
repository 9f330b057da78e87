"""What a drain left on a brick: which names may be touched, and what is proven."""

from typing import Any

import pytest
from msgspec.structs import replace

from migrator.bricks.recover import rules as recover_rules
from migrator.bricks.recover.model import ASIDE, COPIES, BrickLeftovers, Leftover, NameState, VolumeName
from migrator.core.entry import EntryType
from tests.support.making import made

N = NameState
GFID, OTHER_GFID = bytes(15) + b"\7", bytes(15) + b"\x08"
LEFT = made(
    Leftover,
    brick="gl1:/b",
    names=(b"home/a", b"home/b"),
    type=EntryType.FILE,
    gfid=GFID,
    link_count=2,
    size_bytes=3,
    mtime_ns=10,
    ctime_ns=20,
    xattrs={b"user.a": b"1"},
)
SEEN = VolumeName(type=EntryType.FILE, gfid=OTHER_GFID, inode=5, size_bytes=3, mode=0o640)
LINK = {"left": {"link_to": True, "mode": 0o1000}}
ABSENT = dict.fromkeys(LEFT.names, N.ABSENT)


@pytest.mark.parametrize(
    ("leftover_gfid", "seen_gfid", "facts", "expected"),
    [
        (GFID, None, {}, N.ABSENT),
        (GFID, OTHER_GFID, {"copy_inode": 5}, N.COPY),
        (GFID, OTHER_GFID, {}, N.EQUAL),
        # The same gfid is no proof while the brick is in the volume, and is another copy when it is out.
        (GFID, GFID, {}, N.ITSELF),
        (GFID, GFID, {"in_volume": False}, N.EQUAL),
        # What tells no gfid is something else.
        (GFID, b"", {}, N.OTHER),
        (b"", b"", {}, N.OTHER),
        (b"", OTHER_GFID, {}, N.EQUAL),
        # Another type or size is another content.
        (GFID, OTHER_GFID, {"seen": {"size_bytes": 4}}, N.OTHER),
        (GFID, OTHER_GFID, {"seen": {"type": EntryType.SYMLINK}}, N.OTHER),
        # A link-to file with content may be a copy of this very file alone, which is shown with a mode of its own.
        (GFID, GFID, LINK, N.EQUAL),
        (GFID, GFID, {**LINK, "seen": {"mode": 0o1000}}, N.ITSELF),
        (GFID, GFID, {**LINK, "seen": {"size_bytes": 4}}, N.OTHER),
        (GFID, OTHER_GFID, LINK, N.OTHER),
        (GFID, None, LINK, N.ABSENT),
    ],
)
def test_what_a_name_is(
    leftover_gfid: bytes, seen_gfid: bytes | None, facts: dict[str, Any], expected: NameState
) -> None:
    given: dict[str, Any] = {"copy_inode": None, "in_volume": True, **facts}
    changes, left = given.pop("seen", {}), replace(LEFT, **given.pop("left", {}))
    seen = None if seen_gfid is None else replace(SEEN, gfid=seen_gfid, **changes)
    assert recover_rules.name_state(replace(left, gfid=leftover_gfid), seen, **given) is expected


@pytest.mark.parametrize(
    ("left", "states", "words"),
    [
        (replace(LEFT, open=True), ABSENT, "it is open"),
        (replace(LEFT, link_to=True), ABSENT, "a link-to file that has content"),
        (replace(LEFT, link_count=3), ABSENT, "3 names lead to it on its brick, and 2 were found"),
        (LEFT, {**ABSENT, b"home/b": N.OTHER}, "something else at home/b"),
        (LEFT, {b"home/a": N.ABSENT}, "something else at home/b"),
        (LEFT, {**ABSENT, b"home/b": N.EQUAL}, "home/b is another file in the volume"),
        (replace(LEFT, names=(COPIES + b"x",), link_count=1), {COPIES + b"x": N.ABSENT}, "where copies are made"),
    ],
)
def test_what_speaks_against_it(left: Leftover, states: dict[bytes, NameState], words: str) -> None:
    for good in (ABSENT, {b"home/a": N.ITSELF, b"home/b": N.ABSENT}, {b"home/a": N.COPY, b"home/b": N.ABSENT}):
        assert recover_rules.against(LEFT, good) == ()
    (reason,) = recover_rules.against(left, states)
    assert words in reason


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (LEFT, ""),
        (None, "not on its brick"),
        (replace(LEFT, open=True), "opened"),
        (replace(LEFT, size_bytes=4), "changed"),
        (replace(LEFT, mtime_ns=11), "changed"),
        (replace(LEFT, ctime_ns=21), "changed"),
        (replace(LEFT, inode=71), "changed"),
        (replace(LEFT, gfid=OTHER_GFID), "changed"),
        (replace(LEFT, xattrs={}), "changed"),
        (replace(LEFT, uid=7), "changed"),
        (replace(LEFT, names=(b"home/a",), link_count=1), "names changed"),
        (replace(LEFT, names=(*LEFT.names, b"home/c"), link_count=3), "names changed"),
        (replace(LEFT, link_count=3), "names changed"),
    ],
)
def test_whether_it_is_what_it_was(now: Leftover | None, words: str) -> None:
    assert (words in recover_rules.changed(LEFT, now)) is True
    assert bool(recover_rules.changed(LEFT, now)) is bool(words)


def test_what_was_set_aside_has_another_ctime_and_lies_aside_on_the_brick() -> None:
    aside = replace(LEFT, names=(ASIDE + b"home/a", b"home/b"), ctime_ns=99)
    assert recover_rules.changed(LEFT, aside, [b"home/a"]) == ""
    assert recover_rules.changed(LEFT, replace(aside, mtime_ns=11), [b"home/a"]) == "it changed"
    # The mount has moved another copy of it, on another brick.
    assert "another brick" in recover_rules.changed(LEFT, LEFT, [b"home/a"])
    # A kill between the two steps of putting it back had left both names.
    both = replace(LEFT, names=(ASIDE + b"home/a", b"home/a", b"home/b"), link_count=3)
    assert recover_rules.changed(both, aside, [b"home/a"]) == ""


def test_what_is_open_on_one_copy_is_open_on_all() -> None:
    one = BrickLeftovers(brick="gl1:/b", found=(replace(LEFT, open=True),))
    two = BrickLeftovers(brick="gl2:/b", found=(LEFT, replace(LEFT, gfid=OTHER_GFID), replace(LEFT, gfid=b"")))
    _, merged = recover_rules.with_open_elsewhere((one, two))
    assert [left.open for left in merged.found] == [True, False, False]


def on(brick: str, **changes: Any) -> BrickLeftovers:
    return BrickLeftovers(brick=brick, found=(replace(LEFT, brick=brick, **changes),))


ARBITER = on("gl3:/b", size_bytes=0, xattrs={}, mtime_ns=99)


def test_a_leftover_of_a_whole_set_is_one_and_an_arbiter_is_never_read() -> None:
    for found in ((on("gl1:/b"), on("gl2:/b", mtime_ns=12, inode=5), ARBITER), (ARBITER, on("gl1:/b"), on("gl2:/b"))):
        (one,) = recover_rules.united(found, {"gl3:/b"})
        assert (one.leftover.brick, one.leftover.size_bytes, one.reasons) == ("gl1:/b", 3, ())
    assert recover_rules.united((ARBITER,), {"gl3:/b"}) == ()


@pytest.mark.parametrize(
    ("second", "third", "words"),
    [
        (on("gl2:/b", pending=("trusted.afr.v-client-0",)), ARBITER, "waits to be healed, so gl2:/b"),
        # The arbiter alone was up when the others changed: it knows whose copy is old.
        (on("gl2:/b"), on("gl3:/b", pending=("trusted.afr.v-client-1",)), "waits to be healed, so gl3:/b"),
        (BrickLeftovers(brick="gl2:/b", found=()), ARBITER, "gl2:/b of the same set does not have it"),
        (on("gl2:/b"), BrickLeftovers(brick="gl3:/b", found=()), "gl3:/b of the same set does not have it"),
        (on("gl2:/b", names=(b"home/a",)), ARBITER, "other names"),
        (on("gl2:/b", size_bytes=4), ARBITER, "differ"),
        (on("gl2:/b", digest=b"other"), ARBITER, "differ"),
        (on("gl2:/b", xattrs={}), ARBITER, "differ"),
    ],
)
def test_copies_that_do_not_agree_are_left_alone(second: BrickLeftovers, third: BrickLeftovers, words: str) -> None:
    (one,) = recover_rules.united((on("gl1:/b"), second, third), {"gl3:/b"})
    (reason,) = one.reasons
    assert words in reason


def test_very_many_are_no_single_files() -> None:
    assert recover_rules.too_many(recover_rules.MOST_LEFTOVERS) == ""
    assert "10,001 files are left" in recover_rules.too_many(recover_rules.MOST_LEFTOVERS + 1)
