"""Files that are whole or not there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_TEMPORARY_SUFFIX = ".tmp"


@contextmanager
def replacing(file: Path, *, exclusive: bool = False) -> Iterator[BinaryIO]:
    """Write a file under a temporary name; at the end of the block it is synced and takes its place.

    When the block raises, the temporary file is removed and what was there before stays. With `exclusive`, a file
    that is there already is never replaced: FileExistsError. Raises OSError.
    """
    temporary = file.with_name(file.name + _TEMPORARY_SUFFIX)
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
    sync_directory(file.parent)


def sync_directory(directory: Path) -> None:
    """Make renames in a directory survive a power cut. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
