"""Whether one call puts a whole file system on its disks."""

import pytest

from migrator.fs.model import syncfs_reaches_disks


@pytest.mark.parametrize("filesystem", ["xfs", "ext4", "zfs", "ceph", "lustre", "nfs4"])
def test_local_disks_and_clients_that_pass_it_on(filesystem: str) -> None:
    assert syncfs_reaches_disks(filesystem)


@pytest.mark.parametrize("filesystem", ["beegfs", "fuse.glusterfs", "fuse", "fuse.beegfs", "something new", ""])
def test_whatever_is_not_known_to_pass_it_on_is_synced_file_by_file(filesystem: str) -> None:
    assert not syncfs_reaches_disks(filesystem)
