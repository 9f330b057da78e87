"""Copying one path by descriptor, whatever its length and kind.

The source is pinned with O_PATH before anything is asked of it, so that what is checked is what is read, and a device
or a FIFO in a file's place is never opened. The copy is made under a temporary name in the directory of its final one,
reached by descriptor, flushed, and renamed: a name on the target has either its old content or its whole new one.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from migrator.adapters.filesystems.beneath import Root, entry_path
from migrator.adapters.filesystems.xattrs import read_xattrs
from migrator.decide.expectations import TEMPORARY_PREFIX, kept_xattrs
from migrator.decide.switching import opened_mode
from migrator.domain.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType
from migrator.domain.site import TargetCapabilities
from migrator.domain.units import MIB

TRIES = 3
"""How often a file is copied again because it changed while it was read."""

_COPY_BYTES = MIB
_HOLE_BYTES = 64 * 1024
"""Runs of zeros are left out in steps of this size, where a sparse file's system cannot tell its holes."""
_TEMPORARY_RANDOM_BYTES = 8
_CREATED_MODE = 0o600
_CAPABILITY = b"security.capability"
_NODES = {
    EntryType.FIFO: stat.S_IFIFO,
    EntryType.SOCKET: stat.S_IFSOCK,
    EntryType.BLOCK: stat.S_IFBLK,
    EntryType.CHARACTER: stat.S_IFCHR,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What is carried over besides content."""

    stat: os.stat_result
    xattrs: Mapping[bytes, bytes]


def copy_entry(source: Root, target: Root, entry: Entry, capabilities: TargetCapabilities) -> None:
    """Copy one path as it is now; of `entry` only path and type are believed.

    Content with its holes, owner, mode, ACLs and attributes that the target keeps (never `trusted.*`), times last. A
    directory is made, or its attributes set, without its content. May be called again.

    A file that changes while it is read is copied again, a few times; the last copy then carries the time from before
    it was read, so that the next pass and the verification see that it is old.

    Raises OSError: ESTALE where the source is of another type now, ELOOP or ENOTDIR where a directory on the way was
    swapped for a symlink, and what the kernel says otherwise. A copy that fails leaves no temporary file.
    """
    with source.parent(entry.path) as (source_fd, source_name), _pinned(source_fd, source_name) as pinned:
        if EntryType.of_mode(os.fstat(pinned).st_mode) is not entry.type:
            raise OSError(errno.ESTALE, f"the source is no {entry.type.value} any more", entry.path)
        read_facts = partial(_facts, source_fd, source_name, pinned, capabilities)
        with target.parent(entry.path) as (target_fd, target_name):
            match entry.type:
                case EntryType.FILE:
                    _copy_file(pinned, read_facts, target_fd, target_name)
                case EntryType.DIRECTORY:
                    _copy_directory(read_facts(), target_fd, target_name)
                case EntryType.SYMLINK:
                    facts, link = read_facts(), os.readlink(b"", dir_fd=pinned)
                    with _temporary_name(target_fd, target_name) as name:
                        os.symlink(link, name, dir_fd=target_fd)
                        _dress_node(target_fd, name, facts)
                case EntryType.FIFO | EntryType.SOCKET | EntryType.BLOCK | EntryType.CHARACTER:
                    facts = read_facts()
                    with _temporary_name(target_fd, target_name) as name:
                        os.mknod(name, _NODES[entry.type] | _CREATED_MODE, facts.stat.st_rdev, dir_fd=target_fd)
                        _dress_node(target_fd, name, facts)


def dress_directory(fd: int, like: Entry, capabilities: TargetCapabilities) -> None:
    """Owner, mode, ACLs and attributes that the target keeps, and times of an open directory, from what a look saw.

    It begins without the rights of group and others, and gets them in the end: so it is never open to more than it will be.
    """
    path = descriptor_path(fd)
    os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) & stat.S_IRWXU)
    os.fchown(fd, like.uid, like.gid)
    set_xattrs(path, kept_xattrs(like.xattrs, capabilities))
    os.fchmod(fd, opened_mode(like, capabilities))
    os.utime(fd, ns=(like.atime_ns, like.mtime_ns))


def remove_acls(path: bytes) -> None:
    """Take both ACLs away, which a new entry may have from its directory. Follows the path's last part."""
    for name in (ACL_ACCESS, ACL_DEFAULT):
        try:
            os.removexattr(path, name)
        except OSError as error:
            if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
                raise


def descriptor_path(fd: int) -> bytes:
    """A path that leads to what a descriptor holds, also one that was opened with O_PATH, and also to a symlink."""
    return b"/proc/self/fd/%d" % fd


@contextmanager
def _pinned(directory_fd: int, name: bytes) -> Iterator[int]:
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_fd)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _temporary_name(directory_fd: int, name: bytes) -> Iterator[bytes]:
    """A name to work under, renamed to the final one at the end of the block and removed where it fails."""
    temporary = TEMPORARY_PREFIX + secrets.token_hex(_TEMPORARY_RANDOM_BYTES).encode()
    try:
        yield temporary
        os.rename(temporary, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
    except BaseException:
        # What cannot be removed is an extra path, which the verification lists; the first error matters more.
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory_fd)
        raise


def _facts(directory_fd: int, name: bytes, pinned: int, capabilities: TargetCapabilities) -> _Facts:
    """Attributes of what is pinned. Raises OSError (ESTALE) where the name leads to something else by now."""
    facts = _Facts(stat=os.fstat(pinned), xattrs=kept_xattrs(read_xattrs(directory_fd, name), capabilities))
    now = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    if (now.st_dev, now.st_ino) != (facts.stat.st_dev, facts.stat.st_ino):
        raise OSError(errno.ESTALE, "the source was replaced while it was copied", name)
    return facts


def _copy_file(pinned: int, read_facts: Callable[[], _Facts], target_fd: int, target_name: bytes) -> None:
    reading = _open_pinned(pinned)
    try:
        with _temporary_name(target_fd, target_name) as name:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            writing = os.open(name, flags, _CREATED_MODE, dir_fd=target_fd)
            try:
                for _ in range(TRIES):
                    facts = read_facts()
                    _copy_content(reading, writing, facts.stat)
                    if _moment(os.fstat(reading)) == _moment(facts.stat):
                        break
                _dress(writing, facts)
                os.fsync(writing)
            finally:
                os.close(writing)
    finally:
        os.close(reading)


def _open_pinned(pinned: int) -> int:
    """Open what is pinned for reading, its access time left alone where the kernel allows that."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    path = descriptor_path(pinned)
    try:
        return os.open(path, flags | os.O_NOATIME)
    except PermissionError:
        return os.open(path, flags)


def _moment(facts: os.stat_result) -> tuple[int, int, int]:
    return facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _copy_content(reading: int, writing: int, facts: os.stat_result) -> None:
    os.ftruncate(writing, 0)
    end = facts.st_size
    sparse = facts.st_blocks * 512 < end
    for start, stop in _data_ranges(reading, end) if sparse else [(0, end)]:
        position = start
        while position < stop:
            piece = os.pread(reading, min(_COPY_BYTES, stop - position), position)
            if not piece:
                end = position
                break
            write_piece(writing, piece, position, skip_zeros=sparse)
            position += len(piece)
    os.ftruncate(writing, end)


def _data_ranges(fd: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Where data lies, by SEEK_DATA; all of it where the file system does not know."""
    position = 0
    while position < size_bytes:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
            stop = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            start, stop = position, size_bytes
        if stop <= position:
            return
        yield start, min(stop, size_bytes)
        position = stop


def write_piece(fd: int, piece: bytes, position: int, *, skip_zeros: bool) -> None:
    """Write at a place; with `skip_zeros` runs of zeros are left out, for a file that is empty there. Raises OSError."""
    step = _HOLE_BYTES if skip_zeros else len(piece)
    for offset in range(0, len(piece), step):
        part = piece[offset : offset + step]
        if skip_zeros and part.count(0) == len(part):
            continue
        written = 0
        while written < len(part):
            written += os.pwrite(fd, memoryview(part)[written:], position + offset + written)


def _copy_directory(facts: _Facts, target_fd: int, target_name: bytes) -> None:
    try:
        os.mkdir(target_name, 0o700, dir_fd=target_fd)
    except FileExistsError:
        existing = os.stat(target_name, dir_fd=target_fd, follow_symlinks=False)
        if not stat.S_ISDIR(existing.st_mode):
            os.unlink(target_name, dir_fd=target_fd)
            os.mkdir(target_name, 0o700, dir_fd=target_fd)
    fd = os.open(target_name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=target_fd)
    try:
        _dress(fd, facts)
        os.fsync(fd)
    finally:
        os.close(fd)


def _dress(fd: int, facts: _Facts) -> None:
    """Owner, mode, attributes and times of an open file or directory; times last, setuid after the owner."""
    path = descriptor_path(fd)
    os.fchown(fd, facts.stat.st_uid, facts.stat.st_gid)
    set_xattrs(path, facts.xattrs)
    os.fchmod(fd, stat.S_IMODE(facts.stat.st_mode))
    set_capability(path, facts.xattrs)
    os.utime(fd, ns=(facts.stat.st_atime_ns, facts.stat.st_mtime_ns))


def _dress_node(directory_fd: int, name: bytes, facts: _Facts) -> None:
    """As `_dress`, for what cannot be opened. The path goes through the directory, and its last part is not followed."""
    os.chown(name, facts.stat.st_uid, facts.stat.st_gid, dir_fd=directory_fd, follow_symlinks=False)
    if stat.S_ISLNK(facts.stat.st_mode):
        for attribute, value in facts.xattrs.items():
            os.setxattr(entry_path(directory_fd, name), attribute, value, follow_symlinks=False)
    else:
        with _pinned(directory_fd, name) as pinned:
            if stat.S_IFMT(os.fstat(pinned).st_mode) != stat.S_IFMT(facts.stat.st_mode):
                raise OSError(errno.ESTALE, "the copy was replaced while it was made", name)
            set_xattrs(descriptor_path(pinned), facts.xattrs)
            os.chmod(descriptor_path(pinned), stat.S_IMODE(facts.stat.st_mode))  # noqa: PTH101 (the path is bytes)
    times = (facts.stat.st_atime_ns, facts.stat.st_mtime_ns)
    os.utime(name, ns=times, dir_fd=directory_fd, follow_symlinks=False)


def set_xattrs(path: bytes, xattrs: Mapping[bytes, bytes]) -> None:
    """Set what is carried, and take away what an entry has from its directory's default ACL or from before.

    The mode is set afterwards: it and the ACL's mask agree on the source, and taking an ACL away changes it.
    """
    try:
        present = os.listxattr(path)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        present = []
    for name in map(os.fsencode, present):
        inherited = name in (ACL_ACCESS, ACL_DEFAULT) or name.startswith(b"user.")
        if inherited and name not in xattrs:
            os.removexattr(path, name)
    for name, value in xattrs.items():
        if name != _CAPABILITY:
            os.setxattr(path, name, value)


def set_capability(path: bytes, xattrs: Mapping[bytes, bytes]) -> None:
    """File capabilities come last, since every change of the owner takes them away."""
    if _CAPABILITY in xattrs:
        os.setxattr(path, _CAPABILITY, xattrs[_CAPABILITY])
