"""What the ledger sums up for `status` and `report`. Times in seconds since the epoch."""

from dataclasses import dataclass

from migrator.domain.states import BatchState, ChunkKind, ChunkState
from migrator.domain.transfer import FileProblem
from migrator.domain.tree import UserTree


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """A batch as it was planned, and how far it is."""

    number: int
    state: BatchState
    size_bytes: int
    files: int
    directories: int
    chunks: int
    forecast_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTree:
    """A user tree as it was planned; `rank` counts from 1 in the plan's order of size. `reaped_bytes` and `reaped_files` are the
    part of it that is archived or skipped instead of being copied.
    """

    tree: UserTree
    batch: int
    rank: int
    size_bytes: int
    files: int
    directories: int
    reaped_bytes: int = 0
    reaped_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSum:
    """All chunks of one tree, kind and state in one pass."""

    tree: bytes
    kind: ChunkKind
    state: ChunkState
    chunks: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCount:
    """Files of one batch that did not arrive: `bad` ones need attention, `vanished` ones were deleted by their users."""

    bad: int
    vanished: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionFile:
    """A file that needs attention."""

    batch: int
    problem: FileProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """The plan that everything else is counted by."""

    name: str
    path: str
    checksum: str
    created_at_s: float
    catalog: str
    forecast_s: float
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputPoint:
    """All streams together over one span of time that ends at `at_s`; `streams` is the mean over the busy part.

    `busy_s` is how much of the span there were streams at work.
    """

    at_s: float
    span_s: float
    busy_s: float
    streams: float
    files: int
    size_bytes: int

    @property
    def rate_bytes_per_s(self) -> float:
        """Bytes per second while streams were at work."""
        return self.size_bytes / self.busy_s if self.busy_s > 0 else 0.0

    @property
    def rate_files_per_s(self) -> float:
        """Files per second while streams were at work."""
        return self.files / self.busy_s if self.busy_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DonePoint:
    """How much was done, all in all, at one time."""

    at_s: float
    done_files: int
    done_bytes: int
