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


def test_the_loader_is_found() -> None:
    assert interpreter(_elf(_LOADER)) == _LOADER
    assert interpreter(_elf(None)) is None


@pytest.mark.parametrize(
    "head", [b"", b"#!/bin/sh\nexec rsync\n" + b" " * 100, b"\x7fELF", b"MZ" + b"\0" * 200, b"\x7fELF\x01" + bytes(100)]
)
def test_a_script_is_no_program(head: bytes) -> None:
    with pytest.raises(ValueError, match="ELF"):
        interpreter(head)


@given(st.binary(max_size=600))
def test_no_file_breaks_it(content: bytes) -> None:
    for head in (content, _elf(_LOADER)[:20] + content):
        try:
            interpreter(head)
        except ValueError:
            continue


def test_libraries_and_loader_once_each() -> None:
    listing = (
        b"\tlinux-vdso.so.1 (0x00007f2695545000)\n"
        b"\tlibacl.so.1 => /lib/x86_64-linux-gnu/libacl.so.1 (0x00007f269547e000)\n"
        b"\tlibc.so.6 => /lib/with blank/libc.so.6 (0x00007f2694c1e000)\n"
        b"\t/lib64/ld-linux-x86-64.so.2 (0x00007f2695547000)\n"
        b"\t/lib64/ld-linux-x86-64.so.2 => /lib64/ld-linux-x86-64.so.2 (0x00007f2695547000)\n"
    )
    assert libraries(listing) == (b"/lib/x86_64-linux-gnu/libacl.so.1", b"/lib/with blank/libc.so.6", _LOADER)


def test_a_missing_library_is_named() -> None:
    with pytest.raises(ValueError, match="libpopt"):
        libraries(b"\tlibpopt.so.0 => not found\n")
