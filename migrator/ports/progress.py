"""Where a stage says how far it is."""

from typing import Protocol

from migrator.domain.events import Event
from migrator.domain.progress import Snapshot


class Progress(Protocol):
    """Shows snapshots and events as they come. Never raises; cheap to call often."""

    def show(self, snapshot: Snapshot) -> None:
        """The latest snapshot replaces the one before."""

    def event(self, event: Event) -> None:
        """An event stays on the screen."""
