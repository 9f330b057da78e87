"""What is known of the two file systems: identity, room, and what the target keeps of a file."""

from dataclasses import dataclass

SENTINEL_NAME = b".migrator-sentinel"
"""The file that `init` leaves in the root of both file systems. It is no data: no scan lists it, nothing copies it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountIdentity:
    """What was mounted at `init`, so that an empty directory in its place is noticed.

    `device` and `fsid` are None where they change with every mount (FUSE, network file systems); `sentinel` is the
    content of the file that `init` left in the root, None where it could not be written.
    """

    filesystem: str
    mounted_from: str
    device: int | None
    fsid: int | None
    root_ino: int
    sentinel: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Room on a file system. Inodes are None where statfs knows none (`files = 0`): unknown, not full.

    `read_only` is the mount's flag (`ST_RDONLY`).
    """

    total_bytes: int
    free_bytes: int
    total_inodes: int | None
    free_inodes: int | None
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What something takes of a file system. Bytes as the files show them: a sparse file may take less."""

    size_bytes: int = 0
    inodes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCapabilities:
    """What the target keeps of a file, as probed by `doctor`. The defaults are a local XFS's."""

    time_granularity_ns: int = 1
    keeps_acls: bool = True
    keeps_user_xattrs: bool = True
    keeps_security_xattrs: bool = True
    keeps_symlink_times: bool = True
    keeps_symlink_owner: bool = True
    keeps_device_numbers: bool = True
    keeps_hard_links: bool = True
    keeps_sparse: bool = True
    symlink_mode: int = 0o777
    max_symlink_target_bytes: int = 4095
    max_xattr_value_bytes: int = 65536
    max_acl_entries: int = 8191
    makes_devices: bool = True
    makes_fifos: bool = True
    makes_sockets: bool = True
    max_name_bytes: int = 255
    reserved_names: tuple[bytes, ...] = ()
    syncfs_reaches_disks: bool = True
    """Whether `syncfs(2)` on a client has its servers write to their disks. Where not, files are synced one by one."""
