"""Comparing one path: what differs and should not, and what the target cannot keep."""

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType
from migrator.core.units import MIB
from migrator.fs.acl import GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, AclEntry, build_acl
from migrator.fs.model import TargetCapabilities
from migrator.fs.rules import compare, compare_tree_root
from migrator.verify.model import DifferenceKind
from tests.support.beegfs_like import BEEGFS_CAPABILITIES
from tests.support.entries import entry

XFS = TargetCapabilities()


def acl(*, user: int | None = 1234, group: int = 4, mask: int | None = 6, shuffled: bool = False) -> bytes:
    entries = [
        AclEntry(tag=USER_OBJ, id=0, permissions=6),
        AclEntry(tag=GROUP_OBJ, id=0, permissions=group),
        AclEntry(tag=OTHER, id=0, permissions=4),
    ]
    if user is not None:
        entries.append(AclEntry(tag=USER, id=user, permissions=6))
    if mask is not None:
        entries.append(AclEntry(tag=MASK, id=0, permissions=mask))
    value = build_acl(tuple(entries))
    if shuffled:
        body = [value[start : start + 8] for start in range(4, len(value), 8)]
        value = value[:4] + b"".join(reversed(body))
    return value


def found(source: Entry, target: Entry, capabilities: TargetCapabilities) -> tuple[set[str], set[str]]:
    comparison = compare(source, target, capabilities)
    for difference in comparison.differences:
        assert difference.path == source.path
        assert difference.source != difference.target
    return (
        {difference.kind.value for difference in comparison.differences},
        {loss.kind.value for loss in comparison.losses},
    )


ENTRIES = st.builds(
    entry,
    type=st.sampled_from(EntryType),
    size_bytes=st.integers(0, 2**40),
    blocks=st.integers(0, 2**31),
    mode=st.integers(0, 0o7777),
    mtime_ns=st.integers(-(2**60), 2**60),
    rdev=st.integers(0, 2**32),
    symlink_target=st.none() | st.binary(min_size=1, max_size=8),
    xattrs=st.dictionaries(
        st.sampled_from((b"user.a", b"security.capability", b"trusted.x", ACL_ACCESS, ACL_DEFAULT)),
        st.binary(max_size=8) | st.just(acl()) | st.just(acl(user=None, mask=None)),
    ),
)


@given(ENTRIES, st.sampled_from((XFS, BEEGFS_CAPABILITIES)))
def test_an_entry_equals_itself(source: Entry, capabilities: TargetCapabilities) -> None:
    assert found(source, source, capabilities) == (set(), set())


@given(ENTRIES, ENTRIES)
def test_nothing_is_lost_in_silence(source: Entry, target: Entry) -> None:
    """Whatever differs in a fact that is compared is a difference or a loss, on any target."""
    for capabilities in (XFS, BEEGFS_CAPABILITIES):
        differences, losses = found(source, target, capabilities)
        if source.type is not target.type or source.mtime_ns != target.mtime_ns:
            assert differences | losses
        plain = {
            name for name in (b"user.a", b"security.capability") if source.xattrs.get(name) != target.xattrs.get(name)
        }
        if plain:
            assert differences | losses


CASES: list[tuple[str, dict[str, Any], dict[str, Any], TargetCapabilities, str, str]] = [
    ("type", {}, {"type": EntryType.FIFO}, XFS, "type", ""),
    ("size", {}, {"size_bytes": 8191}, XFS, "size", ""),
    ("mtime", {}, {"mtime_ns": 1_500_000_000_123_456_788}, XFS, "mtime", ""),
    ("floored", {}, {"mtime_ns": 1_500_000_000_000_000_000}, BEEGFS_CAPABILITIES, "", "loss-time-fraction"),
    ("not floored", {}, {"mtime_ns": 1_500_000_001_000_000_000}, BEEGFS_CAPABILITIES, "mtime", ""),
    ("floored on xfs", {}, {"mtime_ns": 1_500_000_000_000_000_000}, XFS, "mtime", ""),
    ("owner", {}, {"uid": 0}, XFS, "owner", ""),
    ("group", {}, {"gid": 0}, XFS, "owner", ""),
    ("mode", {}, {"mode": 0o4644}, XFS, "mode", ""),
    ("symlink mode", {"type": EntryType.SYMLINK, "mode": 0o777}, {"type": EntryType.SYMLINK, "mode": 0o755}, BEEGFS_CAPABILITIES, "", "loss-symlink-mode"),
    ("symlink mode on xfs", {"type": EntryType.SYMLINK, "mode": 0o777}, {"type": EntryType.SYMLINK, "mode": 0o755}, XFS, "mode", ""),
    ("symlink time", {"type": EntryType.SYMLINK}, {"type": EntryType.SYMLINK, "mtime_ns": 5}, replace(XFS, keeps_symlink_times=False), "", "loss-symlink-time"),
    ("symlink owner", {"type": EntryType.SYMLINK}, {"type": EntryType.SYMLINK, "uid": 0}, replace(XFS, keeps_symlink_owner=False), "", "loss-symlink-owner"),
    ("symlink target", {"type": EntryType.SYMLINK, "symlink_target": b"a"}, {"type": EntryType.SYMLINK, "symlink_target": b"b"}, XFS, "symlink-target", ""),
    ("device", {"type": EntryType.BLOCK, "rdev": os.makedev(7, 1)}, {"type": EntryType.BLOCK, "rdev": os.makedev(7, 2)}, XFS, "device", ""),
    ("device lost", {"type": EntryType.BLOCK, "rdev": os.makedev(7, 1)}, {"type": EntryType.BLOCK, "rdev": 0}, BEEGFS_CAPABILITIES, "", "loss-device-number"),
    ("fifo's rdev is nothing", {"type": EntryType.FIFO, "rdev": 1}, {"type": EntryType.FIFO}, XFS, "", ""),
    ("directory's size is nothing", {"type": EntryType.DIRECTORY}, {"type": EntryType.DIRECTORY, "size_bytes": 1}, XFS, "", ""),
    ("dense file", {}, {"blocks": 10**6}, XFS, "", ""),
    ("hole filled", {"size_bytes": 64 * MIB, "blocks": 0}, {"size_bytes": 64 * MIB, "blocks": 64 * 2048}, XFS, "sparseness", ""),
    ("hole within reason", {"size_bytes": 64 * MIB, "blocks": 8}, {"size_bytes": 64 * MIB, "blocks": 2048}, XFS, "", ""),
    ("hole lost", {"size_bytes": 64 * MIB, "blocks": 0}, {"size_bytes": 64 * MIB, "blocks": 64 * 2048}, replace(XFS, keeps_sparse=False), "", "loss-sparseness"),
    ("xattr other", {"xattrs": {b"user.a": b"1"}}, {"xattrs": {b"user.a": b"2"}}, BEEGFS_CAPABILITIES, "xattr", ""),
    ("xattr gone", {"xattrs": {b"user.a": b"1"}}, {}, BEEGFS_CAPABILITIES, "xattr", ""),
    ("xattr extra", {}, {"xattrs": {b"user.a": b"1"}}, XFS, "xattr", ""),
    ("xattr too big", {"xattrs": {b"user.a": bytes(4001)}}, {}, BEEGFS_CAPABILITIES, "", "loss-xattr-too-big"),
    ("xattr too big and cut", {"xattrs": {b"user.a": bytes(4001)}}, {"xattrs": {b"user.a": bytes(4000)}}, BEEGFS_CAPABILITIES, "xattr", ""),
    ("xattr foreign", {"xattrs": {b"trusted.a": b"1", b"security.capability": b"1"}}, {}, BEEGFS_CAPABILITIES, "", "loss-xattr-namespace"),
    ("capability lost on xfs", {"xattrs": {b"security.capability": b"1"}}, {}, XFS, "xattr", ""),
    ("trusted leaked", {}, {"xattrs": {b"trusted.gfid": b"1"}}, XFS, "xattr", ""),
    ("label of the target", {}, {"xattrs": {b"security.selinux": b"1"}}, XFS, "", ""),
    ("acl", {"mode": 0o664, "xattrs": {ACL_ACCESS: acl()}}, {"mode": 0o664, "xattrs": {ACL_ACCESS: acl(user=1235)}}, XFS, "acl", ""),
    ("acl in another order", {"xattrs": {ACL_ACCESS: acl()}}, {"xattrs": {ACL_ACCESS: acl(shuffled=True)}}, XFS, "", ""),
    ("acl gone", {"mode": 0o664, "xattrs": {ACL_ACCESS: acl()}}, {"mode": 0o644}, XFS, "acl", ""),
    ("acl extra", {"mode": 0o644}, {"mode": 0o664, "xattrs": {ACL_ACCESS: acl()}}, XFS, "acl", ""),
    ("acl extra and setuid", {"mode": 0o644}, {"mode": 0o4664, "xattrs": {ACL_ACCESS: acl()}}, XFS, "acl mode", ""),
    ("acl equal, mask other in the mode", {"mode": 0o664, "xattrs": {ACL_ACCESS: acl()}}, {"mode": 0o644, "xattrs": {ACL_ACCESS: acl()}}, XFS, "mode", ""),
    ("acl lost, mask shown", {"mode": 0o664, "xattrs": {ACL_ACCESS: acl()}}, {"mode": 0o664}, replace(XFS, keeps_acls=False), "", "loss-acl"),
    ("acl lost, group shown", {"mode": 0o664, "xattrs": {ACL_ACCESS: acl()}}, {"mode": 0o644}, replace(XFS, keeps_acls=False), "", "loss-acl"),
    ("acl lost, more shown", {"mode": 0o664, "xattrs": {ACL_ACCESS: acl()}}, {"mode": 0o674}, replace(XFS, keeps_acls=False), "mode", "loss-acl"),
    ("minimal acl is none", {"mode": 0o644, "xattrs": {ACL_ACCESS: acl(user=None, mask=None)}}, {"mode": 0o644}, XFS, "", ""),
    ("mask without names", {"mode": 0o664, "xattrs": {ACL_ACCESS: acl(user=None)}}, {"mode": 0o644}, XFS, "", ""),
    ("mask without names opened", {"mode": 0o664, "xattrs": {ACL_ACCESS: acl(user=None)}}, {"mode": 0o664}, XFS, "mode", ""),
    ("default acl gone", {"type": EntryType.DIRECTORY, "xattrs": {ACL_DEFAULT: acl()}}, {"type": EntryType.DIRECTORY}, XFS, "acl", ""),
    ("default acl lost", {"type": EntryType.DIRECTORY, "xattrs": {ACL_DEFAULT: acl()}}, {"type": EntryType.DIRECTORY}, replace(XFS, keeps_acls=False), "", "loss-acl"),
    ("minimal default acl is one", {"type": EntryType.DIRECTORY, "xattrs": {ACL_DEFAULT: acl(user=None, mask=None)}}, {"type": EntryType.DIRECTORY}, XFS, "acl", ""),
    ("no acl at all", {"xattrs": {ACL_ACCESS: b"rubbish"}}, {"xattrs": {ACL_ACCESS: b"garbage"}}, XFS, "acl", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "target", "capabilities", "differences", "losses"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_exactly_this_is_found(
    source: dict[str, Any], target: dict[str, Any], capabilities: TargetCapabilities, differences: str, losses: str
) -> None:
    assert found(entry(**source), entry(**target), capabilities) == (set(differences.split()), set(losses.split()))


ROOT = entry(b"home/alice", type=EntryType.DIRECTORY, mode=0o755)
CLOSED = replace(ROOT, uid=0, gid=0, mode=0o700, mtime_ns=5)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (CLOSED, set()),
        (replace(CLOSED, mode=0o755), {DifferenceKind.MODE}),
        (replace(CLOSED, uid=1001), {DifferenceKind.OWNER}),
        (replace(CLOSED, xattrs={ACL_ACCESS: acl()}), {DifferenceKind.ACL}),
        (replace(CLOSED, xattrs={ACL_DEFAULT: acl()}), {DifferenceKind.ACL}),
        (replace(CLOSED, type=EntryType.SYMLINK), {DifferenceKind.TYPE}),
    ],
)
def test_the_root_of_a_tree_has_to_be_closed(target: Entry, expected: set[DifferenceKind]) -> None:
    comparison = compare_tree_root(ROOT, target, owner=(0, 0))
    assert {difference.kind for difference in comparison.differences} == expected
    assert comparison.losses == []
