"""One call of a verb in the ledger: begun, alive, ended; its events and the backups it makes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from migrator.core.clock import Clock
from migrator.core.errors import ExitCode, Interrupted, MigratorError
from migrator.core.events import Event, EventKind, Severity
from migrator.core.progress import Progress

if TYPE_CHECKING:
    from migrator.ledger.calls import EventRecords, RunRecords
    from migrator.ledger.ledger import Ledger

# ---
# Telling an event to whom it may concern: the ledger, the screen and the log.


_LEVELS = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING, Severity.ERROR: logging.ERROR}


class LedgerOfEvents(Protocol):
    """What of the ledger it takes."""

    @property
    def events(self) -> "EventRecords": ...


class EventWorld(Protocol):
    """The ports that it takes."""

    @property
    def ledger(self) -> LedgerOfEvents: ...
    @property
    def progress(self) -> Progress: ...
    @property
    def clock(self) -> Clock: ...


def say(
    world: EventWorld,
    kind: EventKind,
    severity: Severity,
    subject: str,
    message: str,
    *,
    run_id: int | None,
    log: logging.Logger | None = None,
) -> None:
    """An event of now, in the call `run_id`; None where nothing is changed: then the ledger does not have it."""
    event = Event(at_s=world.clock.now_s(), kind=kind, severity=severity, subject=subject, message=message)
    if run_id is not None:
        world.ledger.events.add(event, run_id)
    world.progress.event(event)
    if log is not None:
        log.log(_LEVELS[severity], "%s", message, extra={"event": kind.value, "subject": subject})


# ---
# One call of a verb in the ledger: begun, seen to be alive, and ended with its exit code.


@dataclass(slots=True, kw_only=True)
class RecordedRun:
    """A call that has been begun. `exit_code` is what it ends with where nothing is raised: to be set by the call."""

    id: int
    exit_code: ExitCode = ExitCode.FAILED


@asynccontextmanager
async def recorded_run(
    runs: "RunRecords",
    clock: Clock,
    *,
    verb: str,
    pid: int,
    directory: str,
    log: logging.Logger | None = None,
    heartbeat_interval_s: float | None = None,
) -> AsyncIterator[RecordedRun]:
    """A call in the ledger for the length of the block. Its heartbeat is renewed, unless it is too short for that (None). An error
    that ends it is logged, where there is a log, and goes on. The end is the last thing that is written of a call: one that was
    killed is told by its heartbeat.
    """
    run = RecordedRun(id=runs.start(verb=verb, pid=pid, at_s=clock.now_s(), directory=directory))
    try:
        if heartbeat_interval_s is None:
            yield run
        else:
            async with heartbeat(runs, clock, run.id, interval_s=heartbeat_interval_s):
                yield run
    except (asyncio.CancelledError, Interrupted):
        run.exit_code = ExitCode.INTERRUPTED
        raise
    except MigratorError as error:
        run.exit_code = error.exit_code
        if log is not None:
            log.error("%s", error.message, extra={"hint": error.hint})  # noqa: TRY400 (no traceback: it was expected)
        raise
    finally:
        runs.finish(run.id, clock.now_s(), run.exit_code.value)


@asynccontextmanager
async def heartbeat(runs: "RunRecords", clock: Clock, run_id: int, *, interval_s: float) -> AsyncIterator[None]:
    """Renew the heartbeat of a call in the ledger until the end of the block."""

    async def beat() -> None:
        while True:
            await clock.sleep(interval_s)
            runs.heartbeat(run_id, clock.now_s())

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()


# ---
# Copies of the ledger that verbs make before they do what cannot be undone.


def backing_up(ledger: "Ledger", state_dir: Path) -> Callable[[str], None]:
    """Make the copy of a name, in `backups` in the state directory. Raises OSError, and what the ledger raises."""
    directory = state_dir / "backups"

    def back_up(name: str) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        ledger.backup(directory / f"ledger-{name}.db")

    return back_up
