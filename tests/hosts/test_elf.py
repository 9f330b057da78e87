"""What a program is made of."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.hosts.local import interpreter, libraries

_LOADER = b"/lib64/ld-linux-x86-64.so.2"


def _elf(loader: bytes | None) -> bytes:
    headers = [(1, 0, 0)] + ([(3, 512, len(loader) + 1)] if loader else [])
    head = b"\x7fELF\x02\x01" + bytes(10)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, len(headers), 0, 0, 0)
    table = b"".join(struct.pack("<IIQQQQQQ", kind, 0, at, 0, 0, size, size, 1) for kind, at, size in headers)
    return (head + table).ljust(512, b"\0") + (loader or b"") + b"\0" * 64


@given(st.binary(max_size=600))
def test_no_file_breaks_it(content: bytes) -> None:
    for head in (content, _elf(_LOADER)[:20] + content):
        try:
            interpreter(head)
        except ValueError:
            continue


def test_a_missing_library_is_named() -> None:
    with pytest.raises(ValueError, match="libpopt"):
        libraries(b"\tlibpopt.so.0 => not found\n")
