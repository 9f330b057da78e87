"""Records owner, mode, ACLs and times of directories on disk, before bricks are added or leave, and restores them."""

import errno
import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path

from migrator.bricks.directory_owners import same_owner
from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, time_of_entry_ns
from migrator.core.errors import MigratorError
from migrator.fs.beneath import Root
from migrator.gluster.model import BrickDirectory

# The database: on disk and queried by gfid, so that memory stays bounded.


_COLUMNS = BrickDirectory.__struct_fields__
_SCHEMA = f"""
    CREATE TABLE IF NOT EXISTS directories (gfid PRIMARY KEY, {", ".join(f'"{name}"' for name in _COLUMNS if name != "gfid")}) WITHOUT ROWID;
"""
_NAMES = ", ".join(f'"{name}"' for name in _COLUMNS)
_KEEP = f"REPLACE INTO directories ({_NAMES}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608 -- ours
_ASKED_AT_ONCE = 500
_CACHE_KIB = 64 * 1024


class DirectoryFiles:
    """The recorded directories of all additions, or of all drains: one file each in a directory of the state directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def opened(self, operation: str) -> Iterator["KnownDirectoryFile"]:
        """Open the file of one operation during the block. What identifies the operation has to be unique over all ledgers, if
        the file lasts. Raises MigratorError if it cannot be read or written.
        """
        path = self._directory / f"{operation}-directories.db"
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                connection.executescript(f"PRAGMA cache_size = -{_CACHE_KIB}; {_SCHEMA} BEGIN;")
                yield KnownDirectoryFile(connection, path)
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise MigratorError(
                f"the recorded owners and modes of directories cannot be read or written: {error}",
                cause="the state directory is full, or its disk has an error",
                hint=f"make room, or move {path.name} there away; then run the same command again",
            ) from error


class KnownDirectoryFile:
    """The recorded directories of one operation. Synchronous, for one thread."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def of(self, gfids: Sequence[bytes]) -> Mapping[bytes, BrickDirectory]:
        """Return the recorded directories, by gfid."""
        found: dict[bytes, BrickDirectory] = {}
        for start in range(0, len(gfids), _ASKED_AT_ONCE):
            asked = gfids[start : start + _ASKED_AT_ONCE]
            query = f"SELECT {_NAMES} FROM directories WHERE gfid IN ({', '.join('?' * len(asked))})"  # noqa: S608 -- ours
            for row in self._connection.execute(query, asked):
                facts = BrickDirectory(**dict(zip(_COLUMNS, row, strict=True)))
                found[facts.gfid] = facts
        return found

    def keep(self, found: Sequence[BrickDirectory]) -> None:
        """Record these, replacing earlier entries of the same gfids."""
        of_each = attrgetter(*_COLUMNS)
        self._connection.executemany(_KEEP, map(of_each, found))

    def all(self) -> Iterator[BrickDirectory]:
        """Return all recorded directories, in no order. Nothing may be recorded meanwhile."""
        for row in self._connection.execute(f"SELECT {_NAMES} FROM directories"):  # noqa: S608 -- ours
            yield BrickDirectory(**dict(zip(_COLUMNS, row, strict=True)))

    def drop(self, gfids: Sequence[bytes]) -> None:
        """Forget these."""
        self._connection.executemany("DELETE FROM directories WHERE gfid = ?", [(gfid,) for gfid in gfids])

    def clear(self) -> None:
        """Forget all."""
        self._connection.execute("DELETE FROM directories")

    def done(self) -> None:
        """Commit the entries of a complete walk. Without this call they are dropped."""
        self._connection.execute("COMMIT")
        self._connection.execute("BEGIN")

    def remove(self) -> None:
        """Delete the file and its journal. An open connection continues on the deleted file."""
        self._path.unlink(missing_ok=True)
        self._path.with_name(f"{self._path.name}-journal").unlink(missing_ok=True)


# Restoring directories through the mount.
#
# Every client that looks up a directory creates it on new bricks, and so does a fix-layout on every host. They do not
# wait for one another: a client that sees the new, unfinished directory takes it for the real one (GlusterFS 10.3,
# observed; dht-selfheal.c releases its lock between mkdir and chown).


_UNKNOWN = (errno.EOPNOTSUPP,)
_ABSENT = (errno.ENODATA,)
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)


class MountedDirectories:
    """Restores owner, mode, ACLs and times of directories through the mount. Blocking."""

    def __init__(self, root: bytes) -> None:
        self._root = root

    def look(self, path: bytes, gfid: bytes) -> BrickDirectory | None:
        """Read the directory through the mount. None if it is gone or its name is another directory's.
        Raises OSError.
        """
        try:
            with Root(self._root) as root, root.directory(path) as fd:
                return _facts(fd, path, gfid)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise

    def put_back(self, seen: BrickDirectory, wanted: BrickDirectory) -> BrickDirectory | None:
        """Set owner, mode and ACLs to those of `wanted`, if the directory still is as `seen`. Return its new
        attributes; None if they differ from `wanted` or the directory has changed. May be called again. Raises OSError.
        """
        with Root(self._root) as root, root.directory(seen.path) as fd:
            now = _facts(fd, seen.path, seen.gfid)
            if now is None or not same_owner(now, seen):
                return None
            # Write even if the mount shows the right attributes: one copy may differ, and a write reaches all of them.
            os.fchown(fd, wanted.uid, wanted.gid)
            _write(fd, ACL_ACCESS, wanted.access)
            _write(fd, ACL_DEFAULT, wanted.default)
            # Last: changing an owner or an ACL changes bits of the mode.
            os.fchmod(fd, wanted.mode)
            now = _facts(fd, seen.path, seen.gfid)
            return now if now is not None and same_owner(now, wanted) else None

    def set_mtime(self, seen: BrickDirectory) -> bool:
        """Write the mtime of a directory to every copy, if it still has the times that were `seen`. Return whether it
        was written. May be called again. Raises OSError.
        """
        with Root(self._root) as root, root.directory(seen.path) as fd:
            now, status = _facts(fd, seen.path, seen.gfid), os.fstat(fd)
            if now is None or (now.modified_ns, now.changed_ns) != (seen.modified_ns, seen.changed_ns):
                return False
            os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
            return True


def _facts(fd: int, path: bytes, gfid: bytes) -> BrickDirectory | None:
    status = os.fstat(fd)
    known = BrickDirectory(
        path=path,
        gfid=gfid,
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        changed_ns=time_of_entry_ns(status.st_ctime_ns),
        modified_ns=time_of_entry_ns(status.st_mtime_ns),
        access=_read(fd, ACL_ACCESS),
        default=_read(fd, ACL_DEFAULT),
    )
    return known if status.st_ino == known.inode else None


def _read(fd: int, name: bytes) -> bytes | None:
    """Read an ACL; None if the mount shows none."""
    try:
        return os.getxattr(fd, name)
    except OSError as error:
        if error.errno in _ABSENT:
            return b""
        if error.errno in _UNKNOWN:
            return None
        raise


def _write(fd: int, name: bytes, value: bytes | None) -> None:
    """Write an ACL, unless it is unknown or the mount accepts none. In that case the mode restores its part of the
    ACL.
    """
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
