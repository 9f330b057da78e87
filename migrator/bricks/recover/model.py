"""Files that a drain left on a brick and that `brick drain --recover` brings back, as seen on the brick and in the
volume.

Times in nanoseconds since the epoch. Names are relative to the root of the volume.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from migrator.core.entry import EntryType

WORK_DIRECTORY = b".migrator-recover"
"""A directory in the root of the volume that only root can enter. Copies are made in it, and originals stay there until
their copies are in place.
"""

ASIDE = WORK_DIRECTORY + b"/aside/"
COPIES = WORK_DIRECTORY + b"/copy/"


class Leftover(Struct, frozen=True, kw_only=True):
    """One leftover inode on a brick, with its names there.

    `gfid` is empty if Gluster has assigned none. `link_count` excludes Gluster's own link. `open` is set if any process
    of the host has the file open, also through a map or a loop device. `mode` holds the permission bits. `xattrs` are
    users' attributes, including ACLs. `own_times` are the modification and access times in Gluster's record, or None
    without one. `digest` is that of a file's content or a symlink's target, if it was read. `pending` are the nonzero
    replication counters of the inode or its directory, which show pending heals. `link_to`: it is a link-to file that
    has content, which a client may have written in the moment of its move. It is never copied.
    """

    brick: str
    names: tuple[bytes, ...]
    type: EntryType
    gfid: bytes
    inode: int
    link_count: int
    mode: int
    uid: int
    gid: int
    size_bytes: int
    blocks: int
    mtime_ns: int
    ctime_ns: int
    atime_ns: int
    own_times: tuple[int, int] | None
    xattrs: Mapping[bytes, bytes]
    target: bytes
    open: bool
    digest: bytes = b""
    pending: tuple[str, ...] = ()
    link_to: bool = False

    @property
    def key(self) -> bytes:
        """Return the name of its copy while it is made."""
        return self.gfid.hex().encode()


class SetLeftover(Struct, frozen=True, kw_only=True):
    """A leftover of all bricks of a set: the copy that is read, and why the copies do not allow that
    (empty: they do).
    """

    leftover: Leftover
    reasons: tuple[str, ...] = ()


class BrickLeftovers(Struct, frozen=True, kw_only=True):
    """All leftovers on one brick. `unseen` says what could not be read, and why open files cannot be detected."""

    brick: str
    found: tuple[Leftover, ...]
    unseen: tuple[str, ...] = ()


class VolumeName(Struct, frozen=True, kw_only=True):
    """The target of a name in the volume, seen through the mount. `gfid` is empty if it is not reported."""

    type: EntryType
    gfid: bytes
    inode: int
    size_bytes: int
    mode: int


class NameState(StrEnum):
    """The action for one name of a leftover.

    `absent`: the volume has no such name, so the copy gets it. `itself`: the volume shows the leftover itself there, so
    it is set aside first. `copy`: the copy already has the name. `equal`: another file with equal content has it.
    `other`: anything else has it, which is never touched.
    """

    ABSENT = "absent"
    ITSELF = "itself"
    COPY = "copy"
    EQUAL = "equal"
    OTHER = "other"


class RecoverySummary(Struct, frozen=True, kw_only=True):
    """The result of a recovery: the numbers of inodes and names brought back, and why others were not."""

    recovered: int
    names: int
    problems: tuple[str, ...]
