"""The ports of file systems. Methods are blocking and thread-safe.

Every path is relative to the root and opened beneath it without following a symlink. So a directory that is swapped for
a symlink meanwhile cannot redirect an access.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from migrator.core.entry import Entry
from migrator.fs.kinds.model import FileSystemKind, FileSystemReport
from migrator.fs.model import Capacity, MountIdentity, ScanProblem, SourceHealth, TargetCapabilities
from migrator.fs.rules_owners import SAME_OWNERS, OwnerMap


class Block(Struct, frozen=True, kw_only=True):
    """Some entries of one directory, and the problems of reading it."""

    entries: tuple[Entry, ...]
    problems: tuple[ScanProblem, ...]


class Digest(Struct, frozen=True, kw_only=True):
    """The digest of a file's content, and whether size, mtime or ctime changed while it was read."""

    value: bytes
    size_bytes: int
    changed: bool


class WalkedRoot(Struct, frozen=True, kw_only=True):
    """What the compiled program has to know of a root that it walks.

    `path` is one of the open root for another process of this machine, whatever is mounted over it. `hidden` paths are
    left out. `mounted` ones are reported and not entered. `hides_marks`: files do not show setgid and sticky together.
    `lasting_inodes` is false if inode numbers identify nothing. `owners` are from the program's numbers to those there.
    """

    path: bytes
    hidden: tuple[bytes, ...] = ()
    mounted: tuple[bytes, ...] = ()
    hides_marks: bool = False
    lasting_inodes: bool = True
    owners: OwnerMap = SAME_OWNERS


class ReadablePaths(Protocol):
    """Reading paths."""

    def read_directory(self, path: bytes, *, block_entries: int = 4096) -> Iterator[Block]:
        """The entries of a directory, in blocks to bound memory. Never raises OSError: unreadable entries are problems
        in a block. Mount points are reported as problems and not entered.
        """

    def look(self, path: bytes) -> Entry | None:
        """One entry; None only if it is proven absent (ENOENT, and every parent exists). Raises OSError in doubt."""

    def digest(self, path: bytes, algorithm: str) -> Digest:
        """The digest of a regular file. Its clean pages are dropped from the page cache first. If the file grows, the
        read stops shortly after its first size, and the file is reported as changed. Raises OSError, also (EINVAL)
        if it is not a regular file, and ValueError for an unknown algorithm.
        """


class FileSystem(ReadablePaths, Protocol):
    """Reading, and the facts of the mount."""

    @property
    def root(self) -> bytes:
        """The absolute path of the root."""

    @property
    def owners(self) -> OwnerMap:
        """From the program's numbers of users and groups, which are the source's, to those of this file system. Entries
        have the program's, as reading and as writing takes them.
        """

    @property
    def trusted_ctimes(self) -> bool:
        """Whether every change of a file changes its ctime."""

    def held_path(self) -> bytes:
        """A path of the open root for another process of this machine, whatever is mounted over it. Raises OSError."""

    def walked(self) -> WalkedRoot:
        """What a walk of this root has to know. Raises OSError."""

    def sync(self) -> None:
        """Flush everything written here before to the disks (syncfs). Raises OSError."""

    def identity(self) -> MountIdentity:
        """The file system mounted now. Raises OSError if the root is missing."""

    def capacity(self) -> Capacity:
        """Room now."""


class FileSystemTool(Protocol):
    """Questions to a mounted file system by its own command."""

    kind: FileSystemKind

    async def state(self) -> FileSystemReport:
        """What is missing now; a question that failed is a doubt in the result."""

    def room(self, shown: Capacity) -> Capacity:
        """The room for new files; the result of statfs (`shown`) if the command does not report it. Blocks; not on a thread with an
        event loop.
        """


class SourceFileSystem(FileSystem, Protocol):
    """The source, which also reports whether it shows all of its files."""

    async def health(self) -> SourceHealth:
        """The health of bricks and tasks. A failed check is a problem in the result, not an error."""

    async def quotas(self) -> Sequence[tuple[bytes, int]]:
        """Directories with their limits in bytes."""


class TargetFileSystem(FileSystem, Protocol):
    """The target, with links and the directories of trees."""

    def make_parents(self, tree: bytes, like: Sequence[Entry]) -> None:
        """Make the directories above a tree, with owner and mode of the source's (`like`, outermost first), and the
        tree's own directory, closed: owned by root, mode 0700, no ACL. May be called again.
        """

    def make_directory(self, path: bytes) -> bool:
        """Make a directory in a tree, and those above it, closed, where they are missing. Whether it is one now and
        holds nothing but directories. May be called again. Raises OSError.
        """

    def link(self, existing: bytes, path: bytes) -> None:
        """Make `path` another name of `existing`, atomically replacing another file there. May be called again. Raises
        OSError.
        """

    def clock_ns(self) -> int:
        """The clock from which this file system takes its ctimes. Raises OSError."""

    def remove_leftover(self, path: bytes) -> None:
        """Remove one file that an interrupted stream left behind. Raises OSError."""

    def probe(self) -> TargetCapabilities:
        """Test what this file system keeps of a file, in a directory of its own that is removed afterwards."""
