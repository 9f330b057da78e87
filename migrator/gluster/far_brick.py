"""The common functions of all scripts that read a brick on its host. Plain Python 3.9."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

GFID = b"trusted.gfid"
MDATA = b"trusted.glusterfs.mdata"
LINKTO = b"trusted.glusterfs.dht.linkto"

ABSENT = (errno.ENODATA, errno.EOPNOTSUPP)
NS_PER_S = 1_000_000_000

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_root(path: bytes, volume_id: str) -> int:
    """Open the brick's root, if it is a brick of this volume; otherwise exit."""
    root = os.open(path, DIRECTORY)
    try:
        found = os.getxattr(root, b"trusted.glusterfs.volume-id").hex()
    except OSError:
        found = ""
    if found != volume_id.replace("-", ""):
        raise SystemExit("there is no brick of this volume (its file system may not be mounted)")
    return root


def open_directory(root: int, path: bytes) -> int:
    """Open a directory below the root component by component: the whole path may be too long. The caller closes it."""
    fd = os.dup(root)
    for component in path.split(b"/") if path else ():
        with held(fd):
            fd = os.open(component, DIRECTORY, dir_fd=fd)
    return fd


@contextmanager
def held(fd: int) -> Iterator[int]:
    """A descriptor for the length of the block, closed at its end."""
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def above(root: int, path: bytes) -> Iterator[tuple[int, bytes]]:
    """The parent directory of a path, and the path's last component. Raises OSError."""
    directory, _, name = path.rpartition(b"/")
    with held(open_directory(root, directory)) as fd:
        yield fd, name


@contextmanager
def listed(root: int, path: bytes) -> Iterator[int]:
    """A directory below the root for the length of the block. Raises OSError, also if another file system is mounted
    there.
    """
    with held(open_directory(root, path)) as directory:
        if os.fstat(directory).st_dev != os.fstat(root).st_dev:
            raise OSError(errno.EXDEV, "another file system is mounted there")
        yield directory


def entries_of(directory: int, path: bytes) -> Iterator[tuple[os.DirEntry[str], bytes, bytes]]:
    """The entries of an open directory of the brick with name and path, without Gluster's own in the root. Raises
    OSError.
    """
    with os.scandir(directory) as entries:
        for entry in entries:
            name = os.fsencode(entry.name)
            if path or not (name == b".glusterfs" or name.startswith(b".glusterfs-anonymous-inode-")):
                yield entry, name, path + b"/" + name if path else name


def place_of(directory: int, name: bytes) -> bytes:
    """A path to an entry through its open directory, for calls without `dir_fd`."""
    return b"/proc/self/fd/%d/%s" % (directory, name)


def attribute_of_place(place: bytes, key: bytes) -> bytes:
    """An extended attribute; empty if there is none. Raises OSError."""
    try:
        return os.getxattr(place, key, follow_symlinks=False)
    except OSError as error:
        if error.errno in ABSENT:
            return b""
        raise


def parse_mdata(value: bytes) -> list[int] | None:
    """The times of change, modification and access in nanoseconds; None if the format is not known."""
    if len(value) != 57 or value[0] != 1:
        return None
    numbers = struct.unpack_from(">qQqQqQ", value, 9)
    if any(nanoseconds >= NS_PER_S for nanoseconds in numbers[1::2]):
        return None
    return [seconds * NS_PER_S + nanoseconds for seconds, nanoseconds in zip(numbers[::2], numbers[1::2])]
