"""Benchmarks as values. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from migrator.core.errors import ExitCode
from migrator.core.paths import show

BENCH_NAME = b".migrator-bench"
"""The directory in the root of a file system that benchmarks work in, root's alone; scans leave it out."""

DEFAULT_RUNS = 5
DEFAULT_SCALE = 0.01
DEFAULT_WATCH_S = 10.0


class SuiteName(StrEnum):
    """The suites, in the order in which they are listed."""

    STREAMING = "streaming"
    UNTAR = "untar"
    SMALL_WRITES = "small-writes"
    RECURSIVE = "recursive"
    CATALOG = "catalog"
    BUILD = "build"
    LATENCY = "latency"
    TRANSFER = "transfer"
    RANDOM = "random"


class Unit(StrEnum):
    """What a figure counts."""

    SECONDS = "s"
    BYTES_PER_S = "bytes/s"
    MILLISECONDS = "ms"
    OPERATIONS_PER_S = "ops/s"

    @property
    def more_is_better(self) -> bool:
        """Rates are better when they are higher, times when they are shorter."""
        return self in (Unit.BYTES_PER_S, Unit.OPERATIONS_PER_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Who measured, when, and on what."""

    key: str
    title: str
    setting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One published test: `figures` by system, as they were printed, in the unit of the step (rates in MB/s); several are repeated
    runs. `work` is what was done there, at scale 1; `hosts` how many clients worked at once.
    """

    publication: str
    work: str
    figures: Mapping[str, str]
    hosts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Commands (`lanes`) that begin together in the work directory of every host, measured as a whole. Without a `unit` the step
    only prepares, and has no name.

    A command whose first word begins with `@` is a function of the script that is sent to the hosts. `size_bytes` is what all lanes
    of one host move. `synced`: the time ends when what was written is on the disks. `programs` must be on the host, or the step is
    left out. `warm` runs before, beside each program once, after the caches were dropped: loading programs is not measured.
    `report` says whose report the output is: `fio`, `mdtest`, `ior`.
    """

    name: str
    title: str
    lanes: tuple[tuple[str, ...], ...]
    unit: Unit | None = None
    size_bytes: int = 0
    synced: bool = False
    programs: tuple[str, ...] = ()
    warm: tuple[str, ...] = ()
    report: str = ""
    published: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What one suite does on one file system, at a scale. `need_bytes` and `need_inodes` are what one host needs at most."""

    name: SuiteName
    title: str
    scale: float
    sizes: str
    steps: tuple[Step, ...]
    need_bytes: int
    need_inodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A file system that is measured: `label` is `source`, `target` or the path; `root` the directory on every host."""

    label: str
    root: bytes
    filesystem: str = ""

    @property
    def shown(self) -> str:
        """For people."""
        path = show(self.root)
        return path if self.label == path else f"{self.label} ({path})"


class BenchmarkState(StrEnum):
    """How far a benchmark came."""

    RUNNING = "running"
    DONE = "done"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRecord:
    """One suite, run on some file systems in turn. Processes of it carry the `token`."""

    id: int
    suite: SuiteName
    scale: float
    seed: int
    runs: int
    places: tuple[Place, ...]
    hosts: tuple[str, ...]
    token: str
    state: BenchmarkState
    started_at_s: float
    ended_at_s: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def directory(self) -> str:
        """The name of its work directory in `.migrator-bench`. The token tells those of several sites apart."""
        return f"{self.token[:8]}-{self.id:06d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """What a host did just before a run: the load average of a minute; bytes per second of its disks and network devices."""

    host: str
    load_average: float
    disk_bytes_per_s: float
    network_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRun:
    """A step on one host, which began at a time of this machine's clock. `lanes` are what each of them reported, by names with
    their unit at the end.
    """

    host: str
    began_at_s: float
    elapsed_s: float
    lanes: tuple[Mapping[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One step, measured once. `value` is the mean over hosts of a time, and all of them together of a rate; `by_host` has the parts.

    `run` counts from 1. `details` have what else was measured, by name with the unit at its end (`p99_ms`). `cold`: caches could
    be dropped before it on every host. `skew_s` is how far apart the hosts began.
    """

    place: str
    run: int
    step: str
    unit: Unit
    value: float
    by_host: Mapping[str, float]
    at_s: float
    details: Mapping[str, float] = field(default_factory=dict)
    background: tuple[Background, ...] = ()
    cold: bool = True
    skew_s: float = 0.0


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
class BenchmarkResult:
    """One suite with all its measurements."""

    record: BenchmarkRecord
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSummary:
    """How a call ended. `suites` are those of a dry run, without the steps that would be left out; `notes` say which, and why a real
    run would be refused. `removed` are work directories of killed calls.
    """

    scale: float
    dry_run: bool
    room: tuple[PlaceRoom, ...]
    results: tuple[BenchmarkResult, ...] = ()
    suites: tuple[Suite, ...] = ()
    removed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """Failed where a suite did not come to its end."""
        return ExitCode.FAILED if self.failures else ExitCode.DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """What `bench clean` did: `removed` work directories; `left` are those of other sites, and what could not be reached."""

    removed: tuple[str, ...]
    left: tuple[str, ...]

    @property
    def exit_code(self) -> ExitCode:
        """What is left needs attention."""
        return ExitCode.ATTENTION if self.left else ExitCode.DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkListing:
    """The suites, and what was run, oldest first."""

    scale: float
    suites: tuple[Suite, ...]
    benchmarks: tuple[BenchmarkRecord, ...]


def scale_words(scale: float) -> str:
    """A scale for people: `scale 0.01 (1 % of the published sizes)`."""
    return f"scale {scale:g} ({scale * 100:g} % of the published sizes)"
