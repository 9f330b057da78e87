"""What a drain left on a brick and `brick drain --recover` brings back: what is seen of it on the brick and in the volume.

Times in nanoseconds since the epoch; names are relative to the root of the volume.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from migrator.core.entry import EntryType

WORK_DIRECTORY = b".migrator-recover"
"""In the root of the volume, root's alone: where copies are made, and where originals wait until their copies stand."""

ASIDE = WORK_DIRECTORY + b"/aside/"
COPIES = WORK_DIRECTORY + b"/copy/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """One inode that is left on a brick, with the names that it has there.

    `gfid` is empty where Gluster has given none. `link_count` leaves out Gluster's own link. `open` says whether any process of
    the host has it open, also through a map or a loop device. `mode` holds the permission bits. `xattrs` are somebody's
    data, ACLs included. `own_times` are modification and access by Gluster's record, None where it keeps none. `digest` is set
    where content was read: of a file's content, or of a symlink's target. `pending` are the counters of replication that are not
    zero, on it or on its directory: a copy waits to be healed.
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

    @property
    def key(self) -> bytes:
        """The name of its copy while it is made."""
        return self.gfid.hex().encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLeftover:
    """A leftover of all bricks of a set: the one that is read, and why its copies do not allow that (empty: they do)."""

    leftover: Leftover
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickLeftovers:
    """Everything that is left on one brick. `unseen` says what could not be looked at, and why nobody can tell what is open."""

    brick: str
    found: tuple[Leftover, ...]
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeName:
    """What a name of the volume leads to, seen through the mount. `gfid` is empty where it is not told."""

    type: EntryType
    gfid: bytes
    inode: int
    size_bytes: int


class NameState(StrEnum):
    """What is to be done with one name of a leftover.

    `absent`: the volume has no such name: it is given to the copy. `itself`: the volume shows the leftover itself there: it is set
    aside first. `copy`: the copy has it already. `equal`: another file has it, with the same content. `other`: something else
    has it, which is never touched.
    """

    ABSENT = "absent"
    ITSELF = "itself"
    COPY = "copy"
    EQUAL = "equal"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySummary:
    """What a recovery came to: how many inodes and names were brought back, and why others were not."""

    recovered: int
    names: int
    problems: tuple[str, ...]
