"""The events of a call of a verb."""

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from migrator.core.clock import Clock
from migrator.core.events import Event, EventKind, Severity
from migrator.core.progress import Progress

if TYPE_CHECKING:
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
    runs (`without_run`). Nothing waits for the ledger.
    """
    event = Event(at_s=world.clock.now_s(), kind=kind, severity=severity, subject=subject, message=message)
    if run_id is not None or without_run:
        world.ledger.later(partial(world.ledger.events.add, event, run_id))
    world.progress.event(event)
    if log is not None:
        log.log(_LEVELS[severity], "%s", message, extra={"event": kind.value, "subject": subject})
