"""A file system as this program sees it: mounts, identity, room, capabilities, trash. Pure."""

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import astuple

from migrator.core.entry import LATEST_TIME_NS, EntryType
from migrator.core.paths import is_beneath, show
from migrator.core.units import NS_PER_S

# Mounts, from the kernel's mountinfo (proc_pid_mountinfo(5)).


_ESCAPED = re.compile(rb"\\([0-7]{3})")


class Mount(Struct, frozen=True, kw_only=True):
    """One line of mountinfo: mount point, type (`fuse.glusterfs`), source, and whether it is mounted with `noatime`."""

    point: bytes
    filesystem: str
    source: bytes
    no_atime: bool = False


def parse_mountinfo(text: bytes) -> tuple[Mount, ...]:
    r"""Every mount, in the kernel's order; malformed lines are left out. Escapes (`\ooo`) in names are decoded."""
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
    """The mount of an absolute path without symlinks: the deepest one, and the last of several at one mount point."""
    found: Mount | None = None
    for mount in mounts:
        if _shows(mount.point, path) and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def mounts_beneath(mounts: Sequence[Mount], path: bytes) -> frozenset[bytes]:
    """Mount points below an absolute path, relative to it, without the path itself."""
    return frozenset(
        mount.point[len(path.rstrip(b"/")) + 1 :]
        for mount in mounts
        if mount.point != path and _shows(path, mount.point)
    )


def _shows(directory: bytes, path: bytes) -> bool:
    # Without its slash, the mount point "/" is b"".
    return is_beneath(path, directory.rstrip(b"/"))


def _plain(escaped: bytes) -> bytes:
    return _ESCAPED.sub(lambda found: bytes((int(found.group(1), 8) & 0xFF,)), escaped)


# Types of file systems, as in `/proc/self/mountinfo`.


LOCAL_FILESYSTEMS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "tmpfs", "bcachefs"})
"""Types that only one machine mounts. All other types may have clients elsewhere."""


_REACHING = LOCAL_FILESYSTEMS | {"overlay", "ceph", "gfs2", "gpfs", "nfs", "nfs4", "ocfs2"}
"""Local types, and those whose clients forward `syncfs(2)`, or write back and commit (NFS). Not BeeGFS (8.3: its client
has no `sync_fs`, and written data stays in the memory of the servers), not Lustre (ll_writepages waits for the servers, CL_FSYNC_LOCAL, not for their
disks), and not FUSE (Linux forwards it only for
virtiofs; with GlusterFS 10.3 the bricks are not synced)."""


def syncfs_reaches_disks(filesystem: str) -> bool:
    """Whether `syncfs(2)` on a mount of this type returns only when all data is on the disks of its servers. False for
    unknown types: syncing files one by one costs time, but loses nothing.
    """
    return filesystem in _REACHING


# The trash of the target, where delta passes move what they remove, for some days.


TRASH_NAME = b".migrator-trash"
"""The directory in the target's root. Only root can enter it; scans and comparisons skip it."""

STAGED_NAME = b".migrator-staged"
"""The directory in a place of the trash in which renamed paths wait for their new names."""

_FORM = "%Y%m%dT%H%M%SZ"
_PLACE = re.compile(r"([0-9]{8}T[0-9]{6}Z)-[a-z0-9-]{1,100}", re.ASCII)


def trash_place(at_s: float, batch: int, kind: str, number: int) -> str:
    """The place of one pass: `20260314T150926Z-batch-0001-delta-0002`. A resumed pass keeps its place."""
    return f"{datetime.fromtimestamp(at_s, UTC).strftime(_FORM)}-batch-{batch:04d}-{kind}-{number:04d}"


def place_time_s(place: str) -> float | None:
    """When a place was created, by its name; None if it is not the name of a place."""
    found = _PLACE.fullmatch(place)
    if found is None:
        return None
    try:
        return datetime.strptime(found[1], _FORM).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


# Identity and room of both file systems, and what the target keeps of a file.


JOURNAL_NAME = b".migrator-journal"
"""The file in the target's root that lists what the site's commands have begun: see `operations.journal`."""

SENTINEL_NAME = b".migrator-sentinel"
"""The file that `init` writes into the root of both file systems. Scans skip it, and it is never copied."""


class MountIdentity(Struct, frozen=True, kw_only=True):
    """The file system mounted at `init`, for the detection of an unmounted or different one."""

    filesystem: str
    """Its type."""
    mounted_from: str
    """What was mounted."""
    device: int | None
    """Device number; None if it changes with every mount (FUSE, network file systems)."""
    fsid: int | None
    """Id of the file system; None if it changes with every mount."""
    root_ino: int
    """Inode number of its root."""
    sentinel: str | None
    """Content of the sentinel file; None if it could not be written."""


class Capacity(Struct, frozen=True, kw_only=True):
    """Room on a file system."""

    total_bytes: int
    free_bytes: int
    total_inodes: int | None
    """Inodes in all; None if statfs reports none (`files = 0`): unknown, not full."""
    free_inodes: int | None
    """Inodes that are free; None if statfs reports none."""
    read_only: bool = False
    """The mount is read-only (`ST_RDONLY`)."""


class Need(Struct, frozen=True, kw_only=True):
    """The room that files need. Bytes are file sizes: a sparse file may need less."""

    size_bytes: int = 0
    inodes: int = 0


XATTR_NAME_LIMIT_BYTES = 255
"""The kernel's limit for the name of an extended attribute, with its namespace."""


class RewrittenLinks(Struct, frozen=True, kw_only=True):
    """The directories by which absolute symlinks into the source are made to lead to the target; both without a slash at
    the end.
    """

    source: bytes
    target: bytes


class TargetCapabilities(Struct, frozen=True, kw_only=True):
    """The properties of a file that the target keeps, as probed by `doctor`. The defaults are those of a local XFS."""

    time_granularity_ns: int = 1
    earliest_time_ns: int = -(2**31) * NS_PER_S
    latest_time_ns: int = LATEST_TIME_NS
    """ext4 with small inodes and XFS without `bigtime` end in 2038; times outside the range are cut to it."""
    keeps_acls: bool = True
    keeps_default_acls: bool = True
    """Those of directories. False also if they cannot be removed again: new files would inherit them for ever."""
    inherits_default_acls: bool = True
    """Whether new entries get the default ACL of their directory. If not, users whom it keeps out may read new files."""
    keeps_user_xattrs: bool = True
    keeps_security_xattrs: bool = True
    keeps_atimes: bool = True
    """Those that are set. Whether reading changes them is another matter."""
    keeps_symlink_times: bool = True
    keeps_symlink_owner: bool = True
    rewritten_links: RewrittenLinks | None = None
    """By [transfer] rewrite_links, and not probed. It is here because all that copies or compares goes by these values."""
    keeps_device_numbers: bool = True
    keeps_hard_links: bool = True
    keeps_sparse: bool = True
    max_symlink_target_bytes: int = 4095
    max_xattr_name_bytes: int = XATTR_NAME_LIMIT_BYTES
    max_xattr_value_bytes: int = 65536
    max_acl_entries: int = 8191
    makes_devices: bool = True
    makes_fifos: bool = True
    makes_sockets: bool = True
    max_name_bytes: int = 255
    reserved_names: tuple[bytes, ...] = ()
    syncfs_reaches_disks: bool = True
    """Whether `syncfs(2)` on a client makes the servers write to their disks. If not, files are synced one by one."""


def mount_fingerprint(identity: MountIdentity) -> str:
    """The fingerprint of a source without bricks: it changes if another file system is mounted."""
    facts = repr(astuple(identity)).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(facts, digest_size=16).hexdigest()


# Health of the source.


class SourceHealth(Struct, frozen=True, kw_only=True):
    """Whether the source shows all of its files.

    `problems` are sentences, none if it is healthy. `fingerprint` changes with the brick list or an option, so that the
    states before and after a pass can be compared. With `doubts` files may be copied, and nothing may be deleted: whether
    all are shown, as their users left them, is unknown.
    """

    problems: tuple[str, ...]
    fingerprint: str = ""
    doubts: tuple[str, ...] = ()


# Usage of both file systems over time.


class Side(StrEnum):
    """Which of the two file systems."""

    SOURCE = "source"
    TARGET = "target"


class CapacitySample(Struct, frozen=True, kw_only=True):
    """The usage of one side at one time."""

    side: Side
    """The file system."""
    at_s: float
    """When the sample was taken."""
    total_bytes: int
    free_bytes: int
    total_inodes: int | None
    free_inodes: int | None

    @property
    def used_bytes(self) -> int:
        """Bytes in use."""
        return self.total_bytes - self.free_bytes

    @property
    def used_inodes(self) -> int | None:
        """Inodes in use; None if not known."""
        if self.total_inodes is None or self.free_inodes is None:
            return None
        return self.total_inodes - self.free_inodes


class CapacityOutlook(Struct, frozen=True, kw_only=True):
    """The predicted usage of one side after all planned copies, if no files are deleted. New files of users are not
    included.
    """

    side: Side
    """The file system."""
    at_s: float
    """The expected end of the copying."""
    used_bytes: int
    """Expected bytes in use."""
    total_bytes: int
    used_inodes: int | None
    """Expected inodes in use."""
    total_inodes: int | None

    @property
    def full(self) -> bool:
        """The room is not enough."""
        too_many = (
            self.used_inodes is not None and self.total_inodes is not None and self.used_inodes > self.total_inodes
        )
        return self.used_bytes > self.total_bytes or too_many


# Who can change where a path leads.


_WRITABLE_BY_OTHERS = 0o022
_STICKY = 0o1000


class FileLook(Struct, frozen=True, kw_only=True):
    """The metadata of a path, never through a symlink. `mode` holds the permission bits, with the sticky one."""

    path: bytes
    type: EntryType
    uid: int
    mode: int


def untrusted(way: Sequence[FileLook], euid: int, *, reached: bool) -> tuple[bytes, str, str] | None:
    """The first step of a way that a user other than root and this one could change, the reason, and the remedy; None
    if there is none.

    If the way was `reached` to its end, a sticky bit on the last directory does not help: every user may create names
    there.
    """
    for position, look in enumerate(way):
        last, shown = reached and position == len(way) - 1, show(look.path)
        if look.uid not in (0, euid):
            return look.path, f"belongs to uid {look.uid}", f"chown -h root {shown}"
        sticky = look.mode & _STICKY and not last
        if look.type is not EntryType.SYMLINK and look.mode & _WRITABLE_BY_OTHERS and not sticky:
            return look.path, f"can be written by other users (mode {look.mode:04o})", f"chmod go-w {shown}"
    return None


BENCH_NAME = b".migrator-bench"
"""The directory in the root of a file system in which benchmarks work. It belongs to root; scans skip it."""


PURGE_NAME = b".migrator-purge"
"""The directory in the source's root that holds trees while they are purged. Only root can enter it; scans skip it."""


class ScanProblem(Struct, frozen=True, kw_only=True):
    """A path that could not be read: recorded, not fatal, and the scan is not whole."""

    path: bytes
    operation: str
    errno: int | None
    reason: str


class DifferenceKind(StrEnum):
    """The kind of difference between source and target at one path."""

    MISSING = "missing"
    EXTRA = "extra"
    TYPE = "type"
    SIZE = "size"
    CONTENT = "content"
    MTIME = "mtime"
    OWNER = "owner"
    MODE = "mode"
    SYMLINK_TARGET = "symlink-target"
    DEVICE = "device"
    ACL = "acl"
    XATTR = "xattr"
    HARD_LINKS = "hard-links"
    SPARSENESS = "sparseness"
    UNREADABLE = "unreadable"
    CHANGED = "changed-while-read"
    UNPROVEN = "unproven"


class Difference(Struct, frozen=True, kw_only=True):
    """One difference at one path."""

    path: bytes
    kind: DifferenceKind
    """Its kind."""
    source: str
    """The path on the source, in words."""
    target: str
    """The path on the target, in words."""


class DigestPolicy(Struct, frozen=True, kw_only=True):
    """The files whose content is compared."""

    algorithm: str
    """The digest."""
    share: float
    """Share of the files (1: all)."""
    seed: int
    """Seed of the hash of the path that selects them."""


class SurpriseKind(StrEnum):
    """Findings that users need before the move. The `loss-` kinds are attributes that the target cannot keep;
    `default-acl-not-inherited` are directories with a default ACL that new files will not get. Only verifications count
    `skipped` and `archived`, paths of the reap list, and `names-in-trash`, files whose number of links the trash of the
    target increases until it expires.
    """

    HARD_LINKS_IN_BATCH = "hard-links-across-trees"
    HARD_LINKS_BROKEN = "hard-links-broken"
    SYMLINK_CROSSES_TREE = "symlink-crosses-tree"
    SYMLINK_INTO_SOURCE = "symlink-into-source-mount"
    SYMLINK_REWRITTEN = "symlink-rewritten"
    QUOTA = "quota-to-recreate"
    LAYOUT = "target-layout"
    OUTSIDE_TREES = "outside-every-tree"
    LONG_PATH = "long-path"
    MANY_GROUPS = "many-groups"
    NO_USER = "uid-without-account"
    NO_GROUP = "gid-without-group"
    LEFT = "owner-has-left"
    UNKNOWN_ACCOUNTS = "accounts-not-known"
    LOSS_TIME = "loss-time-fraction"
    LOSS_TIME_RANGE = "loss-time-range"
    LOSS_ATIME = "loss-access-time"
    LOSS_DEVICE = "loss-device-number"
    LOSS_DEVICE_NODE = "loss-device-node"
    LOSS_FIFO = "loss-fifo"
    LOSS_SOCKET = "loss-socket"
    LOSS_SYMLINK_TARGET = "loss-symlink-target"
    LOSS_XATTR_SIZE = "loss-xattr-too-big"
    LOSS_XATTR_NAMESPACE = "loss-xattr-namespace"
    LOSS_ACL = "loss-acl"
    ACL_NOT_INHERITED = "default-acl-not-inherited"
    LOSS_HARD_LINK = "loss-hard-link"
    LOSS_NAME = "loss-name"
    LOSS_SYMLINK_OWNER = "loss-symlink-owner"
    LOSS_SYMLINK_TIME = "loss-symlink-time"
    LOSS_SPARSENESS = "loss-sparseness"
    SKIPPED = "skipped"
    ARCHIVED = "archived"
    NAMES_IN_TRASH = "names-in-trash"
