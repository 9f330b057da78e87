"""The sums of the ledger that only reports ask for."""

from collections.abc import Sequence
from typing import Protocol

from migrator.domain.cost import CostSums
from migrator.domain.incidents import EventGroup
from migrator.domain.ledger_sums import ThroughputPoint
from migrator.domain.stream_sums import StreamSum


class ReportSums(Protocol):
    """Sums over the ledger, each from one query."""

    def copied(self, plan: str, *, span_s: float) -> Sequence[ThroughputPoint]:
        """What the seed passes of a plan have copied, in spans of this length that begin at its multiples, in order of time;
        spans without any are left out.
        """

    def cost_groups(self, plan: str | None = None) -> Sequence[CostSums]:
        """The attempts that succeeded, in groups by chance, of one plan or of all."""

    def stream_sums(self) -> Sequence[StreamSum]:
        """What streams of all plans brought, by host, brick, engine and size of files."""

    def event_groups(self, limit: int) -> Sequence[EventGroup]:
        """Warnings and errors by kind and subject, those that happened last first."""

    def latest_events(self, kinds: Sequence[str]) -> Sequence[EventGroup]:
        """Events of these kinds, whatever their severity, by kind and subject."""
