"""What every script does that looks at a brick: plain Python 3.9, run on the brick's host. No symlink is followed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from migrator.adapters.bricks.walker_attributes import ABSENT

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_root(path: bytes, volume_id: str) -> int:
    """The brick's root, if it is one of this volume."""
    root = os.open(path, DIRECTORY)
    try:
        found = os.getxattr(root, b"trusted.glusterfs.volume-id").hex()
    except OSError:
        found = ""
    if found != volume_id.replace("-", ""):
        raise SystemExit("there is no brick of this volume (its file system may not be mounted)")
    return root


def open_directory(root: int, path: bytes) -> int:
    """A directory below the root, component by component: a whole path may be too long. The caller closes it."""
    fd = os.dup(root)
    for component in path.split(b"/") if path else ():
        try:
            deeper = os.open(component, DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = deeper
    return fd


@contextmanager
def listed(root: int, path: bytes) -> Iterator[int]:
    """A directory below the root for the length of the block. Raises OSError, also where another file system is mounted there."""
    directory = open_directory(root, path)
    try:
        if os.fstat(directory).st_dev != os.fstat(root).st_dev:
            raise OSError(errno.EXDEV, "another file system is mounted there")
        yield directory
    finally:
        os.close(directory)


def entries_of(directory: int, path: bytes) -> Iterator[tuple[os.DirEntry[str], bytes, bytes]]:
    """What lies in an open directory of the brick, each with its name and its path, without Gluster's own in the root. Raises
    OSError.
    """
    with os.scandir(directory) as entries:
        for entry in entries:
            name = os.fsencode(entry.name)
            if path or not (name == b".glusterfs" or name.startswith(b".glusterfs-anonymous-inode-")):
                yield entry, name, path + b"/" + name if path else name


def place_of(directory: int, name: bytes) -> bytes:
    """A path to an entry that reaches it through its open directory, for calls that take no directory."""
    return b"/proc/self/fd/%d/%s" % (directory, name)


def attribute(place: bytes, key: bytes) -> bytes:
    """An extended attribute; empty where there is none. Raises OSError."""
    try:
        return os.getxattr(place, key, follow_symlinks=False)
    except OSError as error:
        if error.errno in ABSENT:
            return b""
        raise
