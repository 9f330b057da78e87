"""A stream of zstd frames of which any can be read without those before it.

Each frame is a whole zstd frame of some MiB of content; one after the other they are what `zstd -d` reads. The table of
frames has, for each, where it begins in the content and in the file, and a BLAKE2b digest of its bytes in the file.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from migrator.domain.units import MIB

FRAME_BYTES = 8 * MIB
_DIGEST_BYTES = 16
_FILE_DIGEST_BYTES = 32


class Damaged(Exception):
    """The bytes are not those that were written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame: `offset_bytes` and `size_bytes` of its content, `stored_offset_bytes` and `stored_bytes` in the file."""

    offset_bytes: int
    size_bytes: int
    stored_offset_bytes: int
    stored_bytes: int
    digest: str


class FrameWriter:
    """Writes content as frames. `stream` is a file that is written from its beginning."""

    def __init__(self, stream: BinaryIO, *, frame_bytes: int = FRAME_BYTES) -> None:
        self._stream = stream
        self._frame_bytes = frame_bytes
        self._codec = pa.Codec("zstd")
        self._buffer = bytearray()
        self._begin_bytes = 0
        self._stored_bytes = 0
        self._digest = hashlib.blake2b(digest_size=_FILE_DIGEST_BYTES)
        self.frames: list[Frame] = []

    @property
    def position_bytes(self) -> int:
        """How much content was written."""
        return self._begin_bytes + len(self._buffer)

    @property
    def stored_bytes(self) -> int:
        """How long the file is, after `cut`."""
        return self._stored_bytes

    @property
    def file_digest(self) -> str:
        """BLAKE2b of the file in hexadecimal digits, after `cut`."""
        return self._digest.hexdigest()

    def write(self, content: bytes) -> None:
        """Take content."""
        self._buffer += content
        while len(self._buffer) >= self._frame_bytes:
            self._put(self._frame_bytes)

    def cut(self) -> None:
        """End the frame here: what comes next begins another one."""
        if self._buffer:
            self._put(len(self._buffer))

    def mark(self) -> "Mark":
        """End the frame, and remember this place for `back_to`."""
        self.cut()
        return Mark(
            frames=len(self.frames),
            begin_bytes=self._begin_bytes,
            stored_bytes=self._stored_bytes,
            digest=self._digest.copy(),
        )

    def back_to(self, mark: "Mark") -> None:
        """Take back all that was written since a mark; once for a mark."""
        self._buffer.clear()
        del self.frames[mark.frames :]
        self._begin_bytes, self._stored_bytes, self._digest = mark.begin_bytes, mark.stored_bytes, mark.digest
        self._stream.flush()
        self._stream.seek(self._stored_bytes)
        self._stream.truncate()

    def _put(self, size_bytes: int) -> None:
        stored = self._codec.compress(bytes(self._buffer[:size_bytes]), asbytes=True)
        del self._buffer[:size_bytes]
        self._stream.write(stored)
        self._digest.update(stored)
        self.frames.append(
            Frame(
                offset_bytes=self._begin_bytes,
                size_bytes=size_bytes,
                stored_offset_bytes=self._stored_bytes,
                stored_bytes=len(stored),
                digest=_digest(stored),
            )
        )
        self._begin_bytes += size_bytes
        self._stored_bytes += len(stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place between two frames."""

    frames: int
    begin_bytes: int
    stored_bytes: int
    digest: "hashlib.blake2b"


class FrameReader:
    """Reads content from any place; the last frame is kept. Raises Damaged where a frame is not the one that was written."""

    def __init__(self, stream: BinaryIO, frames: Sequence[Frame]) -> None:
        self._stream = stream
        self._frames = frames
        self._offsets = [frame.offset_bytes for frame in frames]
        self._codec = pa.Codec("zstd")
        self._held: tuple[int, bytes] = (-1, b"")

    def pieces(self, offset_bytes: int, size_bytes: int) -> Iterator[bytes]:
        """So much of the content from there on."""
        number = bisect_right(self._offsets, offset_bytes) - 1
        while size_bytes > 0:
            if not 0 <= number < len(self._frames):
                raise Damaged("it ends too early")
            start = offset_bytes - self._frames[number].offset_bytes
            piece = self._frame(number)[start : start + size_bytes]
            yield piece
            offset_bytes += len(piece)
            size_bytes -= len(piece)
            number += 1

    def read(self, offset_bytes: int, size_bytes: int) -> bytes:
        """So much of the content, whole."""
        return b"".join(self.pieces(offset_bytes, size_bytes))

    def _frame(self, number: int) -> bytes:
        if self._held[0] != number:
            frame = self._frames[number]
            self._stream.seek(frame.stored_offset_bytes)
            stored = self._stream.read(frame.stored_bytes)
            if len(stored) != frame.stored_bytes or _digest(stored) != frame.digest:
                raise Damaged(f"frame {number + 1} of {len(self._frames)} is not the one that was written")
            content = self._codec.decompress(stored, decompressed_size=frame.size_bytes, asbytes=True)
            self._held = (number, content)
        return self._held[1]


def _digest(stored: bytes) -> str:
    return hashlib.blake2b(stored, digest_size=_DIGEST_BYTES).hexdigest()
