"""Removes a user tree from the source by descriptor, in a directory that only root can enter."""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from migrator.core.entry import Entry, EntryType, permission_bits, time_of_entry_ns
from migrator.core.errors import Refused
from migrator.core.paths import join, parent, show
from migrator.fs.beneath import Root, held
from migrator.fs.model import PURGE_NAME
from migrator.fs.reading import INO_MASK
from migrator.fs.rules import CLOSED_MODE
from migrator.fs.rules_equality import FileState
from migrator.fs.writing import descriptor_path, open_own, shut
from migrator.purge.model import TREE_NAME

_RAISED = b"deep-"
_KNOWN_AS = "user.migrator.known-as"
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class MountedPlaces:
    """The source's `.migrator-purge`, through its mount. Paths are relative to the source's root; never follows
    symlinks or enters mount points.

    Blocking and thread-safe. All methods raise OSError, and Refused if users other than root can change the directory.
    Holds the root open until `close`, which may be called again.
    """

    def __init__(self, root: bytes) -> None:
        self._root = Root(os.path.abspath(root))
        self._device = self._root.facts().st_dev

    def close(self) -> None:
        self._root.close()

    def stands(self, path: bytes) -> bool:
        """True if the path exists. Raises OSError (ESTALE) if the root itself was removed."""
        try:
            with self._root.parent(path) as (fd, name):
                os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
            self._check_root()
            return False
        return True

    def put(self, tree: bytes, place: bytes, *, ino: int) -> None:
        """Create the place and move a tree into it with one rename, durable on return. Raises OSError (ESTALE) and
        moves nothing if the tree is not the directory with this inode number.
        """
        # Opened for reading, because fsync needs it.
        with (
            self._made_place(place) as place_fd,
            self._root.directory(parent(tree)) as above_fd,
        ):
            name = tree.rpartition(b"/")[2]
            facts = os.stat(name, dir_fd=above_fd, follow_symlinks=False)
            if facts.st_ino & INO_MASK != ino or facts.st_dev != self._device or not stat.S_ISDIR(facts.st_mode):
                raise OSError(errno.ESTALE, "another directory is in its place", tree)
            # A rename replaces an empty directory; nothing but this program writes to the place.
            os.rename(name, TREE_NAME, src_dir_fd=above_fd, dst_dir_fd=place_fd)
            moved = os.stat(TREE_NAME, dir_fd=place_fd, follow_symlinks=False)
            if moved.st_ino & INO_MASK != ino:
                os.rename(TREE_NAME, name, src_dir_fd=place_fd, dst_dir_fd=above_fd)
                raise OSError(errno.ESTALE, "another directory was put in its place just now", tree)
            os.fsync(place_fd)
            os.fsync(above_fd)

    def close_directory(self, path: bytes, expected: Entry) -> None:
        """Close a directory of a place, as `shut`. Raises OSError (ESTALE) if inode, owner or mode are not as expected. May
        be called again.
        """
        with self._root.directory(path) as fd:
            facts = os.fstat(fd)
            closed = (os.geteuid(), CLOSED_MODE)
            if facts.st_dev != self._device or facts.st_ino & INO_MASK != expected.ino:
                raise OSError(errno.ESTALE, "another directory is in its place", path)
            now = (facts.st_uid, stat.S_IMODE(facts.st_mode))
            if now == closed:
                return
            if now != (expected.uid, expected.mode):
                raise OSError(errno.ESTALE, "its owner or mode was changed just now", path)
            shut(fd)

    def raise_up(self, path: bytes, place: bytes, *, ino: int, known_as: bytes) -> bytes:
        """Move a closed directory of a place up into the place itself, to keep all paths below it short enough for the
        file system.

        Stores its known path in an attribute, and returns its new path. Raises OSError (ESTALE) for another inode.
        """
        name = b"%s%016x" % (_RAISED, ino)
        with (
            self._root.directory(place) as place_fd,
            self._root.directory(parent(path)) as above_fd,
            self._root.directory(path) as fd,
        ):
            facts = os.fstat(fd)
            if facts.st_ino & INO_MASK != ino or facts.st_dev != self._device:
                raise OSError(errno.ESTALE, "another directory is in its place", path)
            os.setxattr(descriptor_path(fd), _KNOWN_AS, known_as)
            os.fsync(fd)
            os.rename(path.rpartition(b"/")[2], name, src_dir_fd=above_fd, dst_dir_fd=place_fd)
            os.fsync(place_fd)
        return join(place, name)

    def raised(self, place: bytes) -> Mapping[bytes, bytes]:
        """Directories that were moved up in a place: new path to known path."""
        found: dict[bytes, bytes] = {}
        with self._root.directory(place) as place_fd:
            for name in map(os.fsencode, os.listdir(place_fd)):
                if name.startswith(_RAISED):
                    with self._root.directory(join(place, name)) as fd:
                        found[join(place, name)] = os.getxattr(descriptor_path(fd), _KNOWN_AS)
        return found

    def remove(self, path: bytes, expected: Entry) -> bool:
        """Unlink a file if its metadata, ctime included, still match by descriptor. Otherwise leaves it and returns
        False.
        """
        pinning = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        with (
            self._root.parent(path) as (above_fd, name),
            held(os.open(name, pinning, dir_fd=above_fd)) as fd,
        ):
            facts = os.fstat(fd)
            if facts.st_dev != self._device or not _is(facts, expected):
                return False
            # The directory is closed and belongs to root, so no other user can replace the entry.
            os.unlink(name, dir_fd=above_fd)
        return True

    def remove_directory(self, path: bytes) -> None:
        """Remove an empty directory; a missing one is no error."""
        with suppress(FileNotFoundError), self._root.parent(path) as (fd, name):
            os.rmdir(name, dir_fd=fd)

    def _check_root(self) -> None:
        if self._root.facts().st_nlink == 0:
            raise OSError(errno.ESTALE, "the source's root itself is gone", self._root.path)

    @contextmanager
    def _made_place(self, place: bytes) -> Iterator[int]:
        """The place, created with its parent if needed, and checked."""
        name = place.rpartition(b"/")[2]
        with (
            self._root.directory(b"") as root_fd,
            held(_own(root_fd, PURGE_NAME)) as above_fd,
            held(_own(above_fd, name)) as fd,
        ):
            yield fd


def _is(facts: os.stat_result, expected: Entry) -> bool:
    """True if the file is the one that was read. The link count may differ, because it changes with the file's other
    names.
    """
    state = FileState(
        ino=facts.st_ino & INO_MASK,
        size_bytes=facts.st_size,
        mtime_ns=time_of_entry_ns(facts.st_mtime_ns),
        ctime_ns=time_of_entry_ns(facts.st_ctime_ns),
    )
    return (
        state == FileState.of(expected)
        and EntryType.of_mode(facts.st_mode) is expected.type
        # The ctime covers these too, but it is coarse: two changes within 4 ms may have the same one.
        and permission_bits(facts.st_mode) == expected.mode
        and (facts.st_uid, facts.st_gid) == (expected.uid, expected.gid)
    )


def _own(above_fd: int, name: bytes) -> int:
    return open_own(above_fd, name, lambda why: _not_own(name, why), lasting=True)


def _not_own(name: bytes, why: str) -> Refused:
    return Refused(
        f"nothing can be purged: {show(name)} in the source's root is not a directory of root's alone: {why}",
        cause="it was created, or its owner or mode was changed, outside of this program",
        hint=f"look into {show(PURGE_NAME)} in the source's root; give it back to root with mode 0700, or move it away, then "
        "run the same command again",
    )
