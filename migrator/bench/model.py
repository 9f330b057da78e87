"""Benchmarks as values. Pure."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from migrator.core.errors import ExitCode
from migrator.core.paths import show

DEFAULT_RUNS = 5
DEFAULT_SCALE = 0.01


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
    CONSISTENCY = "consistency"


class FigureUnit(StrEnum):
    """The unit of a figure."""

    SECONDS = "s"
    BYTES_PER_S = "bytes/s"
    MILLISECONDS = "ms"
    OPERATIONS_PER_S = "ops/s"

    @property
    def more_is_better(self) -> bool:
        """Rates are better when higher, times when shorter."""
        return self in (FigureUnit.BYTES_PER_S, FigureUnit.OPERATIONS_PER_S)


class Reference(Struct, frozen=True, kw_only=True):
    """One published test: `figures` by system as printed, in the unit of the step (rates in MB/s); several are
    repeated runs. `work` describes the test, at scale 1; `hosts` is the number of concurrent clients.
    """

    publication: str
    work: str
    figures: Mapping[str, str]
    hosts: int = 1


class Step(Struct, frozen=True, kw_only=True):
    """Commands (`lanes`) that start together in the work directory of every host, measured as a whole.

    Without a `unit` the step only prepares, and has no name. A command that starts with `@` is a function of the
    script for hosts. `size_bytes` is moved by all lanes of one host. `synced`: the time includes the sync to the
    disks. `programs` must be on the host, or the step is left out. `warm` runs each program once after the caches
    were dropped and before the step, so that loading it is not measured. `fio`: the output is a report of fio.
    """

    name: str
    title: str
    lanes: tuple[tuple[str, ...], ...]
    unit: FigureUnit | None = None
    size_bytes: int = 0
    synced: bool = False
    programs: tuple[str, ...] = ()
    warm: tuple[str, ...] = ()
    fio: bool = False
    published: tuple[Reference, ...] = ()

    @property
    def is_check(self) -> bool:
        """Whether it checks what several hosts see of each other's changes, and measures nothing else."""
        return self.lanes[0][0] == "@check"


class Suite(Struct, frozen=True, kw_only=True):
    """The steps of a suite on one file system, at a scale. `need_bytes` and `need_inodes` are the maximum need of one
    host.
    """

    name: SuiteName
    title: str
    scale: float
    sizes: str
    steps: tuple[Step, ...]
    need_bytes: int
    need_inodes: int


class MeasuredFileSystem(Struct, frozen=True, kw_only=True):
    """A measured file system: `label` is `source`, `target` or the path; `root` is the directory on every host."""

    label: str
    root: bytes
    filesystem: str = ""

    @property
    def shown(self) -> str:
        path = show(self.root)
        return path if self.label == path else f"{self.label} ({path})"


def host_of(view: str) -> str:
    """The host of `HOST` or `HOST:/PATH`."""
    return view.partition(":/")[0]


def mount_of(view: str, root: bytes) -> bytes:
    """The directory of a file system on a host: that of `HOST:/PATH`, otherwise `root`."""
    _, found, path = view.partition(":/")
    return f"/{path}".encode("utf-8", "surrogateescape") if found else root


class BenchmarkState(StrEnum):
    """The state of a benchmark."""

    RUNNING = "running"
    DONE = "done"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class BenchmarkRecord(Struct, frozen=True, kw_only=True):
    """One suite, run on file systems in turn. Its processes carry the `token`."""

    id: int
    suite: SuiteName
    scale: float
    seed: int
    runs: int
    places: tuple[MeasuredFileSystem, ...]
    hosts: tuple[str, ...]
    token: str
    state: BenchmarkState
    started_at_s: float
    ended_at_s: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def directory(self) -> str:
        """Its work directory in `.migrator-bench`; the token separates those of several sites."""
        return f"{self.token[:8]}-{self.id:06d}"


class HostRun(Struct, frozen=True, kw_only=True):
    """A step on one host, started at a time of this machine's clock. `lanes` are their reports, by names that end in
    the unit.
    """

    host: str
    began_at_s: float
    elapsed_s: float
    lanes: tuple[Mapping[str, float], ...] = ()


class Measurement(Struct, frozen=True, kw_only=True):
    """One measurement of one step. `value` is the mean over hosts of a time, the sum of a rate; `by_host` has the
    parts. `run` counts from 1. `details` are other measurements, by names that end in the unit (`p99_ms`).
    `load_average` is the most of any host before the run. `cold`: caches were dropped before it on every host.
    `skew_s` is the time between the first and the last start. `evidence` is what a check saw that was late or wrong.
    """

    place: str
    run: int
    step: str
    unit: FigureUnit
    value: float
    by_host: Mapping[str, float]
    at_s: float
    details: Mapping[str, float] = {}
    load_average: float = 0.0
    cold: bool = True
    skew_s: float = 0.0
    evidence: tuple[str, ...] = ()


class BenchmarkRequest(Struct, frozen=True, kw_only=True):
    """`hosts` start together. `inodes_free`, by label
    of the place, counts if the file system does not report inodes; `accept_unknown_inodes`: continue without.
    """

    suites: tuple[SuiteName, ...]
    places: tuple[MeasuredFileSystem, ...]
    hosts: tuple[str, ...]
    runs: int = DEFAULT_RUNS
    scale: float = DEFAULT_SCALE
    seed: int = 1
    dry_run: bool = False
    inodes_free: Mapping[str, int] = {}
    accept_unknown_inodes: bool = False


class PlaceRoom(Struct, frozen=True, kw_only=True):
    """The room of one file system, and the need of the largest suite on all hosts together. None: not reported."""

    place: MeasuredFileSystem
    need_bytes: int
    free_bytes: int
    need_inodes: int
    free_inodes: int | None


class BenchmarkResult(Struct, frozen=True, kw_only=True):
    """One suite with all its measurements."""

    record: BenchmarkRecord
    measurements: tuple[Measurement, ...]


class BenchmarkSummary(Struct, frozen=True, kw_only=True):
    """The result of a call. In a dry run `suites` lacks steps that would be left out; `notes` lists these, and why a
    real run would be refused. `removed` are work directories of killed calls.
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
        """Failed if a suite did not finish, or a check found something lost or wrong for good; attention if it was late."""
        seen = [one.details for result in self.results for one in result.measurements]
        if self.failures or any(details.get("wrong") for details in seen):
            return ExitCode.FAILED
        return ExitCode.ATTENTION if any(details.get("late") for details in seen) else ExitCode.DONE


class Cleaning(Struct, frozen=True, kw_only=True):
    """The result of `bench clean`: `removed` work directories; `left` are those that belong to other sites or cannot be
    reached.
    """

    removed: tuple[str, ...]
    left: tuple[str, ...]

    @property
    def exit_code(self) -> ExitCode:
        """Leftovers need attention."""
        return ExitCode.ATTENTION if self.left else ExitCode.DONE


class BenchmarkListing(Struct, frozen=True, kw_only=True):
    """The suites, and the recorded benchmarks, oldest first."""

    scale: float
    suites: tuple[Suite, ...]
    benchmarks: tuple[BenchmarkRecord, ...]


def format_scale(scale: float) -> str:
    """A scale for people: `scale 0.01 (1 % of the published sizes)`."""
    return f"scale {scale:g} ({scale * 100:g} % of the published sizes)"
