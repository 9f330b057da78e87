"""A frozen user tree: what its top was before, what it is while it is frozen, and who still has something of it open."""

from dataclasses import dataclass
from enum import StrEnum

FROZEN_PERMISSIONS = 0o500
"""Of the top of a frozen tree, which belongs to root then: its owner could open it again with a mere chmod, as login
programs do."""

FROZEN_UID = 0
PERMISSION_BITS = 0o777


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenTop:
    """What the top directory of a user tree was before it was frozen; kept in the ledger, as JSON, before anything changes.

    `mode` are the twelve bits of permissions with setuid, setgid and sticky. The ACLs are the bytes of their extended
    attributes, None where there is none. `ino` and `gfid` (16 bytes; None where the source is no Gluster) tell which
    directory it is.
    """

    tree: bytes
    ino: int
    gfid: bytes | None
    uid: int
    gid: int
    mode: int
    acl_access: bytes | None
    acl_default: bytes | None

    @property
    def frozen_mode(self) -> int:
        """While it is frozen: setuid, setgid and sticky stay, so that they need not be put back."""
        return self.mode & ~PERMISSION_BITS | FROZEN_PERMISSIONS


class TopState(StrEnum):
    """What a look at a top shows, against what was written down: `between` is one that was being frozen or thawed when
    this program was killed; `changed` is anything else.
    """

    AS_BEFORE = "as-before"
    FROZEN = "frozen"
    BETWEEN = "between"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopLook:
    """A top as it was looked at. `differences` are sentences, empty unless it is `changed`; `another`: another directory
    stands in its place.
    """

    state: TopState
    differences: tuple[str, ...] = ()
    another: bool = False


class OpenKind(StrEnum):
    """What holds on to something below a tree: a descriptor of a file or of a directory, a working directory (or the
    root directory of a process), a mapping into memory, a loop device.
    """

    FILE = "file"
    DIRECTORY = "directory"
    WORKING_DIRECTORY = "working-directory"
    MAP = "map"
    LOOP_DEVICE = "loop-device"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFile:
    """Something below a user tree that a process holds. `path` is relative to the source root; where `unlinked`, its last
    known name, which is none any more: what is written there changes nothing of the tree.

    `host` is the brick server, or this machine. `pid` and `program` are None and empty where a brick holds it for a
    process of some client that is not known. `brick` is `host:/path`, empty for what was seen on this machine itself.
    """

    host: str
    path: bytes
    kind: OpenKind
    writable: bool
    unlinked: bool = False
    pid: int | None = None
    program: bytes = b""
    brick: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writers:
    """What a search found open below some trees, and sentences about what it could not look at."""

    open_files: tuple[OpenFile, ...] = ()
    unseen: tuple[str, ...] = ()


class FreezeWay(StrEnum):
    """[cutover] freeze: who answers for it that nobody writes where this program cannot look."""

    TOP = "top"
    HOOK = "hook"
