"""A file system as this program knows it: identity, mounts, room, what it keeps of a file, trash. Pure."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from migrator.core.paths import is_beneath

# ---
# What is mounted where, as the kernel's mountinfo tells it (proc_pid_mountinfo(5)).


_ESCAPED = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line: where it is mounted, the type of the file system (`fuse.glusterfs`), what was mounted, and whether the
    times of reading are left alone there (`noatime`).
    """

    point: bytes
    filesystem: str
    source: bytes
    no_atime: bool = False


def parse_mountinfo(text: bytes) -> tuple[Mount, ...]:
    r"""Every mount, in the order in which the kernel lists them; lines that cannot be read are left out.

    Blanks, tabs, newlines and backslashes in names come as `\ooo` and are turned back.
    """
    mounts: list[Mount] = []
    for line in text.split(b"\n"):
        before, separator, after = line.partition(b" - ")
        fields, tail = before.split(b" "), after.split(b" ")
        if not separator or len(fields) < 6 or len(tail) < 2:
            continue
        mounts.append(
            Mount(
                point=_plain(fields[4]),
                filesystem=tail[0].decode("ascii", "replace"),
                source=_plain(tail[1]),
                no_atime=b"noatime" in fields[5].split(b","),
            )
        )
    return tuple(mounts)


def mount_of(mounts: Sequence[Mount], path: bytes) -> Mount | None:
    """The mount that shows an absolute path without symlinks: the deepest, and of several at one place the last."""
    found: Mount | None = None
    for mount in mounts:
        if _shows(mount.point, path) and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def mounts_beneath(mounts: Sequence[Mount], path: bytes) -> frozenset[bytes]:
    """Mount points below an absolute path, relative to it; the path itself is not among them."""
    return frozenset(
        mount.point[len(path.rstrip(b"/")) + 1 :]
        for mount in mounts
        if mount.point != path and _shows(path, mount.point)
    )


def _shows(directory: bytes, path: bytes) -> bool:
    # The root of all lies at "/", which as a directory of a path without its slash is b"".
    return is_beneath(path, directory.rstrip(b"/"))


def _plain(escaped: bytes) -> bytes:
    return _ESCAPED.sub(lambda found: bytes((int(found.group(1), 8) & 0xFF,)), escaped)


# ---
# Types of file systems, as `/proc/self/mountinfo` names them.


LOCAL_FILESYSTEMS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "tmpfs", "bcachefs"})
"""Those that one machine alone mounts. Any other may have clients elsewhere."""


# ---
# Whether one call puts a whole file system on its disks. Pure.


_REACHING = LOCAL_FILESYSTEMS | {"overlay", "ceph", "gfs2", "gpfs", "lustre", "nfs", "nfs4", "ocfs2"}
"""Local ones, and those whose clients pass `syncfs(2)` on, or write back and commit what they hold (NFS). BeeGFS is none of them
(8.3: its client has no `sync_fs`, and what it writes back then stays in the memory of the servers), nor is anything in FUSE
(Linux passes it on for virtiofs alone): seen with GlusterFS 10.3, whose bricks are not synced by it."""


def syncfs_reaches_disks(filesystem: str) -> bool:
    """Whether `syncfs(2)` on a mount of this type (as `/proc/self/mountinfo` has it) returns when all is on the disks of its
    servers. A type that is not known counts as one where it does not: syncing files one by one costs time and loses nothing.
    """
    return filesystem in _REACHING


# ---
# The trash of the target: where delta passes put what they take away, for some days.


TRASH_NAME = b".migrator-trash"
"""The directory in the target's root. It is root's alone, and no data: nothing scans or compares it."""

STAGED_NAME = b".migrator-staged"
"""In a place of the trash: where renamed paths wait for their new names."""

_FORM = "%Y%m%dT%H%M%SZ"
_PLACE = re.compile(r"([0-9]{8}T[0-9]{6}Z)-[a-z0-9-]{1,100}", re.ASCII)


def trash_place(at_s: float, batch: int, kind: str, number: int) -> str:
    """The place of one pass: `20260314T150926Z-batch-0001-delta-0002`. A pass keeps the place that it began with."""
    return f"{datetime.fromtimestamp(at_s, UTC).strftime(_FORM)}-batch-{batch:04d}-{kind}-{number:04d}"


def place_time_s(place: str) -> float | None:
    """When a place was begun, by its name; None where it is no name of a place."""
    found = _PLACE.fullmatch(place)
    if found is None:
        return None
    try:
        return datetime.strptime(found[1], _FORM).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


# ---
# What is known of the two file systems: identity, room, and what the target keeps of a file.


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


def mount_fingerprint(identity: MountIdentity) -> str:
    """For a source without bricks: changes when something else is mounted."""
    digest = hashlib.blake2b(digest_size=16)
    facts = (
        identity.filesystem,
        identity.mounted_from,
        identity.device,
        identity.fsid,
        identity.root_ino,
        identity.sentinel,
    )
    digest.update(repr(facts).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


# ---
# How full both file systems were, over time.


class Side(StrEnum):
    """Which of the two file systems."""

    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySample:
    """What one side showed at one time (seconds since the epoch). Inodes are None where the file system tells none."""

    side: Side
    at_s: float
    total_bytes: int
    free_bytes: int
    total_inodes: int | None
    free_inodes: int | None

    @property
    def used_bytes(self) -> int:
        """Bytes that are taken."""
        return self.total_bytes - self.free_bytes

    @property
    def used_inodes(self) -> int | None:
        """Inodes that are taken; None where the file system tells none."""
        if self.total_inodes is None or self.free_inodes is None:
            return None
        return self.total_inodes - self.free_inodes


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOutlook:
    """How full one side will be when everything that is planned is copied, and nobody frees anything: `full` where it has not
    the room. What users add is not in it.
    """

    side: Side
    at_s: float
    used_bytes: int
    total_bytes: int
    used_inodes: int | None
    total_inodes: int | None

    @property
    def full(self) -> bool:
        """Whether it has not the room."""
        too_many = (
            self.used_inodes is not None and self.total_inodes is not None and self.used_inodes > self.total_inodes
        )
        return self.used_bytes > self.total_bytes or too_many
