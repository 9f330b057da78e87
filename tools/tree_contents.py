"""Everything that lies below a directory, for telling what is different afterwards."""

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT
from migrator.core.paths import is_beneath, percent_unescape

_MODE_ACL_BYTES = 28

Seen = dict[bytes, tuple[object, ...]]
_NOT_THERE = ("listed, and not there",)


def everything(root: Path) -> Seen:
    """Every path below a directory: type, mode, owner, mtime (not of directories), and target, content by its digest, or ACLs of a
    directory.
    """
    found: Seen = {}
    top = os.fsencode(root)
    # By descriptors: a path that users can have may be too long below a mount point that is named too.
    for above, directories, names, fd in os.fwalk(top):
        for name in (*directories, *names):
            found[os.path.relpath(os.path.join(above, name), top)] = _one(name, fd)
    return found


def by_name(root: Path, paths: Iterable[bytes]) -> Seen:
    """The same of these paths, each asked for by its name alone: no directory is listed, as by a program that opens what it
    knows of. Paths that are not found are left out.
    """
    fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        seen = {path: _one(path, fd) for path in sorted(paths)}
    finally:
        os.close(fd)
    return {path: facts for path, facts in seen.items() if facts != _NOT_THERE}


def _one(name: bytes, above: int) -> tuple[object, ...]:
    try:
        status = os.stat(name, dir_fd=above, follow_symlinks=False)
        kind = stat.S_IFMT(status.st_mode)
        what: object = None
        if kind == stat.S_IFREG:
            what = _digest(name, above)
        elif kind == stat.S_IFLNK:
            what = os.readlink(name, dir_fd=above)
        elif kind == stat.S_IFDIR:
            what = tuple(_acl(name, above, which) for which in (ACL_ACCESS, ACL_DEFAULT))
    except FileNotFoundError:
        return _NOT_THERE
    mtime_ns = 0 if kind == stat.S_IFDIR else status.st_mtime_ns
    return (what, oct(status.st_mode), status.st_uid, status.st_gid, mtime_ns)


def _acl(name: bytes, above: int, which: bytes) -> bytes:
    """Empty where there is none, or none that says more than a mode."""
    try:
        acl = os.getxattr(b"/proc/self/fd/%d/%s" % (above, name), which, follow_symlinks=False)
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return b""
        raise
    return b"" if which == ACL_ACCESS and len(acl) == _MODE_ACL_BYTES else acl


def _digest(name: bytes, above: int) -> str:
    with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=above), "rb") as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return hashlib.file_digest(stream, "blake2b").hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """All paths of a journal."""

    paths: frozenset[bytes]
    parents: frozenset[bytes]
    subtrees: frozenset[bytes]
    operations: int

    def covers(self, path: bytes) -> bool:
        """Whether a difference at this path is caused by the churn: the path changed, or it is in a directory that
        moved.
        """
        if path in self.paths or path in self.parents:
            return True
        return any(is_beneath(path, subtree) for subtree in self.subtrees)


def read_journal(file: bytes) -> Touched:
    """All paths of a journal. A last line that a crash truncated was never acted upon."""
    touched: dict[str, set[bytes]] = {"paths": set(), "parents": set(), "subtrees": set()}
    operations = 0
    with open(file, "rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            entry = json.loads(line)
            operations += 1
            for key, paths in touched.items():
                paths.update(map(percent_unescape, entry[key]))
    return Touched(**{key: frozenset(paths) for key, paths in touched.items()}, operations=operations)


def differences(before: Seen, after: Seen, touched: Touched, working: bytes) -> list[bytes]:
    """Paths that are not as they were, without those that the churn has touched and those below the working directory. Of a
    directory that was there before the churn changes nothing but its times: owner and mode have to be the same.
    """
    paths = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    return sorted(
        path
        for path in paths
        if (_is_directory(before.get(path)) or not touched.covers(path)) and path.split(b"/")[:2] != working.split(b"/")
    )


def _is_directory(facts: tuple[object, ...] | None) -> bool:
    return facts is not None and len(facts) > 1 and str(facts[1]).startswith("0o4")


def shut(seen: Seen) -> list[bytes]:
    """Directories that are root's with mode 0000: nobody may enter them, and no user can have made one."""
    return sorted(path for path, facts in seen.items() if facts[1:4] == ("0o40000", 0, 0))
