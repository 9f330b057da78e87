"""The frames that a walk of a brick writes, in plain Python 3.9: rows in columns as Arrow lays them out, and problems."""

from __future__ import annotations

import array
import fcntl
import os
import struct
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

MAGIC = 0x57474D31
VERSION = 2
HELLO, ROWS, DIRECTORIES, PROBLEMS, END = 1, 2, 3, 4, 5
PROBLEM, ASK_THE_MOUNT, STRANGE = 0, 1, 2
"""What a problem is: not readable, only the mount can tell, or without a gfid."""

BLOCK_ROWS = 16384
POOL_LIMIT_BYTES = 16 << 20
PROBLEMS_LIMIT = 1000
DIRECTORY = 1
"""The number of the type."""


class Output:
    """Frames to stdout, each whole: forked workers take turns by a lock on a file that they share."""

    def __init__(self, lock_fd: int) -> None:
        self._lock_fd = lock_fd

    def write(self, kind: int, payload: bytes) -> None:
        """Write one frame."""
        fcntl.lockf(self._lock_fd, fcntl.LOCK_EX)
        try:
            write_whole(1, struct.pack("<IIQ", MAGIC, kind, len(payload)))
            write_whole(1, payload)
        finally:
            fcntl.lockf(self._lock_fd, fcntl.LOCK_UN)


def write_whole(fd: int, data: bytes) -> None:
    """Write all of it, or end the program where nobody reads."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except OSError as error:
            die(f"cannot write what was found: {error.strerror}")


def die(what: str) -> NoReturn:
    """Say what is wrong and end this process at once."""
    sys.stderr.write(f"migrator walker: {what}\n")
    sys.stderr.flush()
    os._exit(1)


def padded(data: bytes) -> bytes:
    """Filled up with zeros to a multiple of 8 bytes."""
    return data + bytes(-len(data) % 8)


def column(code: str, values: Sequence[int]) -> bytes:
    """Numbers of one width, little-endian."""
    packed = array.array(code, values)
    if sys.byteorder == "big":
        packed.byteswap()
    return padded(packed.tobytes())


def bitmap(values: Sequence[bool]) -> bytes:
    """One bit a value, the first one lowest."""
    bits = 0
    for index, value in enumerate(values):
        if value:
            bits |= 1 << index
    return padded(bits.to_bytes((len(values) + 7) // 8, "little"))


class Rows:
    """Rows that wait for their frame."""

    def __init__(self, output: Output, kind: int, block_rows: int) -> None:
        self._output = output
        self._kind = kind
        self._block_rows = block_rows
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0

    def add(self, row: tuple[Any, ...]) -> None:
        """Add a row: type, seven 64-bit and eight 32-bit numbers, path, gfid, target, digest."""
        self._rows.append(row)
        self._bytes += len(row[16]) + len(row[18] or b"")
        if len(self._rows) >= self._block_rows or self._bytes > POOL_LIMIT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is there."""
        if not self._rows:
            return
        columns = list(zip(*self._rows))
        types, wide, narrow, variable = columns[0], columns[1:8], columns[8:16], columns[16:20]
        tree, nlink, gfids, targets, digests = narrow[7], narrow[3], *variable[1:]
        pieces = [struct.pack("<5Q", len(types), *(sum(len(v) for v in values if v) for values in variable))]
        # The sizes and times are signed, the device and the inode number are not.
        pieces += [column("Q" if index >= 5 else "q", values) for index, values in enumerate(wide)]
        pieces += [column("I" if index in (0, 1, 3) else "i", values) for index, values in enumerate(narrow)]
        pieces.append(padded(bytes(types)))
        grouped = [count > 1 and kind != DIRECTORY for count, kind in zip(nlink, types)]
        for present in (
            [number >= 0 for number in tree],
            [value is not None for value in gfids],
            grouped,
            [value is not None for value in targets],
            [value is not None for value in digests],
        ):
            pieces.append(bitmap(present))
        for values in variable:
            held = [value or b"" for value in values]
            offsets, end = [0], 0
            for value in held:
                end += len(value)
                offsets.append(end)
            pieces += [column("i", offsets), padded(b"".join(held))]
        self._output.write(self._kind, b"".join(pieces))
        self._rows.clear()
        self._bytes = 0


class Problems:
    """Problems that wait for their frame."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._waiting: list[bytes] = []

    def add(self, path: bytes, operation: str, number: int, reason: str, *, kind: int = PROBLEM) -> None:
        """Add one; `number` is the errno, or 0."""
        words = (path, operation.encode(), reason.encode("utf-8", "surrogateescape"))
        self._waiting.append(struct.pack("<Iiiii", kind, number, *map(len, words)) + b"".join(words))
        if len(self._waiting) == PROBLEMS_LIMIT:
            self.flush()

    def flush(self) -> None:
        """Write what is there."""
        if self._waiting:
            self._output.write(PROBLEMS, struct.pack("<Q", len(self._waiting)) + b"".join(self._waiting))
            self._waiting.clear()
