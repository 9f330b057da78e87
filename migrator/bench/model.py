"""Benchmarks as values. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

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
    """A published test (docs/bench.md)."""

    publication: str
    """Letter of the publication."""
    work: str
    """The test, at scale 1."""
    figures: Mapping[str, str]
    """The figures as printed, by system, in the unit of the step (rates in MB/s). Several figures are repeated runs."""
    hosts: int = 1
    """Number of clients that worked together."""


class Step(Struct, frozen=True, kw_only=True):
    """Commands that start together in the work directory of every host, measured as a whole."""

    name: str
    """Its name; empty if the step only prepares."""
    title: str
    """Its name for people."""
    lanes: tuple[tuple[str, ...], ...]
    """The commands. One that begins with `@` is a function of the script that runs on the hosts."""
    unit: FigureUnit | None = None
    """The unit of its figures; None: the step only prepares."""
    size_bytes: int = 0
    """Bytes that all commands of one host move."""
    synced: bool = False
    """The time includes writing to the disks."""
    programs: tuple[str, ...] = ()
    """Programs that a host needs; otherwise the step is left out."""
    warm: tuple[str, ...] = ()
    """A command that loads these programs after the caches were dropped, and is not measured."""
    fio: bool = False
    """The output is a report of fio."""
    published: tuple[Reference, ...] = ()
    """Published tests of this step."""

    @property
    def is_check(self) -> bool:
        """The step checks what several hosts see of each other's changes, and measures nothing else."""
        return self.lanes[0][0] == "@check"


class Suite(Struct, frozen=True, kw_only=True):
    """The steps of a suite on one file system, at a scale."""

    name: SuiteName
    """Its name."""
    title: str
    """Its name for people."""
    scale: float
    """Factor of all sizes."""
    sizes: str
    """The sizes in words."""
    steps: tuple[Step, ...]
    """Its steps."""
    need_bytes: int
    """Maximum number of bytes that one host needs."""
    need_inodes: int
    """Maximum number of inodes that one host needs."""


class MeasuredFileSystem(Struct, frozen=True, kw_only=True):
    """A measured file system."""

    NO_KEYS: ClassVar = frozenset({"shown"})

    label: str
    """`source`, `target`, or a path."""
    root: bytes
    """The directory in which it is measured, on every host."""
    filesystem: str = ""
    """Its type."""

    @property
    def shown(self) -> str:
        """The file system for people."""
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
    """One suite, run on file systems in turn."""

    NO_KEYS: ClassVar = frozenset({"token"})

    id: int
    """Its number, for `bench compare`."""
    suite: SuiteName
    """The suite."""
    scale: float
    """Factor of all sizes."""
    seed: int
    """Seed of random content and order."""
    runs: int
    """Number of runs of each step on each file system."""
    places: tuple[MeasuredFileSystem, ...]
    """The measured file systems."""
    hosts: tuple[str, ...]
    """The hosts that worked together."""
    token: str
    """Mark of its processes in their environment."""
    state: BenchmarkState
    """Whether it has ended, and how."""
    started_at_s: float
    ended_at_s: float | None = None
    """When it ended."""
    notes: tuple[str, ...] = ()
    """Steps that were left out, or the cause of a failure."""

    @property
    def directory(self) -> str:
        """Name of its work directory in `.migrator-bench`; the token separates those of several sites."""
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
    """One measurement of one step."""

    place: str
    """Label of the file system."""
    run: int
    """Number of the run, from 1."""
    step: str
    """Name of the step."""
    unit: FigureUnit
    """The unit of the value."""
    value: float
    """The mean over the hosts of a time, the sum of a rate. Of a check of `consistency`: how late a change was seen."""
    by_host: Mapping[str, float]
    """The value of each host."""
    at_s: float
    """When the step began."""
    details: Mapping[str, float] = {}
    """Other figures, by names that end in the unit (`p99_ms`). Of a check of `consistency`: `checked`, `late`, `wrong`.
    """
    load_average: float = 0.0
    """Maximum load average of the hosts before the run."""
    cold: bool = True
    """Caches were dropped on every host before the run."""
    skew_s: float = 0.0
    """Time between the first and the last start on the hosts."""
    evidence: tuple[str, ...] = ()
    """What a check of `consistency` saw late or wrong."""


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
    """The room of one file system, and the need of the largest suite on all hosts together."""

    place: MeasuredFileSystem
    """The file system."""
    need_bytes: int
    """Bytes that the suite needs."""
    free_bytes: int
    need_inodes: int
    """Inodes that the suite needs."""
    free_inodes: int | None
    """Inodes that are free; None: not reported."""


class BenchmarkResult(Struct, frozen=True, kw_only=True):
    """One suite with all its measurements."""

    record: BenchmarkRecord
    """The benchmark."""
    measurements: tuple[Measurement, ...]
    """All its measurements."""


class BenchmarkSummary(Struct, frozen=True, kw_only=True):
    """The result of `bench run`."""

    scale: float
    """Factor of all sizes."""
    dry_run: bool
    room: tuple[PlaceRoom, ...]
    """Room and need of each file system."""
    results: tuple[BenchmarkResult, ...] = ()
    """The measurements of each suite."""
    suites: tuple[Suite, ...] = ()
    """The suites with the steps that would run; only in a dry run."""
    removed: tuple[str, ...] = ()
    """Work directories of killed calls that were removed."""
    notes: tuple[str, ...] = ()
    """Steps that would be left out, and reasons to refuse a real run."""
    failures: tuple[str, ...] = ()
    """Suites that did not finish, with the cause."""

    @property
    def exit_code(self) -> ExitCode:
        """1 (failed) if a suite did not finish, or a check found something lost or wrong for good; 3 (attention) if a change
        was seen late.
        """
        seen = [one.details for result in self.results for one in result.measurements]
        if self.failures or any(details.get("wrong") for details in seen):
            return ExitCode.FAILED
        return ExitCode.ATTENTION if any(details.get("late") for details in seen) else ExitCode.DONE


class Cleaning(Struct, frozen=True, kw_only=True):
    """The result of `bench clean`."""

    removed: tuple[str, ...]
    """Work directories that were removed."""
    left: tuple[str, ...]
    """Those that stay, because they belong to other sites or cannot be reached."""

    @property
    def exit_code(self) -> ExitCode:
        """3 (attention) if something was left."""
        return ExitCode.ATTENTION if self.left else ExitCode.DONE


class BenchmarkListing(Struct, frozen=True, kw_only=True):
    """The suites and the recorded benchmarks: `bench list`."""

    scale: float
    """The scale of the suites' sizes."""
    suites: tuple[Suite, ...]
    """All suites."""
    benchmarks: tuple[BenchmarkRecord, ...]
    """The recorded benchmarks, oldest first."""


def format_scale(scale: float) -> str:
    """A scale for people: `scale 0.01 (1 % of the published sizes)`."""
    return f"scale {scale:g} ({scale * 100:g} % of the published sizes)"
