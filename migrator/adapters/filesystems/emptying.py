"""Removing a directory with all that is in it, beneath a root, without following a symlink or entering a mount."""

import errno
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass, field

from migrator.adapters.filesystems.beneath import Root
from migrator.domain.paths import join, show

_PROBLEMS = 10
"""How many problems are told; the others are alike."""


@dataclass(slots=True, kw_only=True)
class Removed:
    """How many names went, and why the others stay."""

    names: int = 0
    problems: list[str] = field(default_factory=list)

    def note(self, path: bytes, reason: str) -> None:
        problem = f"{show(path)} is not removed: {reason}"
        if len(self.problems) < _PROBLEMS and problem not in self.problems:
            self.problems.append(problem)


def remove_tree(root: Root, path: bytes, mount_points: Collection[bytes]) -> Removed:
    """Remove a directory beneath the root; what cannot be removed stays, with the directories above it.

    Directories on another file system than the root's are not entered, nor are `mount_points` (relative to the root),
    which may show another place of the same file system. May be called again. Never raises OSError.
    """
    removed = Removed()
    try:
        fd = root.open(b"", os.O_PATH | os.O_DIRECTORY)
        try:
            device = os.fstat(fd).st_dev
        finally:
            os.close(fd)
    except OSError as error:
        removed.note(path, error.strerror or str(error))
        return removed
    # Each directory twice: to take out its files and list its directories, and, when those are gone, to be removed. By
    # its path each time, so that neither depth nor the number of directories costs descriptors.
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
            # A directory that is not empty has had its problem told already.
            if not (emptied and error.errno == errno.ENOTEMPTY and removed.problems):
                removed.note(directory, error.strerror or str(error))
    return removed


def _take_out(root: Root, path: bytes, device: int, removed: Removed) -> list[bytes]:
    """Remove what is no directory; returns the names of the directories. Raises OSError."""
    with root.directory(path) as fd:
        if os.fstat(fd).st_dev != device:
            raise OSError(errno.EXDEV, "another file system is mounted on it", path)
        # Some file systems leave names out of a listing while others are removed: until nothing is found to remove.
        while True:
            before = removed.names
            directories = _take_out_listed(fd, path, removed)
            if removed.names == before:
                return directories


def _take_out_listed(fd: int, path: bytes, removed: Removed) -> list[bytes]:
    directories: list[bytes] = []
    # By its descriptor's path, because that gives names as bytes; a descriptor would give decoded names.
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
