"""Putting archived files back, by descriptor, beneath a root, without following symlinks.

A file is made whole under a temporary name in the directory of its final one, flushed, and then gets its name, without
replacing anything unless that is asked for.
"""

import ctypes
import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Self

from migrator.adapters.filesystems.beneath import Root
from migrator.adapters.filesystems.writing import descriptor_path, set_capability, set_xattrs, write_piece
from migrator.decide.expectations import TEMPORARY_PREFIX, kept_xattrs
from migrator.domain.archives import ArchivedMember
from migrator.domain.entry import Entry, EntryType
from migrator.domain.site import TargetCapabilities

_libc = ctypes.CDLL(None, use_errno=True)
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK})
_CREATED_MODE = 0o600
_DIRECTORY_MODE = 0o700
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SECTOR_BYTES = 512
_NODES = {
    EntryType.FIFO: stat.S_IFIFO,
    EntryType.BLOCK: stat.S_IFBLK,
    EntryType.CHARACTER: stat.S_IFCHR,
}


class MountedRestorer:
    """A directory that members are put into. No symlink is followed; nothing is overwritten unless it is asked for. Blocking.
    `capabilities`: attributes that it cannot keep are not tried.
    """

    def __init__(self, root: bytes, capabilities: TargetCapabilities | None = None) -> None:
        self._path = os.path.abspath(root)
        self._capabilities = capabilities or TargetCapabilities()
        self._opening = threading.Lock()
        self._held: Root | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the root; the next call opens it anew."""
        with self._opening:
            if self._held is not None:
                self._held.close()
                self._held = None

    def restore(self, member: ArchivedMember, content: Iterator[bytes], *, overwrite: bool) -> None:
        """Make a member with all its attributes, under a temporary name first. Directories above it that are missing are made, for
        its owner alone. Raises OSError: FileExistsError where something has its name; what `content` raises goes through.
        """
        entry = member.entry
        with self._parent(entry) as (fd, name), _final_name(fd, name, overwrite=overwrite) as temporary:
            match entry.type:
                case EntryType.FILE:
                    self._make_file(fd, temporary, entry, content)
                case EntryType.SYMLINK:
                    os.symlink(entry.symlink_target or b"", temporary, dir_fd=fd)
                    _dress_node(fd, temporary, entry, self._kept(entry))
                case EntryType.FIFO | EntryType.BLOCK | EntryType.CHARACTER:
                    os.mknod(temporary, _NODES[entry.type] | _CREATED_MODE, entry.rdev, dir_fd=fd)
                    _dress_node(fd, temporary, entry, self._kept(entry))
                case EntryType.DIRECTORY | EntryType.SOCKET:
                    raise OSError(errno.EINVAL, f"a {entry.type.value} is in no archive", entry.path)

    def link(self, existing: bytes, member: ArchivedMember, *, overwrite: bool) -> None:
        """Make a member another name of one that was restored. Raises OSError as `restore`."""
        with (
            self._root.parent(existing) as (existing_fd, existing_name),
            self._parent(member.entry) as (fd, name),
            _final_name(fd, name, overwrite=overwrite) as temporary,
        ):
            os.link(existing_name, temporary, src_dir_fd=existing_fd, dst_dir_fd=fd, follow_symlinks=False)

    def sync(self) -> None:
        """Return when all that was restored has reached the disks. Raises OSError."""
        fd = self._root.open(b"", os.O_RDONLY | os.O_DIRECTORY)
        try:
            if _libc.syncfs(fd) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), self._path)
        finally:
            os.close(fd)

    @property
    def _root(self) -> Root:
        if self._held is None:
            with self._opening:
                if self._held is None:
                    self._held = Root(self._path)
        return self._held

    def _kept(self, entry: Entry) -> dict[bytes, bytes]:
        return kept_xattrs(entry.xattrs, self._capabilities)

    def _make_file(self, directory_fd: int, name: bytes, entry: Entry, content: Iterator[bytes]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, _CREATED_MODE, dir_fd=directory_fd)
        try:
            sparse = entry.blocks * _SECTOR_BYTES < entry.size_bytes
            position = 0
            for piece in content:
                write_piece(fd, piece, position, skip_zeros=sparse)
                position += len(piece)
            os.ftruncate(fd, position)
            _dress(descriptor_path(fd), entry, self._kept(entry))
            os.fsync(fd)
        finally:
            os.close(fd)

    @contextmanager
    def _parent(self, entry: Entry) -> Iterator[tuple[int, bytes]]:
        """The directory of a member, as a descriptor, and its name; directories that are missing are made for its owner."""
        directory, _, name = entry.path.rpartition(b"/")
        if name in (b"", b".", b".."):
            raise OSError(errno.EINVAL, "not the path of an entry", entry.path)
        try:
            fd = self._root.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            fd = self._make(directory, entry)
        try:
            yield fd, name
        finally:
            os.close(fd)

    def _make(self, directory: bytes, like: Entry) -> int:
        fd = self._root.open(b"", os.O_RDONLY | os.O_DIRECTORY)
        for component in directory.split(b"/"):
            try:
                deeper = _step(fd, component, like)
            finally:
                os.close(fd)
            fd = deeper
        return fd


def _dress(path: bytes, entry: Entry, xattrs: Mapping[bytes, bytes]) -> None:
    """Owner, mode, attributes and times of what a descriptor's path leads to; times last, setuid after the owner."""
    os.chown(path, entry.uid, entry.gid)
    set_xattrs(path, xattrs)
    if entry.type is not EntryType.SYMLINK:
        os.chmod(path, entry.mode)  # noqa: PTH101 (the path is bytes)
    set_capability(path, xattrs)
    os.utime(path, ns=(entry.atime_ns, entry.mtime_ns))


def _dress_node(directory_fd: int, name: bytes, entry: Entry, xattrs: Mapping[bytes, bytes]) -> None:
    """As `_dress`, for what cannot be opened; through a descriptor, since its directory's owner may be at work there."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_fd)
    try:
        facts = os.fstat(fd)
        if EntryType.of_mode(facts.st_mode) is not entry.type or facts.st_uid != os.geteuid() or facts.st_nlink != 1:
            raise OSError(errno.ESTALE, "it was replaced while it was made", name)
        _dress(descriptor_path(fd), entry, xattrs)
    finally:
        os.close(fd)


def _step(fd: int, component: bytes, like: Entry) -> int:
    if component in (b"", b".", b".."):
        raise OSError(errno.EINVAL, "not the path of a directory", component)
    try:
        return os.open(component, _DIRECTORY, dir_fd=fd)
    except FileNotFoundError:
        made = False
        with suppress(FileExistsError):
            os.mkdir(component, _DIRECTORY_MODE, dir_fd=fd)
            made = True
    deeper = os.open(component, _DIRECTORY, dir_fd=fd)
    # Only what is still the empty directory that was made: its owner may be at work beside.
    facts = os.fstat(deeper)
    if made and facts.st_uid == os.geteuid() and not os.listdir(deeper):
        os.fchown(deeper, like.uid, like.gid)
    return deeper


@contextmanager
def _final_name(directory_fd: int, name: bytes, *, overwrite: bool) -> Iterator[bytes]:
    """A name to work under, exchanged for the final one at the end of the block and removed where it fails."""
    if not overwrite and _is_there(directory_fd, name):
        # Before anything is written; a name that appears meanwhile is not replaced either.
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
    temporary = TEMPORARY_PREFIX + secrets.token_hex(8).encode()
    try:
        yield temporary
        if overwrite:
            os.rename(temporary, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
        else:
            _name_once(directory_fd, temporary, name)
    finally:
        # Renaming a name over another of the same file does nothing and leaves both (rename(2)).
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory_fd)


def _name_once(directory_fd: int, temporary: bytes, name: bytes) -> None:
    """Give a name that must not be taken. Where there are no hard links, it is looked at and then given."""
    try:
        os.link(temporary, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if _is_there(directory_fd, name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from error
        os.rename(temporary, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)


def _is_there(directory_fd: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
