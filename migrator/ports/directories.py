"""The directories of a volume, as its bricks have them and as its mount changes them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from migrator.domain.brick import Brick
from migrator.domain.directory_owners import DirectoryFacts


class DirectoryWalks(Protocol):
    """Reads the directories of a brick, on its host."""

    async def walk(
        self,
        brick: Brick,
        *,
        volume_id: str,
        take: Callable[[Sequence[DirectoryFacts]], None],
        only: Sequence[bytes] | None = None,
    ) -> int:
        """Hand out every directory but the root, each after the one that it lies in, in blocks; or `only` these, without what is
        above them. Returns how many could not be looked at. Changes nothing. Raises ToolFailed, HostLost, UsageError, and what
        `take` raises.
        """


class KnownDirectories(Protocol):
    """What is known of the directories of one addition, on disk. Synchronous, for one thread."""

    @property
    def whole(self) -> bool:
        """Whether a walk has been kept to its end."""

    def of(self, gfids: Sequence[bytes]) -> Mapping[bytes, DirectoryFacts]:
        """By gfid what is known of them."""

    def keep(self, found: Sequence[DirectoryFacts]) -> None:
        """Keep these, in the place of what is known of the same gfids."""

    def done(self) -> None:
        """A walk has come to its end: what was kept lasts, whatever happens. What is kept without it is forgotten."""

    def remove(self) -> None:
        """Forget everything: nobody needs it any more."""


class DirectoryMemory(Protocol):
    """What is known of directories, by addition."""

    def opened(self, addition_id: int) -> AbstractContextManager[KnownDirectories]:
        """That of one addition, for the length of the block; made where there is none. Raises MigratorError, OSError."""


class DirectoryMender(Protocol):
    """Gives directories owner, mode and ACLs back, through the mount. Blocking."""

    def look(self, path: bytes, gfid: bytes) -> DirectoryFacts | None:
        """A directory as users see it; None where it is not there any more, or is another one. Raises OSError."""

    def put_back(self, seen: DirectoryFacts, wanted: DirectoryFacts) -> DirectoryFacts | None:
        """Give it owner, mode and ACLs of `wanted`, if it still is as `seen`; what it is then, None where it has them not. Raises
        OSError.
        """
