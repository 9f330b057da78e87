"""One SQLite file: connections, transactions, columns of JSON, checked changes of state."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Table, create_engine, event, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from migrator.core.entry import UserTree
from migrator.core.errors import LedgerCorrupt, LockHeld, MigratorError
from migrator.core.paths import percent_escape, percent_unescape

# ---
# One SQLite file: connections, transactions, and what its errors mean to a person.


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


# ---
# How values that are read as a whole lie in one column: JSON, with paths percent-escaped.


Value = TypeVar("Value")


def _encode_bytes(value: object) -> object:
    raise NotImplementedError(f"no column holds a {type(value).__name__}")


def encode(value: object) -> str:
    """A dataclass as JSON; bytes in it as base64 (msgspec's form)."""
    return msgspec.json.encode(value, enc_hook=_encode_bytes).decode("utf-8")


def decode(text: str, kind: type[Value]) -> Value:
    """What `encode` was given. Raises msgspec.ValidationError where it is something else."""
    return msgspec.json.decode(text, type=kind)


def encode_trees(trees: Iterable[UserTree]) -> str:
    """User trees as pairs of percent-escaped path and user."""
    return json.dumps([[percent_escape(tree.path), tree.user] for tree in trees])


def decode_trees(text: str) -> tuple[UserTree, ...]:
    """What `encode_trees` was given."""
    return tuple(UserTree(path=percent_unescape(path), user=user) for path, user in json.loads(text))


def encode_paths(paths: Iterable[bytes]) -> str:
    """Paths, percent-escaped."""
    return json.dumps([percent_escape(path) for path in paths])


def decode_paths(text: str) -> tuple[bytes, ...]:
    """What `encode_paths` was given."""
    return tuple(percent_unescape(path) for path in json.loads(text))


def encode_words(words: Iterable[str]) -> str:
    """Strings, also with what UTF-8 cannot hold."""
    return json.dumps(list(words))


def decode_words(text: str) -> tuple[str, ...]:
    """What `encode_words` was given."""
    return tuple(json.loads(text))


def encode_counts(counts: Mapping[str, int]) -> str:
    """Counts by name, in order of name."""
    return json.dumps(dict(sorted((str(key), value) for key, value in counts.items())))


def decode_counts(text: str) -> dict[str, int]:
    """What `encode_counts` was given."""
    return {str(key): int(value) for key, value in json.loads(text).items()}


def encode_argv(argv: Sequence[str]) -> str:
    """An argv."""
    return encode_words(argv)


# ---
# Changes of rows: that there is one, and that states change as they may, checked against the tables of `migrator.core.states`.


State = TypeVar("State", bound=StrEnum)


def check(table: Mapping[State, frozenset[State]], old: State, new: State, what: str) -> bool:
    """Whether there is anything to change: False where the state is the new one already.

    Raises LedgerCorrupt where the table does not allow the change.
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


def state_of(connection: Connection, table: Table, row_id: int, kind: type[State], what: str) -> State:
    """The state in a row. Raises LedgerCorrupt where there is no such row."""
    found: Any = connection.execute(select(table.c.state).where(table.c.id == row_id)).scalar_one_or_none()
    if found is None:
        raise missing(what)
    return kind(found)


def missing(what: str) -> LedgerCorrupt:
    """The error for a row that the program knows of and the ledger does not."""
    return LedgerCorrupt(
        f"the ledger has no {what}",
        cause="the ledger was exchanged or restored from a backup while the program worked",
        hint="run the same command again",
    )


def expect_one(count: int, what: str) -> None:
    """Raise LedgerCorrupt where an update met no row, or several."""
    if count != 1:
        raise missing(what)
