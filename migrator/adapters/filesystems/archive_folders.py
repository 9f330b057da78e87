"""The archive directories of user trees on the target, by descriptor, without following symlinks."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO

from migrator.adapters.filesystems.beneath import Root
from migrator.adapters.filesystems.own_directories import open_own
from migrator.adapters.filesystems.writing import descriptor_path, remove_acls
from migrator.decide.compare import CLOSED_MODE
from migrator.domain.archives import ARCHIVE_DIRECTORY, PARTIAL_SUFFIX, archive_directory, number_of
from migrator.domain.errors import Refused
from migrator.domain.paths import show

_FILE_MODE = 0o600
_READABLE_FILE_MODE = 0o400
_READABLE_MODE = 0o500
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_BUFFER_BYTES = 1024 * 1024


class HeldFolder:
    """The archive directory of one tree on the target, held open. Files are root's alone until they are handed over."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def names(self) -> Sequence[bytes]:
        """What lies in it, in order."""
        return sorted(os.fsencode(name) for name in os.listdir(self._fd))

    @contextmanager
    def create(self, name: bytes) -> Iterator[BinaryIO]:
        """A new file under the partial form of the name, synced at the end of the block; one that is there is replaced. What fails
        leaves nothing.
        """
        partial = name + PARTIAL_SUFFIX
        with suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=self._fd)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(partial, flags, _FILE_MODE, dir_fd=self._fd)
        try:
            remove_acls(descriptor_path(fd))
            os.fchmod(fd, _FILE_MODE)
            with open(fd, "wb", buffering=_BUFFER_BYTES) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
        except BaseException:
            with suppress(OSError):
                os.unlink(partial, dir_fd=self._fd)
            raise

    def publish(self, names: Iterable[bytes]) -> None:
        """Give files their names, and return when that is on the disks. Never replaces: FileExistsError."""
        for name in names:
            # No rename: it would replace, and not every file system knows RENAME_NOREPLACE. Nobody but root gets in here.
            if self._is_there(name):
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), name)
            os.rename(name + PARTIAL_SUFFIX, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        os.fsync(self._fd)

    def remove(self, names: Iterable[bytes]) -> None:
        """Remove files of ours; those that are gone are removed already. Another name is an error in the program."""
        for name in names:
            if number_of(name) is None:
                raise ValueError(f"not the name of an archive: {name!r}")
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._fd)
        os.fsync(self._fd)

    @contextmanager
    def open(self, name: bytes) -> Iterator[BinaryIO]:
        """A file, for reading from its disks: its clean pages are dropped first. Never through a symlink."""
        fd = os.open(name, _READING | os.O_NONBLOCK, dir_fd=self._fd)
        with open(fd, "rb", buffering=_BUFFER_BYTES) as stream:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", name)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            yield stream

    def _is_there(self, name: bytes) -> bool:
        try:
            os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True


class MountedArchiveFolders:
    """The archive directories of all trees on the target. Blocking; errors of the kernel are OSError."""

    def __init__(self, root: bytes) -> None:
        self._path = os.path.abspath(root)

    @contextmanager
    def make(self, tree: bytes) -> Iterator[HeldFolder]:
        """The directory of a tree, for writing, made where it is missing. Raises Refused where it is not root's alone, OSError where
        the tree is not there.
        """
        with Root(self._path) as root, root.directory(tree) as tree_fd:
            fd = open_own(tree_fd, ARCHIVE_DIRECTORY, lambda why: _not_own(tree, why), lasting=True)
            try:
                yield HeldFolder(fd)
            finally:
                os.close(fd)

    @contextmanager
    def open(self, tree: bytes) -> Iterator[HeldFolder]:
        """The directory of a tree, for reading, whoever it belongs to. Raises FileNotFoundError where there is none."""
        with Root(self._path) as root, root.directory(archive_directory(tree)) as fd:
            yield HeldFolder(fd)

    def hand_over(self, tree: bytes, *, uid: int, gid: int) -> None:
        """Let the tree's user read their archives: theirs, mode 0400, in a directory of mode 0500. For the switch. May be called
        again; nothing happens where there is no such directory.
        """
        self._dress(tree, uid, gid, _READABLE_FILE_MODE, _READABLE_MODE)

    def take_back(self, tree: bytes) -> None:
        """Make them root's alone again, for the way back. What the user put there stays, and is root's then too. May be called
        again.
        """
        self._dress(tree, os.geteuid(), os.getegid(), _FILE_MODE, CLOSED_MODE)

    def _dress(self, tree: bytes, uid: int, gid: int, file_mode: int, mode: int) -> None:
        with Root(self._path) as root:
            try:
                fd = root.open(archive_directory(tree), os.O_RDONLY | os.O_DIRECTORY)
            except OSError as error:
                # The user may have taken the directory away, and put something else there.
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    return
                raise
            try:
                for name in os.listdir(fd):
                    if number_of(os.fsencode(name)) is not None:
                        _own(fd, os.fsencode(name), uid, gid, file_mode)
                os.fchmod(fd, mode)
                os.fchown(fd, uid, gid)
                remove_acls(descriptor_path(fd))
                os.fchmod(fd, mode)
                os.fsync(fd)
            finally:
                os.close(fd)


def _own(directory_fd: int, name: bytes, uid: int, gid: int, mode: int) -> None:
    """Owner and mode of one file; what is no file with a single name is nobody's archive, and stays as it is."""
    try:
        fd = os.open(name, _READING | os.O_NONBLOCK, dir_fd=directory_fd)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return
        raise
    try:
        facts = os.fstat(fd)
        if stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1:
            # Nobody has more rights in between than before or after: the mode of either owner is only his own.
            os.fchmod(fd, mode)
            os.fchown(fd, uid, gid)
            remove_acls(descriptor_path(fd))
            os.fchmod(fd, mode)
    finally:
        os.close(fd)


def _not_own(tree: bytes, why: str) -> Refused:
    return Refused(
        f"nothing can be archived of {show(tree)}: {show(archive_directory(tree))} on the target is not a directory of "
        f"root's alone: {why}",
        cause="somebody else made it, changed its owner or its mode, or the user has a directory of that name on the source",
        hint="look into it; give it back to root with mode 0700, or move it away, then run the same command again",
    )
