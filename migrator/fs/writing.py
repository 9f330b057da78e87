"""A mounted directory as the target: directories of trees, links, and the attributes of single files."""

import errno
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from msgspec.structs import replace

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType
from migrator.fs.beneath import exists, held
from migrator.fs.capabilities import probe, remove_acl
from migrator.fs.model import RewrittenLinks, TargetCapabilities
from migrator.fs.ports import FileSystemTool
from migrator.fs.reading import ReadingFileSystem
from migrator.fs.rules import CLOSED_MODE, TEMPORARY_PREFIX, kept_xattrs, opened_mode
from migrator.fs.rules_owners import SAME_OWNERS, OwnerMap

_CAPABILITY = b"security.capability"
_HOLE_BYTES = 64 * 1024
"""Runs of zeros are skipped in steps of this size."""
_TEMPORARY_RANDOM_BYTES = 8
_CREATED_MODE = 0o600
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK})


def dress_directory(fd: int, like: Entry, capabilities: TargetCapabilities) -> None:
    """Set owner, mode, ACLs, kept attributes and times of an open directory from an entry.

    The rights of group and others are removed first and set last: the directory never grants more than in the end.
    """
    path = descriptor_path(fd)
    os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) & stat.S_IRWXU)
    os.fchown(fd, like.uid, like.gid)
    set_xattrs(path, kept_xattrs(like.xattrs, capabilities))
    os.fchmod(fd, opened_mode(like, capabilities))
    os.utime(fd, ns=(like.atime_ns, like.mtime_ns))


def remove_acls(path: bytes) -> None:
    """Remove both ACLs, which a new entry may inherit from its directory. Follows a symlink at the end of the path."""
    for name in _present(path):
        if name in (ACL_ACCESS, ACL_DEFAULT):
            remove_acl(path, name)


def _present(path: bytes) -> list[bytes]:
    """The names of all extended attributes; none on a file system without them."""
    try:
        return [os.fsencode(name) for name in os.listxattr(path)]
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return []


def descriptor_path(fd: int) -> bytes:
    """A path to the file of a descriptor, also for one opened with O_PATH, and also for a symlink."""
    return b"/proc/self/fd/%d" % fd


def _new_temporary() -> bytes:
    return TEMPORARY_PREFIX + secrets.token_hex(_TEMPORARY_RANDOM_BYTES).encode()


@contextmanager
def temporary_name(directory_fd: int, name: bytes, *, once: bool = False) -> Iterator[bytes]:
    """A temporary name, renamed to the final one at the end of the block, or removed if the block fails. `once`: the
    final name is never replaced; FileExistsError if it is taken.
    """
    temporary = _new_temporary()
    if once and exists(directory_fd, name):
        # Check before writing; a name that appears later is not replaced either.
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
    try:
        yield temporary
        if once:
            _name_once(directory_fd, temporary, name)
        else:
            os.rename(temporary, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
    except BaseException:
        # An entry that cannot be removed is an extra path, which the verification lists; the first error matters more.
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory_fd)
        raise


def _name_once(directory_fd: int, temporary: bytes, name: bytes) -> None:
    """Give the final name unless it is taken. Without hard links, this is a check followed by a rename."""
    try:
        os.link(temporary, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if exists(directory_fd, name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from error
        os.rename(temporary, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
    else:
        os.unlink(temporary, dir_fd=directory_fd)


def write_piece(fd: int, piece: bytes, position: int, *, skip_zeros: bool) -> None:
    """Write at a position. With `skip_zeros`, runs of zeros are left out; the file must be empty there. Raises OSError."""
    step = _HOLE_BYTES if skip_zeros else len(piece)
    for offset in range(0, len(piece), step):
        part = piece[offset : offset + step]
        if skip_zeros and part.count(0) == len(part):
            continue
        written = 0
        while written < len(part):
            written += os.pwrite(fd, memoryview(part)[written:], position + offset + written)


def dress(fd: int, owner: tuple[int, int], mode: int, xattrs: Mapping[bytes, bytes], times_ns: tuple[int, int]) -> None:
    """Owner, mode, attributes and times of an open file or directory; times last, setuid after the owner."""
    path = descriptor_path(fd)
    os.fchown(fd, *owner)
    set_xattrs(path, xattrs)
    os.fchmod(fd, mode)
    set_capability(path, xattrs)
    os.utime(fd, ns=times_ns)


def set_xattrs(path: bytes, xattrs: Mapping[bytes, bytes]) -> None:
    """Set the carried attributes, and remove others that are old or inherited from the directory's default ACL.

    The mode must be set afterwards: it agrees with the ACL's mask on the source, and removing an ACL changes it.
    """
    for name in _present(path):
        if name in xattrs:
            continue
        if name in (ACL_ACCESS, ACL_DEFAULT):
            remove_acl(path, name)
        elif name.startswith(b"user."):
            os.removexattr(path, name)
    for name, value in xattrs.items():
        if name != _CAPABILITY:
            os.setxattr(path, name, value)


def set_capability(path: bytes, xattrs: Mapping[bytes, bytes]) -> None:
    """Set file capabilities last, since every change of the owner removes them."""
    if _CAPABILITY in xattrs:
        os.setxattr(path, _CAPABILITY, xattrs[_CAPABILITY])


# The target.


_PARENT_MODE = 0o755


class MountedTarget(ReadingFileSystem):
    """The `TargetFileSystem` port over a mounted directory. Thread-safe.

    `capabilities` is an earlier result of `probe`: attributes that the target cannot keep are not tried. Without it,
    all are tried, and a refusal of the target is an error. `links` are those of the site, for the result of `probe`.
    """

    def __init__(
        self,
        root: bytes,
        capabilities: TargetCapabilities | None = None,
        tool: FileSystemTool | None = None,
        *,
        owners: OwnerMap = SAME_OWNERS,
        links: RewrittenLinks | None = None,
    ) -> None:
        super().__init__(root, tool, owners=owners)
        self._capabilities = capabilities or TargetCapabilities(rewritten_links=links)
        self._rewritten_links = links
        self._making = threading.Lock()

    def make_parents(self, tree: bytes, like: Sequence[Entry]) -> None:
        """Make the directories above a tree, and the tree's own, closed. May be called again.

        An existing directory above the tree keeps its attributes: the target may use it. A new one appears with owner
        and mode at once. Raises OSError, also if a symlink or a file is in the way.
        """
        entries = {entry.path: entry for entry in like}
        components = tree.split(b"/")
        with self._making:
            for depth in range(1, len(components)):
                path = b"/".join(components[:depth])
                self._make_parent(path, entries.get(path))
            self._make_closed(tree)

    def make_directory(self, path: bytes) -> bool:
        """As the port. A stream sets its attributes later, and replaces what is in the way."""
        components = path.split(b"/")
        try:
            with self._making:
                for depth in range(1, len(components) + 1):
                    with (
                        self.beneath.parent(b"/".join(components[:depth])) as (fd, name),
                        suppress(FileExistsError),
                    ):
                        os.mkdir(name, CLOSED_MODE, dir_fd=fd)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                return False
            raise
        # A file or symlink at the path is a problem of the only block.
        return all(
            not block.problems and all(entry.type is EntryType.DIRECTORY for entry in block.entries)
            for block in self.read_directory(path)
        )

    def open_tree(self, tree: bytes, like: Entry) -> None:
        """Open an existing tree at the switch. Its top directory gets owner, mode, ACLs, attributes and times of `like`
        (the source's top directory before the freeze), as far as the target keeps them. No step grants more rights
        than the last one. May be called again. Raises OSError; FileNotFoundError changes nothing.
        """
        if like.type is not EntryType.DIRECTORY:
            raise OSError(errno.ENOTDIR, "a tree cannot be opened like what is no directory", like.path)
        with self.beneath.directory(tree) as opened:
            dress_directory(opened, self.owners.entry(like), self._capabilities)
            os.fsync(opened)

    def close_tree(self, tree: bytes) -> None:
        """Close an existing tree for a rollback: owned by root, mode 0700, no ACL. Files that are open below it stay
        open. May be called again. Raises OSError; FileNotFoundError changes nothing.
        """
        with self.beneath.directory(tree) as closed:
            _close(closed)

    def link(self, existing: bytes, path: bytes) -> None:
        """Make `path` another name of `existing`, as the port."""
        root = self.beneath
        with root.parent(existing) as (existing_fd, existing_name), root.parent(path) as (fd, name):
            file = os.stat(existing_name, dir_fd=existing_fd, follow_symlinks=False)
            if _is_same(file, fd, name):
                return
            temporary = _new_temporary()
            os.link(existing_name, temporary, src_dir_fd=existing_fd, dst_dir_fd=fd, follow_symlinks=False)
            try:
                os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
            finally:
                # A rename over another name of the same file does nothing and leaves both (rename(2)).
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=fd)

    def remove_leftover(self, path: bytes) -> None:
        """Remove one file; if the file or its directory is gone, nothing is done. Raises OSError, and EISDIR for a
        directory.
        """
        try:
            with self.beneath.parent(path) as (fd, name):
                os.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            return

    def clock_ns(self) -> int:
        """The time of the file system's own clock: the ctime of a temporary file beneath the root. Raises OSError."""
        name = _new_temporary()
        with (
            self.beneath.directory(b"") as root_fd,
            held(os.open(name, _NEW_FILE, _CREATED_MODE, dir_fd=root_fd)) as fd,
        ):
            try:
                return os.fstat(fd).st_ctime_ns
            finally:
                os.unlink(name, dir_fd=root_fd)

    def probe(self) -> TargetCapabilities:
        """The capabilities of this file system, as the port; later copies go by them. Raises OSError if nothing can be
        written.
        """
        probed = probe(self.beneath, filesystem=self.identity().filesystem)
        self._capabilities = replace(probed, rewritten_links=self._rewritten_links)
        return self._capabilities

    def _make_parent(self, path: bytes, like: Entry | None) -> None:
        with self.beneath.parent(path) as (fd, name):
            try:
                facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                pass
            else:
                if not stat.S_ISDIR(facts.st_mode):
                    raise OSError(errno.ENOTDIR, "in the way of a directory above a user tree", path)
                return
            # Under a temporary name first, so that a crash in between leaves no unfinished directory under the final
            # name.
            temporary = _new_temporary()
            os.mkdir(temporary, CLOSED_MODE, dir_fd=fd)
            with held(os.open(temporary, _DIRECTORY, dir_fd=fd)) as made:
                try:
                    remove_acls(descriptor_path(made))
                    if like is not None:
                        os.fchown(made, self.owners.uid(like.uid), self.owners.gid(like.gid))
                    os.fchmod(made, _PARENT_MODE if like is None else like.mode)
                    os.fsync(made)
                    os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
                except OSError:
                    os.rmdir(temporary, dir_fd=fd)
                    raise

    def _make_closed(self, tree: bytes) -> None:
        with self.beneath.parent(tree) as (fd, name):
            # An existing directory is closed below; any other entry fails to open.
            with suppress(FileExistsError):
                os.mkdir(name, CLOSED_MODE, dir_fd=fd)
            with held(os.open(name, _DIRECTORY, dir_fd=fd)) as closed:
                _close(closed)


def shut(fd: int) -> None:
    """Give a directory to root with mode 0700: processes that have it open can then neither add nor remove names, and its
    former owner cannot change the mode back. ACLs stay.
    """
    os.fchown(fd, os.geteuid(), -1)
    os.fchmod(fd, CLOSED_MODE)


def _close(tree_fd: int) -> None:
    os.fchown(tree_fd, os.geteuid(), os.getegid())
    remove_acls(descriptor_path(tree_fd))
    os.fchmod(tree_fd, CLOSED_MODE)
    os.fsync(tree_fd)


def _is_same(file: os.stat_result, directory_fd: int, name: bytes) -> bool:
    try:
        other = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (file.st_dev, file.st_ino) == (other.st_dev, other.st_ino)


# Directories on source and target that only this user can enter, so that no other user can change names in them.


def open_own(
    above_fd: int, name: bytes, refused: Callable[[str], Exception], *, make: bool = True, lasting: bool = False
) -> int:
    """Open the directory `name` in another one for reading; it must have mode 0700 and be on the same file system. The
    caller closes it.

    `make` creates it if it is missing. `lasting` also syncs its new name to the disks; `above_fd` must then be open for
    reading. May be called again. Raises FileNotFoundError if it is missing and not made, the error that `refused` makes
    of the reason if it belongs to another user or is no directory, and OSError.
    """
    made = False
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, CLOSED_MODE, dir_fd=above_fd)
            made = True
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=above_fd)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise refused("it is no directory") from error
        raise
    try:
        if made:
            # A default ACL of the parent directory may have granted others access.
            remove_acls(descriptor_path(fd))
            os.fchmod(fd, CLOSED_MODE)
            if lasting:
                os.fsync(above_fd)
        why = _why_not_own(os.fstat(fd), os.fstat(above_fd).st_dev)
    except BaseException:
        os.close(fd)
        raise
    if why:
        os.close(fd)
        raise refused(why)
    return fd


def _why_not_own(facts: os.stat_result, device: int) -> str:
    if facts.st_uid != os.geteuid():
        return f"it belongs to user {facts.st_uid}"
    if stat.S_IMODE(facts.st_mode) & 0o777 != CLOSED_MODE:
        return f"its mode is {stat.S_IMODE(facts.st_mode):04o}, and not {CLOSED_MODE:04o}"
    return "another file system is mounted on it" if facts.st_dev != device else ""
