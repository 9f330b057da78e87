"""Reading a file system beneath a root: the part that source and target have in common.

Every path is opened beneath the root without following a symlink (`beneath`), and every look at an entry goes through
the descriptor of its directory, so that nothing that is swapped in the middle of the work leads elsewhere.
"""

import ctypes
import errno
import os
import stat
import threading
from collections.abc import Iterator

from migrator.adapters.filesystems.beneath import Root
from migrator.adapters.filesystems.digests import digest_of, require_algorithm
from migrator.adapters.filesystems.entries import INO_MASK, problem_of, read_entry
from migrator.adapters.filesystems.mountinfo import read_mounts
from migrator.domain.benchmark import BENCH_NAME
from migrator.domain.entry import Entry
from migrator.domain.mounts import mount_of, mounts_beneath
from migrator.domain.paths import join
from migrator.domain.probe import PROBE_NAME
from migrator.domain.purge import PURGE_NAME
from migrator.domain.scan import ScanProblem
from migrator.domain.site import SENTINEL_NAME, Capacity, MountIdentity
from migrator.ports.filesystem import Block, Digest

_libc = ctypes.CDLL(None, use_errno=True)

ANSWER_TIMEOUT_S = 120.0
"""How long a look at the root may take before the file system counts as one that does not answer."""

_SENTINEL_LIMIT_BYTES = 4096
_SEEN_NAMES = 10_000
"""How many names of a directory are remembered: a Gluster mount lists some twice while they are renamed."""
_OWN_NAMES = (SENTINEL_NAME, PURGE_NAME, PROBE_NAME, BENCH_NAME)
"""In the root of a file system: this program's, and no data."""
_OTHER_MOUNT = "another file system is mounted here; not entered"


class ReadingFileSystem:
    """The `FileSystem` port over a mounted directory. Thread-safe.

    The root is opened at the first read and held: a mount that appears over it later is not seen by reads, but by
    `identity`, which looks at the path anew each time. Make a new object for every pass. `close` may be called again.
    """

    def __init__(self, root: bytes) -> None:
        self._path = os.path.abspath(root)
        self._opening = threading.Lock()
        self._beneath: Root | None = None
        self._device = 0
        self._mount_points: frozenset[bytes] = frozenset()
        self._syncing = threading.Lock()
        self._sync_fd = -1

    @property
    def root(self) -> bytes:
        """The absolute path of the root."""
        return self._path

    @property
    def beneath(self) -> Root:
        """The root, held open; opened by the first call. Raises OSError where it is missing."""
        if self._beneath is None:
            with self._opening:
                if self._beneath is None:
                    self._beneath = self._open()
        return self._beneath

    def close(self) -> None:
        """Release the root; the next read opens it anew."""
        with self._opening:
            if self._beneath is not None:
                self._beneath.close()
                self._beneath = None
        with self._syncing:
            if self._sync_fd >= 0:
                os.close(self._sync_fd)
                self._sync_fd = -1

    def read_directory(self, path: bytes, *, block_entries: int = 4096) -> Iterator[Block]:
        """The entries of a directory in blocks, as the port says. A directory that is gone has none, and no problem."""
        try:
            fd = self._open_directory(path)
        except FileNotFoundError:
            if self._root_is_gone():
                yield Block(entries=(), problems=(_root_was_removed(path),))
            return
        except OSError as error:
            yield Block(entries=(), problems=(problem_of(path, "open", error),))
            return
        try:
            yield from self._blocks(fd, path, block_entries)
        finally:
            os.close(fd)

    def look(self, path: bytes) -> Entry | None:
        """One entry; None where the kernel says that it, or a directory above it, does not exist. Raises OSError."""
        problems: list[ScanProblem] = []
        try:
            if not path:
                fd = self.beneath.open(b"", os.O_PATH | os.O_DIRECTORY)
                try:
                    return read_entry(fd, b".", b"", os.fstat(fd), problems)
                finally:
                    os.close(fd)
            with self.beneath.parent(path) as (fd, name):
                entry = read_entry(fd, name, path, os.stat(name, dir_fd=fd, follow_symlinks=False), problems)
        except FileNotFoundError:
            if self._root_is_gone():
                raise
            return None
        if problems:
            raise OSError(problems[0].errno or errno.EIO, problems[0].reason, path)
        return entry

    def digest(self, path: bytes, algorithm: str) -> Digest:
        """The digest of a regular file. Its clean pages are dropped from the page cache before it is read. One that
        grows is read little further than it went at first, and told as changed.

        Raises OSError, also (EINVAL) where the path is no regular file, and ValueError for an unknown algorithm.
        """
        require_algorithm(algorithm)
        fd = self._open_for_reading(path)
        try:
            return digest_of(fd, algorithm, path)
        finally:
            os.close(fd)

    def sync(self) -> None:
        """Sync the root's file system (syncfs). Raises OSError, also once for what failed to reach the disks since the
        first call: the descriptor is kept, because one that is opened later would not be told (syncfs(2)).
        """
        with self._syncing:
            if self._sync_fd < 0:
                self._sync_fd = self.beneath.open(b"", os.O_RDONLY | os.O_DIRECTORY)
            if _libc.syncfs(self._sync_fd) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), self.root)

    def identity(self) -> MountIdentity:
        """What is mounted at the root's path now, whatever the held root is. Raises OSError."""
        with Root(self._path) as fresh:
            fd = fresh.open(b"", os.O_RDONLY | os.O_DIRECTORY)
            try:
                facts, room = os.fstat(fd), os.fstatvfs(fd)
            finally:
                os.close(fd)
            sentinel = _read_sentinel(fresh)
        mount = mount_of(read_mounts(), os.path.realpath(self._path))
        # Major 0 is an anonymous device (FUSE, NFS, BeeGFS): another number at every mount.
        lasting = os.major(facts.st_dev) != 0
        return MountIdentity(
            filesystem=mount.filesystem if mount else "",
            mounted_from=os.fsdecode(mount.source) if mount else "",
            device=facts.st_dev if lasting else None,
            fsid=room.f_fsid & INO_MASK if lasting else None,
            root_ino=facts.st_ino & INO_MASK,
            sentinel=sentinel,
        )

    def capacity(self) -> Capacity:
        """Room for users that are not root, now. Raises OSError."""
        room = os.statvfs(self._path)
        return Capacity(
            total_bytes=room.f_blocks * room.f_frsize,
            free_bytes=room.f_bavail * room.f_frsize,
            total_inodes=room.f_files or None,
            free_inodes=room.f_favail if room.f_files else None,
            read_only=bool(room.f_flag & os.ST_RDONLY),
        )

    def _open(self) -> Root:
        root = Root(self._path)
        try:
            fd = root.open(b"", os.O_PATH | os.O_DIRECTORY)
            try:
                self._device = os.fstat(fd).st_dev
            finally:
                os.close(fd)
            self._mount_points = mounts_beneath(read_mounts(), os.path.realpath(self._path))
        except OSError:
            root.close()
            raise
        return root

    def _root_is_gone(self) -> bool:
        """A root that was itself removed gives ENOENT for everything: that proves nothing."""
        try:
            fd = self.beneath.open(b"", os.O_PATH | os.O_DIRECTORY)
        except OSError:
            return True
        try:
            return os.fstat(fd).st_nlink == 0
        finally:
            os.close(fd)

    def _open_directory(self, path: bytes) -> int:
        """A descriptor for `dir_fd` only: the listing opens the directory through it, once."""
        fd = self.beneath.open(path, os.O_PATH | os.O_DIRECTORY)
        if path not in self._mount_points and os.fstat(fd).st_dev == self._device:
            return fd
        os.close(fd)
        raise OSError(errno.EXDEV, _OTHER_MOUNT, path)

    def _open_for_reading(self, path: bytes) -> int:
        # O_NONBLOCK: a FIFO in a file's place must not block. O_NOATIME is for owners and root only.
        flags = os.O_RDONLY | os.O_NONBLOCK
        try:
            return self.beneath.open(path, flags | os.O_NOATIME)
        except PermissionError:
            return self.beneath.open(path, flags)

    def _blocks(self, fd: int, path: bytes, block_entries: int) -> Iterator[Block]:
        entries: list[Entry] = []
        problems: list[ScanProblem] = []
        device, mount_points, at_root = self._device, self._mount_points, not path
        seen: set[bytes] = set()
        try:
            # By its descriptor's path, because that gives names as bytes; a descriptor would give decoded names.
            with os.scandir(b"/proc/self/fd/%d" % fd) as listing:
                for listed in listing:
                    name = listed.name
                    if name in seen or (at_root and name in _OWN_NAMES):
                        continue
                    if len(seen) < _SEEN_NAMES:
                        seen.add(name)
                    entry_path = join(path, name)
                    try:
                        facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
                        if facts.st_dev != device or entry_path in mount_points:
                            problems.append(_other_mount(entry_path))
                            continue
                        entries.append(read_entry(fd, name, entry_path, facts, problems))
                    except FileNotFoundError:
                        continue
                    except OSError as error:
                        problems.append(problem_of(entry_path, "lstat", error))
                    if len(entries) >= block_entries:
                        yield Block(entries=tuple(entries), problems=tuple(problems))
                        entries, problems = [], []
            # A removed directory lists nothing, without an error: glibc takes ENOENT for its end.
            if not seen and self._root_is_gone():
                problems.append(_root_was_removed(path))
        except FileNotFoundError:
            # Removed since it was opened: what was listed before stands as seen.
            if self._root_is_gone():
                problems.append(_root_was_removed(path))
        except OSError as error:
            problems.append(problem_of(path, "list", error))
        if entries or problems:
            yield Block(entries=tuple(entries), problems=tuple(problems))


def _root_was_removed(path: bytes) -> ScanProblem:
    return ScanProblem(path=path, operation="open", errno=errno.ENOENT, reason="the root itself is gone")


def _other_mount(path: bytes) -> ScanProblem:
    return ScanProblem(path=path, operation="open", errno=errno.EXDEV, reason=_OTHER_MOUNT)


def _read_sentinel(root: Root) -> str | None:
    try:
        fd = root.open(SENTINEL_NAME, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        return os.read(fd, _SENTINEL_LIMIT_BYTES).decode("utf-8", "backslashreplace").strip()
    finally:
        os.close(fd)
