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


class EventPorts(Protocol):
    """The ports through which an event is emitted."""

    @property
    def ledger(self) -> "Ledger": ...
    @property
    def progress(self) -> Progress: ...
    @property
    def clock(self) -> Clock: ...


def emit_event(
    ports: EventPorts,
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
    event = Event(at_s=ports.clock.now_s(), kind=kind, severity=severity, subject=subject, message=message)
    if run_id is not None or without_run:
        ports.ledger.later(partial(ports.ledger.events.add, event, run_id))
    ports.progress.event(event)
    if log is not None:
        log.log(_LEVELS[severity], "%s", message, extra={"event": kind.value, "subject": subject})
