"""Benchmarks as their stage needs them: work on hosts, and what the ledger keeps of it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from migrator.domain.benchmark import Background, BenchmarkRecord, BenchmarkState, Measurement, Place, Step, SuiteName


@dataclass(frozen=True, slots=True, kw_only=True)
class RootSeen:
    """A file system as a host sees it: its type, and the room for whoever is not root. `free_inodes` None: it does not tell.
    `device` is its number there as long as it is mounted.

    `left` are the names in its directory of benchmarks; `programs` those that the host has of the ones that were asked for.
    """

    filesystem: str
    device: int
    free_bytes: int
    free_inodes: int | None
    is_root: bool
    left: tuple[str, ...]
    programs: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDirectory:
    """Where one host works: `part` in the directory `name` in the directory of benchmarks of `root`."""

    host: str
    root: bytes
    name: str
    part: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSeen:
    """How one lane ended: `problem` says why it failed. `details` have their unit at the end of their names."""

    elapsed_s: float
    problem: str = ""
    details: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeen:
    """How a step went on one host. `began_at_s` is by this machine's clock, as well as the two clocks are known; `late_s`:
    the agreed time was over by so much already.
    """

    host: str
    began_at_s: float
    late_s: float
    elapsed_s: float
    lanes: tuple[LaneSeen, ...]


class Workloads(Protocol):
    """Works on hosts. Every call raises HostLost, ToolFailed (also for what the file system refuses), UsageError."""

    async def look(self, host: str, root: bytes, programs: Collection[str]) -> RootSeen: ...

    async def make(self, directory: WorkDirectory) -> None:
        """Make the directory, which only this user can enter. May be called again."""

    async def remove(self, directory: WorkDirectory) -> None:
        """Remove everything of `name`, all parts. Nothing being there is no error."""

    async def background(self, host: str, span_s: float) -> Background:
        """What the host does by itself, watched for so long."""

    async def drop_caches(self, directory: WorkDirectory, programs: Collection[str]) -> bool:
        """Write everything out and empty the host's caches, of all but these programs; False where that is not allowed."""

    async def perform(
        self, directory: WorkDirectory, step: Step, *, seed: int, start_at_s: float | None, token: str
    ) -> StepSeen:
        """All lanes of a step, beginning at a time of this machine's clock (None: at once). On cancellation all is ended."""

    async def round_trip_s(self, host: str) -> float:
        """How long a question takes. The host's clock is looked at, too: agreed times are told by that until the next call."""

    async def end(self, host: str, token: str) -> bool:
        """End what still carries the token; False where something is left."""


class BenchmarkRecords(Protocol):
    """Benchmarks and their measurements in the ledger."""

    def start(
        self,
        *,
        suite: SuiteName,
        scale: float,
        seed: int,
        runs: int,
        places: Sequence[Place],
        hosts: Sequence[str],
        token: str,
        at_s: float,
    ) -> BenchmarkRecord:
        """A benchmark begins: written down before anything is made on a file system."""

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
