"""The comparison of content through the mounts, by digest; a file with several names is read once."""

import threading
import time
from collections import OrderedDict

from migrator.core.entry import Entry, EntryType
from migrator.fs.model import Difference, DifferenceKind
from migrator.fs.ports import Digest, ReadablePaths
from migrator.fs.reading import problem_of
from migrator.fs.rules_equality import FileState
from migrator.verify.absences import look_up_or_prove_gone
from migrator.verify.tally import NOT_COMPARED, difference_of

_REMEMBERED_FILES = 4096


class _Digests:
    """Digests of one side, with a cache for files with several names. Thread-safe."""

    def __init__(self, file_system: ReadablePaths, algorithm: str) -> None:
        self._file_system = file_system
        self._algorithm = algorithm
        self._lock = threading.Lock()
        self._remembered: OrderedDict[FileState, Digest] = OrderedDict()

    def of(self, entry: Entry) -> Digest:
        """Read the file and return its digest. Raises OSError."""
        if entry.nlink <= 1:
            return self._file_system.digest(entry.path, self._algorithm)
        key = FileState.of(entry)
        with self._lock:
            known = self._remembered.get(key)
        if known is not None:
            return known
        digest = self._file_system.digest(entry.path, self._algorithm)
        if not digest.changed:
            with self._lock:
                self._remembered[key] = digest
                if len(self._remembered) > _REMEMBERED_FILES:
                    self._remembered.popitem(last=False)
        return digest


_PAUSES_S = (1.5, 3.0)
"""Longer than a Gluster client caches the result of a listing (1 s by default)."""


class ContentComparison:
    """Compares content. Thread-safe."""

    def __init__(self, source: ReadablePaths, target: ReadablePaths, algorithm: str) -> None:
        self._sides = ((source, _Digests(source, algorithm)), (target, _Digests(target, algorithm)))

    def compare(self, source: Entry, target: Entry) -> tuple[bytes | None, Difference | None]:
        """The common digest, or the difference: content, changed while read, or unreadable."""
        found: list[bytes] = []
        for on_source, entry, (file_system, digests) in zip((True, False), (source, target), self._sides, strict=True):
            try:
                digest = digests.of(entry)
                for pause_s in _PAUSES_S:
                    if digest.size_bytes >= entry.size_bytes or self._changed_since(file_system, entry):
                        break
                    # Nothing has changed: immediately after a listing, a Gluster mount may return a file of mode 1000
                    # truncated.
                    time.sleep(pause_s)
                    digest = digests.of(entry)
            except OSError as error:
                if self._changed_since(file_system, entry):
                    return None, _changed(entry, "replaced or removed while it was read", on_source=on_source)
                words = f"read: {problem_of(entry.path, 'read', error).reason}"
                sides = (words, NOT_COMPARED) if on_source else (NOT_COMPARED, words)
                return None, difference_of(entry.path, DifferenceKind.UNREADABLE, *sides)
            if digest.changed or digest.size_bytes != entry.size_bytes:
                return None, _changed(entry, "changed while it was read", on_source=on_source)
            found.append(digest.value)
        if found[0] == found[1]:
            return found[0], None
        if self._changed_since(self._sides[0][0], source):
            return None, _changed(source, "changed since it was listed", on_source=True)
        return None, difference_of(source.path, DifferenceKind.CONTENT, found[0].hex(), found[1].hex())

    @staticmethod
    def _changed_since(file_system: ReadablePaths, entry: Entry) -> bool:
        """True if a file has changed since it was listed. If that is unknown, it counts as unread."""
        try:
            now = look_up_or_prove_gone(file_system, entry.path)
        except OSError:
            return False
        return now is None or now.type is not EntryType.FILE or FileState.of(now) != FileState.of(entry)


def _changed(entry: Entry, words: str, *, on_source: bool) -> Difference:
    sides = (words, "unchanged") if on_source else ("unchanged", words)
    return difference_of(entry.path, DifferenceKind.CHANGED, *sides)
