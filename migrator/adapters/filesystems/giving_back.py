"""Giving directories back the owner, mode and ACLs that GlusterFS has taken from them, through the mount.

Where bricks were added, whoever looks a directory up makes it on the new ones: clients, and a fix-layout on every host. They
do not wait for one another, and one that sees what another has just made takes that for the directory (GlusterFS 10.3, seen;
dht-selfheal.c there releases its lock between making a directory and giving it its owner).
"""

import errno
import os
import stat

from migrator.adapters.filesystems.beneath import Root
from migrator.decide.directory_owners import same_owner
from migrator.domain.directory_owners import DirectoryFacts
from migrator.domain.entry import ACL_ACCESS, ACL_DEFAULT

_UNKNOWN = (errno.EOPNOTSUPP,)
_ABSENT = (errno.ENODATA,)
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)


class MountedDirectories:
    """The `DirectoryMender` port."""

    def __init__(self, root: bytes) -> None:
        self._root = root

    def look(self, path: bytes, gfid: bytes) -> DirectoryFacts | None:
        """A directory as users see it; None where it is gone, or another one has its name. Raises OSError."""
        try:
            with Root(self._root) as root, root.directory(path) as fd:
                return _facts(fd, path, gfid)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise

    def put_back(self, seen: DirectoryFacts, wanted: DirectoryFacts) -> DirectoryFacts | None:
        """Give it owner, mode and ACLs of `wanted`, if it still is as `seen`; what it is then, None where it has them not. May be
        called again. Raises OSError.
        """
        with Root(self._root) as root, root.directory(seen.path) as fd:
            now = _facts(fd, seen.path, seen.gfid)
            if now is None or not same_owner(now, seen):
                return None
            # Also where the mount shows it as it has to be: one copy of it may differ, and all of them are written to.
            os.fchown(fd, wanted.uid, wanted.gid)
            _write(fd, ACL_ACCESS, wanted.access)
            _write(fd, ACL_DEFAULT, wanted.default)
            # Last: whoever changes an owner or an ACL changes bits of the mode.
            os.fchmod(fd, wanted.mode)
            now = _facts(fd, seen.path, seen.gfid)
            return now if now is not None and same_owner(now, wanted) else None


def _facts(fd: int, path: bytes, gfid: bytes) -> DirectoryFacts | None:
    status = os.fstat(fd)
    known = DirectoryFacts(
        path=path,
        gfid=gfid,
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        changed_ns=status.st_ctime_ns,
        modified_ns=status.st_mtime_ns,
        access=_read(fd, ACL_ACCESS),
        default=_read(fd, ACL_DEFAULT),
    )
    return known if status.st_ino == known.inode else None


def _read(fd: int, name: bytes) -> bytes | None:
    """An ACL; None where this mount tells of none."""
    try:
        return os.getxattr(fd, name)
    except OSError as error:
        if error.errno in _ABSENT:
            return b""
        if error.errno in _UNKNOWN:
            return None
        raise


def _write(fd: int, name: bytes, value: bytes | None) -> None:
    """Nothing where it is not known, or the mount takes none: then a mode brings its part of an ACL back."""
    if value is None:
        return
    try:
        if value:
            os.setxattr(fd, name, value)
        else:
            os.removexattr(fd, name)
    except OSError as error:
        if error.errno not in (*_ABSENT, *_UNKNOWN):
            raise
