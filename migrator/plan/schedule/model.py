"""The conversion schedule as values. Times are days from the creation of the plan; None is never. Pure."""

from enum import StrEnum

from msgspec import Struct

from migrator.core.windows import ALWAYS, OpenTimes


class ObstacleKind(StrEnum):
    """The reason why a schedule cannot be completed."""

    TARGET_BYTES = "target-bytes"
    """The next batch does not fit on the target, and no later step will free more room."""
    TARGET_INODES = "target-inodes"
    TARGET_GROWTH = "target-growth"
    """Growth of moved users fills the target."""
    SOURCE_GROWTH = "source-growth"
    """Growth fills a brick of the source before enough users have left."""
    SOURCE_ROOM = "source-room"
    """The rest of the source does not fit on the remaining bricks."""
    COPY_TOO_SLOW = "copy-too-slow"
    """Users add data faster than it is copied."""


class Obstacle(Struct, frozen=True, kw_only=True):
    """Why a schedule cannot be completed."""

    kind: ObstacleKind
    """The reason."""
    day: float
    """When it is met."""
    batch: int | None = None
    """The batch that cannot proceed."""
    subvolume: int | None = None
    """The subvolume that is too full."""
    lacking_bytes: int = 0
    """Bytes missing on that day."""
    lacking_inodes: int = 0
    """Inodes missing on that day."""


class BatchStep(Struct, frozen=True, kw_only=True):
    """One batch."""

    batch: int
    begins_day: float
    """When copying begins."""
    moved_day: float
    """When its users work on the target."""
    freed_day: float
    """When its source is purged."""
    waited_days: float
    """How long it waits for room on the target."""


class SubvolumeStep(Struct, frozen=True, kw_only=True):
    """The bricks of one subvolume."""

    subvolume: int
    """Its number, from 1."""
    bricks: tuple[str, ...]
    drain_begins_day: float | None
    """When its drain begins."""
    cleared_day: float | None
    """When it is cleared."""
    moved_bytes: int
    """Bytes that the drain moves at most."""
    retired: bool = False
    """It is not drained: the volume is stopped instead."""


class HostStep(Struct, frozen=True, kw_only=True):
    """A server of the source."""

    host: str
    free_day: float | None
    """When all its bricks are free."""


class ScheduleOutcome(Struct, frozen=True, kw_only=True):
    """The steps up to the end or the obstacle."""

    done_day: float | None
    """When the source is empty; None if an obstacle prevents it."""
    obstacle: Obstacle | None
    """What prevents it."""
    batches: tuple[BatchStep, ...]
    """The batches."""
    subvolumes: tuple[SubvolumeStep, ...]
    """The subvolumes, in the order in which they are cleared."""
    hosts: tuple[HostStep, ...]
    """The servers."""


class Schedule(Struct, frozen=True, kw_only=True):
    """When bricks are free, in the order of the plan's batches."""

    problem: str | None
    """Why there is no schedule; everything else is empty then."""
    assumptions: tuple[str, ...] = ()
    """What it rests on, in sentences."""
    max_fill: float = 0.0
    """Share of a file system that may be in use."""
    growth_bytes_per_day: int = 0
    """Growth by all users."""
    growth_basis: str = ""
    """Source of the growth; empty: growth is unknown."""
    every_drain_order: bool = False
    """All orders of drains were tried, and not only the likely ones."""
    outcome: ScheduleOutcome | None = None
    """The steps."""


# --- Facts: the input of a schedule


class TreeOnBrick(Struct, frozen=True, kw_only=True):
    """Usage of one brick (None: unknown) by one user tree (None: paths outside every tree).

    `files` counts all names but directories; `allocated_bytes` counts a hard-linked file once.
    """

    brick: str | None
    tree: bytes | None
    files: int
    allocated_bytes: int


class ScheduledSubvolume(Struct, frozen=True, kw_only=True):
    """Bricks that hold the same files and are drained together. Room is that of the copy with the least. The target
    gains `added_bytes` when all its bricks are re-formatted for it.
    """

    number: int
    bricks: tuple[str, ...]
    hosts: tuple[str, ...]
    total_bytes: int
    free_bytes: int
    added_bytes: int

    @property
    def used_bytes(self) -> int:
        return self.total_bytes - self.free_bytes


class PlacedContent(Struct, frozen=True, kw_only=True):
    """Allocated bytes and files by subvolume, in order."""

    size_bytes: tuple[int, ...]
    files: tuple[int, ...]

    @property
    def all_bytes(self) -> int:
        return sum(self.size_bytes)

    @property
    def all_files(self) -> int:
        """Of all subvolumes."""
        return sum(self.files)


class ScheduledBatch(Struct, frozen=True, kw_only=True):
    """A batch. `target_bytes` and `target_inodes` are its need beyond the files that are on the target already. Copying
    its current content with all streams takes `copy_days`, or `copy_days_in_drain` while a drain moves files the whole
    time (None: the same).
    """

    number: int
    placed: PlacedContent
    target_bytes: int
    target_inodes: int
    copy_days: float
    copy_days_in_drain: float | None = None

    @property
    def share_in_drain(self) -> float:
        """The copy rate during a drain, as a share of the rate without one."""
        slower = self.copy_days if self.copy_days_in_drain is None else max(self.copy_days_in_drain, self.copy_days)
        return self.copy_days / slower if slower else 1.0


class UnpurgedSource(Struct, frozen=True, kw_only=True):
    """Sources of users who already work on the target; they are purged on `freed_day`."""

    placed: PlacedContent
    freed_day: float


class ScheduleInput(Struct, frozen=True, kw_only=True):
    """The whole input. `growth_bytes_per_day` is the growth of all users, on both sides; `target_inodes_free` None:
    unknown. `reserve_bytes` stay free on the target regardless of `max_fill`.

    A drain costs `drain_days_per_byte` and `drain_days_per_file`, a purge `purge_days_per_file`. Bricks become room of
    the target `handover_days` after they are cleared. Users work on the target `move_days` after
    their batch is copied, as soon as `cutovers` are open. The first day begins at `begins_at_s`.
    """

    subvolumes: tuple[ScheduledSubvolume, ...]
    batches: tuple[ScheduledBatch, ...]
    kept: tuple[UnpurgedSource, ...]
    outside: PlacedContent
    target_total_bytes: int
    target_free_bytes: int
    target_inodes_free: int | None
    max_fill: float
    reserve_bytes: int
    growth_bytes_per_day: float
    retain_days: float
    trash_keep_days: float
    purge_days_per_file: float
    drain_days_per_byte: float
    drain_days_per_file: float
    handover_days: float
    move_days: float = 0.0
    begins_at_s: float = 0.0
    cutovers: OpenTimes = ALWAYS

    @property
    def growth_share(self) -> float:
        """Growth per day as a share of the present content, the same for every user."""
        every = sum(batch.placed.all_bytes for batch in self.batches) + sum(kept.placed.all_bytes for kept in self.kept)
        return self.growth_bytes_per_day / every if every else 0.0


# Copy throughput while drains move files, and at other times.


class CopyTally(Struct, frozen=True, kw_only=True):
    """The sum of all streams, over the `busy_s` seconds in which any stream was copying."""

    files: int = 0
    size_bytes: int = 0
    busy_s: float = 0.0


class DrainCopying(Struct, frozen=True, kw_only=True):
    """The sampled copying of a site: while a drain moved files, and while none did."""

    in_drains: CopyTally
    outside: CopyTally
