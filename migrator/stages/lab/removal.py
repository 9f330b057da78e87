"""Removing a directory tree of any depth, read-only directories too, without crossing into another file system."""

import os
import stat

from migrator.domain.errors import Refused
from migrator.domain.paths import show


def remove_tree(path: bytes) -> None:
    """Remove a directory with everything in it. Never follows a symlink. Raises Refused at a mount point."""
    directory, _, name = path.rpartition(b"/")
    parent_fd = os.open(directory or b"/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
        _empty(parent_fd, name, status.st_dev, path)
        os.rmdir(name, dir_fd=parent_fd)
    finally:
        os.close(parent_fd)


def _empty(parent_fd: int, name: bytes, device: int, shown: bytes) -> None:
    if os.geteuid() != 0:  # read-only directories of a lab without root
        os.chmod(name, stat.S_IRWXU, dir_fd=parent_fd)
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent_fd)
    try:
        if os.fstat(fd).st_dev != device:
            raise Refused(f"something is mounted on {show(shown)}", hint="unmount it, then take the lab down again")
        for entry in map(os.fsencode, os.listdir(fd)):
            if stat.S_ISDIR(os.stat(entry, dir_fd=fd, follow_symlinks=False).st_mode):
                _empty(fd, entry, device, shown + b"/" + entry)
                os.rmdir(entry, dir_fd=fd)
            else:
                os.unlink(entry, dir_fd=fd)
    finally:
        os.close(fd)
