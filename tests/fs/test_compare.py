"""ACLs, what a target will show, and what differs and should not."""

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType
from migrator.core.units import MIB
from migrator.fs import acl as fs_acl
from migrator.fs.model import DifferenceKind, DigestPolicy, TargetCapabilities
from migrator.fs.rules import compare, compare_tree_root, floored_time_ns, is_sampled
from tests.support.beegfs_like import BEEGFS_CAPABILITIES, STRICT_CAPABILITIES
from tests.support.entries import acl, entry

XFS = TargetCapabilities()


NAMED, MASKED, MINIMAL = acl(6, 6, 4, 6, 4), acl(6, None, 4, 6, 4), acl(6, None, 4, None, 4)
SHUFFLED = NAMED[:4] + b"".join(NAMED[at : at + 8] for at in range(len(NAMED) - 8, 0, -8))


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
        st.binary(max_size=8) | st.just(NAMED) | st.just(MINIMAL),
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


UNTIL_2038 = replace(XFS, latest_time_ns=2**31 * 10**9)


# What differs plainly is injected in tests/verify/test_verify_differences.py.
CASES: list[tuple[str, dict[str, Any], dict[str, Any], TargetCapabilities, str, str]] = [
    ("floored", {}, {"mtime_ns": 1_500_000_000_000_000_000}, BEEGFS_CAPABILITIES, "", "loss-time-fraction"),
    ("not floored", {}, {"mtime_ns": 1_500_000_001_000_000_000}, BEEGFS_CAPABILITIES, "mtime", ""),
    ("floored on xfs", {}, {"mtime_ns": 1_500_000_000_000_000_000}, XFS, "mtime", ""),
    ("late", {"mtime_ns": 2**62}, {"mtime_ns": 2**31 * 10**9}, UNTIL_2038, "", "loss-time-range"),
    ("late but kept", {"mtime_ns": 2**62}, {"mtime_ns": 2**62}, UNTIL_2038, "", "loss-time-range"),
    ("late and other", {"mtime_ns": 2**62}, {"mtime_ns": 5}, UNTIL_2038, "mtime", ""),
    ("early", {"mtime_ns": -(2**62)}, {"mtime_ns": 0}, replace(XFS, earliest_time_ns=0), "", "loss-time-range"),
    ("beyond 64 bits", {"mtime_ns": 2**63 - 1}, {"mtime_ns": 2**63 - 1}, XFS, "", "loss-time-range"),
    ("before 64 bits", {"mtime_ns": -(2**63)}, {"mtime_ns": -(2**63)}, XFS, "", "loss-time-range"),
    ("group", {}, {"gid": 0}, XFS, "owner", ""),
    ("symlink time", {"type": EntryType.SYMLINK}, {"type": EntryType.SYMLINK, "mtime_ns": 5}, replace(XFS, keeps_symlink_times=False), "", "loss-symlink-time"),
    ("symlink owner", {"type": EntryType.SYMLINK}, {"type": EntryType.SYMLINK, "uid": 0}, replace(XFS, keeps_symlink_owner=False), "", "loss-symlink-owner"),
    ("device lost", {"type": EntryType.BLOCK, "rdev": os.makedev(7, 1)}, {"type": EntryType.BLOCK, "rdev": 0}, BEEGFS_CAPABILITIES, "", "loss-device-number"),
    ("fifo's rdev is nothing", {"type": EntryType.FIFO, "rdev": 1}, {"type": EntryType.FIFO}, XFS, "", ""),
    ("directory's size is nothing", {"type": EntryType.DIRECTORY}, {"type": EntryType.DIRECTORY, "size_bytes": 1}, XFS, "", ""),
    ("dense file", {}, {"blocks": 10**6}, XFS, "", ""),
    ("hole within reason", {"size_bytes": 64 * MIB, "blocks": 8}, {"size_bytes": 64 * MIB, "blocks": 2048}, XFS, "", ""),
    ("hole lost", {"size_bytes": 64 * MIB, "blocks": 0}, {"size_bytes": 64 * MIB, "blocks": 64 * 2048}, replace(XFS, keeps_sparse=False), "", "loss-sparseness"),
    ("xattr other", {"xattrs": {b"user.a": b"1"}}, {"xattrs": {b"user.a": b"2"}}, BEEGFS_CAPABILITIES, "xattr", ""),
    ("xattr too big", {"xattrs": {b"user.a": bytes(4001)}}, {}, BEEGFS_CAPABILITIES, "", "loss-xattr-too-big"),
    ("xattr too big and cut", {"xattrs": {b"user.a": bytes(4001)}}, {"xattrs": {b"user.a": bytes(4000)}}, BEEGFS_CAPABILITIES, "xattr", ""),
    ("xattr of the greatest size", {"xattrs": {b"user.a": bytes(4000)}}, {}, BEEGFS_CAPABILITIES, "xattr", ""),
    ("xattr where none are kept", {"xattrs": {b"user.a": b"1"}}, {}, replace(XFS, keeps_user_xattrs=False), "", "loss-xattr-namespace"),
    ("xattr foreign", {"xattrs": {b"trusted.a": b"1", b"security.capability": b"1"}}, {}, BEEGFS_CAPABILITIES, "", "loss-xattr-namespace"),
    ("capability lost on xfs", {"xattrs": {b"security.capability": b"1"}}, {}, XFS, "xattr", ""),
    ("xattr of other systems", {"xattrs": {b"system.nfs4_acl": b"1"}}, {}, XFS, "", "loss-xattr-namespace"),
    ("label of the source", {"xattrs": {b"security.selinux": b"1"}}, {}, XFS, "", "loss-xattr-namespace"),
    ("label of the target", {}, {"xattrs": {b"security.selinux": b"1"}}, XFS, "", ""),
    ("acl", {"mode": 0o664, "xattrs": {ACL_ACCESS: NAMED}}, {"mode": 0o664, "xattrs": {ACL_ACCESS: acl(6, 6, 4, 6, 4, uid=1235)}}, XFS, "acl", ""),
    ("acl in another order", {"xattrs": {ACL_ACCESS: NAMED}}, {"xattrs": {ACL_ACCESS: SHUFFLED}}, XFS, "", ""),
    ("acl gone", {"mode": 0o664, "xattrs": {ACL_ACCESS: NAMED}}, {"mode": 0o644}, XFS, "acl", ""),
    ("acl extra and setuid", {"mode": 0o644}, {"mode": 0o4664, "xattrs": {ACL_ACCESS: NAMED}}, XFS, "acl mode", ""),
    ("acl equal, mask other in the mode", {"mode": 0o664, "xattrs": {ACL_ACCESS: NAMED}}, {"mode": 0o644, "xattrs": {ACL_ACCESS: NAMED}}, XFS, "mode", ""),
    ("acl lost, mask shown", {"mode": 0o664, "xattrs": {ACL_ACCESS: NAMED}}, {"mode": 0o664}, replace(XFS, keeps_acls=False), "", "loss-acl"),
    ("acl lost, group shown", {"mode": 0o664, "xattrs": {ACL_ACCESS: NAMED}}, {"mode": 0o644}, replace(XFS, keeps_acls=False), "", "loss-acl"),
    ("acl lost, more shown", {"mode": 0o664, "xattrs": {ACL_ACCESS: NAMED}}, {"mode": 0o674}, replace(XFS, keeps_acls=False), "mode", "loss-acl"),
    ("minimal acl is none", {"mode": 0o644, "xattrs": {ACL_ACCESS: MINIMAL}}, {"mode": 0o644}, XFS, "", ""),
    ("mask without names", {"mode": 0o664, "xattrs": {ACL_ACCESS: MASKED}}, {"mode": 0o644}, XFS, "", ""),
    ("mask without names opened", {"mode": 0o664, "xattrs": {ACL_ACCESS: MASKED}}, {"mode": 0o664}, XFS, "mode", ""),
    ("default acl lost", {"type": EntryType.DIRECTORY, "xattrs": {ACL_DEFAULT: NAMED}}, {"type": EntryType.DIRECTORY}, replace(XFS, keeps_acls=False), "", "loss-acl"),
    ("minimal default acl is one", {"type": EntryType.DIRECTORY, "xattrs": {ACL_DEFAULT: MINIMAL}}, {"type": EntryType.DIRECTORY}, XFS, "acl", ""),
    ("acl of as many entries as fit", {"xattrs": {ACL_ACCESS: bytes(4 + 8 * 499)}}, {}, BEEGFS_CAPABILITIES, "acl", ""),
    ("default acl where none are kept", {"xattrs": {ACL_DEFAULT: MINIMAL}}, {}, STRICT_CAPABILITIES, "", "loss-acl"),
    ("xattr with a name too long", {"xattrs": {b"user.".ljust(246, b"n"): b""}}, {}, BEEGFS_CAPABILITIES, "", "loss-xattr-too-big"),
    ("acl of too many entries", {"xattrs": {ACL_ACCESS: bytes(4 + 8 * 500)}}, {}, BEEGFS_CAPABILITIES, "", "loss-acl"),
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
        (replace(CLOSED, xattrs={ACL_ACCESS: NAMED}), {DifferenceKind.ACL}),
        (replace(CLOSED, type=EntryType.SYMLINK), {DifferenceKind.TYPE}),
    ],
)
def test_the_root_of_a_tree_has_to_be_closed(target: Entry, expected: set[DifferenceKind]) -> None:
    comparison = compare_tree_root(ROOT, target, owner=(0, 0))
    assert {difference.kind for difference in comparison.differences} == expected
    assert comparison.losses == []


@given(st.integers(-(2**62), 2**62), st.sampled_from((1, 100, 10**6, 10**9, 2 * 10**9)))
def test_times_are_floored(time_ns: int, granularity_ns: int) -> None:
    floored = floored_time_ns(time_ns, replace(XFS, time_granularity_ns=granularity_ns))
    assert floored % granularity_ns == 0
    assert 0 <= time_ns - floored < granularity_ns


def test_the_sample_is_about_its_share_and_always_the_same() -> None:
    policy = DigestPolicy(algorithm="xxh3_128", share=0.25, seed=3)
    paths = [b"path-%d" % number for number in range(4000)]
    chosen = [path for path in paths if is_sampled(path, policy)]
    assert 850 < len(chosen) < 1150
    assert chosen == [path for path in paths if is_sampled(path, policy)]
    assert chosen != [path for path in paths if is_sampled(path, replace(policy, seed=4))]
    larger = {path for path in paths if is_sampled(path, replace(policy, share=0.5))}
    assert larger >= set(chosen)
    assert all(is_sampled(path, replace(policy, share=1.0)) for path in paths)
    assert not any(is_sampled(path, replace(policy, share=0.0)) for path in paths)


ACL_ENTRIES = st.lists(
    st.builds(
        fs_acl.AclEntry,
        tag=st.sampled_from((fs_acl.USER, fs_acl.GROUP)),
        id=st.integers(0, 2**32 - 2),
        permissions=st.integers(0, 7),
    ),
    max_size=20,
).map(tuple)


@given(ACL_ENTRIES)
def test_a_built_acl_is_parsed_to_its_entries(entries: tuple[fs_acl.AclEntry, ...]) -> None:
    assert fs_acl.parse_acl(fs_acl.build_acl(entries)) == tuple(sorted(entries))


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    parsed = fs_acl.parse_acl(value)
    assert parsed is None or len(parsed) == (len(value) - 4) // 8


def test_the_kernels_own_bytes_are_understood() -> None:
    # As getxattr gave them on XFS after `setfacl -m u:1001:rw`, for a file of mode 0644.
    value = bytes.fromhex("0200000001000600ffffffff02000600e903000004000400ffffffff10000600ffffffff20000400ffffffff")
    entries = fs_acl.parse_acl(value)
    assert entries is not None
    assert fs_acl.show_acl(entries) == "u::rw-,u:1001:rw-,g::r--,m::rw-,o::r--"
    assert fs_acl.build_acl(entries) == value
    assert not fs_acl.is_minimal(entries)
    assert fs_acl.owning_group_bits(entries) == 4
