"""The events of a call of a verb, and the backups of the ledger that it makes."""

import logging
from collections.abc import Callable
from functools import partial
from itertools import chain, count
from pathlib import Path
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


# Backups before a step that cannot be undone.


def backing_up(ledger: "Ledger", state_dir: Path) -> Callable[[str], None]:
    """Return a function that copies the ledger to `backups` in the state directory under a given name. A copy never takes the
    place of an earlier one: an older ledger gives numbers again. The function raises OSError and the errors of the ledger.
    """
    directory = state_dir / "backups"

    def back_up(name: str) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        names = chain((name,), (f"{name}-{number}" for number in count(2)))
        ledger.backup(next(file for one in names if not (file := directory / f"ledger-{one}.db").exists()))

    return back_up
