"""Paths are bytes, relative to a root, without a leading slash. Shown escaped, written percent-escaped."""

import shlex
from collections.abc import Collection, Container
from urllib.parse import quote_from_bytes, unquote_to_bytes

# Printable ASCII stays as it is, for readable plans, except percent, quote and backslash.
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in '%"\\')

RSYNC_PATH_LIMIT_BYTES = 4096
"""MAXPATHLEN of rsync on Linux (rsync.h): longer paths cannot be in its lists."""


def show(path: bytes) -> str:
    r"""A path for people: valid printable text unchanged, every other byte as `\xNN`, a backslash doubled.

    The result has no control character, terminal escape or right-to-left mark, so it is safe in every output that has
    its own escaping for markup. Distinct paths are shown differently.
    """
    shown: list[str] = []
    for character in path.decode("utf-8", "surrogateescape"):
        if character == "\\":
            shown.append("\\\\")
        elif character == " " or (character.isprintable() and not "\ud800" <= character <= "\udfff"):
            shown.append(character)
        else:
            raw = character.encode("utf-8", "surrogateescape")
            shown.extend(f"\\x{byte:02x}" for byte in raw)
    return "".join(shown)


def percent_escape(path: bytes) -> str:
    """A path for plan documents: ASCII, reversible by `percent_unescape`."""
    return quote_from_bytes(path, safe=_PLAIN)


def percent_unescape(text: str) -> bytes:
    """The inverse of `percent_escape`."""
    return unquote_to_bytes(text)


def shell_quoted(word: bytes) -> str:
    r"""A word for a command that people paste into a shell, in the form of bash (`$'\xNN'`) if it is no readable text."""
    text = word.decode("utf-8", "surrogateescape")
    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(chr(byte) if 0x20 <= byte < 0x7F and byte not in b"'\\" else f"\\x{byte:02x}" for byte in word)
    return f"$'{escaped}'"


def parent(path: bytes) -> bytes:
    """The directory that holds the path; `b""` for a name in the root."""
    return path.rpartition(b"/")[0]


def name(path: bytes) -> bytes:
    """The last component."""
    return path.rpartition(b"/")[2]


def join(directory: bytes, entry: bytes) -> bytes:
    """The path of an entry of a directory; the root is `b""`."""
    return directory + b"/" + entry if directory else entry


def is_beneath(path: bytes, directory: bytes) -> bool:
    """True if the path is the directory itself or lies in it; everything lies in the root `b""`."""
    return not directory or path == directory or path.startswith(directory + b"/")


def tree_of(path: bytes, trees: Container[bytes]) -> bytes | None:
    """The tree that a path lies in, or whose root it is."""
    while path and path not in trees:
        path = parent(path)
    return path or None


def overlap(some: Collection[bytes], others: Collection[bytes]) -> bool:
    """True if a path of one set lies in one of the other, or is one; everything lies in the root `b""`."""

    def lie_in(paths: Collection[bytes], trees: Collection[bytes]) -> bool:
        return b"" in trees or any(tree_of(path, trees) is not None for path in paths)

    return lie_in(some, others) or lie_in(others, some)
