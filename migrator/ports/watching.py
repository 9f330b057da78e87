"""What `status --watch` reads of the ledger again and again: little, in short transactions. Blocks no run."""

from collections.abc import Sequence
from typing import Protocol

from migrator.domain.events import Event
from migrator.domain.watch import StreamAtWork
from migrator.ports.ledger_facts import ReadableLedger


class WatchRecords(Protocol):
    """What is at work, and what is new."""

    def streams(self, *, recent_s: float) -> Sequence[StreamAtWork]:
        """Every attempt that has not ended, oldest first; its rate is of the last seconds in which its pass was sampled."""

    def last_event(self) -> int:
        """The number of the newest event; 0 where there is none."""

    def events_after(self, number: int, limit: int) -> Sequence[tuple[int, Event]]:
        """The events after one, with their numbers, oldest first; of more than `limit` the newest ones."""


class WatchableLedger(ReadableLedger, Protocol):
    """The ledger with what is at work."""

    @property
    def watching(self) -> WatchRecords: ...
