"""A file system that loses and refuses what BeeGFS does, passed through to a directory by FUSE, for tests.

What it copies of BeeGFS 8.3.1: whole seconds, floored; only `user.*` attributes and POSIX ACLs, values over 4,000 bytes
ENOSPC (an ACL is such a value), names over 245 bytes ERANGE; the removal of an access
ACL EINVAL, as by the stock client on Linux 6.0 and 6.1, and of a default ACL too if it is `strict` (the stock client
removes one that is set to none, which FUSE turns into a removal); device numbers lost; the mode of a FIFO, socket
or device changed, and EOPNOTSUPP as the answer; symlinks whose mode is cut by the umask of their maker and by the default
ACL of their directory, and whose targets of 4,095 bytes can be made and not read; default ACLs that new entries inherit,
cut by the umask too, or do not (`passes_acls_on`: `storeClientACLs` of the metadata servers); no free inodes told; inode
numbers above 2^63; no RENAME_NOREPLACE; a directory is not renamed over another; the name `#fSiDs#` reserved; holes kept but told as data (SEEK_HOLE is not implemented).

Run as `python -m tests.support.beegfs_like BACKING MOUNT_POINT FSYNC_S CACHED_S STRICT PASSES_ACLS_ON`, in a process of its own, or by `beegfs_like` in a test.
"""

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT
from migrator.fs.acl import GROUP_OBJ, MASK, OTHER, USER_OBJ, parse_acl
from migrator.fs.beneath import Root, entry_path
from migrator.fs.model import TargetCapabilities

RESERVED_NAME = b"#fSiDs#"
MAX_XATTR_NAME_BYTES = 245
MAX_XATTR_VALUE_BYTES = 4000
SYMLINK_UNREADABLE_BYTES = 4095
DEADLINE_S = 600.0

# Where libfuse 2 is installed too, mfusepy would take that one, which knows neither UTIME_OMIT nor the flags of a rename.
os.environ.setdefault("FUSE_LIBRARY_NAME", "fuse3")

BEEGFS_CAPABILITIES = TargetCapabilities(
    time_granularity_ns=1_000_000_000,
    keeps_security_xattrs=False,
    keeps_device_numbers=False,
    max_symlink_target_bytes=4094,
    max_xattr_name_bytes=245,
    max_xattr_value_bytes=4000,
    max_acl_entries=499,
    reserved_names=(b"#fSiDs#",),
    syncfs_reaches_disks=False,
)
"""BeeGFS 8.3.1 with `sysXAttrsEnabled`, `sysACLsEnabled` and `storeClientACLs` on, as measured on a real one."""
STRICT_CAPABILITIES = replace(BEEGFS_CAPABILITIES, keeps_default_acls=False, inherits_default_acls=False)

_HIGH_BIT = 1 << 63
_NS_PER_S = 1_000_000_000
_UTIME_NOW, _UTIME_OMIT = 0x3FFFFFFF, 0x3FFFFFFE
_KEPT_XATTRS = (b"user.", b"system.posix_acl_access", b"system.posix_acl_default")


def missing_for_fuse() -> str | None:
    """Why FUSE file systems cannot be had here; None where they can."""
    if os.geteuid() != 0:
        return "not root"
    if not Path("/dev/fuse").exists():
        return "/dev/fuse is missing"
    if shutil.which("fusermount3") is None:
        return "fusermount3 is not installed (Debian: fuse3)"
    try:
        import mfusepy  # noqa: F401 (raises where libfuse3 is missing)
    except OSError as error:
        return f"{error} (Debian: libfuse3-3)"
    return None


@contextmanager
def beegfs_like(
    directory: Path, *, fsync_s: float = 0.0, cached_s: float = 0.0, strict: bool = False, passes_acls_on: bool = True
) -> Iterator[Path]:
    """Such a file system, mounted in an existing directory for the length of the block. The file `renamed-unsynced`
    beside it has a line for each file that was renamed before its content was synced. A sync of a file takes `fsync_s`
    longer, and others may be in flight meanwhile. Attributes are cached for `cached_s`, names are not.
    """
    backing, mount_point = directory / "backing", directory / "beegfs"
    backing.mkdir()
    mount_point.mkdir()
    log = directory / "beegfs.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.support.beegfs_like",
                str(backing),
                str(mount_point),
                str(fsync_s),
                str(cached_s),
                "1" if strict else "0",
                "1" if passes_acls_on else "0",
            ],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not os.path.ismount(mount_point):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the file system did not come up: {log.read_text(errors='replace')}")
            time.sleep(0.01)
        yield mount_point
    finally:
        if subprocess.run(["fusermount3", "-u", "-q", str(mount_point)], check=False).returncode != 0:
            # A test that failed has it open.
            subprocess.run(["umount", "-l", str(mount_point)], check=False)
            process.kill()
        process.wait()


CONTENT_REQUESTS = ("read", "write", "fsync", "flush", "release")
"""Requests to storage servers, or to none; all others go to metadata servers."""

_ANSWERED_WITH_FACTS = ("create", "mkdir", "mknod", "symlink", "link", "chmod", "chown", "utimens", "truncate")
"""Requests that libfuse follows by a getattr of its own."""


def requests_of(mount_point: Path) -> Counter[str]:
    """The requests since the beginning, by kind, as of a client that caches attributes. Lookups of directories do not count: real
    clients cache these for a second.
    """
    os.statvfs(mount_point)
    found = Counter[str](json.loads((mount_point.parent / "requests.json").read_text()))
    directories, facts = found.pop("getattr of a directory", 0), sum(found[kind] for kind in _ANSWERED_WITH_FACTS)
    found["lookup"] = found.pop("getattr", 0) - directories - facts
    return found


def metadata_requests(found: Counter[str]) -> int:
    """How many of them go to metadata servers."""
    return sum(count for kind, count in found.items() if kind not in (*CONTENT_REQUESTS, "statfs"))


def _serve(backing: bytes, mount_point: str, *options: float) -> None:
    fsync_s, cached_s, strict, passes_acls_on = options
    import mfusepy

    class Kernel(mfusepy.FUSE):  # type: ignore[misc]
        """mfusepy drops the flags of a rename."""

        def rename_fuse_3(self, old: bytes, new: bytes, flags: int) -> int:
            if flags:
                raise OSError(errno.EINVAL, "no flags")
            return int(self.rename_fuse_2(old, new))

    class BeegfsLike(mfusepy.Operations):  # type: ignore[misc]
        """Every operation on a path goes beneath the backing root, however long the path is."""

        use_ns = True

        def __init__(self) -> None:
            self._requests: Counter[str] = Counter()
            self._unsynced: set[int] = set()
            self._symlink_modes: dict[int, int] = {}
            self._root = Root(backing)

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            name = _relative(path)
            if name:
                with self._root.parent(name) as (fd, last):
                    facts = os.stat(last, dir_fd=fd, follow_symlinks=False)
            else:
                facts = os.stat(backing)
            self._requests["getattr of a directory"] += stat.S_ISDIR(facts.st_mode)
            shown: dict[str, Any] = {
                key: getattr(facts, key) for key in ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks")
            }
            shown["st_ino"] = facts.st_ino | _HIGH_BIT
            shown["st_blksize"] = 524_288
            shown["st_rdev"] = 0
            if stat.S_ISLNK(facts.st_mode):
                shown["st_mode"] = stat.S_IFLNK | self._symlink_modes.get(facts.st_ino, 0o755)
            for key in ("st_atime", "st_mtime", "st_ctime"):
                shown[key] = getattr(facts, f"{key}_ns") // _NS_PER_S * _NS_PER_S
            return shown

        def readdir(self, path: str, fh: int) -> Iterator[tuple[str, dict[str, int], int]]:
            directory_fd = self._root.open(_relative(path), os.O_PATH | os.O_DIRECTORY)
            try:
                for name in (".", ".."):
                    yield name, {"st_mode": stat.S_IFDIR}, 0
                with os.scandir(f"/proc/self/fd/{directory_fd}") as listing:
                    for entry in listing:
                        facts = entry.stat(follow_symlinks=False)
                        yield entry.name, {"st_mode": facts.st_mode, "st_ino": facts.st_ino | _HIGH_BIT}, 0
            finally:
                os.close(directory_fd)

        def readlink(self, path: str) -> str:
            with self._root.parent(_relative(path)) as (fd, name):
                target = os.readlink(name, dir_fd=fd)
            if len(target) >= SYMLINK_UNREADABLE_BYTES:
                raise OSError(errno.ENAMETOOLONG, "too long to be read back")
            return os.fsdecode(target)

        def mknod(self, path: str, mode: int, dev: int) -> int:
            with self._new(path) as (fd, name):
                os.mknod(name, mode, dev, dir_fd=fd)
                self._inherit(fd, name, mode)
                _own(fd, name)
            return 0

        def mkdir(self, path: str, mode: int) -> int:
            with self._new(path) as (fd, name):
                os.mkdir(name, mode, dir_fd=fd)
                self._inherit(fd, name, mode)
                _own(fd, name)
            return 0

        def symlink(self, target: str, source: str) -> int:
            with self._new(target) as (fd, name):
                os.symlink(os.fsencode(source), name, dir_fd=fd)
                self._symlink_modes[os.stat(name, dir_fd=fd, follow_symlinks=False).st_ino] = _symlink_mode(fd)
                _own(fd, name)
            return 0

        def link(self, target: str, source: str) -> int:
            with self._new(target) as (fd, name), self._root.parent(_relative(source)) as (old_fd, old):
                os.link(old, name, src_dir_fd=old_fd, dst_dir_fd=fd, follow_symlinks=False)
            return 0

        def unlink(self, path: str) -> int:
            with self._root.parent(_relative(path)) as (fd, name):
                os.unlink(name, dir_fd=fd)
            return 0

        def rmdir(self, path: str) -> int:
            with self._root.parent(_relative(path)) as (fd, name):
                os.rmdir(name, dir_fd=fd)
            return 0

        def rename(self, old: str, new: str) -> int:
            if os.fsencode(new).rpartition(b"/")[2] == RESERVED_NAME:
                raise OSError(errno.EREMOTEIO, "reserved")
            with (
                self._root.parent(_relative(old)) as (old_fd, old_name),
                self._root.parent(_relative(new)) as (fd, name),
            ):
                if _is_directory(old_fd, old_name) and _is_directory(fd, name):
                    raise OSError(errno.EEXIST, "a directory is there")
                os.rename(old_name, name, src_dir_fd=old_fd, dst_dir_fd=fd)
                if os.stat(name, dir_fd=fd, follow_symlinks=False).st_ino in self._unsynced:
                    with open(os.path.join(os.path.dirname(backing), b"renamed-unsynced"), "ab") as told:
                        told.write(name + b"\n")
            return 0

        def chmod(self, path: str, mode: int) -> int:
            with self._root.parent(_relative(path)) as (fd, name):
                pinned = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=fd)
                try:
                    Path(f"/proc/self/fd/{pinned}").chmod(mode)
                    kind = os.fstat(pinned).st_mode
                finally:
                    os.close(pinned)
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                raise OSError(errno.EOPNOTSUPP, "no ACLs of such a node, and its mode is changed")
            return 0

        def chown(self, path: str, uid: int, gid: int) -> int:
            with self._root.parent(_relative(path)) as (fd, name):
                os.chown(name, uid, gid, dir_fd=fd, follow_symlinks=False)
            return 0

        def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
            with self._root.parent(_relative(path)) as (fd, name):
                facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
                shown = (facts.st_atime_ns, facts.st_mtime_ns)
                asked = times or (_UTIME_NOW, _UTIME_NOW)
                set_to = tuple(
                    time.time_ns() if new == _UTIME_NOW else old if new == _UTIME_OMIT else new
                    for new, old in zip(asked, shown, strict=True)
                )
                os.utime(name, ns=(set_to[0], set_to[1]), dir_fd=fd, follow_symlinks=False)
            return 0

        def create(self, path: str, mode: int, fi: object = None) -> int:
            with self._new(path) as (fd, name):
                opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=fd)
                self._inherit(fd, name, mode)
                _own(fd, name)
            return opened

        def open(self, path: str, flags: int) -> int:
            kept = flags & (os.O_ACCMODE | os.O_TRUNC | os.O_APPEND)
            return self._root.open(_relative(path), kept & ~os.O_APPEND)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return os.pread(fh, size, offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            self._unsynced.add(os.fstat(fh).st_ino)
            return os.pwrite(fh, data, offset)

        def truncate(self, path: str, length: int, fh: int | None = None) -> int:
            opened = self._root.open(_relative(path), os.O_WRONLY)
            try:
                os.ftruncate(opened, length)
            finally:
                os.close(opened)
            return 0

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            os.fsync(fh)
            time.sleep(fsync_s)
            self._unsynced.discard(os.fstat(fh).st_ino)
            return 0

        def release(self, path: str, fh: int) -> int:
            os.close(fh)
            return 0

        def statfs(self, path: str) -> dict[str, int]:
            (Path(mount_point).parent / "requests.json").write_text(json.dumps(self._requests))
            room = os.statvfs(backing)
            facts = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_namemax")
            shown: dict[str, int] = {key: getattr(room, key) for key in facts}
            return shown | {"f_files": 0, "f_ffree": 0, "f_favail": 0}

        def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
            _refuse_foreign(name)
            if len(value) > MAX_XATTR_VALUE_BYTES:
                raise OSError(errno.ENOSPC, "too big")
            if len(os.fsencode(name)) > MAX_XATTR_NAME_BYTES:
                raise OSError(errno.ERANGE, "too long")
            with self._named(path) as named:
                os.setxattr(named, os.fsencode(name), value, options, follow_symlinks=False)
            return 0

        def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
            # The kernel asks for capabilities: that is no request of its client.
            self._requests["getxattr"] -= name == "security.capability"
            _refuse_foreign(name)
            with self._named(path) as named:
                return os.getxattr(named, os.fsencode(name), follow_symlinks=False)

        def listxattr(self, path: str) -> list[str]:
            with self._named(path) as named:
                listed = os.listxattr(named, follow_symlinks=False)
            return [name for name in listed if os.fsencode(name).startswith(_KEPT_XATTRS)]

        def removexattr(self, path: str, name: str) -> int:
            _refuse_foreign(name)
            if os.fsencode(name) in (ACL_ACCESS, ACL_DEFAULT if strict else b""):
                # Its client hands NULL to posix_acl_from_xattr, which these kernels refuse.
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            with self._named(path) as named:
                os.removexattr(named, os.fsencode(name), follow_symlinks=False)
            return 0

        @contextmanager
        def _named(self, path: str) -> Iterator[bytes]:
            name = _relative(path)
            if not name:
                yield backing
                return
            with self._root.parent(name) as (fd, last):
                yield entry_path(fd, last)

        @contextmanager
        def _new(self, path: str) -> Iterator[tuple[int, bytes]]:
            with self._root.parent(_relative(path)) as (fd, name):
                if name == RESERVED_NAME:
                    raise OSError(errno.EEXIST, "reserved")
                yield fd, name

        def _inherit(self, fd: int, name: bytes, mode: int) -> None:
            """Undo what the backing file system gives a new entry by the default ACL of its directory."""
            if passes_acls_on:
                return
            path = entry_path(fd, name)
            inherited = {os.fsencode(one) for one in os.listxattr(path, follow_symlinks=False)}
            for acl in inherited & {ACL_ACCESS, ACL_DEFAULT}:
                os.removexattr(path, acl, follow_symlinks=False)
            pinned = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=fd)
            try:
                Path(f"/proc/self/fd/{pinned}").chmod(stat.S_IMODE(mode))
            finally:
                os.close(pinned)

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(self: BeegfsLike, *arguments: Any) -> Any:
            self._requests[method.__name__] += 1
            return method(self, *arguments)

        return call

    for name, member in list(vars(BeegfsLike).items()):
        if callable(member) and not name.startswith("_"):
            setattr(BeegfsLike, name, counted(member))

    def _own(fd: int, name: bytes) -> None:
        uid, gid, _ = mfusepy.fuse_get_context()
        group = -1 if os.fstat(fd).st_mode & stat.S_ISGID else gid
        os.chown(name, uid, group, dir_fd=fd, follow_symlinks=False)

    def _symlink_mode(fd: int) -> int:
        """What the maker's umask and the directory's default ACL leave of 0777."""
        pid = mfusepy.fuse_get_context()[2]
        status = Path(f"/proc/{pid}/status").read_text()
        mode = 0o777 & ~int(next(line for line in status.splitlines() if line.startswith("Umask:")).split()[1], 8)
        try:
            entries = parse_acl(os.getxattr(f"/proc/self/fd/{fd}", ACL_DEFAULT)) if passes_acls_on else None
        except OSError:
            entries = None
        granted = {entry.tag: entry.permissions for entry in entries or ()}
        if granted:
            mode &= granted[USER_OBJ] << 6 | granted.get(MASK, granted[GROUP_OBJ]) << 3 | granted[OTHER]
        return mode

    os.umask(0)
    Kernel(
        BeegfsLike(),
        mount_point,
        fsname="beegfs_nodev",
        subtype="beegfs",
        **dict.fromkeys(("foreground", "allow_other", "default_permissions", "dev", "suid", "use_ino"), True),
        nothreads=not fsync_s,
        **dict.fromkeys(("entry_timeout", "negative_timeout"), 0.0),
        attr_timeout=cached_s,
    )


def _relative(path: str) -> bytes:
    return os.fsencode(path).lstrip(b"/")


def _is_directory(fd: int, name: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _refuse_foreign(name: str) -> None:
    if not os.fsencode(name).startswith(_KEPT_XATTRS):
        raise OSError(errno.ENOTSUP, "only user attributes and ACLs")


if __name__ == "__main__":
    _serve(os.fsencode(sys.argv[1]), sys.argv[2], *map(float, sys.argv[3:]))
