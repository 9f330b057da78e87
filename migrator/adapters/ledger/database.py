"""One SQLite file: connections, transactions, and what its errors mean to a person."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from migrator.domain.errors import LedgerCorrupt, LockHeld, MigratorError

BUSY_TIMEOUT_S = 30.0
"""How long a write waits for another process's write: transactions are short, so longer means that one hangs."""

_WRITES = "ledger_writes"
_RESTORE = (
    "restore the newest backup (in backups/ beside it) and run `migrator doctor`; the files copied so far are kept"
)
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_SCHEMA}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def describe(error: sqlite3.Error, file: Path) -> MigratorError:
    """The error for people that an error of SQLite stands for."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # extended codes hold the plain one below
    if code in _BUSY:
        return LockHeld(
            f"the ledger {file} is locked by another process",
            cause="a write of another process has hung, or a tool holds the database open",
            hint="see which process has it open (`fuser ledger.db`) and try again when it has ended",
        )
    if code in _CORRUPT:
        return LedgerCorrupt(
            f"{file} is no readable ledger: {error}",
            cause="the file was damaged, cut off, or something else was put in its place",
            hint=_RESTORE,
        )
    if code == sqlite3.SQLITE_FULL:
        return MigratorError(
            f"the disk that holds the ledger {file} is full", hint="free some room on it and run the same command again"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return MigratorError(
            f"the ledger {file} cannot be opened: {error}",
            cause="no permission on the state directory, or its file system is mounted read-only",
            hint="run as the user who ran `migrator init`",
        )
    if code == sqlite3.SQLITE_CONSTRAINT:
        return LedgerCorrupt(
            f"the ledger {file} refuses a record: {error}",
            cause="a record refers to one that is not there, or is there already",
            hint=_RESTORE,
        )
    return MigratorError(
        f"the ledger {file} failed: {error}",
        cause="the disk that holds the state directory may have an error",
        hint="see the kernel's log (`dmesg`), then run the same command again",
    )


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """Turn errors of SQLite into errors for people. Raises LockHeld, LedgerCorrupt, MigratorError."""
    try:
        yield
    except DBAPIError as error:
        if isinstance(error.orig, sqlite3.Error):
            raise describe(error.orig, file) from error
        raise
    except sqlite3.Error as error:
        raise describe(error, file) from error


class Database:
    """A ledger's file. Connections are pooled and may be used from several threads; one transaction, one connection.

    `read_only` never takes a lock that a writer would wait for, and works while a run goes on.
    """

    def __init__(
        self,
        file: Path,
        *,
        create: bool = False,
        read_only: bool = False,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
    ) -> None:
        self.file = file
        self.read_only = read_only
        mode = "ro" if read_only else "rwc" if create else "rw"
        uri = f"{file.absolute().as_uri()}?mode={mode}"

        def connect() -> sqlite3.Connection:
            connection = sqlite3.connect(
                uri, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
            )
            try:
                if not read_only:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
            except sqlite3.Error:
                connection.close()
                raise
            return connection

        self._engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)
        # The driver's own habit of beginning transactions late is switched off (isolation_level None): a write takes
        # its lock at its beginning, so that what it read is still true when it writes.
        event.listen(self._engine, "begin", _begin)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One write transaction, committed to the disk at the end of the block, undone on an exception."""
        with (
            translated(self.file),
            self._engine.connect().execution_options(**{_WRITES: True}) as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent view for the length of the block."""
        with translated(self.file), self._engine.connect() as connection, connection.begin():
            yield connection

    def close(self) -> None:
        """Close the connections that are not in use. May be called again."""
        self._engine.dispose()


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
