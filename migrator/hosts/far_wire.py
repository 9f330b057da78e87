"""The frames between this program and the far end of a connection. Runs on both sides: plain Python 3.9.

A frame is a header (`HEADER`: bytes of the payload, number of the stream or call, kind; little endian) and its payload.
The payload of a control frame is JSON in ASCII (bytes as strings of the characters 0 to 255), optionally followed by a
NUL and raw bytes. The payload of an output frame is the raw output.
"""

from __future__ import annotations

import json
import struct
from typing import Any

VERSION = 1
MAGIC = b"\0migrator-far-end %d\0" % VERSION
"""The start of the far end's output. Everything before it is output of the login shell's startup files."""

HEADER = struct.Struct("<IIB")
LARGEST_PAYLOAD_BYTES = 64 << 20
PIECE_BYTES = 1 << 18

STDOUT_WINDOW_BYTES = 4 << 20
"""How much output of a stream (stdout and stderr each) may be in flight before the reader has taken it."""
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
LIMIT = 16

NUMBER = struct.Struct("<I")
"""A credit, in bytes."""
CREDIT_FIELDS = struct.Struct("<BI")
"""STDOUT or STDERR, and a credit in bytes."""

Fields = dict[str, Any]


def pack(fields: Fields, content: bytes = b"") -> bytes:
    """The payload of a control frame."""
    return json.dumps(fields).encode("ascii") + (b"\0" + content if content else b"")


def unpack(payload: bytes) -> tuple[Fields, bytes]:
    """The inverse of `pack`. Raises ValueError."""
    head, _, content = payload.partition(b"\0")
    fields = json.loads(head.decode("ascii"))
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - what came is wrong, not its caller
    return fields, content


def text(content: bytes) -> str:
    """Bytes as a string for JSON."""
    return content.decode("latin-1")


def raw(content: str) -> bytes:
    """The inverse of `text`."""
    return content.encode("latin-1")
