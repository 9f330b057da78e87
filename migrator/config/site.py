"""The content of site.toml, checked and with every default filled in."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from migrator.domain.reap import KEEP_FILE, ReapAction, ReapClock, ReapPolicy, ReapRule
from migrator.domain.storage_targets import StripeSettings
from migrator.domain.units import DAY_S, GIB, HOUR_S, MINUTE_S
from migrator.domain.windows import Window

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSection:
    """Where the site keeps its things. Relative paths are relative to site.toml."""

    name: str
    state_dir: Path
    plans_dir: Path
    hooks_dir: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksSection:
    """How hooks are called: each may take `timeout_s`."""

    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSection:
    """A brick server that works itself: reached over ssh (None: it is this machine), with the target mounted at
    `target` there (None: it walks its bricks and copies nothing).
    """

    name: str
    ssh: str | None = None
    target: Path | None = None
    options: tuple[str, ...] = ()
    jobs: int | None = None
    python: str = "python3"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSection:
    """The file system that is left. `gluster` is the gluster command to ask (a wrapper where it lives elsewhere)."""

    kind: str
    mount: Path
    volume: str | None = None
    via: str = "auto"
    gluster: str = "gluster"
    hosts: tuple[HostSection, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSection:
    """The file system that is filled. `path` lies below the mount; trees keep their relative paths there."""

    kind: str
    mount: Path
    path: str = ""
    inodes_free: int | None = None
    beegfs: str | None = None
    stripe_count: int | None = None
    chunk_size_bytes: int | None = None

    @property
    def stripe(self) -> StripeSettings | None:
        """What new user trees get there; None: what the directory above them has."""
        if self.stripe_count is None and self.chunk_size_bytes is None:
            return None
        return StripeSettings(targets=self.stripe_count, chunk_bytes=self.chunk_size_bytes)

    @property
    def root(self) -> Path:
        """Where the trees go."""
        return self.mount / self.path if self.path else self.mount


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersSection:
    """Which directories move as one unit."""

    trees: tuple[str, ...]
    map: Path | None = None
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSection:
    """Limits of one batch; a tree that is larger than them stands alone."""

    max_bytes: int = 20 * 1024 * GIB
    max_files: int = 20_000_000
    max_users: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSection:
    """How streams work, and delta passes. `bwlimit_bytes_per_s` is for all streams together; None: no limit.

    `max_shrink` is the share of a tree's names or bytes that may be gone since the pass before.
    """

    engine: str = "auto"
    movers: str = "local"
    range_size_bytes: int = GIB
    digest: str = "none"
    lease_s: float = 30.0
    jobs: int = 4
    chunk_size_bytes: int = 4 * GIB
    chunk_files: int = 5000
    bwlimit_bytes_per_s: int | None = None
    tries: int = 3
    stall_timeout_s: float = 600.0
    sample_interval_s: float = 5.0
    reserve_bytes: int = GIB
    max_delta_passes: int = 5
    trash_keep_s: int = 14 * DAY_S
    max_shrink: float = 0.5
    windows: tuple[Window, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSection:
    """The nodes that move data where `[transfer] movers` is `slurm`. None: as on this machine."""

    nodes: int = 1
    jobs: int | None = None
    source: Path | None = None
    target: Path | None = None
    options: tuple[str, ...] = ()
    python: str = "python3"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapUserSection:
    """The rules of one user, or of one user tree by its path. None: as in [reap]."""

    name: str
    action: str | None = None
    older_than_s: int | None = None
    smaller_than_bytes: int | None = None
    by: str | None = None
    exclude: tuple[str, ...] | None = None
    hidden: bool | None = None
    executables: bool | None = None
    linked: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapSection:
    """Which old and tiny files are reaped, and how. `tiny_below_bytes` is for tables alone."""

    action: str = "list"
    older_than_s: int | None = None
    smaller_than_bytes: int | None = None
    by: str = "mtime"
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    executables: bool = False
    linked: bool = False
    keep_file: str = KEEP_FILE
    tiny_below_bytes: int = 4096
    archive_bytes: int = GIB
    archive_files: int = 100_000
    users: tuple[ReapUserSection, ...] = ()

    @property
    def policy(self) -> ReapPolicy:
        """The rules, those of single users filled up from the others."""
        rule = ReapRule(
            action=ReapAction(self.action),
            older_than_s=self.older_than_s,
            smaller_than_bytes=self.smaller_than_bytes,
            by=ReapClock(self.by),
            exclude=self.exclude,
            hidden=self.hidden,
            executables=self.executables,
            linked=self.linked,
        )
        return ReapPolicy(
            rule=rule, by_name={user.name: _filled_up(user, rule) for user in self.users}, keep_file=self.keep_file
        )


def _filled_up(user: ReapUserSection, rule: ReapRule) -> ReapRule:
    def own(given: T | None, otherwise: T) -> T:
        return otherwise if given is None else given

    return ReapRule(
        action=rule.action if user.action is None else ReapAction(user.action),
        older_than_s=own(user.older_than_s, rule.older_than_s),
        smaller_than_bytes=own(user.smaller_than_bytes, rule.smaller_than_bytes),
        by=rule.by if user.by is None else ReapClock(user.by),
        exclude=own(user.exclude, rule.exclude),
        hidden=own(user.hidden, rule.hidden),
        executables=own(user.executables, rule.executables),
        linked=own(user.linked, rule.linked),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverSection:
    """How a user is switched over: `link` is the path that is switched, with `{user}` in it. Delta passes are made until
    a freeze is predicted to last no longer than `max_freeze_s`. `freeze` is a `FreezeWay`. `purge_rate` are names per second.
    `compare`: users' trees are measured before and after, for `compare_limit_s` on each side at most.
    """

    switch: str = "symlink"
    link: str | None = None
    freeze: str = "top"
    settle_s: float = 2.0
    wait_for_backup: bool = False
    retain_s: int = 30 * DAY_S
    purge_rate: int = 1000
    max_freeze_s: int = 10 * MINUTE_S
    compare: bool = True
    compare_limit_s: int = MINUTE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSection:
    """How bricks are drained. `throttle` None: the option is left alone; with `windows` it holds in these alone."""

    throttle: str | None = None
    windows: tuple[Window, ...] = ()
    poll_s: float = 30.0
    stall_s: float = 6.0 * HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySection:
    """How content is compared: `sample` is the share of the files (1.0: all)."""

    digest: str = "xxh3_128"
    sample: float = 1.0
    workers: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySection:
    """How full the target may become (a share), and how much users add meanwhile."""

    max_fill: float = 0.9
    growth_bytes_per_day: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernorSection:
    """What users must not notice, and who says how many streams are at work. None: no limit. `streams` is a `StreamsBy`.
    `probe_interval_s` is how often the users' latency is looked at, `settle_s` how long a number of streams is measured.
    """

    streams: str = "measured"
    max_latency_s: float | None = None
    max_load: float | None = None
    probe_interval_s: float = 60.0
    settle_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One migration, as site.toml describes it."""

    file: Path
    site: SiteSection
    source: SourceSection
    target: TargetSection
    users: UsersSection
    hooks: HooksSection = field(default_factory=HooksSection)
    batch: BatchSection = field(default_factory=BatchSection)
    transfer: TransferSection = field(default_factory=TransferSection)
    slurm: SlurmSection = field(default_factory=SlurmSection)
    reap: ReapSection = field(default_factory=ReapSection)
    verify: VerifySection = field(default_factory=VerifySection)
    cutover: CutoverSection = field(default_factory=CutoverSection)
    drain: DrainSection = field(default_factory=DrainSection)
    capacity: CapacitySection = field(default_factory=CapacitySection)
    governor: GovernorSection = field(default_factory=GovernorSection)

    @property
    def ledger_file(self) -> Path:
        """The SQLite database."""
        return self.site.state_dir / "ledger.db"

    @property
    def catalogs_dir(self) -> Path:
        """One directory per scan."""
        return self.site.state_dir / "catalogs"

    @property
    def runs_dir(self) -> Path:
        """One directory per invocation, with logs, argv and output."""
        return self.site.state_dir / "runs"

    @property
    def manifests_dir(self) -> Path:
        """One directory per verification."""
        return self.site.state_dir / "manifests"
