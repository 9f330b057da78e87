"""Opening paths and removing trees beneath a root by descriptor, never through a symlink, and recording the way to a
path.
"""

import ctypes
import errno
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

from migrator.core.entry import EntryType
from migrator.core.paths import join, show
from migrator.fs.model import FileLook, Mount, parse_mountinfo, untrusted

# Opening paths of any length beneath a root.
#
# One `openat2(2)` with RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and RESOLVE_NO_XDEV for each piece of at most PATH_MAX
# (Linux 5.6 and later), otherwise component by component with O_NOFOLLOW. Either way a directory that is swapped for a
# symlink meanwhile gives ELOOP or ENOTDIR, and another file system mounted over one EXDEV: what it hides is not missing.
# Only the kernel refuses a directory of the same file system that is mounted there.


_SYS_OPENAT2 = 437
_RESOLVE_NO_XDEV = 0x01
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_RESOLVE = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_XDEV
_PIECE_LIMIT_BYTES = 4000
"""Below PATH_MAX (4,096 with the terminating NUL): longer paths are opened in pieces."""
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

OTHER_MOUNT = "another file system is mounted here; not entered"

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def held(fd: int) -> Iterator[int]:
    """A descriptor for the length of the block, closed at its end."""
    try:
        yield fd
    finally:
        os.close(fd)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _openat2(directory_fd: int, path: bytes, flags: int) -> int:
    how = _OpenHow(flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0, _RESOLVE)
    while True:
        fd = int(_libc.syscall(_SYS_OPENAT2, directory_fd, path, ctypes.byref(how), ctypes.sizeof(how)))
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in (errno.EINTR, errno.EAGAIN):
            raise OSError(code, OTHER_MOUNT if code == errno.EXDEV else os.strerror(code), path)


def _open_by_component(directory_fd: int, path: bytes, flags: int) -> int:
    components = path.split(b"/")
    if any(component in (b"", b".", b"..") for component in components):
        raise OSError(errno.EXDEV, "path leaves its root", path)
    device = os.fstat(directory_fd).st_dev
    fd = os.dup(directory_fd)
    try:
        for position, component in enumerate(components, start=1):
            last = position == len(components)
            way = flags if last else os.O_PATH | os.O_DIRECTORY
            deeper = os.open(component, way | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = deeper
            if os.fstat(fd).st_dev != device:
                raise OSError(errno.EXDEV, OTHER_MOUNT, path)
        return os.dup(fd)
    finally:
        os.close(fd)


def _has_openat2() -> bool:
    """False before Linux 5.6 (ENOSYS), and if a container's filter refuses unknown system calls (EPERM)."""
    with held(os.open(b"/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
        try:
            os.close(_openat2(root, b".", os.O_PATH))
        except OSError:
            return False
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


def into(fd: int, component: bytes, flags: int, dress: Callable[[int], None]) -> int:
    """Open a child directory; a missing one is made for this user alone, and given to `dress`. Always closes `fd`, also
    on failure.
    """
    flags |= os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with held(fd):
        try:
            return os.open(component, flags, dir_fd=fd)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(component, stat.S_IRWXU, dir_fd=fd)
            made = os.open(component, flags, dir_fd=fd)
        try:
            dress(made)
        except BaseException:
            os.close(made)
            raise
        return made


class Root:
    """The root of a file system, held open. Thread-safe; close it, or use it as a context manager.

    An open root does not see a new mount over its path: open a new one for every pass.
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

    @property
    def fd(self) -> int:
        """Its descriptor (`O_PATH`), which this object closes."""
        return self._fd

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

    def make(self, path: bytes, flags: int, dress: Callable[[int], None]) -> int:
        """Open a directory; missing ones on the way are made for this user alone, and given to `dress`. The caller
        closes it. Raises OSError.
        """
        fd = self.open(b"", flags | os.O_DIRECTORY)
        for component in path.split(b"/"):
            fd = into(fd, component, flags, dress)
        return fd

    @contextmanager
    def directory(self, path: bytes) -> Iterator[int]:
        """A directory, open for reading, for the length of the block. Raises OSError."""
        with held(self.open(path, os.O_RDONLY | os.O_DIRECTORY)) as fd:
            yield fd

    @contextmanager
    def parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """The directory that holds a path, as a descriptor for `dir_fd`, and the path's last name. Raises OSError."""
        directory, _, name = path.rpartition(b"/")
        if name in (b"", b".", b".."):
            raise OSError(errno.EINVAL, "not the path of an entry", path)
        with held(self.open(directory, os.O_PATH | os.O_DIRECTORY)) as fd:
            yield fd, name

    def facts(self) -> os.stat_result:
        """The facts of the root itself. Raises OSError."""
        with held(self.open(b"", os.O_PATH | os.O_DIRECTORY)) as fd:
            return os.fstat(fd)


class HeldRoot:
    """A root that is opened at the first use and stays open: later mounts over it are not seen. Thread-safe."""

    def __init__(self, root: bytes) -> None:
        self.root = os.path.abspath(root)
        self._opening = threading.Lock()
        self._held: Root | None = None

    @property
    def beneath(self) -> Root:
        """The root, opened by the first call and kept open. Raises OSError if it is missing."""
        if self._held is None:
            with self._opening:
                if self._held is None:
                    self._held = self._open()
        return self._held

    def held_path(self) -> bytes:
        """A path of the open root for another process of this machine, whatever is mounted over it. Raises OSError."""
        return b"/proc/%d/fd/%d" % (os.getpid(), self.beneath.fd)

    def close(self) -> None:
        """Release the root; the next use opens it anew. May be called again."""
        with self._opening:
            if self._held is not None:
                self._held.close()
                self._held = None

    def _open(self) -> Root:
        return Root(self.root)


def read_mounts() -> tuple[Mount, ...]:
    """The mounts of this process's namespace. Raises OSError."""
    fd = os.open(b"/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
    with open(fd, "rb") as stream:
        return parse_mountinfo(stream.read())


def entry_path(directory_fd: int, name: bytes) -> bytes:
    """A path through the descriptor, for calls without `dir_fd` (the xattr calls): no component above can be swapped.
    Use it with `follow_symlinks=False`.
    """
    return b"/proc/self/fd/%d/%s" % (directory_fd, name)


def without_access_time(opened: Callable[[int], int]) -> int:
    """Open a file for reading by `opened(flags)`, without changing its access time if the kernel allows that (only to
    owners and root). A FIFO in its place does not block. Raises OSError.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return opened(flags | os.O_NOATIME)
    except PermissionError:
        return opened(flags)


def exists(directory_fd: int, name: bytes) -> bool:
    """Whether a directory has this name. Raises OSError."""
    try:
        os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


# The way to a directory: every step is recorded, and only symlinks of root are followed.


_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_SYMLINKS_LIMIT = 40  # as many as the kernel follows (path_resolution(7))


@dataclass(slots=True)
class TracedPath:
    """The steps of a walk, and the real path of its end, without symlinks."""

    looks: list[FileLook] = field(default_factory=list)
    real: bytes = b"/"


@contextmanager
def walk(directory: bytes, way: TracedPath) -> Iterator[int]:
    """Open a directory (O_PATH) and record all steps in `way`. Only symlinks of root or of this user are followed.

    Raises OSError; ELOOP for a symlink of another user, which is then the last step.
    """
    pending = [part for part in directory.split(b"/") if part]
    fd = os.open(b"/", _PATH | os.O_DIRECTORY)
    symlinks = 0
    try:
        _note(way, fd)
        while pending:
            part = pending.pop(0)
            deeper = os.open(part, _PATH, dir_fd=fd)
            if part == b"..":
                way.real = os.path.dirname(way.real)
            else:
                way.real = os.path.join(way.real, part)
            try:
                look = _note(way, deeper)
                if look.type is EntryType.SYMLINK:
                    symlinks += 1
                    _refuse_to_follow(look, symlinks)
                    text = os.readlink(b"", dir_fd=deeper)
                    pending[:0] = [piece for piece in text.split(b"/") if piece not in (b"", b".")]
                    way.real = b"/" if text.startswith(b"/") else os.path.dirname(way.real)
                    os.close(deeper)
                    deeper = os.open(b"/", _PATH | os.O_DIRECTORY) if text.startswith(b"/") else os.dup(fd)
                elif look.type is not EntryType.DIRECTORY:
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), way.real)
            except OSError:
                os.close(deeper)
                raise
            os.close(fd)
            fd = deeper
        if way.looks[-1].type is not EntryType.DIRECTORY:  # a symlink to a directory already recorded
            _note(way, fd)
        yield fd
    finally:
        os.close(fd)


def why_not_trusted(path: bytes) -> tuple[bytes, str, str] | None:
    """The part of a path through which a user other than root and this one could change where the path leads, the
    reason, and the remedy; None if there is none.

    A path that does not exist is as safe as the directories above it. Raises OSError if it cannot be examined.
    """
    way, last = TracedPath(), b""
    try:
        with walk(os.path.dirname(os.path.abspath(path)), way) as fd:
            last = os.path.basename(os.path.abspath(path))
            with held(os.open(last, _PATH, dir_fd=fd)) as deeper:
                way.real = os.path.join(way.real, last)
                _note(way, deeper)
    except FileNotFoundError:
        last = b""
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    return untrusted(way.looks, os.geteuid(), reached=bool(last))


def _refuse_to_follow(look: FileLook, symlinks: int) -> None:
    if look.uid not in (0, os.geteuid()) or symlinks > _SYMLINKS_LIMIT:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), look.path)


def _note(way: TracedPath, fd: int) -> FileLook:
    facts = os.fstat(fd)
    kind = EntryType.of_mode(facts.st_mode)
    look = FileLook(path=way.real, type=kind, uid=facts.st_uid, mode=stat.S_IMODE(facts.st_mode))
    way.looks.append(look)
    return look


# Removing a directory with everything in it, without following a symlink or entering a mount.


_PROBLEMS = 10
"""At most this many problems are recorded."""


@dataclass(slots=True, kw_only=True)
class Removed:
    """The number of removed names, and the reasons for the others."""

    names: int = 0
    problems: list[str] = field(default_factory=list)

    def note(self, path: bytes, reason: str) -> None:
        problem = f"{show(path)} is not removed: {reason}"
        if len(self.problems) < _PROBLEMS and problem not in self.problems:
            self.problems.append(problem)


def remove_tree(root: Root, path: bytes, mount_points: Collection[bytes]) -> Removed:
    """Remove a directory beneath the root; entries that cannot be removed stay, with the directories above them.

    Directories on other file systems are not entered, nor are `mount_points` (relative to the root), which may show
    another part of the same file system. May be called again. Never raises OSError.
    """
    removed = Removed()
    try:
        device = root.facts().st_dev
    except OSError as error:
        removed.note(path, error.strerror or str(error))
        return removed
    # Each directory is processed twice: first its files are removed and its directories listed, then it is removed
    # itself. It is opened by path each time, so that no descriptors stay open.
    stack = [(path, False)]
    while stack:
        directory, emptied = stack.pop()
        try:
            if emptied:
                with root.parent(directory) as (fd, name):
                    os.rmdir(name, dir_fd=fd)
                removed.names += 1
            elif directory in mount_points:
                removed.note(directory, "something is mounted on it")
            else:
                names = _take_out(root, directory, device, removed)
                stack.append((directory, True))
                stack += [(join(directory, name), False) for name in names]
        except FileNotFoundError:
            continue
        except OSError as error:
            # The reason why a directory is not empty has been recorded already.
            if not (emptied and error.errno == errno.ENOTEMPTY and removed.problems):
                removed.note(directory, error.strerror or str(error))
    return removed


def _take_out(root: Root, path: bytes, device: int, removed: Removed) -> list[bytes]:
    """Remove everything except directories; returns their names. Raises OSError."""
    with root.directory(path) as fd:
        if os.fstat(fd).st_dev != device:
            raise OSError(errno.EXDEV, "another file system is mounted on it", path)
        # Some file systems omit names from a listing while others are removed: repeat until nothing is removed.
        while True:
            before = removed.names
            directories = _take_out_listed(fd, path, removed)
            if removed.names == before:
                return directories


def _take_out_listed(fd: int, path: bytes, removed: Removed) -> list[bytes]:
    directories: list[bytes] = []
    # The descriptor's path gives names as bytes; the descriptor itself would give decoded names.
    with os.scandir(b"/proc/self/fd/%d" % fd) as listing:
        for listed in listing:
            try:
                if stat.S_ISDIR(os.stat(listed.name, dir_fd=fd, follow_symlinks=False).st_mode):
                    directories.append(listed.name)
                    continue
                os.unlink(listed.name, dir_fd=fd)
                removed.names += 1
            except FileNotFoundError:
                continue
            except OSError as error:
                removed.note(join(path, listed.name), error.strerror or str(error))
    return directories
