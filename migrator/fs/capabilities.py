"""Probes which properties of a file a file system keeps.

The probe works in a directory of its own, which it removes afterwards, also after a failure. The result holds for this
process: without root, the operations reserved to root (owners, device nodes, file capabilities) count as not kept.
"""

import errno
import os
import secrets
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from msgspec.structs import replace

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, EARLIEST_TIME_NS, LATEST_TIME_NS
from migrator.core.units import MIB, NS_PER_S
from migrator.fs.acl import GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, AclEntry, build_acl, parse_acl
from migrator.fs.beneath import Root, entry_path, held
from migrator.fs.model import XATTR_NAME_LIMIT_BYTES, TargetCapabilities, syncfs_reaches_disks
from migrator.fs.rules import TEMPORARY_PREFIX

_PROBED_TIMES_NS = (1_400_000_001_123_456_789, 1_500_000_000_999_999_999, -1_500_000_001)
_GRANULARITIES_NS = (1, 100, 1_000, 1_000_000, 10_000_000, 1_000_000_000, 2_000_000_000)
"""One nanosecond (XFS, ext4), 100 (NTFS, SMB), a microsecond and a millisecond (NFS servers, object gateways), 10 ms
(exFAT), a second (BeeGFS), two (FAT)."""
_XATTR_VALUE_LIMIT_BYTES = 65536
_ACL_LIMIT_ENTRIES = 8191
"""The kernel's limits. BeeGFS 8.3.1 takes names of 245 bytes (ERANGE) and values of about 4,000 (ENOSPC)."""
_RESERVED_CANDIDATES = (b"#fSiDs#", b".snap", b".snapshot", b".zfs")
"""Names that BeeGFS, CephFS, filers and ZFS may keep for themselves in every directory."""
_FILE_CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)
"""cap_net_raw+ep as `security.capability` holds it (linux/capability.h, revision 2)."""
_FOREIGN_ID = 1
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SPARSE_BYTES = 16 * MIB
_WRITTEN_BYTES = 4096
_NAME_LIMIT_BYTES = 255
_SYMLINK_LIMIT_BYTES = 4095
_NO_ANSWER = frozenset(
    {
        errno.EIO,
        errno.ENOTCONN,
        errno.EROFS,
        errno.EDQUOT,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.ENOENT,
        errno.ENOMEM,
    }
)
"""Errors that prove nothing about the file system: the probe fails instead of treating them as an answer."""


def probe(root: Root, *, filesystem: str) -> TargetCapabilities:
    """The capabilities of the file system at the root; `filesystem` is its type in `mountinfo`. Raises OSError if the
    file system cannot be written or does not answer.
    """
    name = TEMPORARY_PREFIX + b"probe-" + secrets.token_hex(8).encode()
    with (
        held(root.open(b"", os.O_PATH | os.O_DIRECTORY)) as root_fd,
        _directory(root_fd, name),
        held(os.open(name, _DIRECTORY, dir_fd=root_fd)) as fd,
    ):
        try:
            return replace(_probe_in(fd), syncfs_reaches_disks=syncfs_reaches_disks(filesystem))
        finally:
            _empty(fd)


def _probe_in(fd: int) -> TargetCapabilities:
    granularity_ns = _time_granularity_ns(fd)
    earliest_ns, latest_ns = _time_range_ns(fd, granularity_ns)
    makes_devices, keeps_device_numbers = _devices(fd)
    keeps_acls = _keeps_acl(fd, ACL_ACCESS, 1)
    keeps_default_acls = keeps_acls and _keeps_acl(fd, ACL_DEFAULT, 1)
    keeps_user_xattrs = _keeps_xattr(fd, b"user.migrator", b"x")
    keeps_symlink_times, keeps_symlink_owner = _symlinks(fd, granularity_ns)
    return TargetCapabilities(
        time_granularity_ns=granularity_ns,
        earliest_time_ns=earliest_ns,
        latest_time_ns=latest_ns,
        keeps_acls=keeps_acls,
        keeps_default_acls=keeps_default_acls,
        inherits_default_acls=keeps_default_acls and _inherits_default_acl(fd),
        keeps_user_xattrs=keeps_user_xattrs,
        keeps_security_xattrs=_keeps_xattr(fd, b"security.capability", _FILE_CAPABILITY),
        keeps_atimes=_keeps_atimes(fd, granularity_ns),
        keeps_symlink_times=keeps_symlink_times,
        keeps_symlink_owner=keeps_symlink_owner,
        keeps_device_numbers=keeps_device_numbers,
        keeps_hard_links=_keeps_hard_links(fd),
        keeps_sparse=_keeps_sparse(fd),
        max_symlink_target_bytes=_largest(_SYMLINK_LIMIT_BYTES, lambda size: _keeps_symlink_target(fd, size)),
        max_xattr_name_bytes=_largest(
            XATTR_NAME_LIMIT_BYTES if keeps_user_xattrs else 0,
            lambda size: _keeps_xattr(fd, b"user.".ljust(size, b"n"), b"x"),
        ),
        max_xattr_value_bytes=_largest(
            _XATTR_VALUE_LIMIT_BYTES if keeps_user_xattrs else 0,
            lambda size: _keeps_xattr(fd, b"user.migrator", bytes(size)),
        ),
        max_acl_entries=_largest(
            _ACL_LIMIT_ENTRIES if keeps_acls else 0, lambda count: _keeps_acl(fd, ACL_ACCESS, count)
        ),
        makes_devices=makes_devices,
        makes_fifos=_makes_node(fd, stat.S_IFIFO, 0) is not None,
        makes_sockets=_makes_node(fd, stat.S_IFSOCK, 0) is not None,
        max_name_bytes=_largest(_NAME_LIMIT_BYTES, lambda size: _takes_name(fd, b"n" * size)),
        reserved_names=tuple(name for name in _RESERVED_CANDIDATES if not _takes_name(fd, name)),
    )


def _time_granularity_ns(fd: int) -> int:
    """The smallest step to which every tried time was floored. If no step fits, the largest: verification then
    correctly reports each time that differs from the floored one.
    """
    with _file(fd) as name:
        shown = [(time_ns, _shown_time_ns(fd, name, time_ns)) for time_ns in _PROBED_TIMES_NS]
    for step in _GRANULARITIES_NS:
        if all(time_ns // step * step == seen for time_ns, seen in shown if seen is not None):
            return step
    return _GRANULARITIES_NS[-1]


def _time_range_ns(fd: int, granularity_ns: int) -> tuple[int, int]:
    """The earliest and the latest time that is kept, to the second."""
    limit_s = LATEST_TIME_NS // NS_PER_S
    with _file(fd) as name:

        def keeps(time_s: int) -> bool:
            time_ns = time_s * NS_PER_S // granularity_ns * granularity_ns
            return _shown_time_ns(fd, name, time_ns) == time_ns

        before_s, after_s = _largest(limit_s, lambda time_s: keeps(-time_s)), _largest(limit_s, keeps)
    return (
        EARLIEST_TIME_NS if before_s == limit_s else -before_s * NS_PER_S,
        LATEST_TIME_NS if after_s == limit_s else after_s * NS_PER_S,
    )


def _shown_time_ns(fd: int, name: bytes, time_ns: int) -> int | None:
    """None if the file system does not support such a time (before 1970)."""
    with _Trial():
        os.utime(name, ns=(time_ns, time_ns), dir_fd=fd, follow_symlinks=False)
        seen_ns = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mtime_ns
        return seen_ns if time_ns >= 0 or seen_ns < 0 else None
    return None


def _keeps_atimes(fd: int, granularity_ns: int) -> bool:
    wanted_ns, mtime_ns = _PROBED_TIMES_NS[0], _PROBED_TIMES_NS[1]
    with _file(fd) as name, _Trial():
        os.utime(name, ns=(wanted_ns, mtime_ns), dir_fd=fd, follow_symlinks=False)
        shown_ns = os.stat(name, dir_fd=fd, follow_symlinks=False).st_atime_ns
        return shown_ns == wanted_ns // granularity_ns * granularity_ns
    return False


def _symlinks(fd: int, granularity_ns: int) -> tuple[bool, bool]:
    """Whether time and owner are kept."""
    name, time_ns = b"symlink", _PROBED_TIMES_NS[0]
    keeps_times = keeps_owner = False
    with _removed(fd, name), _Trial():
        os.symlink(b"target", name, dir_fd=fd)
        with _Trial():
            os.utime(name, ns=(time_ns, time_ns), dir_fd=fd, follow_symlinks=False)
            seen_ns = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mtime_ns
            keeps_times = seen_ns == time_ns // granularity_ns * granularity_ns
        with _Trial():
            os.chown(name, _FOREIGN_ID, _FOREIGN_ID, dir_fd=fd, follow_symlinks=False)
            seen = os.stat(name, dir_fd=fd, follow_symlinks=False)
            keeps_owner = (seen.st_uid, seen.st_gid) == (_FOREIGN_ID, _FOREIGN_ID)
    return keeps_times, keeps_owner


def _keeps_symlink_target(fd: int, size: int) -> bool:
    name, target = b"long-symlink", b"t" * size
    with _removed(fd, name), _Trial():
        os.symlink(target, name, dir_fd=fd)
        return os.readlink(name, dir_fd=fd) == target
    return False


def _devices(fd: int) -> tuple[bool, bool]:
    """Whether device nodes can be made and keep their numbers."""
    number = os.makedev(1, 3)
    seen = [_makes_node(fd, kind, number) for kind in (stat.S_IFCHR, stat.S_IFBLK)]
    return None not in seen, all(rdev == number for rdev in seen)


def _makes_node(fd: int, kind: int, number: int) -> int | None:
    """The device number of a new node; None if it cannot be made."""
    name = b"node"
    with _removed(fd, name), _Trial():
        os.mknod(name, kind | 0o600, number, dir_fd=fd)
        seen = os.stat(name, dir_fd=fd, follow_symlinks=False)
        return seen.st_rdev if stat.S_IFMT(seen.st_mode) == kind else None
    return None


def _keeps_hard_links(fd: int) -> bool:
    """Whether hard links are kept, also across directories (BeeGFS refuses those before 7.4)."""
    with (
        _file(fd) as name,
        _directory(fd) as beside_name,
        held(os.open(beside_name, _DIRECTORY, dir_fd=fd)) as beside,
        _removed(fd, b"second"),
        _removed(beside, b"second"),
        _Trial(),
    ):
        for directory in (fd, beside):
            os.link(name, b"second", src_dir_fd=fd, dst_dir_fd=directory, follow_symlinks=False)
        seen = [os.stat(one, dir_fd=at) for one, at in ((name, fd), (b"second", fd), (b"second", beside))]
        return {(one.st_ino, one.st_nlink) for one in seen} == {(seen[0].st_ino, 3)}
    return False


def _keeps_sparse(fd: int) -> bool:
    with _file(fd) as name, held(os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)) as file_fd:
        os.ftruncate(file_fd, _SPARSE_BYTES)
        os.pwrite(file_fd, b"x" * _WRITTEN_BYTES, _SPARSE_BYTES // 2)
        os.fsync(file_fd)
        return os.fstat(file_fd).st_blocks * 512 < _SPARSE_BYTES // 2


def _keeps_xattr(fd: int, attribute: bytes, value: bytes) -> bool:
    with _file(fd) as name, _Trial(no_space_answers=True):
        path = entry_path(fd, name)
        os.setxattr(path, attribute, value, follow_symlinks=False)
        return os.getxattr(path, attribute, follow_symlinks=False) == value
    return False


def remove_acl(path: bytes, name: bytes) -> None:
    """Remove an existing ACL. The client of BeeGFS 8.3.1 answers EINVAL to every removal on Linux 6.0 and 6.1, but removes
    an access ACL that is set to what the mode says, and a default ACL that is set to one without entries. Raises
    OSError.
    """
    try:
        os.removexattr(path, name)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        os.setxattr(path, name, build_acl(_of_mode(os.stat(path).st_mode) if name == ACL_ACCESS else ()))


def _of_mode(mode: int) -> tuple[AclEntry, ...]:
    places = ((USER_OBJ, 6), (GROUP_OBJ, 3), (OTHER, 0))
    return tuple(AclEntry(tag=tag, id=0, permissions=mode >> shift & 7) for tag, shift in places)


def _keeps_acl(fd: int, attribute: bytes, entries: int) -> bool:
    """Whether an ACL with this many entries is kept, and can be removed. At least five are tried, because fewer express
    only a mode.
    """
    fixed = (*_of_mode(0o640), AclEntry(tag=MASK, id=0, permissions=6))
    named = tuple(AclEntry(tag=USER, id=1000 + index, permissions=4) for index in range(max(entries - len(fixed), 1)))
    value = build_acl(fixed + named)
    with _directory(fd) if attribute == ACL_DEFAULT else _file(fd) as name, _Trial(no_space_answers=True):
        path = entry_path(fd, name)
        os.setxattr(path, attribute, value)
        kept = parse_acl(os.getxattr(path, attribute)) == parse_acl(value)
        remove_acl(path, attribute)
        return kept and os.fsdecode(attribute) not in os.listxattr(path)
    return False


def _inherits_default_acl(fd: int) -> bool:
    """Whether a file and a directory that are made as users make them get the default ACL of their directory. Their ACLs
    prove it: the mode alone could be due to the umask of this process.
    """
    named = AclEntry(tag=USER, id=_FOREIGN_ID, permissions=6)
    value = build_acl((*_of_mode(0o700), named, AclEntry(tag=MASK, id=0, permissions=6)))
    with _directory(fd) as name, held(os.open(name, _DIRECTORY, dir_fd=fd)) as shared, _Trial():
        os.setxattr(shared, ACL_DEFAULT, value)
        with _directory(shared) as inner, _file(shared, 0o666) as file:
            passed_on = parse_acl(os.getxattr(entry_path(shared, inner), ACL_DEFAULT)) == parse_acl(value)
            inherited = parse_acl(os.getxattr(entry_path(shared, file), ACL_ACCESS)) or ()
            mode = os.stat(file, dir_fd=shared).st_mode
        return (
            passed_on and (named.tag, named.id) in {(one.tag, one.id) for one in inherited} and not mode & stat.S_IRWXO
        )
    return False


def _takes_name(fd: int, name: bytes) -> bool:
    taken = False
    with _Trial():
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd))
        taken = True
        os.unlink(name, dir_fd=fd)
    return taken


def _largest(limit: int, works: Callable[[int], bool]) -> int:
    """The largest number up to the limit that works, assuming that all smaller ones work too; 0 if none does."""
    if not limit or works(limit):
        return limit
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        if works(middle):
            low = middle
        else:
            high = middle
    return low


class _Trial:
    """A block that an OSError ends silently, unless the error proves nothing about the file system. `no_space_answers`
    also accepts ENOSPC as an answer.
    """

    def __init__(self, *, no_space_answers: bool = False) -> None:
        self._no_answer = _NO_ANSWER if no_space_answers else _NO_ANSWER | {errno.ENOSPC}

    def __enter__(self) -> None:
        """Nothing is prepared."""

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> bool:
        return isinstance(error, OSError) and error.errno not in self._no_answer


@contextmanager
def _file(fd: int, mode: int = 0o600) -> Iterator[bytes]:
    name = b"file"
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=fd))
    with _removed(fd, name):
        yield name


@contextmanager
def _directory(fd: int, name: bytes = b"directory") -> Iterator[bytes]:
    os.mkdir(name, 0o700, dir_fd=fd)
    try:
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.rmdir(name, dir_fd=fd)


@contextmanager
def _removed(fd: int, name: bytes) -> Iterator[None]:
    """Remove the entry with this name at the end of the block."""
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=fd)


def _empty(fd: int) -> None:
    """Remove everything that a failed trial left; its directories are empty."""
    with os.scandir(b"/proc/self/fd/%d" % fd) as listing:
        left = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]
    for name, is_directory in left:
        if is_directory:
            os.rmdir(name, dir_fd=fd)
        else:
            os.unlink(name, dir_fd=fd)
