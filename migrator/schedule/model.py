"""The conversion schedule as values. Times are days from the creation of the plan. Pure."""

from dataclasses import dataclass
from enum import StrEnum


class ScheduleOrder(StrEnum):
    """In which order the batches of the plan are moved."""

    PLANNED = "planned"
    HEAVIEST = "heaviest"
    SOONEST = "soonest"
    """The one that frees bricks soonest of those that were tried."""


class ObstacleKind(StrEnum):
    """Why a schedule does not come to its end."""

    TARGET_BYTES = "target-bytes"
    """The next batch does not fit on the target, and nothing frees room for it any more."""
    TARGET_INODES = "target-inodes"
    TARGET_GROWTH = "target-growth"
    """What moved users add fills the target."""
    SOURCE_GROWTH = "source-growth"
    """What users add fills a brick of the source before enough of them have left."""
    SOURCE_ROOM = "source-room"
    """What stays on the source does not fit on the bricks that remain."""
    COPY_TOO_SLOW = "copy-too-slow"
    """Users add faster than they are copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """What stops a schedule, and when. `batch` is the one that cannot go on, `subvolume` the one that is too full;
    `lacking_bytes` and `lacking_inodes` are what is missing there and then.
    """

    kind: ObstacleKind
    day: float
    batch: int | None = None
    subvolume: int | None = None
    lacking_bytes: int = 0
    lacking_inodes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStep:
    """One batch: when copying begins, when its users work on the target, when its source is purged. `waited_days` is how
    long it waited for room on the target.
    """

    batch: int
    begins_day: float
    moved_day: float
    freed_day: float
    waited_days: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SubvolumeStep:
    """The bricks of one subvolume: when their drain begins, when they are cleared. `moved_bytes` is what the drain has to
    move at most. One that is `retired` is not drained: it is the last, and the volume is stopped instead.
    """

    subvolume: int
    bricks: tuple[str, ...]
    drain_begins_day: float | None
    cleared_day: float | None
    moved_bytes: int
    retired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStep:
    """The day on which all bricks of a server are free."""

    host: str
    free_day: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What becomes of one order: steps as far as they come, subvolumes in the order in which they are cleared. `done_day` is
    when the source is empty, None where an obstacle is in the way.
    """

    done_day: float | None
    obstacle: Obstacle | None
    batches: tuple[BatchStep, ...]
    subvolumes: tuple[SubvolumeStep, ...]
    hosts: tuple[HostStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSchedule:
    """The outcome of one order of the batches."""

    order: ScheduleOrder
    outcome: Outcome


class Change(StrEnum):
    """What is changed to see what depends on it."""

    COPY_HALVED = "copy-rate-halved"
    DRAIN_HALVED = "drain-rate-halved"
    GROWTH_DOUBLED = "growth-doubled"
    BRICKS_NOT_JOINED = "bricks-not-joined"
    """Cleared bricks are not given to the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The planned order under other circumstances."""

    change: Change
    done_day: float | None
    first_cleared_day: float | None
    hosts: tuple[HostStep, ...]
    obstacle: Obstacle | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedies:
    """What would make an impossible schedule possible; each by itself. More room: `more_bytes` and `more_inodes` of the
    target together (None: no room would help). Everything that `reap_users` did not change for a year is not copied, which
    saves `reap_bytes` (None: all of it would not be enough). A higher `[capacity] max_fill` (None: none would).
    """

    more_bytes: int | None
    more_inodes: int | None
    reap_bytes: int | None
    reap_users: tuple[str, ...]
    max_fill: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The conversion schedule of a plan. `problem` says why there is none; then everything else is empty.

    `assumptions` are sentences that it rests on. `growth_basis` says where `growth_bytes_per_day` is from; empty: it is not
    known what users add. The first of `orders` is that of the plan. `every_drain_order`: all orders
    of draining were tried; otherwise the likely ones. `remedies` are there where the plan's own order is impossible.
    """

    problem: str | None
    assumptions: tuple[str, ...] = ()
    max_fill: float = 0.0
    growth_bytes_per_day: int = 0
    growth_basis: str = ""
    every_drain_order: bool = False
    orders: tuple[OrderSchedule, ...] = ()
    what_if: tuple[WhatIf, ...] = ()
    remedies: Remedies | None = None


# --- Facts: the input of a schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOnBrick:
    """What one user tree (None: what lies outside all of them) has on one brick (None: it is not known on which).

    `files` counts names of what is no directory; `allocated_bytes` counts a hard-linked file once.
    """

    brick: str | None
    tree: bytes | None
    files: int
    allocated_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubvolumeFacts:
    """Bricks that hold the same files, and leave together. Room is that of the copy that has least of it; `free_inodes` is
    None where it is not told. `added_bytes` is what the target gains when all of its bricks are re-formatted for it.
    """

    number: int
    bricks: tuple[str, ...]
    hosts: tuple[str, ...]
    total_bytes: int
    free_bytes: int
    free_inodes: int | None
    added_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Allocated bytes and files by subvolume, in their order; `unplaced_` is what is not known where it lies."""

    size_bytes: tuple[int, ...]
    files: tuple[int, ...]
    unplaced_bytes: int = 0
    unplaced_files: int = 0

    @property
    def all_bytes(self) -> int:
        """Of all subvolumes."""
        return sum(self.size_bytes) + self.unplaced_bytes

    @property
    def all_files(self) -> int:
        """Of all subvolumes."""
        return sum(self.files) + self.unplaced_files


@dataclass(frozen=True, slots=True, kw_only=True)
class OldFiles:
    """What one user has that was not changed for a year: it need not be copied where it is reaped."""

    user: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """A batch. `target_bytes` and `target_inodes` are what it takes of the target beyond what is there of it already;
    `copy_days` is how long it takes to copy as it is now, with all streams, `copy_days_in_drain` how long while a drain moves
    files all the time (None: as long).
    """

    number: int
    placed: Placed
    target_bytes: int
    target_inodes: int
    copy_days: float
    copy_days_in_drain: float | None = None
    old: tuple[OldFiles, ...] = ()

    @property
    def share_in_drain(self) -> float:
        """How much is copied in a day while a drain moves files, as a share of what is copied in one without."""
        slower = self.copy_days if self.copy_days_in_drain is None else max(self.copy_days_in_drain, self.copy_days)
        return self.copy_days / slower if slower else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFacts:
    """Sources of users who work on the target already; `freed_day` is when they are purged."""

    placed: Placed
    freed_day: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPart:
    """The room of one storage target, or of the whole target where single ones are not known. `takes_new`: new files are put
    there now; what BeeGFS passes over has room only by name.
    """

    total_bytes: int
    free_bytes: int
    takes_new: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageParts:
    """The storage targets that user trees get theirs from. One with no more than `low_bytes` free is passed over as long as
    others have more (0: that is not known).
    """

    parts: tuple[TargetPart, ...]
    low_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFacts:
    """Everything. `growth_bytes_per_day` is what all users together add, wherever they work; `target_inodes_free` None is
    not known. `target_low_bytes` is as in StorageParts; None: the parts of the target are not its storage targets, and count
    as one. `reserve_bytes` stay free on the target whatever `max_fill` says.

    A drain costs `drain_days_per_byte` and `drain_days_per_file`, a purge `purge_days_per_file`. With `bricks_join` cleared
    bricks become room of the target `handover_days` after they are cleared.
    """

    subvolumes: tuple[SubvolumeFacts, ...]
    batches: tuple[BatchFacts, ...]
    kept: tuple[KeptFacts, ...]
    outside: Placed
    target: tuple[TargetPart, ...]
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
    bricks_join: bool = True
    target_low_bytes: int | None = None

    @property
    def growth_share(self) -> float:
        """What users add in a day, as a share of what they have now: everybody grows alike."""
        every = sum(batch.placed.all_bytes for batch in self.batches) + sum(kept.placed.all_bytes for kept in self.kept)
        return self.growth_bytes_per_day / every if every else 0.0
