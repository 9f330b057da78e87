"""Benchmarks in the ledger."""

from collections.abc import Sequence
from typing import Protocol

from migrator.domain.benchmark import BenchmarkRecord, BenchmarkState, Measurement


class BenchmarkRecords(Protocol):
    """Benchmarks and their measurements in the ledger."""

    def start(self, record: BenchmarkRecord) -> BenchmarkRecord:
        """A benchmark begins: recorded before anything is made on a file system. Its id is given here."""

    def measured(self, benchmark_id: int, measurement: Measurement) -> None:
        """One step was measured. The same place, run and step again replaces the one before."""

    def finish(
        self, benchmark_id: int, state: BenchmarkState, *, at_s: float, notes: Sequence[str] = ()
    ) -> BenchmarkRecord:
        """It ended. The first end counts."""

    def read(self, benchmark_id: int) -> BenchmarkRecord:
        """Raises UsageError where there is none."""

    def all(self) -> Sequence[BenchmarkRecord]:
        """Every benchmark, oldest first."""

    def measurements(self, benchmark_id: int) -> Sequence[Measurement]:
        """In the order in which they were made."""
