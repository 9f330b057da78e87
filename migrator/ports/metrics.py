"""What `metrics` reads of the ledger. Blocks no run."""

from collections.abc import Sequence
from typing import Protocol

from migrator.domain.metrics import MetricSums
from migrator.ports.ledger_facts import ReadableLedger
from migrator.ports.site import RunRecord


class MetricRecords(Protocol):
    """Sums over the whole ledger."""

    def sums(self) -> MetricSums:
        """All of them, as of one moment. Sums of what has ended never go down."""

    def newest_runs(self) -> Sequence[RunRecord]:
        """The newest run of every verb, in order of verb."""


class MeasurableLedger(ReadableLedger, Protocol):
    """The ledger with the sums of its metrics."""

    @property
    def metric_sums(self) -> MetricRecords: ...
