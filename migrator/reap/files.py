"""Archive directories, source files and restored files, all by descriptor and without following symlinks."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from io import BufferedReader
from typing import BinaryIO

from migrator.catalog.model import ArchivedMember
from migrator.core.entry import Entry, EntryType
from migrator.core.errors import Refused
from migrator.core.paths import name as last_name
from migrator.core.paths import show
from migrator.core.units import MIB
from migrator.fs import writing
from migrator.fs.beneath import Root, exists, held, without_access_time
from migrator.fs.model import TargetCapabilities
from migrator.fs.reading import DIGEST_ALGORITHMS, ReadingFileSystem, state_of
from migrator.fs.rules import CLOSED_MODE, kept_xattrs
from migrator.fs.rules_equality import FileState
from migrator.fs.rules_owners import SAME_OWNERS, OwnerMap
from migrator.reap import model
from migrator.reap.model import LeftOut

# --- Archive directories on the target


_FILE_MODE = 0o600
_READABLE_FILE_MODE = 0o400
_READABLE_MODE = 0o500
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BUFFER_BYTES = MIB


class HeldFolder:
    """The open archive directory of one tree on the target. Files belong to root alone until `hand_over`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def names(self) -> Sequence[bytes]:
        """All names in the directory, in order."""
        return sorted(os.fsencode(name) for name in os.listdir(self._fd))

    @contextmanager
    def create(self, name: bytes) -> Iterator[BinaryIO]:
        """A new file under the partial form of the name, replacing an existing one, and synced at the end of the block.
        On failure it is removed.
        """
        partial = name + model.PARTIAL_SUFFIX
        with suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=self._fd)
        fd = os.open(partial, _CREATING, _FILE_MODE, dir_fd=self._fd)
        try:
            writing.remove_acls(writing.descriptor_path(fd))
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
            if exists(self._fd, name):
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
    def open(self, name: bytes) -> Iterator[BufferedReader]:
        """Open a file for reading from the disks: its clean pages are dropped first. Follows no symlink."""
        fd = os.open(name, _READING | os.O_NONBLOCK, dir_fd=self._fd)
        with open(fd, "rb") as stream:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", name)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            yield stream


class MountedArchiveFolders:
    """The archive directories of all trees on the target. Blocking; errors of the kernel are OSError. `name_seed`: that of
    the site. `owners`: those of the target.
    """

    def __init__(self, root: bytes, name_seed: int, *, owners: OwnerMap = SAME_OWNERS) -> None:
        self._path = os.path.abspath(root)
        self._name_seed = name_seed
        self._owners = owners

    def path(self, tree: bytes) -> bytes:
        """The directory of a tree, relative to the root."""
        return model.archive_directory(tree, self._name_seed)

    @contextmanager
    def make(self, tree: bytes) -> Iterator[HeldFolder]:
        """Open the directory of a tree for writing; create it if it is missing. Raises Refused if it is not root's
        alone, OSError if the tree does not exist.
        """
        path = self.path(tree)
        with (
            Root(self._path) as root,
            root.directory(tree) as above,
            held(writing.open_own(above, last_name(path), lambda why: _not_own(tree, path, why), lasting=True)) as fd,
        ):
            yield HeldFolder(fd)

    @contextmanager
    def open(self, tree: bytes) -> Iterator[HeldFolder]:
        """Open the directory of a tree for reading, regardless of its owner. Raises FileNotFoundError if it is missing."""
        with Root(self._path) as root, root.directory(self.path(tree)) as fd:
            yield HeldFolder(fd)

    def hand_over(self, tree: bytes, *, uid: int, gid: int) -> None:
        """Give the archives to the tree's user, with mode 0400 in a directory of mode 0500. For the switch. May be
        called again; a missing directory is ignored.
        """
        owner = self._owners.uid(uid), self._owners.gid(gid)
        self._dress(tree, *owner, _READABLE_FILE_MODE, _READABLE_MODE)

    def take_back(self, tree: bytes) -> None:
        """Give the archives back to root alone, for a rollback. Files that the user put there stay, and become root's
        too. May be called again.
        """
        self._dress(tree, os.geteuid(), os.getegid(), _FILE_MODE, CLOSED_MODE)

    def _dress(self, tree: bytes, uid: int, gid: int, file_mode: int, mode: int) -> None:
        with Root(self._path) as root:
            try:
                fd = root.open(self.path(tree), os.O_RDONLY | os.O_DIRECTORY)
            except OSError as error:
                # The user may have replaced the directory by something else.
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    return
                raise
            with held(fd):
                for name in os.listdir(fd):
                    if model.number_of(os.fsencode(name)) is not None:
                        _own(fd, os.fsencode(name), uid, gid, file_mode)
                _give(fd, uid, gid, mode)
                os.fsync(fd)


def _give(fd: int, uid: int, gid: int, mode: int) -> None:
    # The modes of both owners grant rights to the owner only, so no other user gains access in between.
    os.fchmod(fd, mode)
    os.fchown(fd, uid, gid)
    writing.remove_acls(writing.descriptor_path(fd))
    os.fchmod(fd, mode)


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
    with held(fd):
        facts = os.fstat(fd)
        if stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1:
            _give(fd, uid, gid, mode)


def _not_own(tree: bytes, path: bytes, why: str) -> Refused:
    return Refused(
        f"nothing can be archived of {show(tree)}: {show(path)} on the target is not a directory of root's alone: {why}",
        cause="somebody else made it, or changed its owner or its mode",
        hint="look into it; give it back to root with mode 0700, or move it away, then run the same command again",
    )


# --- Reading files of the source: stat, read, and stat again through the descriptor


HELD_BYTES = MIB // 4
"""Files up to this size are read completely before any byte of them is written."""

_READ_BYTES = 4 * MIB


class MemberReader:
    """Opens files of the source for archiving. `algorithm` is that of their digests. Thread-safe."""

    def __init__(self, source: ReadingFileSystem, *, algorithm: str) -> None:
        self.algorithm = algorithm
        self._source = source

    def open(self, row: model.ReapRow, *, settled_before_ns: int) -> "OpenMember | LeftOut":
        """Look up a path, and read it at once if it is small. LeftOut if it has vanished, differs from the reap list,
        changed since `settled_before_ns`, or is unreadable. Never raises OSError.
        """
        try:
            entry = self._source.look(row.path)
            if entry is None:
                return LeftOut(path=row.path, reason=model.LeftOutReason.VANISHED, detail="it is not there any more")
            if entry.type is not EntryType.FILE or not model.is_listed(row, entry):
                detail = "it is not as in the reap list any more"
                return LeftOut(path=row.path, reason=model.LeftOutReason.CHANGED, detail=detail)
            if entry.ctime_ns >= settled_before_ns:
                return LeftOut(path=row.path, reason=model.LeftOutReason.FRESH, detail="it changed a moment ago")
            member = OpenMember(
                entry, without_access_time(partial(self._source.beneath.open, entry.path)), self.algorithm
            )
            if entry.size_bytes > HELD_BYTES:
                return member
            with closing(member):
                return member.hold() or member
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                return _changed(row.path)
            detail = error.strerror or str(error)
            return LeftOut(path=row.path, reason=model.LeftOutReason.UNREADABLE, detail=detail)


class OpenMember:
    """A file of the source that is being archived. `entry` has the attributes before the content was read."""

    def __init__(self, entry: Entry, fd: int, algorithm: str) -> None:
        self.entry = entry
        self._fd = fd
        self._hasher = DIGEST_ALGORITHMS[algorithm]()
        self._read_bytes = 0
        self._held: bytes | None = None

    @property
    def is_held(self) -> bool:
        """True if the content is in memory and complete: `finish` then returns a digest."""
        return self._held is not None

    def hold(self) -> LeftOut | None:
        """Read the content into memory. Raises OSError."""
        content = b"".join(self.pieces())
        digest = self.finish()
        if isinstance(digest, LeftOut):
            return digest
        self._held = content
        return None

    def pieces(self) -> Iterator[bytes]:
        """The content, up to the size in `entry`. Raises OSError."""
        if self._held is not None:
            yield self._held
            return
        # Data appended meanwhile is not read; the second stat detects it.
        while piece := os.pread(self._fd, min(_READ_BYTES, self.entry.size_bytes - self._read_bytes), self._read_bytes):
            self._hasher.update(memoryview(piece))
            self._read_bytes += len(piece)
            yield piece

    def finish(self) -> bytes | LeftOut:
        """The digest of the content, after all of it was read; LeftOut if the file changed. Raises OSError."""
        if self._held is None:
            unchanged = state_of(os.fstat(self._fd)) == FileState.of(self.entry)
            if not unchanged or self._read_bytes != self.entry.size_bytes:
                return _changed(self.entry.path)
        digest: bytes = self._hasher.digest()
        return digest

    def close(self) -> None:
        """Release the file. May be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _changed(path: bytes) -> LeftOut:
    return LeftOut(path=path, reason=model.LeftOutReason.CHANGED, detail="it changed while it was read")


# --- Restoring
#
# A file is completed under a temporary name in its final directory, synced, and then renamed. It replaces an existing
# file only on request.


_SECTOR_BYTES = 512


def restore_file(
    root: Root,
    member: ArchivedMember,
    content: Iterator[bytes],
    capabilities: TargetCapabilities,
    *,
    overwrite: bool,
    owners: OwnerMap = SAME_OWNERS,
) -> None:
    """Restore a member with all its attributes except those that `capabilities` lack. `owners` are those of the root. Missing directories above it are
    created for its owner alone. Raises OSError (FileExistsError if the name is taken), and the errors of `content`.
    """
    entry = owners.entry(member.entry)
    with (
        _parent(root, entry) as (directory_fd, name),
        writing.temporary_name(directory_fd, name, once=not overwrite) as temporary,
        held(os.open(temporary, _CREATING, _FILE_MODE, dir_fd=directory_fd)) as fd,
    ):
        sparse = entry.blocks * _SECTOR_BYTES < entry.size_bytes
        position = 0
        for piece in content:
            writing.write_piece(fd, piece, position, skip_zeros=sparse)
            position += len(piece)
        os.ftruncate(fd, position)
        xattrs = kept_xattrs(entry.xattrs, capabilities)
        writing.dress(fd, (entry.uid, entry.gid), entry.mode, xattrs, (entry.atime_ns, entry.mtime_ns))
        os.fsync(fd)


@contextmanager
def _parent(root: Root, entry: Entry) -> Iterator[tuple[int, bytes]]:
    """The directory of a member, as a descriptor, and the member's name. Missing directories are created for its owner."""
    directory, _, name = entry.path.rpartition(b"/")
    try:
        fd = root.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:

        def give(made: int) -> None:
            # Only if it is still the empty directory that was made: its owner may have replaced it.
            if os.fstat(made).st_uid == os.geteuid() and not os.listdir(made):
                os.fchown(made, entry.uid, entry.gid)

        fd = root.make(directory, os.O_RDONLY, give)
    with held(fd):
        yield fd, name
