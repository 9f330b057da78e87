"""Owners and modes of all directories, out of a catalog."""

from collections.abc import Iterator
from pathlib import Path

from migrator.adapters.catalog.database import connect
from migrator.adapters.catalog.listings import create_entries
from migrator.adapters.catalog.reader import open_closed
from migrator.domain.directory_owners import DirectoryOwner

_ROWS_AT_ONCE = 10_000
_DIRECTORIES = "SELECT path, ino, mode, uid, gid FROM entries WHERE type = 'directory' AND path <> ''::BLOB"


def directory_owners(directory: Path, catalog: str, *, temp_dir: Path) -> Iterator[DirectoryOwner]:
    """Every directory of a catalog but the root, one after the other. Raises MigratorError where the catalog cannot be read."""
    closed = open_closed(directory / catalog)
    with connect(temp_dir=temp_dir) as connection:
        create_entries(connection, closed.part_files)
        rows = connection.execute(_DIRECTORIES)
        while block := rows.fetchmany(_ROWS_AT_ONCE):
            for path, inode, mode, uid, gid in block:
                yield DirectoryOwner(path=path, inode=inode, mode=mode, uid=uid, gid=gid)
