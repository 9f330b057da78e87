"""A mounted directory that is filled: what the target needs besides reading."""

import errno
import os
import secrets
import stat
import threading
from collections.abc import Sequence
from contextlib import suppress

from migrator.adapters.filesystems.beneath import Root
from migrator.adapters.filesystems.capabilities import probe
from migrator.adapters.filesystems.reading import ReadingFileSystem
from migrator.adapters.filesystems.writing import copy_entry, descriptor_path, dress_directory, remove_acls
from migrator.decide.compare import CLOSED_MODE
from migrator.decide.expectations import TEMPORARY_PREFIX
from migrator.domain.entry import Entry, EntryType
from migrator.domain.site import TargetCapabilities

_PARENT_MODE = 0o755


class MountedTarget(ReadingFileSystem):
    """The `TargetFileSystem` port over a mounted directory. Thread-safe.

    `capabilities` is what `probe` found before: attributes that the target cannot keep are not tried. Without it all
    are, and what the target refuses is an error.
    """

    def __init__(self, root: bytes, capabilities: TargetCapabilities | None = None) -> None:
        super().__init__(root)
        self._capabilities = capabilities or TargetCapabilities()
        self._making = threading.Lock()

    def make_parents(self, tree: bytes, like: Sequence[Entry]) -> None:
        """Make the directories above a tree, and the tree's own, closed. May be called again.

        A directory above the tree that is there already stays as it is: it may be in use on the target. One that is
        made appears with its owner and mode at once. Raises OSError, also where a symlink or a file is in the way.
        """
        entries = {entry.path: entry for entry in like}
        components = tree.split(b"/")
        with self._making:
            for depth in range(1, len(components)):
                path = b"/".join(components[:depth])
                self._make_parent(path, entries.get(path))
            self._make_closed(tree)

    def open_tree(self, tree: bytes, like: Entry) -> None:
        """Open a tree, as the port says. The mode comes last but for the times."""
        if like.type is not EntryType.DIRECTORY:
            raise OSError(errno.ENOTDIR, "a tree cannot be opened like what is no directory", like.path)
        with self.beneath.directory(tree) as opened:
            dress_directory(opened, like, self._capabilities)
            os.fsync(opened)

    def close_tree(self, tree: bytes) -> None:
        """Close a tree, as the port says."""
        with self.beneath.directory(tree) as closed:
            _close(closed)

    def link(self, existing: bytes, path: bytes) -> None:
        """Make `path` another name of `existing`, as the port says."""
        root = self.beneath
        with root.parent(existing) as (existing_fd, existing_name), root.parent(path) as (fd, name):
            file = os.stat(existing_name, dir_fd=existing_fd, follow_symlinks=False)
            if _is_same(file, fd, name):
                return
            temporary = _temporary_name()
            os.link(existing_name, temporary, src_dir_fd=existing_fd, dst_dir_fd=fd, follow_symlinks=False)
            try:
                os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
            finally:
                # Renaming a name over another of the same file does nothing and leaves both (rename(2)).
                _remove_if_there(fd, temporary)

    def copy_from(self, source_root: bytes, entry: Entry) -> None:
        """Copy one path by descriptor, as the port says; see `writing.copy_entry`."""
        with Root(source_root) as source:
            copy_entry(source, self.beneath, entry, self._capabilities)

    def remove_leftover(self, path: bytes) -> None:
        """Remove one file; one that is gone, or whose directory is, is removed already. Raises OSError, and EISDIR
        for a directory.
        """
        try:
            with self.beneath.parent(path) as (fd, name):
                os.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            return

    def clock_ns(self) -> int:
        """What the file system's own clock shows, from the ctime of a file made beneath the root for that and removed
        again. Raises OSError.
        """
        name = _temporary_name()
        root_fd = self.beneath.open(b"", os.O_RDONLY | os.O_DIRECTORY)
        try:
            fd = os.open(
                name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=root_fd
            )
            try:
                return os.fstat(fd).st_ctime_ns
            finally:
                os.close(fd)
                os.unlink(name, dir_fd=root_fd)
        finally:
            os.close(root_fd)

    def probe(self) -> TargetCapabilities:
        """What this file system keeps of a file, as the port says. Raises OSError where nothing can be written."""
        return probe(self.beneath, filesystem=self.identity().filesystem)

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
            # Under a temporary name first, so that a crash in between leaves no directory that looks finished.
            temporary = _temporary_name()
            os.mkdir(temporary, CLOSED_MODE, dir_fd=fd)
            made = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            try:
                remove_acls(descriptor_path(made))
                if like is not None:
                    os.fchown(made, like.uid, like.gid)
                os.fchmod(made, _PARENT_MODE if like is None else like.mode)
                os.fsync(made)
                os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
            except OSError:
                os.rmdir(temporary, dir_fd=fd)
                raise
            finally:
                os.close(made)

    def _make_closed(self, tree: bytes) -> None:
        with self.beneath.parent(tree) as (fd, name):
            # What is there already is closed below where it is a directory; anything else fails to open.
            with suppress(FileExistsError):
                os.mkdir(name, CLOSED_MODE, dir_fd=fd)
            closed = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            try:
                _close(closed)
            finally:
                os.close(closed)


def _close(tree_fd: int) -> None:
    os.fchown(tree_fd, os.geteuid(), os.getegid())
    remove_acls(descriptor_path(tree_fd))
    os.fchmod(tree_fd, CLOSED_MODE)
    os.fsync(tree_fd)


def _temporary_name() -> bytes:
    return TEMPORARY_PREFIX + secrets.token_hex(8).encode()


def _is_same(file: os.stat_result, directory_fd: int, name: bytes) -> bool:
    try:
        other = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (file.st_dev, file.st_ino) == (other.st_dev, other.st_ino)


def _remove_if_there(directory_fd: int, name: bytes) -> None:
    try:
        os.unlink(name, dir_fd=directory_fd)
    except FileNotFoundError:
        return
