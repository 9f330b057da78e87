"""The top on the source after a rollback: what the user changed of it on the target, and nothing else."""

import struct
from dataclasses import replace

import pytest

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType
from migrator.cutover.model import FrozenTop
from migrator.cutover.rules import carried_top
from migrator.fs.model import TargetCapabilities
from tests.support.beegfs_like import BEEGFS_CAPABILITIES
from tests.support.entries import entry

TREE = b"home/ann"
NO_ACLS = replace(BEEGFS_CAPABILITIES, keeps_acls=False)


def acl(*entries: tuple[int, int, int]) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NONE = 0xFFFFFFFF
NAMED = acl((1, 7, NONE), (2, 7, 60005), (4, 5, NONE), (16, 7, NONE), (32, 0, NONE))
OTHER = acl((1, 7, NONE), (2, 4, 60006), (4, 5, NONE), (16, 5, NONE), (32, 0, NONE))


def frozen(
    uid: int = 60001, gid: int = 60001, mode: int = 0o750, access: bytes | None = None, default: bytes | None = None
) -> FrozenTop:
    return FrozenTop(tree=TREE, ino=1, gfid=None, uid=uid, gid=gid, mode=mode, acl_access=access, acl_default=default)


def top(mtime_ns: int = 5, **xattrs: bytes) -> Entry:
    named = {name.replace("_", ".").encode(): value for name, value in xattrs.items()}
    return entry(TREE, type=EntryType.DIRECTORY, uid=0, gid=0, mode=0o500, mtime_ns=mtime_ns, xattrs=named)


def carried(
    before: FrozenTop,
    after: FrozenTop,
    *,
    source: Entry | None = None,
    target: Entry | None = None,
    capabilities: TargetCapabilities = BEEGFS_CAPABILITIES,
) -> Entry:
    return carried_top(
        source or top(), target or top(), source_before=before, target_before=after, capabilities=capabilities
    )


BEFORE = frozen(access=NAMED, default=OTHER, mode=0o770)


@pytest.mark.parametrize(
    ("before", "after", "capabilities", "expected"),
    [
        (BEFORE, BEFORE, BEEGFS_CAPABILITIES, BEFORE),
        (frozen(), frozen(mode=0o700), BEEGFS_CAPABILITIES, frozen(mode=0o700)),
        (frozen(), frozen(uid=60008, gid=60009), BEEGFS_CAPABILITIES, frozen(uid=60008, gid=60009)),
        # ACLs that the user gave and took away count.
        (frozen(), frozen(access=NAMED, mode=0o770), BEEGFS_CAPABILITIES, frozen(access=NAMED, mode=0o770)),
        (BEFORE, frozen(access=OTHER), BEEGFS_CAPABILITIES, frozen(access=OTHER)),
        (BEFORE, frozen(), BEEGFS_CAPABILITIES, frozen()),
        # One that the target could not keep stays, and with it the mode, unless the user gave another one.
        (BEFORE, frozen(mode=0o750), NO_ACLS, BEFORE),
        (BEFORE, frozen(mode=0o700), NO_ACLS, frozen(access=NAMED, default=OTHER, mode=0o700)),
    ],
)
def test_what_the_user_changed_counts(
    before: FrozenTop, after: FrozenTop, capabilities: TargetCapabilities, expected: FrozenTop
) -> None:
    made = carried(before, after, capabilities=capabilities)
    assert (made.uid, made.gid, made.mode) == (expected.uid, expected.gid, expected.mode)
    assert made.xattrs.get(ACL_ACCESS) == expected.acl_access
    assert made.xattrs.get(ACL_DEFAULT) == expected.acl_default


def test_attributes_are_the_targets_and_those_that_it_cannot_keep_the_sources() -> None:
    long = b"x" * (BEEGFS_CAPABILITIES.max_xattr_value_bytes + 1)
    made = carried(
        frozen(),
        frozen(),
        source=top(user_long=long, user_gone=b"1", user_kept=b"old", security_label=b"s"),
        target=top(user_kept=b"new", user_made=b"2"),
    )
    assert made.xattrs == {
        b"user.long": long,
        b"security.label": b"s",
        b"user.kept": b"new",
        b"user.made": b"2",
    }


def test_the_time_is_the_targets_but_for_fractions_that_it_cannot_keep() -> None:
    assert carried(frozen(), frozen(), source=top(7_300_000_000), target=top(7_000_000_000)).mtime_ns == 7_300_000_000
    assert carried(frozen(), frozen(), source=top(8_300_000_000), target=top(7_000_000_000)).mtime_ns == 7_000_000_000
