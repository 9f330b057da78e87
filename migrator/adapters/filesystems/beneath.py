"""Opening paths beneath a root without ever following a symlink, whatever their length.

One `openat2(2)` with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS per piece of at most PATH_MAX (Linux 5.6 and later);
component by component with O_NOFOLLOW where the kernel does not know the call. Either way a directory that somebody
swaps for a symlink in the middle of the work gives ELOOP or ENOTDIR, and leads nowhere.
"""

import ctypes
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_PIECE_LIMIT_BYTES = 4000
"""Below PATH_MAX (4,096 with the terminating NUL): longer paths are opened in pieces."""

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _openat2(directory_fd: int, path: bytes, flags: int) -> int:
    how = _OpenHow(
        flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
    )
    while True:
        fd = int(_libc.syscall(_SYS_OPENAT2, directory_fd, path, ctypes.byref(how), ctypes.sizeof(how)))
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in (errno.EINTR, errno.EAGAIN):
            raise OSError(code, os.strerror(code), path)


def _open_by_component(directory_fd: int, path: bytes, flags: int) -> int:
    components = path.split(b"/")
    if any(component in (b"", b".", b"..") for component in components):
        raise OSError(errno.EXDEV, "path leaves its root", path)
    fd = os.dup(directory_fd)
    try:
        for component in components[:-1]:
            deeper = os.open(component, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = deeper
        return os.open(components[-1], flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    finally:
        os.close(fd)


def _has_openat2() -> bool:
    if sys.platform != "linux":
        return False
    try:
        os.close(_openat2(os.open(b"/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), b"proc", os.O_PATH))
    except OSError as error:
        return error.errno != errno.ENOSYS
    return True


_open_piece = _openat2 if _has_openat2() else _open_by_component


def _pieces(path: bytes) -> Iterator[bytes]:
    while len(path) > _PIECE_LIMIT_BYTES:
        cut = path.rfind(b"/", 0, _PIECE_LIMIT_BYTES)
        if cut <= 0:
            break
        yield path[:cut]
        path = path[cut + 1 :]
    yield path


class Root:
    """The root of a file system, held open. Thread-safe; close it, or use it as a context manager.

    A new mount over the root's path is not seen by a root that is held open: open a new one for every pass.
    """

    def __init__(self, path: bytes) -> None:
        self.path = path
        self._fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the descriptor. May be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def open(self, path: bytes, flags: int) -> int:
        """Open a path beneath the root; `b""` is the root itself. The caller closes it. Raises OSError."""
        if not path:
            return os.open(b".", flags | os.O_CLOEXEC, dir_fd=self._fd)
        fd = self._fd
        *leading, last = _pieces(path)
        for piece in leading:
            try:
                deeper = _open_piece(fd, piece, os.O_PATH | os.O_DIRECTORY)
            finally:
                if fd != self._fd:
                    os.close(fd)
            fd = deeper
        try:
            return _open_piece(fd, last, flags)
        finally:
            if fd != self._fd:
                os.close(fd)

    @contextmanager
    def directory(self, path: bytes) -> Iterator[int]:
        """A directory, open for reading, for the length of the block. Raises OSError."""
        fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """The directory that holds a path, as a descriptor for `dir_fd`, and the path's last name. Raises OSError."""
        directory, _, name = path.rpartition(b"/")
        if name in (b"", b".", b".."):
            raise OSError(errno.EINVAL, "not the path of an entry", path)
        fd = self.open(directory, os.O_PATH | os.O_DIRECTORY)
        try:
            yield fd, name
        finally:
            os.close(fd)


def entry_path(directory_fd: int, name: bytes) -> bytes:
    """A path for calls that know no `dir_fd` (the xattr calls): through the descriptor, so nothing on the way can be
    swapped; use it with `follow_symlinks=False`.
    """
    return b"/proc/self/fd/%d/%s" % (directory_fd, name)
