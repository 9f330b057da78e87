"""Archives of old and tiny files: reading what goes into them, their format, where they lie, and putting files back.

All blocking; errors of the kernel are OSError. Digests of content are of the algorithm that [verify] names.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

from migrator.domain.archives import (
    ArchivedMember,
    ArchiveRecord,
    LeftOut,
    WrittenArchive,
)
from migrator.domain.entry import Entry
from migrator.domain.reap import ReapRow


class OpenMember(Protocol):
    """A path of the source that is about to be archived. `finish` or `close` once, after the content was taken."""

    @property
    def entry(self) -> Entry:
        """What a look saw before the content was read."""

    @property
    def is_checked(self) -> bool:
        """Whether the content lies in memory already and is known to be whole: then `finish` gives a digest."""

    def pieces(self) -> Iterator[bytes]:
        """The content, no more of it than the look saw; nothing for what is no regular file. Raises OSError."""

    def finish(self) -> bytes | LeftOut | None:
        """The digest of the content, None for what is no regular file, or why it cannot be archived: it changed."""

    def close(self) -> None:
        """Release it. May be called again."""


class MemberSource(Protocol):
    """The source, for archiving. Thread-safe."""

    def open(self, row: ReapRow, *, settled_before_ns: int) -> OpenMember | LeftOut:
        """Look at a path, and read it at once where it is small. Left out: what is gone, is not as the reap list has it,
        changed since `settled_before_ns`, cannot be read, or cannot be in a tar (a socket). Never raises OSError.
        """


class ArchiveFolder(Protocol):
    """The archive directory of one tree on the target, held open. Files are root's alone until they are handed over."""

    def names(self) -> Sequence[bytes]:
        """What lies in it."""

    def create(self, name: bytes) -> AbstractContextManager[BinaryIO]:
        """A new file under the partial form of the name, synced at the end of the block; one that is there is replaced."""

    def publish(self, names: Iterable[bytes]) -> None:
        """Give files their names, and return when that is on the disks. Never replaces: FileExistsError."""

    def remove(self, names: Iterable[bytes]) -> None:
        """Remove files; those that are gone are removed already."""

    def open(self, name: bytes) -> AbstractContextManager[BinaryIO]:
        """A file, for reading from its disks: its clean pages are dropped first. Never through a symlink."""


class ArchiveFolders(Protocol):
    """The archive directories of all trees on the target."""

    def make(self, tree: bytes) -> AbstractContextManager[ArchiveFolder]:
        """The directory of a tree that is there, made where it is missing, for writing. Raises Refused where it is not
        root's alone.
        """

    def open(self, tree: bytes) -> AbstractContextManager[ArchiveFolder]:
        """The directory of a tree, for reading, whoever it belongs to. Raises FileNotFoundError where there is none."""

    def hand_over(self, tree: bytes, *, uid: int, gid: int) -> None:
        """Let the tree's user read his archives: his, mode 0400, in a directory of mode 0500. For the switch. May be called
        again; nothing happens where there is no such directory.
        """

    def take_back(self, tree: bytes) -> None:
        """Make them root's alone again, for the way back. May be called again."""


class ArchiveDraft(Protocol):
    """An archive that is being written."""

    @property
    def members(self) -> int: ...

    @property
    def content_bytes(self) -> int: ...

    def add(self, member: OpenMember, *, gfid: bytes | None = None) -> LeftOut | None:
        """Take one member; a further name of a file that is in the archive becomes a link to it. What changes while it is
        read leaves no trace. Raises OSError, on behalf of the archive's file only.
        """

    def close(self) -> WrittenArchive:
        """Write the end of the archive, and its index."""


class ArchiveIndex(Protocol):
    """The index of one archive, in memory (some hundred bytes a member)."""

    def find(self, paths: Iterable[bytes]) -> Mapping[bytes, ArchivedMember]:
        """Those of the paths that are in the archive. Paths are relative to the source's root."""

    def paths(self) -> Iterator[bytes]:
        """All its paths, in order."""

    def content(self, archive: BinaryIO, member: ArchivedMember) -> Iterator[bytes]:
        """The content of a member; only the frames that hold it are read. Raises Refused, at the latest after the last
        piece, where it is not what was archived.
        """


class ArchiveFormat(Protocol):
    """How archives are made of bytes."""

    def begin(self, tree: bytes, archive: BinaryIO, index: BinaryIO) -> ArchiveDraft:
        """Begin an archive of files of a user tree, in two empty files."""

    def index(self, record: ArchiveRecord, stored: BinaryIO) -> ArchiveIndex:
        """Read an index. Raises Refused where it is not the one that the ledger has."""

    def read_back(self, record: ArchiveRecord, archive: BinaryIO, index: BinaryIO) -> str:
        """Read a whole archive and compare it with its index, and both with the ledger: every header, every attribute, every
        digest. Returns what is wrong, in words; empty where all is as it has to be.
        """


class Restorer(Protocol):
    """A directory that members are put into. No symlink is followed; nothing is overwritten unless it is asked for."""

    def restore(self, member: ArchivedMember, content: Iterator[bytes], *, overwrite: bool) -> None:
        """Make a member with all its attributes, under a temporary name first. Directories above it that are missing are made,
        for its owner alone. Raises OSError: FileExistsError where something has its name; what `content` raises goes through.
        """

    def link(self, existing: bytes, member: ArchivedMember, *, overwrite: bool) -> None:
        """Make a member another name of one that was restored. Raises OSError as `restore`."""

    def sync(self) -> None:
        """Return when all that was restored has reached the disks. Raises OSError."""


class Archived(Protocol):
    """What proven archives hold."""

    def of_block(self, tree: bytes, paths: Sequence[bytes]) -> Mapping[bytes, ArchivedMember]:
        """Those of the paths that are in a proven archive of the tree, each from the newest one that has it. Whether the file
        on the source is still the archived one says `migrator.domain.archives.same_file`.

        Raises Refused where an archive or its index is missing or is not the one that the ledger has.
        """

    def problems(self, tree: bytes) -> Sequence[str]:
        """Read every proven archive of the tree whole, from the target's disks, and say what is wrong with which: nothing
        where all of them are as they were written. For whoever is about to delete what they hold.
        """


class ArchiveRecords(Protocol):
    """The archives of a site in the ledger."""

    def add(
        self, *, plan: str, batch: int, tree: bytes, number: int, written: WrittenArchive, at_s: float
    ) -> ArchiveRecord:
        """An archive whose files are on the disks, before they get their names."""

    def prove(self, archive_id: int, *, at_s: float) -> None:
        """It was read back, and is as it has to be. May be called again."""

    def void(self, archive_id: int, reason: str, *, at_s: float) -> None:
        """It does not count, and its files go. May be called again."""

    def of_tree(self, tree: bytes) -> Sequence[ArchiveRecord]:
        """Every archive of a tree, of any plan, oldest first."""

    def of_plan(self, plan: str, batch: int | None = None) -> Sequence[ArchiveRecord]:
        """Every archive that was made for a plan, or one of its batches, oldest first."""
