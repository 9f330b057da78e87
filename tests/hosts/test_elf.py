"""What a program is made of."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.hosts.local import interpreter, libraries

_LOADER = b"/lib64/ld-linux-x86-64.so.2"


def _elf(*, loader: bytes | None, bits: int = 64, order: str = "<") -> bytes:
    ident = b"\x7fELF" + bytes([2 if bits == 64 else 1, 1 if order == "<" else 2]) + b"\0" * 10
    headers = [(1, 0, 0)] + ([(3, 512, len(loader) + 1)] if loader else [])
    if bits == 64:
        head = ident + struct.pack(order + "HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, len(headers), 0, 0, 0)
        table = b"".join(
            struct.pack(order + "IIQQQQQQ", kind, 0, at, 0, 0, size, size, 1) for kind, at, size in headers
        )
    else:
        head = ident + struct.pack(order + "HHIIIIIHHHHHH", 3, 3, 1, 0, 52, 0, 0, 52, 32, len(headers), 0, 0, 0)
        table = b"".join(
            struct.pack(order + "IIIIIIII", kind, at, 0, 0, size, size, 0, 1) for kind, at, size in headers
        )
    return (head + table).ljust(512, b"\0") + (loader or b"") + b"\0" * 64


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("order", ["<", ">"])
def test_the_loader_is_found(bits: int, order: str) -> None:
    assert interpreter(_elf(loader=_LOADER, bits=bits, order=order)) == _LOADER
    assert interpreter(_elf(loader=None, bits=bits, order=order)) is None


@pytest.mark.parametrize("head", [b"", b"#!/bin/sh\nexec rsync\n" + b" " * 100, b"\x7fELF", b"MZ" + b"\0" * 200])
def test_a_script_is_no_program(head: bytes) -> None:
    with pytest.raises(ValueError, match="ELF"):
        interpreter(head)


@given(st.binary(max_size=600))
def test_no_file_breaks_it(content: bytes) -> None:
    for head in (content, _elf(loader=_LOADER)[:20] + content):
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
