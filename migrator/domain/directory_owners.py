"""Whose directories are: as they were before bricks were added, and as they are seen since."""

from dataclasses import dataclass

SHUT = (0, 0, 0)
"""Owner, group and mode of a directory that GlusterFS has shut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFacts:
    """A directory of the volume, as its mount shows it, or as one copy of it on a brick has it. `gfid` and `above` are its own gfid
    and that of the directory that it lies in (16 bytes; empty for one in the root). `mode` is its permission bits, with setgid and
    the like. `access` and `default` are its ACLs as their attributes hold them: empty where there is none, None where that is not
    told. `changed_ns` and `modified_ns` are its ctime and mtime, on a brick by Gluster's own record; None where there is none.
    """

    path: bytes
    gfid: bytes
    above: bytes = b""
    mode: int
    uid: int
    gid: int
    access: bytes | None = b""
    default: bytes | None = b""
    changed_ns: int | None = None
    modified_ns: int | None = None

    @property
    def shut(self) -> bool:
        """Whether it belongs to root, and nobody may do anything in it."""
        return (self.uid, self.gid, self.mode) == SHUT

    @property
    def inode(self) -> int:
        """Its inode number on a mount of the volume."""
        return int.from_bytes(self.gfid[8:], "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDirectory:
    """A directory that was not given back, and waits for people: how it was seen, why it was let alone, and the command that puts
    it right. `path` is below the root of the source, `gfid` in hex.
    """

    path: bytes
    gfid: str
    mode: int
    uid: int
    gid: int
    reason: str
    command: str
