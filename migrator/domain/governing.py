"""How many streams may be at work: what people ask for, and what the governor makes of it."""

from dataclasses import dataclass, replace
from enum import StrEnum

from migrator.domain.windows import WindowStanding


class StreamsBy(StrEnum):
    """Who says how many streams are at work within the limits: measured throughput, or the limits themselves."""

    MEASURED = "measured"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a migration. None: not given. `jobs` is for each host, `bwlimit_bytes_per_s` for all streams together."""

    jobs: int | None = None
    bwlimit_bytes_per_s: int | None = None
    max_latency_s: float | None = None
    max_load: float | None = None

    @property
    def nothing(self) -> bool:
        """Whether no limit is given."""
        return self == Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """Limits that somebody has set while the migration goes on; they take the place of those of site.toml and of the
    command line, one by one.
    """

    limits: Limits
    since_s: float
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Somebody has paused the migration: nothing is begun before it is resumed."""

    since_s: float
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """What people have set, as it is now; None: nothing."""

    hold: Hold | None = None
    tuned: Tuned | None = None


NO_CONTROLS = Controls()


class Gate(StrEnum):
    """Whether chunks may be begun."""

    OPEN = "open"
    OUTSIDE_WINDOWS = "outside-windows"
    PAUSED = "paused"


class Bound(StrEnum):
    """What keeps the number of streams where it is."""

    JOBS = "jobs"
    THROUGHPUT = "throughput"
    TRYING = "trying"
    LATENCY = "latency"
    LOAD = "load"
    WINDOWS = "windows"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernorRecord:
    """What the governor allows, from `at_s` on. `streams` is how many may be at work in all, `most` what the limits would let,
    `hosts` how many on each, `bwlimit_bytes_per_s` for all together. `until_s` is when the next window begins. `max_latency_s`
    and `max_load` are the limits that hold for what users and hosts feel (None: none).
    """

    at_s: float
    run_id: int
    gate: Gate
    bound: Bound
    streams: int
    most: int
    hosts: tuple[tuple[str, int], ...]
    bwlimit_bytes_per_s: int | None
    reason: str
    until_s: float | None = None
    max_latency_s: float | None = None
    max_load: float | None = None

    def same(self, other: "GovernorRecord") -> bool:
        """Whether it allows the same for the same kind of reason: figures in the reason's words move all the time."""
        return replace(self, at_s=other.at_s, reason=other.reason) == other


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """The load average of one minute of a host that has streams, as it was read last."""

    host: str
    at_s: float
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GoverningFacts:
    """What people have set, and what the newest run was allowed (None: no run has been governed yet); `at_work`: it is still
    at work. `given` are the limits of site.toml, and `windows` those of [transfer], where they were asked for. `loads` is what
    the hosts of that run had to do when it looked last.
    """

    controls: Controls = NO_CONTROLS
    governor: GovernorRecord | None = None
    at_work: bool = False
    given: Limits | None = None
    windows: tuple[WindowStanding, ...] | None = None
    loads: tuple[HostLoad, ...] = ()
