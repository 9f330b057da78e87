"""One SQLite file: connections, transactions, backups, checked changes of state."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, contextmanager
from enum import StrEnum
from functools import partial
from itertools import chain, count
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from migrator.core.durable import sync
from migrator.core.errors import LedgerCorrupt, LockHeld, MigratorError
from migrator.core.units import MIB

# Connections, transactions, and messages for errors of SQLite.


BUSY_TIMEOUT_S = 30.0
"""Timeout of a write that waits for another process. Transactions are short, so a longer wait means that one hangs."""

_WRITES = "ledger_writes"
_RESTORE = (
    "restore the newest backup (in backups/ beside it) and run `migrator doctor`; the files copied so far are kept"
)
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_SCHEMA}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def describe(error: sqlite3.Error, file: Path) -> MigratorError:
    """The error to show for an error of SQLite."""
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
    if code == sqlite3.SQLITE_FULL or _is_full(file):
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


def damaged(message: str) -> LedgerCorrupt:
    """The error for a ledger whose content this program did not write."""
    return LedgerCorrupt(message, cause="the disk is bad, or something else wrote to the file", hint=_RESTORE)


def _is_full(file: Path) -> bool:
    """True if too little room is left for one transaction; SQLite then reports an I/O error."""
    try:
        room = os.statvfs(file.parent)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < MIB


def _is_without_log(file: Path) -> bool:
    """True if no transaction is only in the write-ahead log."""
    try:
        return os.stat(f"{file}-wal").st_size == 0
    except FileNotFoundError:
        return True


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """Translate errors of SQLite to LockHeld, LedgerCorrupt or MigratorError."""
    try:
        yield
    except DBAPIError as error:
        if isinstance(error.orig, sqlite3.Error):
            raise describe(error.orig, file) from error
        raise
    except sqlite3.Error as error:
        raise describe(error, file) from error
    except UnicodeDecodeError as error:
        raise damaged(f"{file} is no readable ledger: {error}") from error


class _Unlogged(sqlite3.Connection):
    """A connection that does not see what others write, for one use."""


def _discard_unlogged(connection: object, record: ConnectionPoolEntry) -> None:
    if isinstance(connection, _Unlogged):
        record.invalidate()


class Database:
    """A ledger's file. Connections are pooled and may be used from several threads; one transaction, one connection.

    With `read_only` it never blocks a writer, and works during a run.
    """

    def __init__(
        self,
        file: Path,
        *,
        create: bool = False,
        read_only: bool = False,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        foreign_keys: bool = True,
    ) -> None:
        self.file = file
        self.read_only = read_only
        self._joined: tuple[int, Connection] | None = None
        """The thread of a block of `join`, and its connection."""
        mode = "ro" if read_only else "rwc" if create else "rw"

        def opened(how: str, kind: type[sqlite3.Connection]) -> sqlite3.Connection:
            uri = f"{file.absolute().as_uri()}?{how}"
            connection = sqlite3.connect(
                uri, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False, factory=kind
            )
            try:
                if read_only:
                    connection.execute("PRAGMA schema_version")
                else:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.execute("PRAGMA synchronous = FULL")
                connection.execute(f"PRAGMA foreign_keys = {int(foreign_keys)}")
            except sqlite3.Error:
                connection.close()
                raise
            return connection

        def connect() -> sqlite3.Connection:
            try:
                return opened(f"mode={mode}", sqlite3.Connection)
            except sqlite3.Error:
                # Even a reader needs room for the index of the log, 32 KiB. Without a log the file alone has everything.
                if not (read_only and _is_full(file) and _is_without_log(file)):
                    raise
                return opened("immutable=1", _Unlogged)

        # Without a limit: threads that read do not wait for each other.
        self._engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, max_overflow=-1)
        # A write acquires its lock when it begins, so the rows it has read cannot change before it writes. The driver
        # would begin transactions later; isolation_level None switches that off.
        event.listen(self._engine, "begin", _begin)
        event.listen(self._engine, "checkin", _discard_unlogged)

    def write(self) -> AbstractContextManager[Connection]:
        """One write transaction: on the disk at the end of the block, rolled back on an exception. In a block of `join`
        it is a part of that transaction.
        """
        return self._transaction(writes=True)

    def read(self) -> AbstractContextManager[Connection]:
        """One consistent view for the length of the block."""
        return self._transaction(writes=False)

    @contextmanager
    def join(self) -> Iterator[Connection]:
        """One write transaction for all that this thread reads and writes in the block. For one thread at a time."""
        with self.write() as connection:
            self._joined = threading.get_ident(), connection
            try:
                yield connection
            finally:
                self._joined = None

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[Connection]:
        with translated(self.file):
            if (joined := self._joined) is not None and joined[0] == threading.get_ident():
                yield joined[1]
                return
            with self._engine.connect().execution_options(**{_WRITES: writes}) as connection, connection.begin():
                yield connection

    def close(self) -> None:
        """Close the connections that are not in use. May be called again."""
        self._engine.dispose()


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


# Writing from a thread of its own, for callers on an event loop.


class QueuedWrite(Future[Any]):
    """The result of `work`, a function that calls methods of the ledger; it is there when it is on the disk. A job that is
    not `patient` ends with LockHeld when another process has held the ledger for the busy timeout.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self.work, self.patient = work, True
        self.set_running_or_notify_cancel()  # it cannot be cancelled


class Writer:
    """Carries out jobs in one thread, in their order. All jobs that wait share one transaction, so that one flush of the
    disk serves them. A job that raises is rolled back alone. `waits` is called in the thread, after each busy timeout, and
    decides whether jobs wait on.
    """

    def __init__(self, database: Database, waits: Callable[[LockHeld], bool]) -> None:
        self._database, self._waits = database, waits
        self._jobs: SimpleQueue[QueuedWrite] = SimpleQueue()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="ledger", daemon=True)
        self._thread.start()

    def put(self, job: QueuedWrite) -> None:
        self._jobs.put(job)

    def close(self) -> None:
        """Return when all jobs have ended. No job may follow."""
        self._closing = True
        self.put(QueuedWrite(lambda: None))
        self._thread.join()

    def _work(self) -> None:
        waiting: list[QueuedWrite] = []
        while waiting or not self._closing or not self._jobs.empty():
            while not waiting or not self._jobs.empty():
                waiting.append(self._jobs.get())
            waiting = self._carry_out(waiting)

    def _carry_out(self, jobs: list[QueuedWrite]) -> list[QueuedWrite]:
        """Carry out jobs in one transaction; returns those that wait on, because another process holds the ledger."""
        ends: list[Callable[[], None]] = []
        waiting: list[QueuedWrite] = []
        try:
            with self._database.join() as connection:
                for job in jobs:
                    connection.exec_driver_sql("SAVEPOINT job")
                    try:
                        ends.append(partial(job.set_result, job.work()))
                    except Exception as error:  # noqa: BLE001 - raised again where the job was given
                        # If SQLite has given up the whole transaction, this fails, and with it all the jobs.
                        connection.exec_driver_sql("ROLLBACK TO job")
                        ends.append(partial(job.set_exception, error))
                    connection.exec_driver_sql("RELEASE job")
        except Exception as error:  # noqa: BLE001 - as above
            if isinstance(error, LockHeld) and not ends:  # a transaction begins with its lock: no job has run
                waits = self._waits(error) and not self._closing
                waiting = [job for job in jobs if waits and job.patient]
            ends = [partial(job.set_exception, error) for job in jobs if job not in waiting]
        for end in ends:
            end()
        return waiting


def backup(ledger_file: Path, target: Path) -> None:
    """Make a consistent copy of a ledger, also during writes; it is on the disk when this returns.

    The copy is written under another name first, then replaces `target`.
    """
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    with translated(ledger_file):
        uri = f"{ledger_file.absolute().as_uri()}?mode=ro"
        with (
            closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S)) as source,
            closing(sqlite3.connect(partial)) as copy,
        ):
            source.backup(copy)
    sync(partial)
    partial.replace(target)
    sync(target.parent)


def keep_backup(ledger_file: Path, state_dir: Path, name: str) -> None:
    """Copy a ledger to `backups` in the state directory. A copy never takes the place of an earlier one: an older ledger gives
    numbers again. Raises OSError and the errors of the ledger.
    """
    directory = state_dir / "backups"
    directory.mkdir(mode=0o700, exist_ok=True)
    names = chain((name,), (f"{name}-{number}" for number in count(2)))
    backup(ledger_file, next(file for one in names if not (file := directory / f"ledger-{one}.db").exists()))


# Checked changes of rows.


State = TypeVar("State", bound=StrEnum)


def check(table: Mapping[State, frozenset[State]], old: State, new: State, what: str) -> bool:
    """False if the state is already the new one.

    Raises LedgerCorrupt if the table does not allow the change.
    """
    if old is new:
        return False
    if new not in table[old]:
        raise LedgerCorrupt(
            f"{what} is {old.value} in the ledger and cannot become {new.value}",
            cause="two programs worked on the same thing, or the ledger was restored from a backup meanwhile",
            hint="see `migrator status`, make sure that no other run is at work, and run the same command again",
        )
    return True


def missing(what: str) -> LedgerCorrupt:
    """The error for an expected row that is not in the ledger."""
    return LedgerCorrupt(
        f"the ledger has no {what}",
        cause="the ledger was exchanged or restored from a backup while the program worked",
        hint="run the same command again",
    )


def expect_one(count: int, what: str) -> None:
    """Raise LedgerCorrupt if an update changed no row, or several."""
    if count != 1:
        raise missing(what)
