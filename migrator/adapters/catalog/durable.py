"""Files that are whole or not there: temporary name, fsync, rename, fsync of the directory."""

import os
from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"


def write_durably(file: Path, content: bytes | memoryview) -> None:
    """Replace a file by this content; after the return it survives a power cut. Raises OSError."""
    temporary = file.with_name(file.name + TEMPORARY_SUFFIX)
    with open(temporary, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(file)
    sync_directory(file.parent)


def sync_directory(directory: Path) -> None:
    """Make renames and removals in a directory survive a power cut. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
