"""What `status` and `report` read of the ledger: sums, never rows by the million. Blocks no run."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from migrator.domain.events import Event
from migrator.domain.ledger_sums import (
    AttentionCount,
    AttentionFile,
    ChunkSum,
    DonePoint,
    PlanFacts,
    PlannedBatch,
    PlannedTree,
    ThroughputPoint,
)
from migrator.domain.plan import TransferCost
from migrator.ports.benchmarks import BenchmarkRecords
from migrator.ports.ledger import Ledger
from migrator.ports.report_sums import ReportSums
from migrator.ports.site import RunRecord
from migrator.ports.speed_ups import SpeedUpRecords


class LedgerFacts(Protocol):
    """Sums over the ledger."""

    def plan(self, name: str) -> tuple[PlanFacts, TransferCost] | None:
        """A plan, and the cost that it was forecast with."""

    def batches(self, plan: str) -> Sequence[PlannedBatch]:
        """The batches of a plan, in order of number."""

    def trees(self, plan: str) -> Sequence[PlannedTree]:
        """The user trees of a plan, in order of rank."""

    def chunk_sums(self, pass_id: int) -> Sequence[ChunkSum]:
        """The chunks of a pass by tree, kind and state; split ones too."""

    def attention_counts(self, plan: str) -> Mapping[int, AttentionCount]:
        """By batch, how many files of a plan did not arrive, by the passes that no later one has settled."""

    def attention(self, plan: str, limit: int) -> Sequence[AttentionFile]:
        """The first of these files that need attention, in order of batch and path."""

    def sampled_span(self) -> tuple[float, float] | None:
        """When the first and the last sample of any pass were taken; None without samples."""

    def throughput(self, *, from_s: float, to_s: float, span_s: float) -> Sequence[ThroughputPoint]:
        """The samples of all passes, put together in spans of this length, in order of time; idle spans are left out."""

    def done(self, plan: str, *, span_s: float) -> Sequence[DonePoint]:
        """How much of a plan was done at the end of every span in which a chunk was finished, in order of time."""

    def runs(self, limit: int) -> Sequence[RunRecord]:
        """The newest runs, newest first."""

    def incidents(self, limit: int) -> Sequence[Event]:
        """The newest events that are warnings or errors, newest first."""


class ReadableLedger(Ledger, Protocol):
    """The ledger with its sums."""

    @property
    def facts(self) -> LedgerFacts: ...

    @property
    def benchmarks(self) -> BenchmarkRecords: ...

    @property
    def report_sums(self) -> ReportSums: ...

    @property
    def speed_ups(self) -> SpeedUpRecords: ...
