"""The stream that a walk of a brick writes, as `native/src/frames.h`, `walk.c` and `walk_rows.c` have it: frames, and what
is in those that hold no rows.

The bytes come from another machine. Whatever is wrong with them raises MigratorError and nothing else.
"""

import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from migrator.domain.errors import MigratorError
from migrator.domain.scan import ScanProblem
from migrator.ports.bricks import BrickHello, BrickTotals

FORMAT_VERSION = 2

_MAGIC = 0x57474D31
_HEAD = struct.Struct("<IIQ")
_LIMIT_BYTES = 512 * 1024 * 1024
"""No frame comes near it: one that claims more is not one."""

_HELLO = struct.Struct("<II16s16sQQ")
_PROBLEM = struct.Struct("<Iiiii")
_COUNT = struct.Struct("<Q")
_END = struct.Struct("<10Q")
_UNKNOWN = 0xFFFF_FFFF_FFFF_FFFF
_HAS_VOLUME_ID, _HAS_ROOT_GFID = 2, 4
_STRANGE = 2


class FrameKind(IntEnum):
    """What a frame holds."""

    HELLO = 1
    ROWS = 2
    DIRECTORIES = 3
    PROBLEMS = 4
    END = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame; the payload is a buffer of its own."""

    kind: FrameKind
    payload: memoryview


class FrameReader:
    """Cuts a stream into frames. `feed` takes pieces cut anywhere; `finish` is called at the end of the stream."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._kind = FrameKind.END
        self._payload: bytearray | None = None
        self._filled = 0

    def feed(self, piece: bytes | memoryview) -> Iterator[Frame]:
        """The frames that became whole. Has to be exhausted. Raises MigratorError where these are no frames."""
        left = memoryview(piece)
        while left or (self._payload is not None and self._filled == len(self._payload)):
            if self._payload is None:
                wanted = _HEAD.size - len(self._head)
                self._head += left[:wanted]
                left = left[wanted:]
                if len(self._head) == _HEAD.size:
                    self._begin()
                continue
            taken = min(len(left), len(self._payload) - self._filled)
            self._payload[self._filled : self._filled + taken] = left[:taken]
            self._filled += taken
            left = left[taken:]
            if self._filled == len(self._payload):
                whole, self._payload = self._payload, None
                yield Frame(kind=self._kind, payload=memoryview(whole).toreadonly())

    def finish(self) -> None:
        """Raises MigratorError where the stream ended within a frame."""
        if self._payload is not None or self._head:
            raise _malformed("it ends within a frame")

    def _begin(self) -> None:
        magic, kind, length = _HEAD.unpack(self._head)
        if magic != _MAGIC:
            raise _malformed("no frame begins where one should")
        if length > _LIMIT_BYTES:
            raise _malformed(f"a frame claims {length} bytes")
        try:
            self._kind = FrameKind(kind)
        except ValueError as error:
            raise _malformed(f"a frame is of kind {kind}, which is not known") from error
        self._payload = bytearray(length)
        self._filled = 0
        self._head.clear()


def decode_hello(payload: memoryview) -> BrickHello:
    """The first frame. Raises MigratorError, also for another version of the format."""
    if len(payload) >= 4 and (version := int.from_bytes(payload[:4], "little")) != FORMAT_VERSION:
        raise _malformed(f"it is written in version {version} of the format, not {FORMAT_VERSION}")
    _, flags, volume_id, root_gfid, heals, device = _unpack(_HELLO, payload)
    return BrickHello(
        volume_id=str(uuid.UUID(bytes=volume_id)) if flags & _HAS_VOLUME_ID else None,
        root_gfid=root_gfid if flags & _HAS_ROOT_GFID else b"",
        pending_heals=None if heals == _UNKNOWN else heals,
        device=device,
    )


def decode_problems(
    payload: memoryview,
) -> tuple[tuple[ScanProblem, ...], tuple[ScanProblem, ...], tuple[ScanProblem, ...]]:
    """What could not be read; what has no row because only the mount can tell about it; and what has none because Gluster has
    given it no gfid. Raises MigratorError.
    """
    failed: list[ScanProblem] = []
    ask: list[ScanProblem] = []
    strange: list[ScanProblem] = []
    try:
        (count,) = _COUNT.unpack_from(payload)
        position = _COUNT.size
        for _ in range(count):
            kind, number, *lengths = _PROBLEM.unpack_from(payload, position)
            if kind > _STRANGE:
                raise _malformed(f"a problem is of kind {kind}, which is not known")
            position += _PROBLEM.size
            words: list[bytes] = []
            for length in lengths:
                if not 0 <= length <= len(payload) - position:
                    raise _malformed("a problem is longer than its frame")
                words.append(bytes(payload[position : position + length]))
                position += length
            path, operation, reason = words
            (failed, ask, strange)[kind].append(
                ScanProblem(
                    path=path,
                    operation=operation.decode("utf-8", "backslashreplace"),
                    errno=number or None,
                    reason=reason.decode("utf-8", "backslashreplace"),
                )
            )
    except struct.error as error:
        raise _malformed("a problem is cut off") from error
    if position != len(payload):
        raise _malformed("a frame of problems is longer than its problems")
    return tuple(failed), tuple(ask), tuple(strange)


def decode_end(payload: memoryview) -> BrickTotals:
    """The last frame. Raises MigratorError."""
    rows, directories, _size, problems, vanished, migrating, _links, filling, ask, strange = _unpack(_END, payload)
    return BrickTotals(
        rows=rows,
        directories=directories,
        problems=problems,
        vanished=vanished,
        migrating=migrating,
        filling_links=filling,
        ask_the_mount=ask,
        strange=strange,
    )


def _unpack(form: struct.Struct, payload: memoryview) -> tuple[Any, ...]:
    if len(payload) != form.size:
        raise _malformed(f"a frame has {len(payload)} bytes where {form.size} belong")
    return form.unpack(payload)


def _malformed(what: str) -> MigratorError:
    return MigratorError(
        f"what the walk of a brick wrote cannot be understood: {what}",
        cause="the connection was cut, or something else on that host writes to the same output (a login script)",
        hint="log in to the host by hand without a terminal and see whether anything but your command's output comes",
    )
