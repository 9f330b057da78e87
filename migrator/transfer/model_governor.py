"""The number of streams: the operators' settings, and the governor's decision."""

from enum import StrEnum
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.windows import WindowStanding


class StreamsBy(StrEnum):
    """How the number of streams within the limits is chosen: by measured throughput, or always the maximum."""

    MEASURED = "measured"
    FIXED = "fixed"


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of a migration. None: not given."""

    NO_KEYS: ClassVar = frozenset({"nothing"})

    jobs: int | None = None
    """Streams of each host."""
    bwlimit_bytes_per_s: int | None = None
    """Rate of all streams together."""
    max_latency_s: float | None = None
    """Latency of metadata operations above which streams are reduced."""
    max_load: float | None = None
    """Load average of a host above which its streams are reduced."""

    @property
    def nothing(self) -> bool:
        """No limit is given."""
        return self == Limits()


class Tuned(Struct, frozen=True, kw_only=True):
    """Limits set by `tune`; each overrides the one of site.toml and of the command line."""

    limits: Limits
    """The limits."""
    since_s: float
    """Since when."""
    by: str
    """Who set them."""


class Hold(Struct, frozen=True, kw_only=True):
    """A pause: no chunk starts until the migration is resumed."""

    since_s: float
    """Since when."""
    by: str
    """Who paused it."""
    reason: str = ""


class Controls(Struct, frozen=True, kw_only=True):
    """The operators' settings."""

    hold: Hold | None = None
    """The pause; None: not paused."""
    tuned: Tuned | None = None
    """Limits of `tune`; None: none."""


NO_CONTROLS = Controls()


class Gate(StrEnum):
    """Whether chunks may start."""

    OPEN = "open"
    OUTSIDE_WINDOWS = "outside-windows"
    PAUSED = "paused"


class Bound(StrEnum):
    """The factor that determines the number of streams."""

    JOBS = "jobs"
    THROUGHPUT = "throughput"
    TRYING = "trying"
    LATENCY = "latency"
    LOAD = "load"
    WINDOWS = "windows"
    PAUSE = "pause"


class GovernorRecord(Struct, frozen=True, kw_only=True):
    """The streams that the governor allows."""

    at_s: float
    """Since when."""
    run_id: int
    """Number of the run."""
    gate: Gate
    """Whether chunks may start."""
    bound: Bound
    """What limits the number of streams."""
    streams: int
    """Streams that are allowed, in all."""
    most: int
    """Streams that the limits would allow."""
    hosts: tuple[tuple[str, int], ...]
    """Pairs of a host and its allowed streams."""
    bwlimit_bytes_per_s: int | None
    """Limit for all streams together."""
    reason: str
    until_s: float | None = None
    """Begin of the next window."""
    max_latency_s: float | None = None
    """Limit of the brake by latency; None: none."""
    max_load: float | None = None
    """Limit of the brake by load; None: none."""

    def same(self, other: "GovernorRecord") -> bool:
        """Whether it allows the same for the same kind of reason; figures in the text of the reason may differ."""
        return replace(self, at_s=other.at_s, reason=other.reason) == other


class HostLoad(Struct, frozen=True, kw_only=True):
    """The last reading of the load of a host with streams."""

    host: str
    at_s: float
    """When it was read."""
    load: float
    """One-minute load average."""


class GoverningFacts(Struct, frozen=True, kw_only=True):
    """The operators' settings, and the allowance of the governor: `tune`, `pause`, `resume`."""

    controls: Controls = NO_CONTROLS
    """The operators' settings."""
    governor: GovernorRecord | None = None
    """The newest allowance, of a run at work if there is one; None: no run yet."""
    at_work: bool = False
    """That run is at work."""
    given: Limits | None = None
    """Limits of site.toml; None in `status`."""
    windows: tuple[WindowStanding, ...] | None = None
    """Windows of [transfer]; None in `status`."""
    loads: tuple[HostLoad, ...] = ()
    """The last load averages of that run's hosts."""
