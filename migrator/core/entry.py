"""One path as read by a scan (a row of a catalog or manifest, a side of a comparison), and user trees."""

import stat
from collections.abc import Mapping
from enum import IntFlag, StrEnum

import xxhash
from msgspec import Struct

ACL_ACCESS = b"system.posix_acl_access"
ACL_DEFAULT = b"system.posix_acl_default"


class EntryType(StrEnum):
    """The file type of a path."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    FIFO = "fifo"
    SOCKET = "socket"
    BLOCK = "block"
    CHARACTER = "character"

    @classmethod
    def of_mode(cls, mode: int) -> "EntryType":
        """The file type bits of `st_mode`."""
        return _TYPES[stat.S_IFMT(mode)]


SYMLINK_MODE = 0o777
"""Linux never uses the mode of a symlink, and file systems differ in what they show (BeeGFS: 0777 without the bits of its
maker's umask and of the directory's default ACL). So all symlinks are read with this mode, and nothing compares it."""


def permission_bits(mode: int) -> int:
    """The permission bits of `st_mode`, with setuid, setgid and sticky; of a symlink always `SYMLINK_MODE`."""
    return SYMLINK_MODE if stat.S_ISLNK(mode) else stat.S_IMODE(mode)


_TYPES = {
    stat.S_IFREG: EntryType.FILE,
    stat.S_IFDIR: EntryType.DIRECTORY,
    stat.S_IFLNK: EntryType.SYMLINK,
    stat.S_IFIFO: EntryType.FIFO,
    stat.S_IFSOCK: EntryType.SOCKET,
    stat.S_IFBLK: EntryType.BLOCK,
    stat.S_IFCHR: EntryType.CHARACTER,
}


class XattrKinds(IntFlag):
    """The kinds of extended attributes of a path."""

    NONE = 0
    USER = 1
    ACL_ACCESS = 2
    ACL_DEFAULT = 4
    CAPABILITY = 8
    SECURITY = 16
    TRUSTED = 32
    LONG_NAME = 64
    """Another one, with a name of more than `LONG_XATTR_NAME_BYTES`."""


LONG_XATTR_NAME_BYTES = 127
"""Longer names do not fit on every file system (BeeGFS 8.3.1: 245 bytes)."""


EARLIEST_TIME_NS = -(2**63) + 1
LATEST_TIME_NS = 2**63 - 2
"""The times that an entry can have: 1677 to 2262, in 64 bits. Each time outside is cut to the number next to the range."""


def time_of_entry_ns(time_ns: int) -> int:
    """A time of a file system as entries have it."""
    return min(max(time_ns, EARLIEST_TIME_NS - 1), LATEST_TIME_NS + 1)


BLOCK_BYTES = 512
"""The unit of `Entry.blocks`."""
SPARSE_FROM_BYTES = 1 << 20
"""No smaller file counts as sparse: small ones are kept in the inode, or have no blocks before they reach the disks."""
LEAST_HOLES = 4
"""A file is sparse if less than this part of it has blocks. Compression on the source usually saves less than that."""


def content_bytes(size_bytes: int, blocks: int) -> int:
    """The bytes to copy of a regular file, which rank trees, fill chunks, and predict room and time: its size, but the
    allocated bytes of a sparse file, whose holes are neither read nor written. A file with content has at least one block.
    `content_bytes_sql` is the same in SQL.
    """
    sparse = size_bytes >= SPARSE_FROM_BYTES and blocks * BLOCK_BYTES * LEAST_HOLES < size_bytes
    return max(blocks, 1) * BLOCK_BYTES if sparse else size_bytes


class Entry(Struct, frozen=True, kw_only=True):
    """One path, relative to the root of the walk, never reached through a symlink.

    `mode` holds the permission bits only, as `permission_bits`. `ino` is unsigned. `xattrs` holds full names
    and values, ACLs as `system.posix_acl_*`, without the internal attributes of the file system. No `trusted.*`
    attribute is ever copied; foreign ones are kept here so that they can be reported as a loss. `xattr_digest` is set only
    if the values are unknown: then `xattrs` is empty.
    """

    path: bytes
    type: EntryType
    size_bytes: int
    blocks: int
    uid: int
    gid: int
    mode: int
    mtime_ns: int
    atime_ns: int
    ctime_ns: int
    dev: int
    rdev: int
    ino: int
    nlink: int
    symlink_target: bytes | None = None
    gfid: bytes | None = None
    brick: str | None = None
    xattrs: Mapping[bytes, bytes] = {}
    xattr_digest: bytes | None = None

    @property
    def content_bytes(self) -> int:
        """The bytes to copy; 0 for other types than regular files, whose sizes are not user data."""
        return content_bytes(self.size_bytes, self.blocks) if self.type is EntryType.FILE else 0

    @property
    def link_group(self) -> int | None:
        """The inode of a file with several names; None for other files and for directories."""
        return self.ino if self.nlink > 1 and self.type is not EntryType.DIRECTORY else None


def xattr_digest(xattrs: Mapping[bytes, bytes]) -> bytes | None:
    """XXH3_128 over all names and values, sorted by name, with their lengths; None if there are none."""
    if not xattrs:
        return None
    digest = xxhash.xxh3_128()
    for key in sorted(xattrs):
        value = xattrs[key]
        digest.update(len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value)
    return digest.digest()


def xattr_kinds(xattrs: Mapping[bytes, bytes]) -> XattrKinds:
    """The kinds of these attributes."""
    kinds = XattrKinds.NONE
    for key in xattrs:
        if len(key) > LONG_XATTR_NAME_BYTES:
            kinds |= XattrKinds.LONG_NAME
        if key.startswith(b"user."):
            kinds |= XattrKinds.USER
        elif key == ACL_ACCESS:
            kinds |= XattrKinds.ACL_ACCESS
        elif key == ACL_DEFAULT:
            kinds |= XattrKinds.ACL_DEFAULT
        elif key == b"security.capability":
            kinds |= XattrKinds.CAPABILITY
        elif key.startswith(b"trusted."):
            kinds |= XattrKinds.TRUSTED
        else:
            kinds |= XattrKinds.SECURITY
    return kinds


def acl_entries(value: bytes) -> int:
    """The number of entries in the attribute of an ACL: 4 bytes of header, 8 per entry (linux/posix_acl_xattr.h)."""
    return max(len(value) - 4, 0) // 8


def acl_entry_count(xattrs: Mapping[bytes, bytes]) -> int:
    """The number of entries of the longer of the two ACLs."""
    return max((acl_entries(xattrs[key]) for key in (ACL_ACCESS, ACL_DEFAULT) if key in xattrs), default=0)


class UserTree(Struct, frozen=True, kw_only=True, order=True):
    """A directory that moves as one unit, relative to the source root, and its user."""

    path: bytes
    """Its path, relative to the source's root."""
    user: str
