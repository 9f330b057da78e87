"""Archive directories, source files and restored files, all by descriptor and without following symlinks."""

import ctypes
import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, Self

from migrator.core.entry import Entry, EntryType
from migrator.core.errors import Refused
from migrator.core.paths import show
from migrator.core.units import MIB
from migrator.fs.beneath import Root
from migrator.fs.model import TargetCapabilities
from migrator.fs.reading import DIGEST_ALGORITHMS, ReadingFileSystem
from migrator.fs.rules import CLOSED_MODE, TEMPORARY_PREFIX, kept_xattrs
from migrator.fs.writing import descriptor_path, open_own, remove_acls, set_capability, set_xattrs, write_piece
from migrator.reap import model
from migrator.reap.model import LeftOut

# --- Archive directories on the target


_FILE_MODE = 0o600
_READABLE_FILE_MODE = 0o400
_READABLE_MODE = 0o500
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_BUFFER_BYTES = 1024 * 1024


class HeldFolder:
    """The open archive directory of one tree on the target. Files belong to root alone until `hand_over`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def names(self) -> Sequence[bytes]:
        """All names in the directory, in order."""
        return sorted(os.fsencode(name) for name in os.listdir(self._fd))

    @contextmanager
    def create(self, name: bytes) -> Iterator[BinaryIO]:
        """A new file under the partial form of the name, replacing an existing one, and synced at the end of the block. On failure
        it is removed.
        """
        partial = name + model.PARTIAL_SUFFIX
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
        """Give files their final names, durably. Never replaces a file: FileExistsError."""
        for name in names:
            # Not rename, which would replace: some file systems lack RENAME_NOREPLACE. Only root has access here.
            if _is_there(self._fd, name):
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), name)
            os.rename(name + model.PARTIAL_SUFFIX, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        os.fsync(self._fd)

    def remove(self, names: Iterable[bytes]) -> None:
        """Remove archive files; missing ones are ignored. Any other name is an error in the program."""
        for name in names:
            if model.number_of(name) is None:
                raise ValueError(f"not the name of an archive: {name!r}")
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._fd)
        os.fsync(self._fd)

    @contextmanager
    def open(self, name: bytes) -> Iterator[BinaryIO]:
        """Open a file for reading from the disks: its clean pages are dropped first. Follows no symlink."""
        fd = os.open(name, _READING | os.O_NONBLOCK, dir_fd=self._fd)
        with open(fd, "rb", buffering=_BUFFER_BYTES) as stream:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", name)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            yield stream


class MountedArchiveFolders:
    """The archive directories of all trees on the target. Blocking; errors of the kernel are OSError."""

    def __init__(self, root: bytes) -> None:
        self._path = os.path.abspath(root)

    @contextmanager
    def make(self, tree: bytes) -> Iterator[HeldFolder]:
        """Open the directory of a tree for writing; create it if it is missing. Raises Refused if it is not root's alone, OSError
        if the tree does not exist.
        """
        with Root(self._path) as root, root.directory(tree) as tree_fd:
            fd = open_own(tree_fd, model.ARCHIVE_DIRECTORY, lambda why: _not_own(tree, why), lasting=True)
            try:
                yield HeldFolder(fd)
            finally:
                os.close(fd)

    @contextmanager
    def open(self, tree: bytes) -> Iterator[HeldFolder]:
        """Open the directory of a tree for reading, regardless of its owner. Raises FileNotFoundError if it is missing."""
        with Root(self._path) as root, root.directory(model.archive_directory(tree)) as fd:
            yield HeldFolder(fd)

    def hand_over(self, tree: bytes, *, uid: int, gid: int) -> None:
        """Give the archives to the tree's user, with mode 0400 in a directory of mode 0500. For the switch. May be called again;
        a missing directory is ignored.
        """
        self._dress(tree, uid, gid, _READABLE_FILE_MODE, _READABLE_MODE)

    def take_back(self, tree: bytes) -> None:
        """Give the archives back to root alone, for a rollback. Files that the user put there stay, and become root's too. May be
        called again.
        """
        self._dress(tree, os.geteuid(), os.getegid(), _FILE_MODE, CLOSED_MODE)

    def _dress(self, tree: bytes, uid: int, gid: int, file_mode: int, mode: int) -> None:
        with Root(self._path) as root:
            try:
                fd = root.open(model.archive_directory(tree), os.O_RDONLY | os.O_DIRECTORY)
            except OSError as error:
                # The user may have replaced the directory by something else.
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    return
                raise
            try:
                for name in os.listdir(fd):
                    if model.number_of(os.fsencode(name)) is not None:
                        _own(fd, os.fsencode(name), uid, gid, file_mode)
                os.fchmod(fd, mode)
                os.fchown(fd, uid, gid)
                remove_acls(descriptor_path(fd))
                os.fchmod(fd, mode)
                os.fsync(fd)
            finally:
                os.close(fd)


def _own(directory_fd: int, name: bytes, uid: int, gid: int, mode: int) -> None:
    """Set owner and mode of one file. Anything but a regular file with a single name is no archive, and is left as it is."""
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
            # The modes of both owners grant rights to the owner only, so nobody gains access in between.
            os.fchmod(fd, mode)
            os.fchown(fd, uid, gid)
            remove_acls(descriptor_path(fd))
            os.fchmod(fd, mode)
    finally:
        os.close(fd)


def _not_own(tree: bytes, why: str) -> Refused:
    return Refused(
        f"nothing can be archived of {show(tree)}: {show(model.archive_directory(tree))} on the target is not a directory of "
        f"root's alone: {why}",
        cause="somebody else made it, changed its owner or its mode, or the user has a directory of that name on the source",
        hint="look into it; give it back to root with mode 0700, or move it away, then run the same command again",
    )


# --- Reading files of the source: look, read, and look again through the descriptor


HELD_BYTES = MIB // 4
"""Files up to this size are read completely before anything of them is written."""

_READ_BYTES = 4 * MIB


class MemberReader:
    """The `MemberSource` port over a file system that is read. Thread-safe."""

    def __init__(self, source: ReadingFileSystem, *, algorithm: str, held_bytes: int = HELD_BYTES) -> None:
        self._source = source
        self._algorithm = algorithm
        self._held_bytes = held_bytes

    def open(self, row: model.ReapRow, *, settled_before_ns: int) -> "ReadMember | LeftOut":
        try:
            entry = self._source.look(row.path)
        except OSError as error:
            return _unreadable(row.path, error)
        if entry is None:
            return LeftOut(path=row.path, reason=model.LeftOutReason.VANISHED, detail="it is not there any more")
        if not model.is_listed(row, entry):
            detail = "it is not as in the reap list any more"
            return LeftOut(path=row.path, reason=model.LeftOutReason.CHANGED, detail=detail)
        if entry.ctime_ns >= settled_before_ns:
            return LeftOut(path=row.path, reason=model.LeftOutReason.FRESH, detail="it changed a moment ago")
        try:
            return self._read(entry)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                return _changed(entry)
            return _unreadable(row.path, error)

    def _read(self, entry: Entry) -> "ReadMember | LeftOut":
        if entry.type is not EntryType.FILE:
            # Nothing to open: the first look has all of it, and an equal second look proves it unchanged.
            now = self._source.look(entry.path)
            same = now is not None and _moment(now) == _moment(entry) and now.symlink_target == entry.symlink_target
            return ReadMember(entry, fd=-1, algorithm=self._algorithm) if same else _changed(entry)
        member = ReadMember(entry, fd=self._open_file(entry.path), algorithm=self._algorithm)
        if entry.size_bytes <= self._held_bytes:
            try:
                left_out = member.hold()
            except BaseException:
                member.close()
                raise
            if left_out is not None:
                return left_out
        return member

    def _open_file(self, path: bytes) -> int:
        # O_NONBLOCK: a FIFO in a file's place must not block. O_NOATIME is for owners and root only.
        flags = os.O_RDONLY | os.O_NONBLOCK
        try:
            return self._source.beneath.open(path, flags | os.O_NOATIME)
        except PermissionError:
            return self._source.beneath.open(path, flags)


class ReadMember:
    """The `OpenMember` port. `fd` is -1 for what is no regular file."""

    def __init__(self, entry: Entry, *, fd: int, algorithm: str) -> None:
        self._entry = entry
        self._fd = fd
        self._hasher = DIGEST_ALGORITHMS[algorithm]()
        self._held: bytes | None = None

    @property
    def entry(self) -> Entry:
        return self._entry

    @property
    def is_checked(self) -> bool:
        return self._held is not None or self._entry.type is not EntryType.FILE

    def hold(self) -> LeftOut | None:
        """Read the content into memory. Raises OSError."""
        content = b"".join(self._read())
        left_out = self._check(len(content))
        self.close()
        if left_out is None:
            self._held = content
        return left_out

    def pieces(self) -> Iterator[bytes]:
        if self._held is not None:
            yield self._held
        elif self._fd >= 0:
            yield from self._read()

    def finish(self) -> bytes | LeftOut | None:
        if self._entry.type is not EntryType.FILE:
            return None
        if self._held is None:
            left_out = self._check(None)
            self.close()
            if left_out is not None:
                return left_out
        return self._hasher.digest()

    def close(self) -> None:
        """Release the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> Iterator[bytes]:
        left_bytes = self._entry.size_bytes
        position = 0
        # Data appended meanwhile is not read; the second look detects it.
        while left_bytes > 0 and (piece := os.pread(self._fd, min(_READ_BYTES, left_bytes), position)):
            self._hasher.update(memoryview(piece))
            yield piece
            position += len(piece)
            left_bytes -= len(piece)

    def _check(self, read_bytes: int | None) -> LeftOut | None:
        facts = os.fstat(self._fd)
        now = (
            EntryType.of_mode(facts.st_mode),
            facts.st_dev,
            facts.st_ino & 0xFFFF_FFFF_FFFF_FFFF,
            facts.st_size,
            facts.st_mtime_ns,
            facts.st_ctime_ns,
        )
        whole = read_bytes is None or read_bytes == self._entry.size_bytes
        return None if whole and now == _moment(self._entry) else _changed(self._entry)


def _moment(entry: Entry) -> tuple[EntryType, int, int, int, int, int]:
    return entry.type, entry.dev, entry.ino, entry.size_bytes, entry.mtime_ns, entry.ctime_ns


def _changed(entry: Entry) -> LeftOut:
    return LeftOut(path=entry.path, reason=model.LeftOutReason.CHANGED, detail="it changed while it was read")


def _unreadable(path: bytes, error: OSError) -> LeftOut:
    return LeftOut(path=path, reason=model.LeftOutReason.UNREADABLE, detail=error.strerror or str(error))


# --- Restoring
#
# A file is completed under a temporary name in its final directory, synced, and then renamed. It replaces an existing file only on
# request.


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
    """Restores members into a directory. Blocking. Nothing is overwritten except on request. Attributes that `capabilities` lack
    are not set.
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
        """Close the root; the next call opens it again."""
        with self._opening:
            if self._held is not None:
                self._held.close()
                self._held = None

    def restore(self, member: model.ArchivedMember, content: Iterator[bytes], *, overwrite: bool) -> None:
        """Restore a member with all its attributes, under a temporary name first. Missing directories above it are created for its
        owner alone. Raises OSError (FileExistsError if the name is taken), and what `content` raises.
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

    def link(self, existing: bytes, member: model.ArchivedMember, *, overwrite: bool) -> None:
        """Restore a member as another name of a restored one. Raises OSError as `restore` does."""
        with (
            self._root.parent(existing) as (existing_fd, existing_name),
            self._parent(member.entry) as (fd, name),
            _final_name(fd, name, overwrite=overwrite) as temporary,
        ):
            os.link(existing_name, temporary, src_dir_fd=existing_fd, dst_dir_fd=fd, follow_symlinks=False)

    def sync(self) -> None:
        """Flush all restored files to the disks. Raises OSError."""
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
        """The directory of a member, as a descriptor, and the member's name. Missing directories are created for its owner."""
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
    """Set owner, mode, attributes and times through the path of a descriptor; times last, setuid after the owner."""
    os.chown(path, entry.uid, entry.gid)
    set_xattrs(path, xattrs)
    if entry.type is not EntryType.SYMLINK:
        os.chmod(path, entry.mode)  # noqa: PTH101 (the path is bytes)
    set_capability(path, xattrs)
    os.utime(path, ns=(entry.atime_ns, entry.mtime_ns))


def _dress_node(directory_fd: int, name: bytes, entry: Entry, xattrs: Mapping[bytes, bytes]) -> None:
    """As `_dress`, for files that cannot be opened; by O_PATH, because the directory's owner may replace the name."""
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
    # Only if it is still the empty directory created above: its owner may have replaced it.
    facts = os.fstat(deeper)
    if made and facts.st_uid == os.geteuid() and not os.listdir(deeper):
        os.fchown(deeper, like.uid, like.gid)
    return deeper


@contextmanager
def _final_name(directory_fd: int, name: bytes, *, overwrite: bool) -> Iterator[bytes]:
    """A temporary name, replaced by the final one at the end of the block, and removed on failure."""
    if not overwrite and _is_there(directory_fd, name):
        # Check before writing; a name that appears later is not replaced either.
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
    temporary = TEMPORARY_PREFIX + secrets.token_hex(8).encode()
    try:
        yield temporary
        if overwrite:
            os.rename(temporary, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
        else:
            _name_once(directory_fd, temporary, name)
    finally:
        # Renaming over another name of the same file does nothing and leaves both (rename(2)).
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory_fd)


def _name_once(directory_fd: int, temporary: bytes, name: bytes) -> None:
    """Give the final name unless it is taken. Without hard links, this is a check followed by a rename."""
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
