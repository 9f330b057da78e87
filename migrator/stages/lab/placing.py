"""Making files beneath a tree, descriptor by descriptor, so that neither the depth of a path nor its bytes matter."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

# O_PATH: no message to the servers of a network file system, so a deep path costs little.
_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose a file is."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """What a path gets once its content is there. None leaves a thing as it is; xattrs hold full names."""

    owner: Owner | None = None
    mode: int | None = None
    mtime_ns: int | None = None
    atime_ns: int | None = None
    xattrs: Mapping[bytes, bytes] = field(default_factory=dict)


def apply_attributes(directory_fd: int, name: bytes, attributes: Attributes) -> None:
    """Set owner, mode, xattrs and times, in the order in which none undoes another. Never follows a symlink.

    Without root the owner is left alone. Raises OSError.
    """
    if attributes.owner and os.geteuid() == 0:
        os.chown(name, attributes.owner.uid, attributes.owner.gid, dir_fd=directory_fd, follow_symlinks=False)
    through = b"/proc/self/fd/%d/%s" % (directory_fd, name)
    before_mode = [key for key in sorted(attributes.xattrs) if key.startswith(b"user.")]  # a read-only file takes none
    for key in before_mode:
        os.setxattr(through, key, attributes.xattrs[key], follow_symlinks=False)
    if attributes.mode is not None:  # after chown, which takes setuid and setgid away
        os.chmod(name, attributes.mode, dir_fd=directory_fd)
    for key in sorted(attributes.xattrs.keys() - set(before_mode)):  # ACLs, whose mask is a part of the mode
        os.setxattr(through, key, attributes.xattrs[key], follow_symlinks=False)
    if attributes.mtime_ns is not None:
        atime_ns = attributes.atime_ns if attributes.atime_ns is not None else attributes.mtime_ns
        os.utime(name, ns=(atime_ns, attributes.mtime_ns), dir_fd=directory_fd, follow_symlinks=False)


def write_file(directory_fd: int, name: bytes, pieces: Iterable[tuple[int, bytes]], size_bytes: int) -> None:
    """Make a new regular file from pieces with their offsets; what no piece covers is a hole. Raises OSError."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory_fd)
    try:
        end = 0
        for offset, piece in pieces:
            done = 0
            while done < len(piece):
                done += os.pwrite(fd, memoryview(piece)[done:], offset + done)
            end = max(end, offset + done)
        if end < size_bytes:
            os.ftruncate(fd, size_bytes)
    finally:
        os.close(fd)


class TreeWriter:
    """Makes paths in one tree. Directories get their attributes last, deepest first: `finish`, or leave the block.

    Every path is relative to the tree. Raises OSError; nothing that exists is replaced.
    """

    def __init__(self, tree: bytes) -> None:
        self._fd = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._directories: dict[bytes, Attributes] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.finish()
        finally:
            os.close(self._fd)

    @contextmanager
    def opened(self, directory: bytes) -> Iterator[int]:
        """A directory of the tree for `dir_fd`, component by component: the path may be longer than PATH_MAX."""
        fd = os.dup(self._fd)
        try:
            for component in directory.split(b"/") if directory else ():
                deeper = os.open(component, _PLACE, dir_fd=fd)
                os.close(fd)
                fd = deeper
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """The directory that a path lies in, and the path's name there."""
        directory, _, name = path.rpartition(b"/")
        with self.opened(directory) as fd:
            yield fd, name

    def directory(self, path: bytes, attributes: Attributes) -> bytes:
        """Make one directory, open to work in; its attributes follow in `finish`."""
        with self.parent(path) as (fd, name):
            os.mkdir(name, 0o700, dir_fd=fd)
        self.attributes_of_directory(path, attributes)
        return path

    def attributes_of_directory(self, path: bytes, attributes: Attributes) -> None:
        """What a directory that is there gets in `finish`; `b""` stands for the tree itself."""
        self._directories[path] = attributes

    def file(self, path: bytes, pieces: Iterable[tuple[int, bytes]], size_bytes: int, attributes: Attributes) -> bytes:
        """Make a regular file."""
        with self.parent(path) as (fd, name):
            write_file(fd, name, pieces, size_bytes)
            apply_attributes(fd, name, attributes)
        return path

    def symlink(self, path: bytes, target: bytes, attributes: Attributes) -> bytes:
        """Make a symlink; mode and xattrs of the attributes do not apply to one."""
        with self.parent(path) as (fd, name):
            os.symlink(target, name, dir_fd=fd)
            apply_attributes(
                fd,
                name,
                Attributes(owner=attributes.owner, mtime_ns=attributes.mtime_ns, atime_ns=attributes.atime_ns),
            )
        return path

    def link(self, existing: bytes, path: bytes) -> bytes:
        """Make another name of a file of this tree."""
        with self.parent(existing) as (from_fd, from_name), self.parent(path) as (to_fd, to_name):
            os.link(from_name, to_name, src_dir_fd=from_fd, dst_dir_fd=to_fd, follow_symlinks=False)
        return path

    def special(self, path: bytes, file_type: int, attributes: Attributes, device: int = 0) -> bytes:
        """Make a FIFO, a socket or a device node (`stat.S_IFIFO`, ...)."""
        with self.parent(path) as (fd, name):
            os.mknod(name, stat.S_IFMT(file_type) | 0o600, device, dir_fd=fd)
            apply_attributes(fd, name, attributes)
        return path

    def finish(self) -> None:
        """Give every directory its attributes, the deepest first. May be called again."""
        for path in sorted(self._directories, key=lambda path: path.count(b"/") + bool(path), reverse=True):
            attributes = self._directories[path]
            if path:
                with self.parent(path) as (fd, name):
                    apply_attributes(fd, name, attributes)
            else:
                apply_attributes(self._fd, b".", attributes)
        self._directories.clear()
