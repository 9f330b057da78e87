"""What the ledger keeps of what was predicted after delta passes. Synchronous, short transactions; times in seconds since the epoch."""

from collections.abc import Sequence
from typing import Protocol

from migrator.domain.convergence import ConvergenceRecord


class PredictionRecords(Protocol):
    """What was predicted and decided after delta passes."""

    def record(self, record: ConvergenceRecord) -> None:
        """Keep what was predicted after a pass; what was predicted after the same one before is replaced."""

    def of_batch(self, plan: str, batch: int) -> Sequence[ConvergenceRecord]:
        """Those of a batch, in the order of its passes."""

    def of_plan(self, plan: str) -> Sequence[ConvergenceRecord]:
        """Those of all batches of a plan, in the order of the passes."""
