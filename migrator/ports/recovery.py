"""Bringing back what a drain left on a brick: reading it on the brick's host, and writing it through the mount."""

from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from migrator.domain.brick import Brick
from migrator.domain.recovery import BrickLeftovers, Leftover, VolumeName


class LeftoverBricks(Protocol):
    """Looks at bricks on their hosts. Changes nothing there."""

    async def look(self, brick: Brick, *, volume_id: str, digests: bool) -> BrickLeftovers:
        """Everything that is left on a brick, in order of its names, and what has it open. `digests`: content is read too.
        Raises HostLost, ToolFailed (also where the path is no brick of this volume), UsageError.
        """

    async def read(self, brick: Brick, leftover: Leftover, take: Callable[[bytes], Awaitable[None]]) -> None:
        """Hand out the content of a file, in pieces. Raises HostLost, ToolFailed (also where it is not the same inode, size or
        time any more), and what `take` raises.
        """


class VolumeRecovery(Protocol):
    """Works in the volume through the mount; every call blocks, may be made again after a crash, follows no symlink, and raises
    OSError.
    """

    def look(self, path: bytes) -> VolumeName | None:
        """What a name leads to; None where there is none."""

    def digest(self, path: bytes) -> bytes:
        """Of content, or of a symlink's target; empty for what has neither. Read anew, not from this machine's memory."""

    def copy_inode(self, leftover: Leftover) -> int | None:
        """The inode of the copy that was begun; None where there is none."""

    def begin_copy(self, leftover: Leftover) -> int | None:
        """Make an empty copy, in the place of one that was begun before. For a file a descriptor to write to, which `abandon`
        closes.
        """

    def write(self, descriptor: int, piece: bytes, position: int, *, sparse: bool) -> None:
        """Write content."""

    def abandon(self, descriptor: int) -> None:
        """Close what `begin_copy` gave, where it is not ended."""

    def end_copy(self, leftover: Leftover, descriptor: int | None, *, times: tuple[int, int]) -> None:
        """Give it owner, mode, attributes and times (modification, access), and have it on disks."""

    def set_aside(self, path: bytes) -> None:
        """Move a name out of the way, whatever it leads to by now. Nothing is done where that was done."""

    def put_back(self, path: bytes) -> None:
        """Give what was set aside its name again. FileExistsError where something else has it by now."""

    def place(self, leftover: Leftover, path: bytes) -> None:
        """Give the copy a name. FileExistsError where something else has it."""

    def drop_aside(self, leftover: Leftover, path: bytes) -> None:
        """Remove an original that was set aside, if it still is the leftover. ESTALE where it is not."""

    def drop_copy(self, leftover: Leftover) -> None:
        """Take the copy's own name away; those that it was given stay."""

    def mtime_ns(self, directory: bytes) -> int:
        """The modification time of a directory (empty: the root)."""

    def restore_mtime(self, directory: bytes, mtime_ns: int, *, expected_ns: int) -> None:
        """Give a directory this modification time, unless it has another one than expected by now."""

    def tidy(self, keep: Collection[bytes] | None) -> None:
        """Remove the own names of all copies but those with these keys (None: of none), then the directories that are empty."""
