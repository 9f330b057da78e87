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
    """An obstacle and its day. `batch` is the one that cannot proceed, `subvolume` the one that is too full;
    `lacking_bytes` and `lacking_inodes` are the room missing on that day.
    """

    kind: ObstacleKind
    day: float
    batch: int | None = None
    subvolume: int | None = None
    lacking_bytes: int = 0
    lacking_inodes: int = 0


class BatchStep(Struct, frozen=True, kw_only=True):
    """One batch: when copying begins, when its users work on the target, when its source is purged. It waits
    `waited_days` for room on the target.
    """

    batch: int
    begins_day: float
    moved_day: float
    freed_day: float
    waited_days: float


class SubvolumeStep(Struct, frozen=True, kw_only=True):
    """The bricks of one subvolume: when their drain begins, when they are cleared. The drain moves at most
    `moved_bytes`. The last subvolume is `retired`: it is not drained, and the volume is stopped instead.
    """

    subvolume: int
    bricks: tuple[str, ...]
    drain_begins_day: float | None
    cleared_day: float | None
    moved_bytes: int
    retired: bool = False


class HostStep(Struct, frozen=True, kw_only=True):
    """The day on which all bricks of a server are free."""

    host: str
    free_day: float | None


class ScheduleOutcome(Struct, frozen=True, kw_only=True):
    """The steps up to the end or the obstacle, subvolumes in the order in which they are cleared.
    `done_day` is when the source is empty, None if an obstacle prevents it.
    """

    done_day: float | None
    obstacle: Obstacle | None
    batches: tuple[BatchStep, ...]
    subvolumes: tuple[SubvolumeStep, ...]
    hosts: tuple[HostStep, ...]


class Schedule(Struct, frozen=True, kw_only=True):
    """The conversion schedule of a plan, in the order of its batches. If there is none, `problem` is the reason and
    everything else is empty.
    """

    problem: str | None
    assumptions: tuple[str, ...] = ()
    """Sentences."""
    max_fill: float = 0.0
    growth_bytes_per_day: int = 0
    growth_basis: str = ""
    """The source of `growth_bytes_per_day`; empty: growth is unknown."""
    every_drain_order: bool = False
    """Whether all orders of drains were tried; otherwise only the likely ones."""
    outcome: ScheduleOutcome | None = None


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
