"""Owners and modes of directories, as a catalog has them and as they are to be put back."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryOwner:
    """Whose a directory was when it was scanned, and its permission bits; `inode` is that of the mount."""

    path: bytes
    inode: int
    mode: int
    uid: int
    gid: int

    @property
    def shut(self) -> bool:
        """Whether it belongs to root, and nobody may do anything in it."""
        return (self.uid, self.gid, self.mode) == (0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersPutBack:
    """What a look at all directories came to: how many were looked at, how many got owner and mode back, how many could not
    get them; and the first paths of both.
    """

    looked_at: int = 0
    mended: int = 0
    failed: int = 0
    examples: tuple[bytes, ...] = ()
