"""What went wrong, put together from events, and what became of it. Times in seconds since the epoch."""

from dataclasses import dataclass

from migrator.domain.events import EventKind, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class EventGroup:
    """All events of one kind about one subject; `message` is that of the last one."""

    kind: EventKind
    severity: Severity
    subject: str
    count: int
    first_at_s: float
    last_at_s: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """What went wrong with one subject, once or again and again. `resolved_at_s` is None where nothing says that it is over;
    `resolution` says by what it is, in words.
    """

    kind: EventKind
    severity: Severity
    subject: str
    count: int
    first_at_s: float
    last_at_s: float
    message: str
    resolved_at_s: float | None
    resolution: str
