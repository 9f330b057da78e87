"""What a target will show: nothing that it can keep is lost, and nothing that it cannot keep is expected there."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType
from migrator.fs.model import TargetCapabilities
from migrator.fs.rules import absence, floored_time_ns, is_sampled, kept_xattrs, xattr_loss
from migrator.plan.model import SurpriseKind
from migrator.verify.model import DigestPolicy
from tests.support.beegfs_like import BEEGFS_CAPABILITIES
from tests.support.entries import entry

XFS = TargetCapabilities()


@given(st.integers(-(2**62), 2**62), st.sampled_from((1, 100, 10**6, 10**9, 2 * 10**9)))
def test_times_are_floored(time_ns: int, granularity_ns: int) -> None:
    floored = floored_time_ns(time_ns, replace(XFS, time_granularity_ns=granularity_ns))
    assert floored % granularity_ns == 0
    assert 0 <= time_ns - floored < granularity_ns


@pytest.mark.parametrize(
    ("name", "size", "capabilities", "expected"),
    [
        (b"user.x", 4000, BEEGFS_CAPABILITIES, None),
        (b"user.x", 4001, BEEGFS_CAPABILITIES, SurpriseKind.LOSS_XATTR_SIZE),
        (b"user.x", 65536, XFS, None),
        (b"user.x", 1, replace(XFS, keeps_user_xattrs=False), SurpriseKind.LOSS_XATTR_NAMESPACE),
        (b"security.capability", 20, XFS, None),
        (b"security.capability", 20, BEEGFS_CAPABILITIES, SurpriseKind.LOSS_XATTR_NAMESPACE),
        (b"security.selinux", 20, XFS, SurpriseKind.LOSS_XATTR_NAMESPACE),
        (b"trusted.x", 1, XFS, SurpriseKind.LOSS_XATTR_NAMESPACE),
        (b"system.nfs4_acl", 1, XFS, SurpriseKind.LOSS_XATTR_NAMESPACE),
        (ACL_ACCESS, 4 + 8 * 400, BEEGFS_CAPABILITIES, None),
        (ACL_ACCESS, 4 + 8 * 401, BEEGFS_CAPABILITIES, SurpriseKind.LOSS_ACL),
        (ACL_DEFAULT, 44, replace(XFS, keeps_acls=False), SurpriseKind.LOSS_ACL),
    ],
)
def test_which_attributes_are_kept(
    name: bytes, size: int, capabilities: TargetCapabilities, expected: SurpriseKind | None
) -> None:
    value = bytes(size)
    assert xattr_loss(name, value, capabilities) is expected
    assert kept_xattrs({name: value}, capabilities) == ({} if expected else {name: value})


@pytest.mark.parametrize(
    ("source", "capabilities", "expected"),
    [
        (entry(b"a"), BEEGFS_CAPABILITIES, None),
        (entry(b"a/#fSiDs#/b"), BEEGFS_CAPABILITIES, SurpriseKind.LOSS_NAME),
        (entry(b"a/#fSiDs#x/b"), BEEGFS_CAPABILITIES, None),
        (entry(b"n" * 144 + b"/a"), replace(XFS, max_name_bytes=143), SurpriseKind.LOSS_NAME),
        (
            entry(b"a", type=EntryType.SYMLINK, symlink_target=b"t" * 4095),
            BEEGFS_CAPABILITIES,
            SurpriseKind.LOSS_SYMLINK_TARGET,
        ),
        (entry(b"a", type=EntryType.SYMLINK, symlink_target=b"t" * 4094), BEEGFS_CAPABILITIES, None),
        (entry(b"a", type=EntryType.FIFO), replace(XFS, makes_fifos=False), SurpriseKind.LOSS_FIFO),
        (entry(b"a", type=EntryType.SOCKET), replace(XFS, makes_sockets=False), SurpriseKind.LOSS_SOCKET),
        (entry(b"a", type=EntryType.BLOCK), replace(XFS, makes_devices=False), SurpriseKind.LOSS_DEVICE_NODE),
        (entry(b"a", type=EntryType.CHARACTER), replace(XFS, makes_devices=False), SurpriseKind.LOSS_DEVICE_NODE),
        (entry(b"a", type=EntryType.CHARACTER), BEEGFS_CAPABILITIES, None),
    ],
)
def test_what_cannot_be_there(source: Entry, capabilities: TargetCapabilities, expected: SurpriseKind | None) -> None:
    loss = absence(source, capabilities)
    assert (None if loss is None else loss.kind) is expected


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
