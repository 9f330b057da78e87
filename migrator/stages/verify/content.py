"""Comparing the content of two files by digest, each read once however many names it has."""

import threading
from collections import OrderedDict
from dataclasses import dataclass

from migrator.decide.compare import Comparison
from migrator.domain.entry import Entry, EntryType
from migrator.domain.verification import Difference, DifferenceKind
from migrator.ports.filesystem import Digest, FileSystem
from migrator.stages.verify.proof import look_or_prove_gone
from migrator.stages.verify.tally import error_problem

_REMEMBERED_FILES = 4096

NOT_COMPARED = "not compared"
"""What is said of the side that is not to blame where a file could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Both sides of one path, and what their attributes showed."""

    source: Entry
    target: Entry
    comparison: Comparison


class _Digests:
    """Digests of one side; of files with several names the latest ones are remembered. Thread-safe."""

    def __init__(self, file_system: FileSystem, algorithm: str) -> None:
        self._file_system = file_system
        self._algorithm = algorithm
        self._lock = threading.Lock()
        self._remembered: OrderedDict[tuple[int, ...], Digest] = OrderedDict()

    def of(self, entry: Entry) -> Digest:
        """The digest of the file as it is now. Raises OSError."""
        if entry.nlink <= 1:
            return self._file_system.digest(entry.path, self._algorithm)
        key = (entry.ino, entry.size_bytes, entry.mtime_ns, entry.ctime_ns)
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


class ContentComparison:
    """Compares content. Thread-safe."""

    def __init__(self, source: FileSystem, target: FileSystem, algorithm: str) -> None:
        self._source = source
        self._target = target
        self._source_digests = _Digests(source, algorithm)
        self._target_digests = _Digests(target, algorithm)

    def compare(self, pair: Pair) -> tuple[bytes | None, Difference | None]:
        """The digest that both sides have, or the difference: content, changed while it was read, or unreadable."""
        try:
            source = self._source_digests.of(pair.source)
        except OSError as error:
            return None, self._unread(pair.source, error, on_source=True)
        if source.changed or source.size_bytes != pair.source.size_bytes:
            return None, _changed(pair.source, "changed while it was read", "")
        try:
            target = self._target_digests.of(pair.target)
        except OSError as error:
            return None, self._unread(pair.target, error, on_source=False)
        if target.changed or target.size_bytes != pair.target.size_bytes:
            return None, _changed(pair.source, "", "changed while it was read")
        if source.value == target.value:
            return source.value, None
        if self._changed_since(self._source, pair.source):
            return None, _changed(pair.source, "changed since it was listed", "")
        difference = Difference(
            path=pair.source.path,
            kind=DifferenceKind.CONTENT,
            source=source.value.hex(),
            target=target.value.hex(),
        )
        return None, difference

    def _unread(self, entry: Entry, error: OSError, *, on_source: bool) -> Difference:
        file_system = self._source if on_source else self._target
        if self._changed_since(file_system, entry):
            words = "replaced or removed while it was read"
            return _changed(entry, words if on_source else "", "" if on_source else words)
        words = f"read: {error_problem(entry.path, 'read', error).reason}"
        return Difference(
            path=entry.path,
            kind=DifferenceKind.UNREADABLE,
            source=words if on_source else NOT_COMPARED,
            target=NOT_COMPARED if on_source else words,
        )

    @staticmethod
    def _changed_since(file_system: FileSystem, entry: Entry) -> bool:
        """Whether a file is not what was listed any more; where that cannot be seen it counts as unread."""
        try:
            now = look_or_prove_gone(file_system, entry.path)
        except OSError:
            return False
        if now is None or now.type is not EntryType.FILE:
            return True
        return _content_facts(now) != _content_facts(entry)


def _content_facts(entry: Entry) -> tuple[int, ...]:
    return entry.ino, entry.size_bytes, entry.mtime_ns, entry.ctime_ns


def _changed(entry: Entry, source: str, target: str) -> Difference:
    return Difference(
        path=entry.path,
        kind=DifferenceKind.CHANGED,
        source=source or "unchanged",
        target=target or "unchanged",
    )
