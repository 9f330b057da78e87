"""Protocols of measurements that plans are made by: `transfer/` and `bricks/` fulfil them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from migrator.core.states import PassKind
from migrator.fs.model import Need
from migrator.plan.model import ThroughputPoint, TransferCost
from migrator.plan.schedule.model import CopyTally, DrainCopying


class BatchPass(Protocol):
    """A pass over a batch."""

    @property
    def batch(self) -> int: ...
    @property
    def kind(self) -> PassKind: ...
    @property
    def finished_at_s(self) -> float | None: ...


class CopiedTrees(Protocol):
    """The trees that passes have copied."""

    def arrived(self, *, before_plan: str) -> Mapping[bytes, Need]:
        """The usage that other plans have copied, by tree."""

    def of_plan(self, plan: str, /) -> Sequence[BatchPass]:
        """Every pass of a plan, oldest first."""


class MeasuredStreams(Protocol):
    """The throughput of streams."""

    def measured_cost(self) -> TransferCost | None:
        """Cost per file and per byte; None until there are enough measurements."""

    def sampled_span(self) -> tuple[float, float] | None:
        """The times of the first and the last sample; None without samples."""

    def throughput(self, *, from_s: float, to_s: float, span_s: float) -> Sequence[ThroughputPoint]:
        """The samples of all passes, summed by spans, in order of time; idle spans are left out."""


class MeasuredDrains(Protocol):
    """The cost of drains."""

    def copying(self) -> DrainCopying:
        """Throughput of streams while drains moved files, and at other times."""

    def tallies(self) -> Sequence[CopyTally]:
        """The files that each drain moved whose moving has ended."""
