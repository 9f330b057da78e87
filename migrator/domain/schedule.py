"""The conversion schedule: which batches, then which bricks can be cleared when. Times are days from the creation of the
plan; None is a day that does not come.
"""

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
