"""Telling an event to whom it may concern: the ledger, the screen and the log."""

import logging
from typing import Protocol

from migrator.domain.events import Event, EventKind, Severity
from migrator.ports.clock import Clock
from migrator.ports.progress import Progress
from migrator.ports.site import EventRecords

_LEVELS = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING, Severity.ERROR: logging.ERROR}


class LedgerOfEvents(Protocol):
    """What of the ledger it takes."""

    @property
    def events(self) -> EventRecords: ...


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
