"""What the ledger keeps of how full both sides were."""

from collections.abc import Sequence
from typing import Protocol

from migrator.domain.capacity import CapacitySample


class CapacityRecords(Protocol):
    """How full both sides were."""

    def add(self, samples: Sequence[CapacitySample]) -> None:
        """Keep samples; one of the same side and time replaces the one before."""

    def all(self, *, span_s: float = 0.0) -> Sequence[CapacitySample]:
        """In order of time; with `span_s` only the last one of each side in every span of this length."""
