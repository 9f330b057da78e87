"""The ledger as one object."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from migrator.core.clock import Clock, SystemClock
from migrator.core.errors import LockHeld, MigratorError, UsageError
from migrator.core.tasks import through_cancellation
from migrator.ledger import schema
from migrator.ledger.calls import EventRecords, JournalRecords, RunRecords, SiteRecords
from migrator.ledger.database import BUSY_TIMEOUT_S, Database, QueuedWrite, Writer, keep_backup

T = TypeVar("T")
_SYSTEM_CLOCK = SystemClock()


class Ledger:
    """The ledger: the site, runs, the journal and events. Each feature adds the records that it reads and writes, in a class
    derived from this one; `app/ledger.py` builds them all.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._writer: Writer | None = None
        self.site = SiteRecords(database)
        self.runs = RunRecords(database)
        self.journal = JournalRecords(database)
        self.events = EventRecords(database)

    @classmethod
    def open(
        cls,
        file: Path,
        *,
        create: bool = False,
        read_only: bool = False,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        clock: Clock = _SYSTEM_CLOCK,
    ) -> Self:
        """Open a ledger, or create its tables (`create`). One of an earlier release is upgraded, after a backup.

        `read_only` never blocks a run and works during one. Raises UsageError for a missing ledger, LockHeld if another
        process keeps it locked beyond `busy_timeout_s`, and as `schema.prepare`.
        """
        _require(file, create=create)
        database = Database(file, create=create, read_only=read_only, busy_timeout_s=busy_timeout_s)
        try:
            schema.prepare(database, clock, create=create)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def file(self) -> Path:
        """The database."""
        return self.database.file

    def close(self) -> None:
        """Release the file. May be called again."""
        self.database.close()

    @contextmanager
    def written_aside(self, waits: Callable[[LockHeld], bool] = lambda _: True) -> Iterator[None]:
        """In the block, `write` and `later` use a thread of their own: neither a slow disk nor another process that
        holds the ledger stops the event loop. At its end everything is written. Blocks may be nested. `waits` is called
        in that thread, again and again while another process holds the ledger; if it returns False, jobs end with LockHeld.
        """
        if self._writer is not None:
            yield
            return
        self._writer = Writer(self.database, waits)
        try:
            yield
        finally:
            writer, self._writer = self._writer, None
            writer.close()

    async def write(self, job: Callable[[], T]) -> T:
        """Carry out a job, a function that calls methods of this ledger. It is one transaction with `written_aside`, and
        on the disk when this returns; a cancellation takes effect only then. Raises what the job raises.

        It waits as long as another process holds the ledger; LockHeld only after a cancellation.
        """
        if self._writer is None:
            return job()
        given = QueuedWrite(job)
        self._writer.put(given)
        result: asyncio.Future[T] = asyncio.wrap_future(given)
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError:
            given.patient = False
            await through_cancellation(asyncio.wait({result}))
            result.result()
            raise

    def back_up(self, state_dir: Path, name: str) -> None:
        """Keep a backup, as `keep_backup`. Called before every step that cannot be undone."""
        keep_backup(self.file, state_dir, name)

    def later(self, job: Callable[[], object]) -> None:
        """Carry out a job in its turn among those of `write`, without waiting. Its errors are only logged."""
        given = QueuedWrite(job)
        given.add_done_callback(_log_error)
        if self._writer is not None:
            self._writer.put(given)
            return
        try:
            given.set_result(job())
        except MigratorError as error:
            given.set_exception(error)


def _log_error(result: "Future[Any]") -> None:
    if (error := result.exception()) is not None:
        logging.getLogger(__name__).error("a record is missing in the ledger: %s", error)


def _require(file: Path, *, create: bool) -> None:
    """Raise UsageError if there is no ledger, or make its directory (`create`)."""
    try:
        is_there = file.exists()
    except PermissionError as error:
        raise MigratorError(
            f"the ledger {file} cannot be opened: {error.strerror}",
            cause="only root can enter the state directory",
            hint="run as root; others read the files of `migrator report --output DIRECTORY`, or the page of `migrator serve`",
        ) from error
    if not is_there:
        if not create:
            raise UsageError(
                f"there is no ledger at {file}",
                cause="`migrator init` has not been run for this site, or [site] state_dir names another directory",
                hint="run `migrator init`, or put state_dir right in site.toml",
            )
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
