"""The one file that the program leaves in the root of each file system, so that nothing else is taken for it."""

import os

from migrator.domain.site import SENTINEL_NAME


def leave_sentinel(root: bytes, site_id: str) -> None:
    """Write the sentinel, on the disk when this returns. Raises OSError: FileExistsError where one is there."""
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(SENTINEL_NAME, flags, 0o600, dir_fd=directory)
        try:
            os.write(file, f"{site_id}\n".encode("ascii"))
            os.fsync(file)
        finally:
            os.close(file)
        os.fsync(directory)
    finally:
        os.close(directory)


def remove_unfinished_sentinel(root: bytes) -> None:
    """Remove a sentinel of this site that a crash left half written. Raises OSError."""
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.unlink(SENTINEL_NAME, dir_fd=directory)
    finally:
        os.close(directory)
