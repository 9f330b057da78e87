"""Probing a mounted file system with small operations in a directory of its own."""

import errno
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from migrator.domain.probe import ENTRIES, PROBE_NAME, ProbeTimes
from migrator.domain.site import SENTINEL_NAME

T = TypeVar("T")

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CONTENT = b"probe\n" * 64
_MODE = 0o700
_COMPLETE = b"complete"
"""The mark that all entries are there: they are made once."""

_SWITCH_S = 0.0002


class _Undisturbed:
    """A block in which this interpreter lets a thread go on quickly when its system call has ended. Otherwise that waits for
    5 ms while another thread computes, again and again where several do, and the file system would seem to be that slow (13 ms
    in the median where 2 were right). It costs those threads a few percent. Blocks may overlap, in several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._within = 0
        self._usual_s = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._within:
                self._usual_s = sys.getswitchinterval()
                sys.setswitchinterval(_SWITCH_S)
            self._within += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._within -= 1
            if not self._within:
                sys.setswitchinterval(self._usual_s)


_undisturbed = _Undisturbed()


class DirectoryProber:
    """The `Prober` port over a mounted directory. One call at a time.

    The root is opened anew by every call, and nothing is made in one without a sentinel: an empty directory in the place of a
    mount is not filled. `monotonic_s` is the clock that measures.
    """

    def __init__(self, root: bytes, monotonic_s: Callable[[], float]) -> None:
        self._root = root
        self._monotonic_s = monotonic_s

    def probe(self, number: int) -> ProbeTimes:
        """As the port says."""
        name, entry = _file_name(number), _entry_name(number)
        with self._open_root() as root_fd, self._made(root_fd) as fd, _undisturbed:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=fd)
            # What kernel and client still knew of it from an earlier round has expired by now.
            stat_s, _ = self._timed(lambda: os.stat(entry, dir_fd=fd, follow_symlinks=False))
            readdir_s, _ = self._timed(lambda: os.listdir(fd))
            create_s, file_fd = self._timed(lambda: os.open(name, _NEW_FILE, 0o600, dir_fd=fd))
            try:
                write_s, _ = self._timed(lambda: os.write(file_fd, _CONTENT))
                sync_s, _ = self._timed(lambda: os.fsync(file_fd))
            finally:
                os.close(file_fd)
            unlink_s, _ = self._timed(lambda: os.unlink(name, dir_fd=fd))
        return ProbeTimes(
            create_s=create_s,
            write_s=write_s,
            sync_s=sync_s,
            stat_s=stat_s,
            unlink_s=unlink_s,
            readdir_s=readdir_s,
        )

    def clean(self) -> None:
        """As the port says."""
        with self._open_root() as root_fd:
            try:
                fd = self._open_own(root_fd)
            except FileNotFoundError:
                return
            try:
                # The mark goes first: without it entries that are missing are made again.
                for name in (_COMPLETE, *_names(_file_name), *_names(_entry_name)):
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=fd)
            finally:
                os.close(fd)
            with suppress(FileNotFoundError):
                os.rmdir(PROBE_NAME, dir_fd=root_fd)

    def _timed(self, operation: Callable[[], T]) -> tuple[float, T]:
        begun_s = self._monotonic_s()
        result = operation()
        return max(self._monotonic_s() - begun_s, 0.0), result

    @contextmanager
    def _open_root(self) -> Iterator[int]:
        fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                os.stat(SENTINEL_NAME, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                raise OSError(errno.ESTALE, "it has no sentinel: not the file system that was set up") from None
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _made(self, root_fd: int) -> Iterator[int]:
        """The directory with all that is to be listed in it."""
        with suppress(FileExistsError):
            os.mkdir(PROBE_NAME, _MODE, dir_fd=root_fd)
        fd = self._open_own(root_fd)
        try:
            if not _is_there(fd, _COMPLETE):
                for name in (*_names(_entry_name), _COMPLETE):
                    with suppress(FileExistsError):
                        os.close(os.open(name, _NEW_FILE, 0o600, dir_fd=fd))
            yield fd
        finally:
            os.close(fd)

    def _open_own(self, root_fd: int) -> int:
        """Raises OSError where it is a symlink, somebody else's, or where others may change names in it."""
        fd = os.open(PROBE_NAME, _DIRECTORY, dir_fd=root_fd)
        facts = os.fstat(fd)
        if (
            facts.st_uid == os.geteuid()
            and not stat.S_IMODE(facts.st_mode) & 0o077
            and facts.st_dev == os.fstat(root_fd).st_dev
        ):
            return fd
        os.close(fd)
        raise OSError(errno.EPERM, "its directory for probes is not its own: remove it", PROBE_NAME)


def _names(named: Callable[[int], bytes]) -> tuple[bytes, ...]:
    return tuple(named(number) for number in range(ENTRIES))


def _file_name(number: int) -> bytes:
    return b"probe-%02d" % (number % ENTRIES)


def _entry_name(number: int) -> bytes:
    return b"entry-%02d" % (number % ENTRIES)


def _is_there(fd: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
