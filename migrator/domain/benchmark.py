"""Benchmarks: suites of steps, the file systems that they run on, and what was measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from migrator.domain.paths import show
from migrator.domain.units import several

BENCH_NAME = b".migrator-bench"
"""The directory in the root of a file system that benchmarks work in, root's alone; scans leave it out."""


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


class WorkKind(StrEnum):
    """What the program placed on a host does itself, beside starting commands."""

    TREE = "tree"
    """`count` files of `size_bytes` on average, of words, in `directories` directories below `path`."""
    SOURCES = "sources"
    """`count` C sources with headers and a Makefile in `path`."""
    ARCHIVE = "archive"
    """A tar of such a tree at `path`; packed with gzip where its name ends with `.tgz`."""
    PRINTS = "prints"
    """`size_bytes` in prints of 100 bytes, buffered as C and Perl do it, and synced."""
    ONE_WRITE = "one-write"
    """`size_bytes` in writes of 1 MiB, and synced."""
    MAKE_DIRECTORIES = "make-directories"
    REMOVE_DIRECTORIES = "remove-directories"
    MAKE_FILES = "make-files"
    """`count` files, empty or of random sizes from 0 to `size_bytes`."""
    OPEN_FILES = "open-files"
    REMOVE_FILES = "remove-files"
    READ_AGAIN = "read-again"
    """`threads` processes that open, read and close the one file at `path` for `duration_s`."""
    UPLOAD = "upload"
    """`count` files of `size_bytes` from memory, each synced."""
    DOWNLOAD = "download"
    """The same files into memory, their digests checked outside the time that is taken."""
    REMOVE = "remove"
    """What a pattern at `path` matches, with all that lies below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program with its arguments, to be run in the work directory; paths in it are relative to that.

    `report` says whose report its output is: `fio`, `mdtest`, `ior`; empty where its end is all that counts.
    """

    argv: tuple[bytes, ...]
    report: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Something that the placed program does itself. What each field means is told by the kind."""

    kind: WorkKind
    path: bytes
    count: int = 0
    size_bytes: int = 0
    directories: int = 0
    threads: int = 1
    duration_s: float = 0.0


Lane = Program | Work
"""What one process does, beside those of the other lanes of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Lanes that begin together on every host. A step without a `unit` only prepares, and nothing is told of it.

    `size_bytes` is what all lanes of one host move. `cold`: caches are dropped before. `synced`: the time ends when what was
    written is on the disks. `title` is for people. `programs` must be on the host, or else the step is left out.
    """

    name: str
    title: str
    lanes: tuple[Lane, ...]
    unit: Unit | None = None
    size_bytes: int = 0
    cold: bool = True
    synced: bool = False
    programs: tuple[str, ...] = ()


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
    """What a host did just before a run: the load average of a minute; bytes per second of its disks and of its network
    over `span_s`; None where it does not tell.
    """

    host: str
    span_s: float
    load_average: float | None
    disk_bytes_per_s: float | None
    network_bytes_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One step, measured once. `value` is the mean over hosts of a time, the sum over hosts of a rate; `by_host` has the parts.

    `run` counts from 1. `details` have what else was measured, by name with the unit at its end (`p99_ms`). `cold` None: it
    was not asked for. `skew_s` is how far apart the hosts began.
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
    cold: bool | None = None
    skew_s: float = 0.0


def scale_words(scale: float) -> str:
    """A scale for people: `scale 0.01 (1 % of the published sizes)`."""
    return f"scale {scale:g} ({scale * 100:g} % of the published sizes)"


def runs_words(runs: int) -> str:
    """How often each file system was measured."""
    return several(runs, "run")
