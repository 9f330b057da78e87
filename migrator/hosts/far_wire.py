"""How this program and the far end of a connection speak: frames. Runs on both sides (Python 3.9, standard library).

A frame is a header (`HEADER`: bytes of the payload, number of the stream or call, kind; little endian) and its payload.
Payloads of control are JSON in ASCII, where bytes stand as strings of the characters 0 to 255, and perhaps a NUL with
plain bytes after it; payloads of output are just that.
"""

from __future__ import annotations

import json
import struct
from typing import Any

VERSION = 1
MAGIC = b"\0migrator-far-end %d\0" % VERSION
"""Comes first: what a login shell's start files print lies before it."""

HEADER = struct.Struct("<IIB")
LARGEST_PAYLOAD_BYTES = 64 << 20
PIECE_BYTES = 1 << 18

STDOUT_WINDOW_BYTES = 4 << 20
"""So much of a stream's output (stdout, stderr: each) may be on its way before the reader has taken it."""
STDIN_WINDOW_BYTES = 1 << 20

HELLO = 1
CALL = 2
ANSWER = 3
START = 4
STARTED = 5
NOT_STARTED = 6
STDIN = 7
STDIN_CREDIT = 8
STDOUT = 9
STDERR = 10
CREDIT = 11
END = 12
EXITED = 13
PING = 14
PONG = 15

NUMBER = struct.Struct("<I")
"""A credit, in bytes."""
CREDIT_FIELDS = struct.Struct("<BI")
"""STDOUT or STDERR, and a credit in bytes."""

Fields = dict[str, Any]


def pack(fields: Fields, content: bytes = b"") -> bytes:
    """The payload of a control frame."""
    return json.dumps(fields).encode("ascii") + (b"\0" + content if content else b"")


def unpack(payload: bytes) -> tuple[Fields, bytes]:
    """The other way round. Raises ValueError."""
    head, _, content = payload.partition(b"\0")
    fields = json.loads(head.decode("ascii"))
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - what came is wrong, not its caller
    return fields, content


def text(content: bytes) -> str:
    """Bytes as JSON can carry them."""
    return content.decode("latin-1")


def raw(content: str) -> bytes:
    """The other way round."""
    return content.encode("latin-1")
