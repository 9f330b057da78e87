"""Reading a mounted file system beneath a root: entries, xattrs, digests; a plain directory as the source."""

import asyncio
import ctypes
import errno
import hashlib
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import xxhash
from msgspec.structs import replace

from migrator.core.entry import BLOCK_BYTES, Entry, EntryType, permission_bits, time_of_entry_ns
from migrator.core.paths import join
from migrator.core.probe import PROBE_NAME
from migrator.core.units import MIB
from migrator.fs.beneath import OTHER_MOUNT, HeldRoot, Root, entry_path, held, read_mounts, without_access_time
from migrator.fs.kinds.model import FileSystemReport
from migrator.fs.model import (
    BENCH_NAME,
    JOURNAL_NAME,
    PURGE_NAME,
    SENTINEL_NAME,
    Capacity,
    MountIdentity,
    ScanProblem,
    SourceHealth,
    mount_fingerprint,
    mount_of,
    mounts_beneath,
)
from migrator.fs.ports import Block, Digest, FileSystemTool, WalkedRoot
from migrator.fs.rules_equality import FileState
from migrator.fs.rules_owners import SAME_OWNERS, OwnerMap
from migrator.fs.xattrs import is_carried

# Extended attributes of an entry: one call to list them, one more for each that is kept.


_NO_XATTRS: Mapping[bytes, bytes] = {}
_NO_SUCH_ATTRIBUTE = (errno.ENODATA, errno.EOPNOTSUPP)


def read_xattrs(directory_fd: int, name: bytes) -> Mapping[bytes, bytes]:
    """The carried attributes of an entry, never through a symlink; empty if the file system has no attributes.

    An attribute that vanishes between the two calls is left out. Raises OSError.
    """
    path = entry_path(directory_fd, name)
    try:
        listed = os.listxattr(path, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_SUCH_ATTRIBUTE:
            return _NO_XATTRS
        raise
    xattrs: dict[bytes, bytes] = {}
    for key in map(os.fsencode, listed):
        if is_carried(key):
            try:
                xattrs[key] = os.getxattr(path, key, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _NO_SUCH_ATTRIBUTE:
                    raise
    return xattrs


# One entry of a directory, by the descriptor of the directory.


INO_MASK = 0xFFFF_FFFF_FFFF_FFFF
"""Inode and file system numbers are stored as unsigned 64-bit numbers."""
_LOOKS = 3
"""How often an entry is read again if its type changes between two calls."""


def read_entry(fd: int, name: bytes, path: bytes, facts: os.stat_result, problems: list[ScanProblem]) -> Entry:
    """The entry; unreadable parts of it are added to `problems`. Raises FileNotFoundError if it is gone."""
    mode = facts.st_mode
    symlink_target: bytes | None = None
    if stat.S_ISLNK(mode):
        facts, symlink_target = _read_symlink(fd, name, path, facts, problems)
        mode = facts.st_mode
    try:
        xattrs = read_xattrs(fd, name)
    except FileNotFoundError:
        raise
    except OSError as error:
        problems.append(problem_of(path, "xattrs", error))
        xattrs = _NO_XATTRS
    return Entry(
        path=path,
        type=EntryType.of_mode(mode),
        size_bytes=facts.st_size,
        blocks=facts.st_blocks,
        uid=facts.st_uid,
        gid=facts.st_gid,
        mode=permission_bits(mode),
        mtime_ns=time_of_entry_ns(facts.st_mtime_ns),
        atime_ns=time_of_entry_ns(facts.st_atime_ns),
        ctime_ns=time_of_entry_ns(facts.st_ctime_ns),
        dev=facts.st_dev,
        rdev=facts.st_rdev,
        ino=facts.st_ino & INO_MASK,
        nlink=facts.st_nlink,
        symlink_target=symlink_target,
        xattrs=xattrs,
    )


def _read_symlink(
    fd: int, name: bytes, path: bytes, facts: os.stat_result, problems: list[ScanProblem]
) -> tuple[os.stat_result, bytes | None]:
    """The symlink's target, or newer facts and None if it is no longer a symlink."""
    for _ in range(_LOOKS):
        try:
            return facts, os.readlink(name, dir_fd=fd)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno != errno.EINVAL:
                problems.append(problem_of(path, "readlink", error))
                return facts, None
        facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if not stat.S_ISLNK(facts.st_mode):
            return facts, None
    problems.append(ScanProblem(path=path, operation="readlink", errno=None, reason="changes its type all the time"))
    return facts, None


def problem_of(path: bytes, operation: str, error: OSError) -> ScanProblem:
    """The problem for a failed operation on a path."""
    return ScanProblem(path=path, operation=operation, errno=error.errno, reason=error.strerror or str(error))


# Digests of file contents.


_READ_BYTES = 4 * 1024 * 1024


DIGEST_ALGORITHMS: Mapping[str, Callable[[], Any]] = {
    "xxh3_128": xxhash.xxh3_128,
    "blake2b": hashlib.blake2b,
    "sha256": hashlib.sha256,
}
"""The algorithms of `digest`. xxh3_128 detects accidental changes; the others also resist deliberate collisions."""


def require_algorithm(algorithm: str) -> None:
    """Raises ValueError for an unknown algorithm."""
    if algorithm not in DIGEST_ALGORITHMS:
        known = ", ".join(DIGEST_ALGORITHMS)
        raise ValueError(f"unknown digest algorithm {algorithm!r}; known: {known}")


_ZEROS = memoryview(bytes(1 << 20))
_OTHER_BLOCKS_BYTES = MIB
_OTHER_BLOCKS_PART = 32
"""The blocks that a file may have beside its data: of its own lists of blocks, and allocated ahead."""


def _data_of(fd: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """The ranges of data of a file; holes lie between them. All of the rest if the file system reports no holes."""
    at = 0
    while at < size_bytes:
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
            end = min(os.lseek(fd, data, os.SEEK_HOLE), size_bytes)
        except OSError as error:
            if error.errno != errno.ENXIO:
                yield at, size_bytes
            return
        if end <= data:
            return
        yield data, end
        at = end


def _holes_are_plausible(fd: int, facts: os.stat_result) -> bool:
    """Whether the file has holes, and its data is about as large as its blocks: a file system that reported data as a hole
    would be believed by the copy and by its proof.
    """
    allocated_bytes = facts.st_blocks * BLOCK_BYTES
    if allocated_bytes >= facts.st_size:
        return False
    data_bytes = sum(end - start for start, end in _data_of(fd, facts.st_size))
    return data_bytes + _OTHER_BLOCKS_BYTES >= allocated_bytes - allocated_bytes // _OTHER_BLOCKS_PART


def digest_of(fd: int, algorithm: str, path: bytes) -> Digest:
    """The digest of the whole content of an open regular file, wherever its holes are: they are not read, but hashed as
    zeros. `path` is for errors. Its clean pages are dropped from the page cache first. If the file grows, the read stops shortly after its first size, and the file is reported as
    changed.

    Raises OSError, also (EINVAL) if it is not a regular file.
    """
    hasher = DIGEST_ALGORITHMS[algorithm]()
    before = os.fstat(fd)
    if not stat.S_ISREG(before.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    # One byte more than the size, so that the first read already detects growth.
    buffer = memoryview(bytearray(min(before.st_size + 1, _READ_BYTES)))
    size_bytes = 0
    # The byte after the end shows growth.
    ranges: Iterable[tuple[int, int]] = ((0, before.st_size + 1),)
    if _holes_are_plausible(fd, before):
        ranges = chain(_data_of(fd, before.st_size), ((before.st_size, before.st_size + 1),))
    for data, end in ranges:
        while size_bytes < data:
            count = min(data - size_bytes, len(_ZEROS))
            hasher.update(_ZEROS[:count])
            size_bytes += count
        # Stop there: a process that keeps appending must not block the reader forever.
        while size_bytes < end and (count := os.preadv(fd, [buffer[: end - size_bytes]], size_bytes)):
            hasher.update(buffer[:count])
            size_bytes += count
        if size_bytes < end:
            break
    changed = size_bytes != before.st_size or state_of(before) != state_of(os.fstat(fd))
    return Digest(value=hasher.digest(), size_bytes=size_bytes, changed=changed)


def state_of(facts: os.stat_result) -> FileState:
    """The state of a file, with its numbers as an entry has them."""
    return FileState(
        ino=facts.st_ino & INO_MASK,
        size_bytes=facts.st_size,
        mtime_ns=time_of_entry_ns(facts.st_mtime_ns),
        ctime_ns=time_of_entry_ns(facts.st_ctime_ns),
    )


# Reading a file system beneath a root: the common part of source and target.
#
# Every path is opened beneath the root without following a symlink, and every entry is read through the descriptor of
# its directory. So no swapped component leads outside the root.


_libc = ctypes.CDLL(None, use_errno=True)

ANSWER_TIMEOUT_S = 120.0
"""The timeout of the look-up of a root."""

_SENTINEL_LIMIT_BYTES = 4096
_SEEN_NAMES = 10_000
"""How many names of a directory are remembered: a Gluster mount lists some names twice during renames."""
_OWN_NAMES = (SENTINEL_NAME, JOURNAL_NAME, PURGE_NAME, PROBE_NAME, BENCH_NAME)
"""Names in the root of a file system that belong to this program; they are no user data."""


class ReadingFileSystem(HeldRoot):
    """The `FileSystem` port over a mounted directory. Thread-safe.

    The root is opened at the first read and held: reads do not see a mount that appears over it later, but `identity`
    does, because it resolves the path each time. Make a new object for every pass. `close` may be called again.
    `tool` is the file system's own command; None: it is trusted with everything, and nothing is asked. `owners` as the
    port has them.
    """

    def __init__(self, root: bytes, tool: FileSystemTool | None = None, *, owners: OwnerMap = SAME_OWNERS) -> None:
        super().__init__(root)
        self.owners = owners
        self._shown_owners = owners.inverse
        self._tool = tool
        self._device = 0
        self._mount_points: frozenset[bytes] = frozenset()
        self._syncing = threading.Lock()
        self._sync_fd = -1

    @property
    def trusted_ctimes(self) -> bool:
        return self._tool is None or self._tool.kind.ctimes.holds

    def close(self) -> None:
        """Release the root; the next read opens it anew."""
        super().close()
        with self._syncing:
            if self._sync_fd >= 0:
                os.close(self._sync_fd)
                self._sync_fd = -1

    def walked(self) -> WalkedRoot:
        """As the port."""
        return WalkedRoot(
            path=self.held_path(),
            mounted=tuple(sorted(self._mount_points)),
            lasting_inodes=self._tool is None or self._tool.kind.trusted_inodes,
            owners=self.owners,
        )

    def read_directory(self, path: bytes, *, block_entries: int = 4096) -> Iterator[Block]:
        """The entries of a directory in blocks, as the port. A directory that is gone has no entries and no problem."""
        try:
            fd = self._open_directory(path)
        except FileNotFoundError:
            if self._root_is_gone():
                yield Block(entries=(), problems=(_root_was_removed(path),))
            return
        except OSError as error:
            yield Block(entries=(), problems=(problem_of(path, "open", error),))
            return
        with held(fd):
            yield from self._blocks(fd, path, block_entries)

    def look(self, path: bytes) -> Entry | None:
        """One entry; None if the kernel reports that it, or a directory above it, does not exist. Raises OSError, with
        EXDEV if another file system is mounted there or above it.
        """
        problems: list[ScanProblem] = []
        try:
            if not path:
                with held(self.beneath.open(b"", os.O_PATH | os.O_DIRECTORY)) as fd:
                    return self._read(fd, b".", b"", os.fstat(fd), problems)
            with self.beneath.parent(path) as (fd, name):
                facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if facts.st_dev != self._device or path in self._mount_points:
                    raise OSError(errno.EXDEV, OTHER_MOUNT, path)
                entry = self._read(fd, name, path, facts, problems)
        except FileNotFoundError:
            if self._root_is_gone():
                raise
            return None
        if problems:
            raise OSError(problems[0].errno or errno.EIO, problems[0].reason, path)
        return entry

    def digest(self, path: bytes, algorithm: str) -> Digest:
        """As the port."""
        require_algorithm(algorithm)
        with held(without_access_time(partial(self.beneath.open, path))) as fd:
            return digest_of(fd, algorithm, path)

    def sync(self) -> None:
        """Sync the root's file system (syncfs). Raises OSError, also once for any write that has failed since the first
        call: the descriptor is kept, because a newer one would not report it (syncfs(2)).
        """
        with self._syncing:
            if self._sync_fd < 0:
                self._sync_fd = self.beneath.open(b"", os.O_RDONLY | os.O_DIRECTORY)
            if _libc.syncfs(self._sync_fd) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), self.root)

    def identity(self) -> MountIdentity:
        """The file system mounted at the root's path now, which may differ from the open root. Raises OSError."""
        with Root(self.root) as fresh:
            with fresh.directory(b"") as fd:
                facts, room = os.fstat(fd), os.fstatvfs(fd)
            sentinel = _read_sentinel(fresh)
        mount = mount_of(read_mounts(), os.path.realpath(self.root))
        # Major 0 is an anonymous device (FUSE, NFS, BeeGFS): its number changes with every mount.
        lasting = os.major(facts.st_dev) != 0
        return MountIdentity(
            filesystem=mount.filesystem if mount else "",
            mounted_from=os.fsdecode(mount.source) if mount else "",
            device=facts.st_dev if lasting else None,
            fsid=room.f_fsid & INO_MASK if lasting else None,
            root_ino=facts.st_ino & INO_MASK,
            sentinel=sentinel,
        )

    async def identity_in_time(self) -> MountIdentity | str:
        """The identity, or a sentence with the reason why it is unknown."""
        try:
            return await asyncio.wait_for(asyncio.to_thread(self.identity), ANSWER_TIMEOUT_S)
        except TimeoutError:
            return "the source's root does not answer"
        except OSError as error:
            return f"the source's root cannot be read: {error.strerror}"

    def capacity(self) -> Capacity:
        """The current room for users other than root, if possible as the file system's own command reports it."""
        room = os.statvfs(self.root)
        counts = room.f_files > 0 and room.f_favail >= 0  # CephFS: -1 free
        shown = Capacity(
            total_bytes=room.f_blocks * room.f_frsize,
            free_bytes=room.f_bavail * room.f_frsize,
            total_inodes=room.f_files if counts else None,
            free_inodes=room.f_favail if counts else None,
            read_only=bool(room.f_flag & os.ST_RDONLY),
        )
        return shown if self._tool is None else self._tool.room(shown)

    def _read(self, fd: int, name: bytes, path: bytes, facts: os.stat_result, problems: list[ScanProblem]) -> Entry:
        entry = self._shown_owners.entry(read_entry(fd, name, path, facts, problems))
        if self._tool is None or self._tool.kind.trusted_inodes:
            return entry
        # Numbers on different devices prove nothing: so no move is found by inode numbers that do not last. Each entry has
        # a device of its own, since one object may read for several scans.
        links = entry.nlink if entry.type is EntryType.DIRECTORY else 1
        return replace(entry, dev=secrets.randbits(63), nlink=links)

    def _open(self) -> Root:
        root = Root(self.root)
        try:
            self._device = root.facts().st_dev
            self._mount_points = mounts_beneath(read_mounts(), os.path.realpath(self.root))
        except OSError:
            root.close()
            raise
        return root

    def _root_is_gone(self) -> bool:
        """Whether the root itself was removed: every path in it then gives ENOENT, which proves nothing."""
        try:
            return self.beneath.facts().st_nlink == 0
        except OSError:
            return True

    def _open_directory(self, path: bytes) -> int:
        """A descriptor only for `dir_fd`: the listing opens the directory once, through it."""
        fd = self.beneath.open(path, os.O_PATH | os.O_DIRECTORY)
        if path not in self._mount_points and os.fstat(fd).st_dev == self._device:
            return fd
        os.close(fd)
        raise OSError(errno.EXDEV, OTHER_MOUNT, path)

    def _blocks(self, fd: int, path: bytes, block_entries: int) -> Iterator[Block]:
        entries: list[Entry] = []
        problems: list[ScanProblem] = []
        device, mount_points, at_root = self._device, self._mount_points, not path
        seen: set[bytes] = set()
        try:
            # The descriptor's path gives names as bytes; the descriptor itself would give decoded names.
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
                            problems.append(problem_of(entry_path, "open", OSError(errno.EXDEV, OTHER_MOUNT)))
                            continue
                        entries.append(self._read(fd, name, entry_path, facts, problems))
                    except FileNotFoundError:
                        continue
                    except OSError as error:
                        problems.append(problem_of(entry_path, "lstat", error))
                    if len(entries) >= block_entries:
                        yield Block(entries=tuple(entries), problems=tuple(problems))
                        entries, problems = [], []
            # A removed directory lists no entries and no error: glibc treats ENOENT as its end.
            if not seen and self._root_is_gone():
                problems.append(_root_was_removed(path))
        except FileNotFoundError:
            # Removed since it was opened: the entries listed before remain valid.
            if self._root_is_gone():
                problems.append(_root_was_removed(path))
        except OSError as error:
            problems.append(problem_of(path, "list", error))
        if entries or problems:
            yield Block(entries=tuple(entries), problems=tuple(problems))


def _root_was_removed(path: bytes) -> ScanProblem:
    return ScanProblem(path=path, operation="open", errno=errno.ENOENT, reason="the root itself is gone")


def _read_sentinel(root: Root) -> str | None:
    try:
        fd = root.open(SENTINEL_NAME, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    with held(fd):
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        return os.read(fd, _SENTINEL_LIMIT_BYTES).decode("utf-8", "backslashreplace").strip()


class PosixSource(ReadingFileSystem):
    """The `SourceFileSystem` port over any mounted tree: healthy as long as the same file system is mounted."""

    async def health(self) -> SourceHealth:
        """The mount's identity as a fingerprint; an unreadable root is a problem, and what the file system's own command
        tells.
        """
        identity = await self.identity_in_time()
        if isinstance(identity, str):
            return SourceHealth(problems=(identity,), fingerprint="")
        answer = FileSystemReport() if self._tool is None else await self._tool.state()
        return SourceHealth(problems=answer.problems, doubts=answer.doubts, fingerprint=mount_fingerprint(identity))

    async def quotas(self) -> Sequence[tuple[bytes, int]]:
        """None: this program knows no quotas of a plain directory."""
        return ()
