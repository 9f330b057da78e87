"""Whether one call puts a whole file system on its disks. Pure."""

from migrator.domain.filesystems import LOCAL_FILESYSTEMS

_REACHING = LOCAL_FILESYSTEMS | {"overlay", "ceph", "gfs2", "gpfs", "lustre", "nfs", "nfs4", "ocfs2"}
"""Local ones, and those whose clients pass `syncfs(2)` on, or write back and commit what they hold (NFS). BeeGFS is none of them
(8.3: its client has no `sync_fs`, and what it writes back then stays in the memory of the servers), nor is anything in FUSE
(Linux passes it on for virtiofs alone): seen with GlusterFS 10.3, whose bricks are not synced by it."""


def syncfs_reaches_disks(filesystem: str) -> bool:
    """Whether `syncfs(2)` on a mount of this type (as `/proc/self/mountinfo` has it) returns when all is on the disks of its
    servers. A type that is not known counts as one where it does not: syncing files one by one costs time and loses nothing.
    """
    return filesystem in _REACHING
