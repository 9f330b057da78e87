"""One call of a verb in the ledger: its start, heartbeat and end, its events, and the backups it makes."""

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
from migrator.core.tasks import beside

if TYPE_CHECKING:
    from migrator.ledger.calls import RunRecords
    from migrator.ledger.ledger import Ledger

# Events: to the ledger, the screen and the log.


_LEVELS = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING, Severity.ERROR: logging.ERROR}


class EventWorld(Protocol):
    """The parts of a world that `say` needs."""

    @property
    def ledger(self) -> "Ledger": ...
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
    without_run: bool = False,
) -> None:
    """Emit an event of the call `run_id`. With None (a dry run) the ledger is not written, unless the verb records no
    runs (`without_run`).
    """
    event = Event(at_s=world.clock.now_s(), kind=kind, severity=severity, subject=subject, message=message)
    if run_id is not None or without_run:
        world.ledger.events.add(event, run_id)
    world.progress.event(event)
    if log is not None:
        log.log(_LEVELS[severity], "%s", message, extra={"event": kind.value, "subject": subject})


# One call of a verb.


@dataclass(slots=True, kw_only=True)
class RecordedRun:
    """A call in progress. The caller sets `exit_code`, unless it raises."""

    id: int
    exit_code: ExitCode = ExitCode.FAILED


HEARTBEAT_INTERVAL_S = 5.0


@asynccontextmanager
async def recorded_run(
    runs: "RunRecords",
    clock: Clock,
    *,
    verb: str,
    pid: int,
    directory: str,
    log: logging.Logger | None = None,
) -> AsyncIterator[RecordedRun]:
    """Record a call for the length of the block, with a heartbeat. An error is logged, if there is a log, and raised
    again. The end of the call is written last, so a call that was killed has a heartbeat and no end.
    """
    run = RecordedRun(id=runs.start(verb=verb, pid=pid, at_s=clock.now_s(), directory=directory))
    try:
        async with beside(_beat(runs, clock, run.id), "the heartbeat"):
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


async def _beat(runs: "RunRecords", clock: Clock, run_id: int) -> None:
    """Renew the heartbeat of a call until cancelled."""
    while True:
        await clock.sleep(HEARTBEAT_INTERVAL_S)
        runs.heartbeat(run_id, clock.now_s())


# Backups before a step that cannot be undone.


def backing_up(ledger: "Ledger", state_dir: Path) -> Callable[[str], None]:
    """Return a function that copies the ledger to `backups` in the state directory under a given name. The function
    raises OSError and the errors of the ledger.
    """
    directory = state_dir / "backups"

    def back_up(name: str) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        ledger.backup(directory / f"ledger-{name}.db")

    return back_up
