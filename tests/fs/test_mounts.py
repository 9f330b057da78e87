"""/proc/self/mountinfo, as kernels write it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.fs.model import mount_of, mounts_beneath, parse_mountinfo, syncfs_reaches_disks

TEXT = rb"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:45 / /mnt/gl rw,relatime shared:9 master:2 - fuse.glusterfs 10.0.0.1:/vol1 rw,user_id=0
41 22 0:46 / /mnt/gl\040two\134\012 rw - nfs4 server:/a\040b rw
42 40 7:0 / /mnt/gl/home/big rw - xfs /dev/loop0 rw
43 40 7:1 / /mnt/gl rw shared:1 - xfs /dev/loop1 rw
broken line
"""


def test_lines_are_read_with_optional_fields_and_escapes() -> None:
    mounts = parse_mountinfo(TEXT)
    assert [mount.point for mount in mounts] == [b"/", b"/mnt/gl", b"/mnt/gl two\\\n", b"/mnt/gl/home/big", b"/mnt/gl"]
    assert mounts[1].filesystem == "fuse.glusterfs"
    assert mounts[2].source == b"server:/a b"


def test_the_deepest_mount_counts_and_of_two_at_one_place_the_later() -> None:
    mounts = parse_mountinfo(TEXT)
    for path, source in [
        (b"/", b"/dev/vda"),
        (b"/mnt/glx", b"/dev/vda"),
        (b"/mnt/gl", b"/dev/loop1"),
        (b"/mnt/gl/home", b"/dev/loop1"),
        (b"/mnt/gl/home/big/x", b"/dev/loop0"),
    ]:
        mount = mount_of(mounts, path)
        assert mount is not None
        assert mount.source == source
    assert mount_of((), b"/") is None


def test_mounts_beneath_are_relative_and_without_the_place_itself() -> None:
    mounts = parse_mountinfo(TEXT)
    assert mounts_beneath(mounts, b"/mnt/gl") == {b"home/big"}
    assert b"mnt/gl" in mounts_beneath(mounts, b"/")


@pytest.mark.parametrize(
    ("filesystem", "reaches"),
    [
        ("xfs", True),
        ("nfs4", True),
        ("beegfs", False),
        ("fuse.glusterfs", False),
        ("something new", False),
        ("", False),
    ],
)
def test_one_call_syncs_local_disks_and_clients_that_forward_it(filesystem: str, reaches: bool) -> None:
    assert syncfs_reaches_disks(filesystem) is reaches


@given(st.binary(max_size=300))
def test_no_content_makes_it_fail(text: bytes) -> None:
    parse_mountinfo(text)
