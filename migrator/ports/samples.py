"""What the ledger keeps of throughput. Synchronous, short transactions; times in seconds since the epoch."""

from collections.abc import Sequence
from typing import Protocol

from migrator.domain.plan import TransferCost
from migrator.domain.transfer import Sample


class SampleRecords(Protocol):
    """Throughput over time."""

    def add(self, pass_id: int, samples: Sequence[Sample]) -> None:
        """Keep samples; one of the same time and attempt replaces the one before."""

    def whole(self, pass_id: int) -> Sequence[Sample]:
        """The samples of all streams together, in order of time."""

    def measured_cost(self) -> TransferCost | None:
        """Cost per file and per byte, fitted from the finished attempts; None before there are enough."""

    def thin(self, *, now_s: float) -> bool:
        """Put samples of single streams that are old together by the hour (`decide.sample_thinning`), of so many attempts
        that others do not wait; sums stay what they are. Whether there may be more: may be called again at once.
        """
