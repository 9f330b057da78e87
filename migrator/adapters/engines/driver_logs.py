"""Reading the logs that a driver's streams write into its directory, while they grow and afterwards."""

import os
from collections.abc import Callable
from pathlib import Path

_READ_BYTES = 1 << 20
_LINE_LIMIT_BYTES = 1 << 16


class GrowingFile:
    """A file that another program appends to; what is new is handed out in pieces. A missing one is empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def hand_out(self, take: Callable[[bytes], None]) -> None:
        """Hand out all that has been added since the last call."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            while piece := os.pread(fd, _READ_BYTES, self._offset):
                self._offset += len(piece)
                take(piece)
        finally:
            os.close(fd)


class Lines:
    """Cuts pieces into lines; one that is longer than anything of interest is dropped."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._rest = b""

    def add(self, piece: bytes) -> None:
        """The next piece."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._rest) > _LINE_LIMIT_BYTES:
            self._rest = b""


class Kept:
    """The beginning and the end of what was said: enough to judge by, whatever the length."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._head = b""
        self._tail = b""

    def add(self, piece: bytes) -> None:
        """The next piece."""
        room = self._limit_bytes - len(self._head)
        self._head += piece[:room]
        self._tail = (self._tail + piece[room:])[-self._limit_bytes :] if room < len(piece) else self._tail

    @property
    def content(self) -> bytes:
        """What was kept."""
        return self._head + self._tail

    def last(self, size_bytes: int) -> bytes:
        """The last so many bytes."""
        return self.content[-size_bytes:]


def read_head(path: Path, limit_bytes: int) -> bytes:
    """The beginning of a file; nothing where it is missing."""
    try:
        with path.open("rb") as file:
            return file.read(limit_bytes)
    except OSError:
        return b""
