"""Reading files of the source for archives: each looked at, read, and looked at again through its descriptor."""

import errno
import os
from collections.abc import Iterator

from migrator.adapters.filesystems.digests import DIGEST_ALGORITHMS
from migrator.adapters.filesystems.reading import ReadingFileSystem
from migrator.domain.archives import LeftOut, LeftOutReason
from migrator.domain.entry import Entry, EntryType
from migrator.domain.reap import ReapRow
from migrator.domain.units import MIB

HELD_BYTES = MIB // 4
"""Files up to this size are read at once, before anything of them is written."""

_READ_BYTES = 4 * MIB


class MemberReader:
    """The `MemberSource` port over a file system that is read. Thread-safe."""

    def __init__(self, source: ReadingFileSystem, *, algorithm: str, held_bytes: int = HELD_BYTES) -> None:
        self._source = source
        self._algorithm = algorithm
        self._held_bytes = held_bytes

    def open(self, row: ReapRow, *, settled_before_ns: int) -> "ReadMember | LeftOut":
        """Look at a path, as the port says."""
        try:
            entry = self._source.look(row.path)
        except OSError as error:
            return _unreadable(row.path, error)
        if entry is None:
            return LeftOut(path=row.path, reason=LeftOutReason.VANISHED, detail="it is not there any more")
        if (entry.ino, entry.size_bytes, entry.mtime_ns, entry.ctime_ns) != (
            row.ino,
            row.size_bytes,
            row.mtime_ns,
            row.ctime_ns,
        ):
            detail = "it is not as in the reap list any more"
            return LeftOut(path=row.path, reason=LeftOutReason.CHANGED, detail=detail)
        if entry.ctime_ns >= settled_before_ns:
            return LeftOut(path=row.path, reason=LeftOutReason.FRESH, detail="it changed a moment ago")
        try:
            return self._read(entry)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                return _changed(entry)
            return _unreadable(row.path, error)

    def _read(self, entry: Entry) -> "ReadMember | LeftOut":
        if entry.type is not EntryType.FILE:
            # Nothing is opened: what it is was read by the look, and is the same where a second look sees the same.
            now = self._source.look(entry.path)
            same = now is not None and _moment(now) == _moment(entry) and now.symlink_target == entry.symlink_target
            return ReadMember(entry, fd=-1, algorithm=self._algorithm) if same else _changed(entry)
        member = ReadMember(entry, fd=self._open_file(entry.path), algorithm=self._algorithm)
        if entry.size_bytes <= self._held_bytes:
            try:
                left_out = member.hold()
            except BaseException:
                member.close()
                raise
            if left_out is not None:
                return left_out
        return member

    def _open_file(self, path: bytes) -> int:
        # O_NONBLOCK: a FIFO in a file's place must not block. O_NOATIME is for owners and root only.
        flags = os.O_RDONLY | os.O_NONBLOCK
        try:
            return self._source.beneath.open(path, flags | os.O_NOATIME)
        except PermissionError:
            return self._source.beneath.open(path, flags)


class ReadMember:
    """The `OpenMember` port. `fd` is -1 for what is no regular file."""

    def __init__(self, entry: Entry, *, fd: int, algorithm: str) -> None:
        self._entry = entry
        self._fd = fd
        self._hasher = DIGEST_ALGORITHMS[algorithm]()
        self._held: bytes | None = None

    @property
    def entry(self) -> Entry:
        """What the look saw."""
        return self._entry

    @property
    def is_checked(self) -> bool:
        """Whether the content is held."""
        return self._held is not None or self._entry.type is not EntryType.FILE

    def hold(self) -> LeftOut | None:
        """Read it now. Raises OSError."""
        content = b"".join(self._read())
        left_out = self._check(len(content))
        self.close()
        if left_out is None:
            self._held = content
        return left_out

    def pieces(self) -> Iterator[bytes]:
        """The content."""
        if self._held is not None:
            yield self._held
        elif self._fd >= 0:
            yield from self._read()

    def finish(self) -> bytes | LeftOut | None:
        """The digest, or why it is none."""
        if self._entry.type is not EntryType.FILE:
            return None
        if self._held is None:
            left_out = self._check(None)
            self.close()
            if left_out is not None:
                return left_out
        return self._hasher.digest()

    def close(self) -> None:
        """Release the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> Iterator[bytes]:
        left_bytes = self._entry.size_bytes
        position = 0
        # What is written to its end meanwhile is not read: the second look tells.
        while left_bytes > 0 and (piece := os.pread(self._fd, min(_READ_BYTES, left_bytes), position)):
            self._hasher.update(memoryview(piece))
            yield piece
            position += len(piece)
            left_bytes -= len(piece)

    def _check(self, read_bytes: int | None) -> LeftOut | None:
        facts = os.fstat(self._fd)
        now = (
            EntryType.of_mode(facts.st_mode),
            facts.st_dev,
            facts.st_ino & 0xFFFF_FFFF_FFFF_FFFF,
            facts.st_size,
            facts.st_mtime_ns,
            facts.st_ctime_ns,
        )
        whole = read_bytes is None or read_bytes == self._entry.size_bytes
        return None if whole and now == _moment(self._entry) else _changed(self._entry)


def _moment(entry: Entry) -> tuple[EntryType, int, int, int, int, int]:
    return entry.type, entry.dev, entry.ino, entry.size_bytes, entry.mtime_ns, entry.ctime_ns


def _changed(entry: Entry) -> LeftOut:
    return LeftOut(path=entry.path, reason=LeftOutReason.CHANGED, detail="it changed while it was read")


def _unreadable(path: bytes, error: OSError) -> LeftOut:
    return LeftOut(path=path, reason=LeftOutReason.UNREADABLE, detail=error.strerror or str(error))
