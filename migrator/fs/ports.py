"""File systems as the stages see them. Every path is relative to the root and is never followed through a symlink.

Every method that takes a path opens it component by component beneath the root (O_NOFOLLOW), so that a directory
that is swapped for a symlink in the middle of the work leads nowhere. Methods are blocking and thread-safe.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.catalog.model import ScanProblem
from migrator.core.entry import Entry
from migrator.fs.model import Capacity, MountIdentity, TargetCapabilities
from migrator.gluster.model import SourceHealth


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Some entries of one directory, with what could not be read of it."""

    entries: tuple[Entry, ...]
    problems: tuple[ScanProblem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The digest of a file's content, and whether size, mtime or ctime changed while it was read."""

    value: bytes
    size_bytes: int
    changed: bool


class FileSystem(Protocol):
    """Reading, and the facts of the mount."""

    @property
    def root(self) -> bytes:
        """The absolute path of the root."""

    def read_directory(self, path: bytes, *, block_entries: int = 4096) -> Iterator[Block]:
        """The entries of a directory, in blocks, so that memory stays flat in its size. Never raises OSError:
        what cannot be read is a problem in a block. Mount points beneath are reported and not entered.
        """

    def look(self, path: bytes) -> Entry | None:
        """One entry; None where it is proven absent (ENOENT with every parent present). Raises OSError in doubt."""

    def digest(self, path: bytes, algorithm: str) -> Digest:
        """The digest of a regular file, read with a cold cache (dropped before). Raises OSError."""

    def sync(self) -> None:
        """Return when all that was written here before has reached the disks (syncfs). Raises OSError."""

    def identity(self) -> MountIdentity:
        """What is mounted now. Raises OSError where the root is missing."""

    def capacity(self) -> Capacity:
        """Room now."""


class SourceFileSystem(FileSystem, Protocol):
    """The source adds: can what it shows be trusted to be everything?"""

    async def health(self) -> SourceHealth:
        """Look at the bricks and the tasks of the volume. A look that fails is a problem, not an error."""

    async def quotas(self) -> Sequence[tuple[bytes, int]]:
        """Directories with a limit in bytes; empty where there are none."""


class TargetFileSystem(FileSystem, Protocol):
    """The target adds what the descriptor-based copy and the closing of trees need."""

    def make_parents(self, tree: bytes, like: Sequence[Entry]) -> None:
        """Make the directories above a tree, with owner and mode of the source's (`like`, outermost first), and the
        tree's own directory, closed: root's, mode 0700, no ACL. May be called again.
        """

    def link(self, existing: bytes, path: bytes) -> None:
        """Make `path` another name of `existing`; a path that is already that very file is left alone. A different
        file in its place is replaced atomically. Raises OSError.
        """

    def copy_from(self, source_root: bytes, entry: Entry) -> None:
        """Copy one path by descriptor, whatever its length: content with holes, owner, mode, ACLs, xattrs, times; a
        directory without its content. To a temporary name, fsync, rename. Raises OSError.
        """

    def clock_ns(self) -> int:
        """What the clock shows that this file system takes its ctimes from. Raises OSError."""

    def remove_leftover(self, path: bytes) -> None:
        """Remove one file that an interrupted stream left behind. Raises OSError."""

    def probe(self) -> TargetCapabilities:
        """Find out, in a directory of its own that is removed afterwards, what this file system keeps of a file."""


class TargetTrees(Protocol):
    """Opening and closing user trees on the target. Blocking and thread-safe; no symlink is followed."""

    def open_tree(self, tree: bytes, like: Entry) -> None:
        """Open a tree that is there, at the switch: its top directory gets owner, mode, ACLs, attributes and times of `like`,
        the source's top directory as it was before it was frozen, as far as the target keeps them. May be called again.
        Until the last step nobody has more rights than afterwards. Raises OSError; FileNotFoundError makes nothing.
        """

    def close_tree(self, tree: bytes) -> None:
        """Close a tree that is there, for the way back: root's, mode 0700, no ACL. May be called again. What is open below
        it stays open. Raises OSError; FileNotFoundError makes nothing.
        """
