"""What one name in a directory is, by the descriptor of the directory."""

import errno
import os
import stat
from collections.abc import Mapping

from migrator.adapters.filesystems.xattrs import read_xattrs
from migrator.domain.entry import Entry, EntryType
from migrator.domain.scan import ScanProblem

INO_MASK = 0xFFFF_FFFF_FFFF_FFFF
"""Numbers of inodes and of file systems are kept as unsigned, of 64 bits."""
_LOOKS = 3
"""How often an entry is looked at again when it turned into something else between two calls."""
_NO_XATTRS: Mapping[bytes, bytes] = {}


def read_entry(fd: int, name: bytes, path: bytes, facts: os.stat_result, problems: list[ScanProblem]) -> Entry:
    """The entry, with what could not be read of it added to `problems`. Raises FileNotFoundError when it is gone."""
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
        mode=mode & 0o7777,
        mtime_ns=facts.st_mtime_ns,
        atime_ns=facts.st_atime_ns,
        ctime_ns=facts.st_ctime_ns,
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
    """The target, or newer facts and None where it is no symlink any more."""
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
    """What the kernel said of an operation on a path."""
    return ScanProblem(path=path, operation=operation, errno=error.errno, reason=error.strerror or str(error))
