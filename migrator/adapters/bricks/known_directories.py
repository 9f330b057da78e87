"""What is known of the directories of one addition: a small database on disk, asked by gfid, so that memory is flat."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from migrator.domain.directory_owners import DirectoryFacts
from migrator.domain.errors import MigratorError

_COLUMNS = (
    "gfid",
    "path",
    "above",
    "mode",
    "uid",
    "gid",
    "access",
    "default_access",
    "changed_ns",
    "modified_ns",
)
_SCHEMA = f"""
    CREATE TABLE IF NOT EXISTS directories (gfid PRIMARY KEY, {", ".join(_COLUMNS[1:])}) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS walks (number INTEGER PRIMARY KEY);
"""
_KEEP = f"REPLACE INTO directories ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608 -- ours
_ASKED_AT_ONCE = 500
_CACHE_KIB = 64 * 1024


class DirectoryFiles:
    """The `DirectoryMemory` port: a file for each addition in a directory of the state directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def opened(self, addition_id: int) -> Iterator["KnownDirectoryFile"]:
        """That of one addition, for the length of the block. Raises MigratorError where it cannot be read or written."""
        path = self._directory / f"{addition_id}-directories.db"
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
                f"what is known of directories cannot be read or written: {error}",
                cause="the state directory is full, or its disk has an error",
                hint=f"make room, or move {path.name} there away; then run the same command again",
            ) from error


class KnownDirectoryFile:
    """The `KnownDirectories` port."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    @property
    def whole(self) -> bool:
        """Whether a walk has been kept to its end."""
        return self._connection.execute("SELECT 1 FROM walks").fetchone() is not None

    def of(self, gfids: Sequence[bytes]) -> Mapping[bytes, DirectoryFacts]:
        """By gfid what is known of them."""
        found: dict[bytes, DirectoryFacts] = {}
        for start in range(0, len(gfids), _ASKED_AT_ONCE):
            asked = gfids[start : start + _ASKED_AT_ONCE]
            query = f"SELECT {', '.join(_COLUMNS)} FROM directories WHERE gfid IN ({', '.join('?' * len(asked))})"  # noqa: S608 -- ours
            for row in self._connection.execute(query, asked):
                gfid, path, above, mode, uid, gid, access, default, changed_ns, modified_ns = row
                found[gfid] = DirectoryFacts(
                    path=path,
                    gfid=gfid,
                    above=above,
                    mode=mode,
                    uid=uid,
                    gid=gid,
                    access=access,
                    default=default,
                    changed_ns=changed_ns,
                    modified_ns=modified_ns,
                )
        return found

    def keep(self, found: Sequence[DirectoryFacts]) -> None:
        """Keep these, in the place of what is known of the same gfids."""
        self._connection.executemany(
            _KEEP,
            (
                (
                    one.gfid,
                    one.path,
                    one.above,
                    one.mode,
                    one.uid,
                    one.gid,
                    one.access,
                    one.default,
                    one.changed_ns,
                    one.modified_ns,
                )
                for one in found
            ),
        )

    def done(self) -> None:
        """What was kept lasts from now on."""
        for statement in ("INSERT INTO walks DEFAULT VALUES", "COMMIT", "BEGIN"):
            self._connection.execute(statement)

    def remove(self) -> None:
        """Forget everything. The file goes; what is open goes on in what nobody sees."""
        self._path.unlink(missing_ok=True)
        self._path.with_name(f"{self._path.name}-journal").unlink(missing_ok=True)
