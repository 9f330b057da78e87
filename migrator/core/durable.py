"""Files of the state directory that are whole or not there: temporary name, fsync, rename, fsync of the directory;
and their digests.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_TEMPORARY_SUFFIX = ".tmp"
_DIGEST_BYTES = 32


def temporary_name(file: Path) -> Path:
    """Where a file is written before it takes its place: beside it."""
    return file.with_name(file.name + _TEMPORARY_SUFFIX)


@contextmanager
def replacing(file: Path, *, exclusive: bool = False) -> Iterator[BinaryIO]:
    """Write a file under a temporary name; at the end of the block it is synced and takes its place.

    When the block raises, the temporary file is removed and what was there before stays. With `exclusive`, a file
    that is there already is never replaced: FileExistsError. Raises OSError.
    """
    temporary = temporary_name(file)
    try:
        with open(temporary, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if exclusive:
            os.link(temporary, file)
        else:
            temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    sync(file.parent)


def write_durably(file: Path, content: bytes | memoryview) -> None:
    """Replace a file by this content; after the return it survives a power cut. Raises OSError."""
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
    """BLAKE2b over a file, of 32 bytes, in hexadecimal. Raises OSError."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES)).hexdigest()
