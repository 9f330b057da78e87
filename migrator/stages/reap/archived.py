"""What the proven archives of trees hold: for archiving, restoring, verifying and purging."""

import os
import threading
from collections.abc import Mapping, Sequence

from migrator.adapters.archives.tar import TarArchives, TarIndex
from migrator.adapters.filesystems.archive_folders import HeldFolder, MountedArchiveFolders
from migrator.domain.archives import ArchivedMember, ArchiveRecord, ArchiveState, archive_name, index_name
from migrator.domain.errors import Refused
from migrator.domain.paths import show
from migrator.ports.archives import ArchiveRecords

_AGAIN = (
    "before the switch `migrator reap archive` makes them again of what is on the source; afterwards bring them back from a "
    "backup of the target, and purge nothing until then"
)


class ProvenArchives:
    """What proven archives hold. Thread-safe. The indexes of a tree are read at its first question and held: some hundred bytes a
    member. Make a new one to see archives that were made since.
    """

    def __init__(self, records: ArchiveRecords, folders: MountedArchiveFolders, archive_format: TarArchives) -> None:
        self._records = records
        self._folders = folders
        self._format = archive_format
        self._lock = threading.Lock()
        self._held: dict[bytes, tuple[TarIndex, ...]] = {}

    def of_block(self, tree: bytes, paths: Sequence[bytes]) -> Mapping[bytes, ArchivedMember]:
        """Those of the paths that are in a proven archive of the tree, each from the newest one that has it. Whether the file on
        the source is still the archived one says `same_file`. Raises Refused where an archive or its index is missing or is not
        the one that the ledger has.
        """
        found: dict[bytes, ArchivedMember] = {}
        for archive in self.newest_first(tree):
            found |= archive.find(path for path in paths if path not in found)
        return found

    def newest_first(self, tree: bytes) -> tuple[TarIndex, ...]:
        """The indexes of the archives of a tree that count. Raises Refused where one is not as the ledger has it, or cannot be read."""
        with self._lock:
            held = self._held.get(tree)
            if held is None:
                held = self._held[tree] = self._read(tree)
        return held

    def problems(self, tree: bytes) -> Sequence[str]:
        """Read every proven archive of the tree whole, from the target's disks, and say what is wrong with which: nothing where all
        of them are as they were written. For whoever is about to delete what they hold. Nothing is held of it.
        """
        found: list[str] = []
        for record in self._records.of_tree(tree):
            if record.state is ArchiveState.PROVEN:
                try:
                    with self._folders.open(tree) as folder:
                        why = read_back(folder, self._format, record)
                except (FileNotFoundError, NotADirectoryError):
                    why = "it is not there any more"
                except OSError as error:
                    why = f"it cannot be read: {error.strerror or error}"
                if why:
                    found.append(f"archive {record.number} of {show(tree)}: {why}")
        return found

    def _read(self, tree: bytes) -> tuple[TarIndex, ...]:
        proven = [record for record in self._records.of_tree(tree) if record.state is ArchiveState.PROVEN]
        if not proven:
            return ()
        try:
            with self._folders.open(tree) as folder:
                return tuple(read_archive(folder, self._format, record) for record in reversed(proven))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _missing(tree) from error
        except OSError as error:
            raise Refused(
                f"the archives of {show(tree)} cannot be read: {error.strerror or error}",
                cause="the target does not answer as it should, or something else lies in their place",
                hint="look into the directory on the target, then run the same command again",
            ) from error


def read_back(folder: HeldFolder, archive_format: TarArchives, record: ArchiveRecord) -> str:
    """What is wrong with an archive on the disks, in words; empty where nothing is. Raises OSError."""
    with folder.open(archive_name(record.number)) as archive, folder.open(index_name(record.number)) as index:
        return archive_format.read_back(record, archive, index)


def read_archive(folder: HeldFolder, archive_format: TarArchives, record: ArchiveRecord) -> TarIndex:
    """The index of one archive, which is there in its whole size. Raises Refused where either is not the ledger's,
    FileNotFoundError and OSError.
    """
    with folder.open(archive_name(record.number)) as archive:
        if archive.seek(0, os.SEEK_END) != record.written.archive_bytes:
            raise Refused(
                f"archive {record.number} of {show(record.tree)} is not as it was when it was read back: it has another size",
                cause="somebody changed it, or the target lost a part of it",
                hint=_AGAIN,
            )
    with folder.open(index_name(record.number)) as stored:
        return archive_format.index(record, stored)


def _missing(tree: bytes) -> Refused:
    return Refused(
        f"archives of {show(tree)} that were read back are not on the target any more",
        cause="somebody removed them, or the target is not mounted",
        hint=_AGAIN,
    )
