"""The interfaces of a purge: proofs, the place on the source in which trees are removed, storage targets."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Protocol

from migrator.core.entry import Entry
from migrator.cutover.model import PurgeSum
from migrator.purge.model import ManifestSum, Proof
from migrator.reap.model import ReapRow

NO_ARCHIVES: Mapping[int, int] = MappingProxyType({})


class TreeProofs(Protocol):
    """The proofs of one tree, and the notes of one purge beside them. Thread-safe."""

    def of_block(self, paths: Sequence[bytes]) -> Mapping[bytes, Proof]:
        """The proofs of some paths, without those that have none."""

    def skipped(self, path: bytes) -> ReapRow | None:
        """The row of the plan's reap list, if the plan skips the path."""

    def total(self) -> ManifestSum:
        """Totals of the tree in the manifest."""

    def note_read(self, path: bytes, ino: int, ctime_ns: int) -> None:
        """Note that the content was read and matches: from now on the proof has this inode and ctime."""

    def note_links(self, files: Sequence[Entry]) -> None:
        """Note names of hard-linked files. Each name once."""

    def link_sum(self) -> tuple[PurgeSum, int]:
        """Of the noted files: what removing them frees (no inodes and bytes of files with other names), and how many
        have other names.
        """


class Manifest(Protocol):
    """Opens manifests for a purge."""

    def open(
        self,
        manifest: str,
        tree: bytes,
        *,
        archives: Mapping[int, int] = NO_ARCHIVES,
        skipped: Iterable[Sequence[ReapRow]] = (),
        newer: Sequence[str] = (),
    ) -> AbstractContextManager[TreeProofs]:
        """The proofs of one tree, for the length of the block. Manifests in `newer` take precedence, the last one
        most. `archives` has the sizes of the tree's proven archives by number; `skipped` has the rows of the plan's
        reap list that it skips. Raises Refused if the manifest is missing or unreadable. Blocking.
        """


class ClosedPlaces(Protocol):
    """The source's `.migrator-purge`. Paths are relative to the source's root; symlinks are never followed, mount
    points never entered. Blocking and thread-safe. All raise OSError, and Refused if others than root can change the
    directory.
    """

    def stands(self, path: bytes) -> bool:
        """Whether the path exists. Raises OSError (ESTALE) if the root itself was removed."""

    def put(self, tree: bytes, place: bytes, *, ino: int) -> None:
        """Create the place and move a tree into it with one rename, durable on return. Raises OSError (ESTALE) and
        moves nothing if the tree is not the directory with this inode number.
        """

    def close_directory(self, path: bytes, expected: Entry) -> None:
        """Give a directory of a place to root with mode 0700, so that processes that have it open can neither add nor
        remove names. Raises OSError (ESTALE) if inode, owner or mode are not as expected. May be called again.
        """

    def raise_up(self, path: bytes, place: bytes, *, ino: int, known_as: bytes) -> bytes:
        """Move a closed directory of a place up into the place itself, so that no path below it is too long for the
        file system, and store its known path in an attribute. Returns its new path. Raises OSError (ESTALE) for
        another inode.
        """

    def raised(self, place: bytes) -> Mapping[bytes, bytes]:
        """Directories that were moved up in a place: new path to known path."""

    def remove(self, path: bytes, expected: Entry) -> bool:
        """Unlink a file whose metadata, ctime included, still match by descriptor. Returns False, and leaves the
        file, if they do not.
        """

    def remove_directory(self, path: bytes) -> None:
        """Remove an empty directory; a missing one is no error."""

    def flush(self) -> None:
        """Return when removals are durable."""


class StorageTargets(Protocol):
    """The storage targets of the target's file system."""

    async def problems(self) -> tuple[str, ...]:
        """Why data on the target may not be readable, as sentences. A failed query is a problem too."""
