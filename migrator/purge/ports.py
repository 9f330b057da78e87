"""What a purge needs: the proofs of what is on the target, and the place on the source where trees are taken apart."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Protocol

from migrator.core.entry import Entry
from migrator.cutover.model import PurgeSum
from migrator.purge.model import ManifestSum, Proof
from migrator.reap.model import ReapRow

NO_ARCHIVES: Mapping[int, int] = MappingProxyType({})


class Proofs(Protocol):
    """Says of paths where their content lies on the target, and by which proof."""

    def of_block(self, paths: Sequence[bytes]) -> Mapping[bytes, Proof]:
        """The proofs of some paths; those without any are left out. Thread-safe."""


class TreeProofs(Proofs, Protocol):
    """The proofs of one tree, with what a purge notes beside them for its own time. Thread-safe."""

    def skipped(self, path: bytes) -> ReapRow | None:
        """What the plan's reap list says of a path that it skips."""

    def total(self) -> ManifestSum:
        """What the manifest says of the tree."""

    def note_read(self, path: bytes, ino: int, ctime_ns: int) -> None:
        """The content of a path was read and is the one that was verified: from now on these facts are those of its proof."""

    def note_links(self, files: Sequence[Entry]) -> None:
        """Names of files that have several. Each name once."""

    def link_sum(self) -> tuple[PurgeSum, int]:
        """Of the files that were noted: what frees them all (no inodes and bytes of those with other names), and how many
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
        """The proofs of one tree, for the length of the block. What the manifests `newer` have counts instead, the last of them
        the most. `archives` are the sizes of its proven archives, by number; `skipped` the rows of the plan's reap list that it skips. Raises Refused where the manifest is missing or cannot be
        read. Blocking.
        """


class ClosedPlaces(Protocol):
    """The source's `.migrator-purge`. Paths are relative to the source's root; no symlink is ever followed, no mount point
    entered. Blocking and thread-safe. All raise OSError, and Refused where the directory is not root's alone.
    """

    def stands(self, path: bytes) -> bool:
        """Whether something has this name. A root that was itself removed is no answer: ESTALE."""

    def put(self, tree: bytes, place: bytes, *, ino: int) -> None:
        """Move a tree into its place, which is made: one rename, and on the disks when this returns. Raises OSError
        (ESTALE), with nothing moved, where the tree is not the directory with this inode number.
        """

    def close_directory(self, path: bytes, expected: Entry) -> None:
        """Make a directory of a place root's with mode 0700: from now on nobody who has it open can put a name into it or
        take one away. ESTALE where it is another one, or owner or mode are others. May be called again.
        """

    def raise_up(self, path: bytes, place: bytes, *, ino: int, known_as: bytes) -> bytes:
        """Move a directory of a place, which is closed, up into the place itself, and note on it what it is known as: no
        path below it is too long for the file system then. Returns its path. ESTALE where it is another one.
        """

    def raised(self, place: bytes) -> Mapping[bytes, bytes]:
        """What was moved up in a place: by its path what it is known as."""

    def remove(self, path: bytes, expected: Entry) -> bool:
        """Unlink what is no directory, where by descriptor it still is what was seen, to the ctime. False where it is not:
        then it stays.
        """

    def remove_directory(self, path: bytes) -> None:
        """Remove an empty directory. One that is not there is none too many."""

    def flush(self) -> None:
        """Return when what was removed is removed on the disks too."""


class StorageTargets(Protocol):
    """The storage targets of the target's file system."""

    async def problems(self) -> tuple[str, ...]:
        """Why what lies on the target may not be readable, as sentences. What cannot be asked is a problem."""
