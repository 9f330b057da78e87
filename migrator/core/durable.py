"""Files that are either complete or absent (temporary name, fsync, rename, fsync of the directory), and their digests."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_TEMPORARY_SUFFIX = ".tmp"
_DIGEST_BYTES = 32


def temporary_name(file: Path) -> Path:
    """The name, in the same directory, under which `replacing` writes a file."""
    return file.with_name(file.name + _TEMPORARY_SUFFIX)


@contextmanager
def replacing(file: Path, *, exclusive: bool = False, synced: bool = True) -> Iterator[BinaryIO]:
    """Write a file under a temporary name; at the end of the block, sync it and rename it into place.

    If the block raises, the temporary file is removed and the old file stays. With `exclusive`, an existing file is
    never replaced: FileExistsError. `synced` False: one of many files that can be made again. Raises OSError.
    """
    temporary = temporary_name(file)
    try:
        with open(temporary, "wb") as stream:
            yield stream
            stream.flush()
            if synced:
                os.fsync(stream.fileno())
        if exclusive:
            os.link(temporary, file)
        else:
            temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    if synced:
        sync(file.parent)


def write_durably(file: Path, content: bytes | memoryview) -> None:
    """Replace a file. The new content survives a power cut once this returns. Raises OSError."""
    with replacing(file) as stream:
        stream.write(content)


def sync(path: Path) -> None:
    """Make a file's content, or renames and removals in a directory, survive a power cut. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def file_digest(file: Path) -> str:
    """The BLAKE2b-256 digest of a file, in hexadecimal. Raises OSError."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES)).hexdigest()
