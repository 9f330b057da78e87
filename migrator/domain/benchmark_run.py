"""What a call of `bench` is asked for, and what it ends with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from migrator.domain.benchmark import BenchmarkRecord, Measurement, Place, SuiteName
from migrator.domain.errors import ExitCode

DEFAULT_RUNS = 5
DEFAULT_SCALE = 0.01
DEFAULT_WATCH_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRequest:
    """`hosts` begin together. `watch_s` is how long each host is watched before a run. `inodes_free` is believed, by the
    label of the place, where the file system itself does not tell; `accept_unknown_inodes`: then without it, too.
    """

    suites: tuple[SuiteName, ...]
    places: tuple[Place, ...]
    hosts: tuple[str, ...]
    runs: int = DEFAULT_RUNS
    scale: float = DEFAULT_SCALE
    seed: int = 1
    watch_s: float = DEFAULT_WATCH_S
    dry_run: bool = False
    inodes_free: Mapping[str, int] = field(default_factory=dict)
    accept_unknown_inodes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRoom:
    """What one file system has, and what the largest of the suites needs, on all hosts together. None: it does not tell."""

    place: Place
    need_bytes: int
    free_bytes: int
    need_inodes: int
    free_inodes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """A step of a dry run: what is done, what the figure is (empty: it only prepares), and why it will be left out."""

    suite: SuiteName
    sizes: str
    step: str
    does: tuple[str, ...]
    unit: str
    left_out: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkResult:
    """One suite with all its measurements."""

    record: BenchmarkRecord
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSummary:
    """How a call ended. `steps` are told by a dry run alone. `removed` are work directories of killed calls."""

    scale: float
    dry_run: bool
    room: tuple[PlaceRoom, ...]
    results: tuple[BenchmarkResult, ...] = ()
    steps: tuple[PlannedStep, ...] = ()
    removed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """Failed where a suite did not come to its end."""
        return ExitCode.FAILED if self.failures else ExitCode.DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """What `bench clean` did: `removed` work directories; `left` are those of other sites, and what could not be looked at."""

    removed: tuple[str, ...]
    left: tuple[str, ...]

    @property
    def exit_code(self) -> ExitCode:
        """What is left needs attention."""
        return ExitCode.ATTENTION if self.left else ExitCode.DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteFacts:
    """A suite at a scale; what it needs is for one host."""

    name: SuiteName
    title: str
    sizes: str
    need_bytes: int
    need_inodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkListing:
    """The suites, and what was run, oldest first."""

    scale: float
    suites: tuple[SuiteFacts, ...]
    benchmarks: tuple[BenchmarkRecord, ...]
