"""Bringing back what a drain left on a brick, through the mount, by descriptor, without following symlinks.

Copies are made in a directory of the volume's root that is root's alone, and get their names by `link(2)`, which replaces
nothing: GlusterFS knows neither RENAME_NOREPLACE nor RENAME_EXCHANGE (10.3 answers EINVAL). What the volume still shows under
a name is renamed into that directory before, under its whole path, so that the path alone says where it belongs.
"""

import errno
import hashlib
import os
import stat
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from migrator.adapters.filesystems.beneath import Root, entry_path
from migrator.adapters.filesystems.writing import (
    descriptor_path,
    set_capability,
    set_xattrs,
    write_piece,
)
from migrator.domain.entry import EntryType
from migrator.domain.recovery import ASIDE, COPIES, WORK_DIRECTORY, Leftover, VolumeName

_GFID = "glusterfs.gfid.string"
_PIECE_BYTES = 1 << 20
_LISTED_S = 60.0
_LOOKED_AT = 8
_CREATED_MODE = 0o600
_DIRECTORY_MODE = 0o700
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NODES = {
    EntryType.FIFO: stat.S_IFIFO,
    EntryType.SOCKET: stat.S_IFSOCK,
    EntryType.BLOCK: stat.S_IFBLK,
    EntryType.CHARACTER: stat.S_IFCHR,
}


class MountedVolumeRecovery:
    """The `VolumeRecovery` port over the mount of a volume."""

    def __init__(self, root: bytes) -> None:
        self._path = root
        self._listed: dict[bytes, float] = {}

    def look(self, path: bytes) -> VolumeName | None:
        """What a name leads to. What lies on a drained brick without a link-to file elsewhere is not found by its name
        (cluster.lookup-optimize), until somebody lists its directory: then his mount finds it, and goes on to. So it is listed.
        """
        try:
            with self._parent(path) as (fd, name):
                seen = _look(fd, name)
                directory = path.rpartition(b"/")[0]
                if seen is not None or self._listed.get(directory, -_LISTED_S) > time.monotonic() - _LISTED_S:
                    return seen
                self._listed[directory] = time.monotonic()
                _list(fd)
                return _look(fd, name)
        except FileNotFoundError:
            return None

    def digest(self, path: bytes) -> bytes:
        """Of content, or of a symlink's target."""
        with self._parent(path) as (fd, name):
            facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISLNK(facts.st_mode):
                return hashlib.sha256(os.readlink(name, dir_fd=fd)).digest()
            return _digest(fd, name) if stat.S_ISREG(facts.st_mode) else b""

    def copy_inode(self, leftover: Leftover) -> int | None:
        """The inode of the copy that was begun."""
        self._check_own()
        seen = self.look(COPIES + leftover.key)
        return None if seen is None else seen.inode

    def begin_copy(self, leftover: Leftover) -> int | None:
        """Make an empty copy."""
        with self._work(COPIES + leftover.key) as (fd, name):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=fd)
            if leftover.type is EntryType.SYMLINK:
                os.symlink(leftover.target, name, dir_fd=fd)
                return None
            if leftover.type is not EntryType.FILE:
                os.mknod(name, _NODES[leftover.type] | _CREATED_MODE, leftover.rdev, dir_fd=fd)
                return None
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(name, flags, _CREATED_MODE, dir_fd=fd)

    def write(self, descriptor: int, piece: bytes, position: int, *, sparse: bool) -> None:
        """Write content."""
        write_piece(descriptor, piece, position, skip_zeros=sparse)

    def abandon(self, descriptor: int) -> None:
        """Close what was begun."""
        os.close(descriptor)

    def end_copy(self, leftover: Leftover, descriptor: int | None, *, times: tuple[int, int]) -> None:
        """Owner, mode, attributes, times (modification, access), and the disks."""
        with self._work(COPIES + leftover.key) as (directory, name):
            if leftover.type is EntryType.SYMLINK:
                os.chown(name, leftover.uid, leftover.gid, dir_fd=directory, follow_symlinks=False)
                for key, value in leftover.xattrs.items():
                    os.setxattr(entry_path(directory, name), key, value, follow_symlinks=False)
                os.utime(name, ns=(times[1], times[0]), dir_fd=directory, follow_symlinks=False)
            else:
                if descriptor is not None:
                    os.ftruncate(descriptor, leftover.size_bytes)
                pinned = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
                try:
                    _dress(descriptor_path(pinned), leftover, times)
                finally:
                    os.close(pinned)
                if descriptor is not None:
                    os.fsync(descriptor)
            os.fsync(directory)

    def set_aside(self, path: bytes) -> None:
        """Move a name out of the way."""
        with self._parent(path) as (fd, name), self._work(ASIDE + path) as (aside, aside_name):
            waiting = _look_again(aside, aside_name)
            here = _look(fd, name)
            if here is None:
                return
            if waiting is not None:
                if waiting.inode != here.inode:
                    raise FileExistsError(errno.EEXIST, "something else was set aside under this name already", path)
                # Both are names of one file: a rename would do nothing, and leave both (rename(2)).
                os.unlink(aside_name, dir_fd=aside)
            os.rename(name, aside_name, src_dir_fd=fd, dst_dir_fd=aside)
            # Where its name alone does not lead to it yet, the next look at the brick tells.
            moved = _look(aside, aside_name)
            if moved is not None and moved.inode != here.inode:
                _return(aside, aside_name, moved, fd, name)
                raise OSError(errno.ESTALE, "something else took its name just now", path)

    def put_back(self, path: bytes) -> None:
        """Give what was set aside its name again."""
        with self._work(ASIDE + path) as (aside, aside_name), self._parent(path) as (fd, name):
            waiting, here = _look_again(aside, aside_name), _look(fd, name)
            if waiting is None:
                return
            if here is not None and here.inode == waiting.inode:
                # It has its name again already.
                os.unlink(aside_name, dir_fd=aside)
                return
            _return(aside, aside_name, waiting, fd, name)

    def place(self, leftover: Leftover, path: bytes) -> None:
        """Give the copy a name."""
        with self._work(COPIES + leftover.key) as (copies, copy), self._parent(path) as (fd, name):
            os.link(copy, name, src_dir_fd=copies, dst_dir_fd=fd, follow_symlinks=False)

    def drop_aside(self, leftover: Leftover, path: bytes) -> None:
        """Remove an original that was set aside."""
        with self._work(ASIDE + path) as (aside, name):
            seen = _look_again(aside, name)
            if seen is None:
                return
            if not seen.gfid or seen.gfid != leftover.gfid:
                raise OSError(errno.ESTALE, "what was set aside is another file by now", path)
            os.unlink(name, dir_fd=aside)

    def drop_copy(self, leftover: Leftover) -> None:
        """Take the copy's own name away."""
        self._check_own()
        with suppress(FileNotFoundError), self._parent(COPIES + leftover.key) as (fd, name):
            os.unlink(name, dir_fd=fd)

    def mtime_ns(self, directory: bytes) -> int:
        """The modification time of a directory."""
        with Root(self._path) as root, root.directory(directory) as fd:
            return os.fstat(fd).st_mtime_ns

    def restore_mtime(self, directory: bytes, mtime_ns: int, *, expected_ns: int) -> None:
        """Give a directory this modification time."""
        with Root(self._path) as root, root.directory(directory) as fd:
            facts = os.fstat(fd)
            if facts.st_mtime_ns == expected_ns:
                os.utime(fd, ns=(facts.st_atime_ns, mtime_ns))

    def tidy(self, keep: Collection[bytes] | None) -> None:
        """Remove the own names of copies, then the directories that are empty."""
        self._check_own()
        if keep is not None:
            with suppress(FileNotFoundError), self._parent(COPIES + b"any") as (fd, _):
                for name in map(os.fsencode, os.listdir(fd)):
                    if name not in keep:
                        os.unlink(name, dir_fd=fd)
        for path in (COPIES, ASIDE, WORK_DIRECTORY):
            with suppress(FileNotFoundError):
                self._tidy(path.rstrip(b"/"))

    def _tidy(self, path: bytes) -> None:
        waiting, found = [path], []
        with Root(self._path) as root:
            while waiting:
                one = waiting.pop()
                found.append(one)
                with root.directory(one) as fd, os.scandir(fd) as listing:
                    waiting += [
                        one + b"/" + os.fsencode(item.name) for item in listing if item.is_dir(follow_symlinks=False)
                    ]
            for one in reversed(found):
                try:
                    with root.parent(one) as (fd, name):
                        os.rmdir(name, dir_fd=fd)
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                        raise

    def _check_own(self) -> None:
        """Where somebody else has made the working directory, nothing in it is taken for ours. Raises PermissionError."""
        with suppress(FileNotFoundError), self._parent(WORK_DIRECTORY) as (fd, name):
            _check(os.stat(name, dir_fd=fd, follow_symlinks=False))

    @contextmanager
    def _parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        directory, _, name = path.rpartition(b"/")
        with Root(self._path) as root, root.directory(directory) as fd:
            yield fd, name

    @contextmanager
    def _work(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """The directory of a path below the working directory; what is missing is made, and has to be root's alone."""
        directory, _, name = path.rpartition(b"/")
        with Root(self._path) as root:
            fd = root.open(b"", os.O_RDONLY | os.O_DIRECTORY)
            try:
                for number, component in enumerate(directory.split(b"/")):
                    with suppress(FileExistsError):
                        os.mkdir(component, _DIRECTORY_MODE, dir_fd=fd)
                        os.fsync(fd)
                    deeper = os.open(component, _DIRECTORY, dir_fd=fd)
                    os.close(fd)
                    fd = deeper
                    facts = os.fstat(fd)
                    if number == 0:
                        _check(facts)
                yield fd, name
            finally:
                os.close(fd)


def _check(facts: os.stat_result) -> None:
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        words = f"{WORK_DIRECTORY.decode()} in the root of the volume is not root's alone: move it away"
        raise PermissionError(errno.EPERM, words, WORK_DIRECTORY)


def _return(aside: int, aside_name: bytes, waiting: VolumeName, directory: int, name: bytes) -> None:
    """Give what was set aside its name again, unless something has it."""
    if waiting.type is EntryType.DIRECTORY:
        # It has no second name. What could be replaced by it is an empty directory.
        os.rename(aside_name, name, src_dir_fd=aside, dst_dir_fd=directory)
        return
    os.link(aside_name, name, src_dir_fd=aside, dst_dir_fd=directory, follow_symlinks=False)
    os.unlink(aside_name, dir_fd=aside)


def _look(directory: int, name: bytes) -> VolumeName | None:
    try:
        facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    try:
        gfid = uuid.UUID(os.getxattr(entry_path(directory, name), _GFID, follow_symlinks=False).decode("ascii")).bytes
    except (OSError, ValueError):
        gfid = b""
    return VolumeName(
        type=EntryType.of_mode(facts.st_mode),
        gfid=gfid,
        inode=facts.st_ino,
        size_bytes=facts.st_size,
        rdev=facts.st_rdev,
    )


def _list(directory: int) -> None:
    """List a directory with what its entries are. The kernel asks for that beyond the first entries only where somebody looks
    at some (FUSE_READDIRPLUS_AUTO).
    """
    with os.scandir(directory) as listing:
        for number, entry in enumerate(listing):
            if number % _LOOKED_AT == 0:
                with suppress(OSError):
                    entry.stat(follow_symlinks=False)


def _look_again(directory: int, name: bytes) -> VolumeName | None:
    """As `_look`. What a rename has left on the drained brick may have no link-to file where its name belongs: then nobody is
    told of it by its name, but by a listing (cluster.lookup-optimize), and from then on by its name too.
    """
    seen = _look(directory, name)
    if seen is None and name in map(os.fsencode, os.listdir(directory)):
        seen = _look(directory, name)
        if seen is None:
            raise OSError(errno.EBUSY, "the volume lists what was set aside, and does not find it", name)
    return seen


def _digest(directory: int, name: bytes) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.ESTALE, "it was replaced", name)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        digest = hashlib.sha256()
        while piece := os.read(fd, _PIECE_BYTES):
            digest.update(piece)
        return digest.digest()
    finally:
        os.close(fd)


def _dress(path: bytes, leftover: Leftover, times: tuple[int, int]) -> None:
    os.chown(path, leftover.uid, leftover.gid)
    set_xattrs(path, leftover.xattrs)
    os.chmod(path, leftover.mode)  # noqa: PTH101 (the path is bytes)
    set_capability(path, leftover.xattrs)
    os.utime(path, ns=(times[1], times[0]))
    facts = os.stat(path)
    found = (facts.st_uid, facts.st_gid, stat.S_IMODE(facts.st_mode), facts.st_size, facts.st_mtime_ns)
    if found != (leftover.uid, leftover.gid, leftover.mode, leftover.size_bytes, times[0]):
        raise OSError(errno.EIO, "the volume does not keep its owner, mode, size or time", leftover.names[0])
