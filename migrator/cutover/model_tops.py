"""Frozen tops of user trees, and open files below them. Pure."""

from enum import StrEnum

from msgspec import Struct

from migrator.cutover.model_snapshot import TopState

FROZEN_PERMISSIONS = 0o500
"""Of the top of a frozen tree. Root owns that top: its former owner could open it again with a mere chmod, as login
programs do.
"""

PERMISSION_BITS = 0o777


class FrozenTop(Struct, frozen=True, kw_only=True):
    """The top directory of a user tree before it was frozen; kept in the ledger, as JSON, before anything changes.

    `mode` has the twelve bits of permissions, setuid, setgid and sticky. The ACLs are the bytes of their extended
    attributes, None if there is none. `ino` and `gfid` (16 bytes; None if the source is no Gluster volume) identify the
    directory.
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
        """The mode while it is frozen: setuid, setgid and sticky stay and need not be restored."""
        return self.mode & ~PERMISSION_BITS | FROZEN_PERMISSIONS


class TopComparison(Struct, frozen=True, kw_only=True):
    """A top on the source, compared with its record from before the freeze. `differences` are sentences, empty unless
    the state is `other`; `another`: another directory has its name.
    """

    state: TopState
    differences: tuple[str, ...] = ()
    another: bool = False


class OpenKind(StrEnum):
    """The kind of reference to an entry below a tree: a descriptor of a file or directory, a working directory (or the
    root directory of a process), a memory mapping, a loop device.
    """

    FILE = "file"
    DIRECTORY = "directory"
    WORKING_DIRECTORY = "working-directory"
    MAP = "map"
    LOOP_DEVICE = "loop-device"


class OpenFile(Struct, frozen=True, kw_only=True):
    """An entry below a user tree that a process holds open. `path` is relative to the source root. If `unlinked`,
    `path` is its last known name; the file has no name any more, so writing to it does not change the tree.

    `host` is the brick server, or this machine. `pid` is None and `program` empty if a brick holds it for an unknown
    process of some client. `brick` is `host:/path`, empty for what was found on this machine itself.
    """

    host: str
    path: bytes
    kind: OpenKind
    writable: bool
    unlinked: bool = False
    pid: int | None = None
    program: bytes = b""
    brick: str = ""


class Writers(Struct, frozen=True, kw_only=True):
    """Files that a search found open below some trees, and sentences about what it could not see."""

    open_files: tuple[OpenFile, ...] = ()
    unseen: tuple[str, ...] = ()
