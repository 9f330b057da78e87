"""Types of file systems, as `/proc/self/mountinfo` names them."""

LOCAL_FILESYSTEMS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "tmpfs", "bcachefs"})
"""Those that one machine alone mounts. Any other may have clients elsewhere."""
