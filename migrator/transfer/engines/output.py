"""Readers for the output of streams and for the logs of drivers' streams."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from migrator.core.units import KIB

_READ_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 1 << 16
TAIL_BYTES = 8 * KIB


class Lines:
    """Splits pieces into lines. Memory is bounded: lines over 64 KiB, longer than any relevant one, are dropped."""

    def __init__(self, take: Callable[[bytes], None], *, ends: bytes = b"\n") -> None:
        """`ends`: any of these bytes ends a line."""
        self._take = take
        self._ends = re.compile(b"[" + ends + b"]")
        self._rest = b""
        self._dropped = False

    @property
    def is_cut(self) -> bool:
        """Whether a line was dropped, or the last one has not ended."""
        return self._dropped or bool(self._rest)

    def add(self, piece: bytes) -> None:
        """Add the next piece."""
        *lines, self._rest = self._ends.split(self._rest + piece)
        for line in lines:
            self._take(line)
        if len(self._rest) > _LONGEST_LINE_BYTES:
            self._rest, self._dropped = b"", True


class Kept:
    """The beginning and the end of an output of any length."""

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail = b""

    def add(self, piece: bytes) -> None:
        """Add the next piece."""
        room = self._head_bytes - len(self._head)
        self._head += piece[:room]
        if room < len(piece):
            self._tail = (self._tail + piece[room:])[-self._tail_bytes :]

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    @property
    def content(self) -> bytes:
        """The kept output without the first line of the tail: that line may lack its beginning, and a file name in it
        could imitate another message.
        """
        return self.head + b"\n" + self._tail.partition(b"\n")[2] if self._tail else self.head

    @property
    def is_cut(self) -> bool:
        """Whether the output exceeded the head."""
        return bool(self._tail)

    def last(self, size_bytes: int) -> bytes:
        """The last bytes, for display."""
        return (self.head[-size_bytes:] + self._tail)[-size_bytes:]


class GrowingFile:
    """A file that another program appends to. Each call hands out the new content in pieces. A missing file counts as
    empty.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def hand_out(self, take: Callable[[bytes], None]) -> None:
        """Hand out everything added since the last call."""
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


def read_head(path: Path, limit_bytes: int) -> bytes:
    """The beginning of a file; empty if it is missing."""
    try:
        with path.open("rb") as file:
            return file.read(limit_bytes)
    except OSError:
        return b""


class OutputReader:
    """The common part of all stream readers."""

    def __init__(self, *, keep_bytes: int) -> None:
        self._stderr = Kept(keep_bytes, TAIL_BYTES)

    def stderr(self, piece: bytes) -> None:
        self._stderr.add(piece)

    @property
    def stderr_tail(self) -> bytes:
        return self._stderr.last(TAIL_BYTES)
