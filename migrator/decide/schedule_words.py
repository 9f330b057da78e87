"""What a conversion schedule rests on, and what stops one, in sentences. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_never

from migrator.decide.drain_copying import SlowerInDrains
from migrator.decide.drain_cost import DrainCost
from migrator.decide.growth import Growth
from migrator.decide.storage_room import DEFAULT_LOW_LIMITS
from migrator.domain.plan import TransferCost
from migrator.domain.reap import ReapAction, ReapedTree
from migrator.domain.schedule import Obstacle, ObstacleKind, Schedule
from migrator.domain.schedule_facts import ScheduleFacts
from migrator.domain.units import DAY_S, format_size, several

_LAST_S = 253402300799.0
"""The end of the year 9999, the last that a date can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What was measured here or is assumed: copying, copying beside drains, drains, and what users add."""

    copying: TransferCost
    slower: SlowerInDrains
    drains: DrainCost
    growth: Growth


def assumptions(facts: ScheduleFacts, rates: Rates, reaped: Mapping[bytes, ReapedTree]) -> tuple[str, ...]:
    """The sentences of a schedule with these facts."""
    return (*_rates(facts, rates), *_sources(facts, reaped), *_target(facts))


def _rates(facts: ScheduleFacts, rates: Rates) -> Iterator[str]:
    yield f"copying: {rates.copying.basis}"
    yield f"copying while a drain moves files, when only the mount is read: {rates.slower.basis}"
    yield f"drains: {rates.drains.basis}; one at a time, beside the copying"
    if facts.growth_bytes_per_day:
        yield (
            f"users together add {format_size(facts.growth_bytes_per_day)} a day ({rates.growth.basis}), each in proportion to "
            "what he has; the trash holds as much as is added in the time that it is kept"
        )
    elif rates.growth.basis:
        yield f"users add nothing: {rates.growth.basis}"
    else:
        yield "users add nothing, which is not known: too little was measured here yet, and [capacity] growth is not set"


def _sources(facts: ScheduleFacts, reaped: Mapping[bytes, ReapedTree]) -> Iterator[str]:
    yield (
        "users work on the target as soon as their batch is copied; their sources are kept for "
        f"{_days(facts.retain_days)} ([cutover] retain), then purged"
    )
    yield "Gluster spreads what is new, and what a drain moves, over the bricks by their size"
    full = [
        one.number for one in facts.subvolumes if one.total_bytes - one.free_bytes > facts.max_fill * one.total_bytes
    ]
    if full:
        yield (
            f"{several(len(full), 'subvolume is', 'subvolumes are')} fuller than [capacity] max_fill already: nothing is drained "
            "onto such a one before it has emptied"
        )
    outside = facts.outside.all_bytes
    if outside:
        yield (
            f"{format_size(outside)} outside every user tree move from brick to brick with every drain, and have to be taken "
            "care of before the last is retired"
        )
    if any(tree.action is ReapAction.SKIP for tree in reaped.values()):
        yield "skipped files are released before their users are purged (`migrator reap release`)"
    if any(tree.action is ReapAction.ARCHIVE for tree in reaped.values()):
        yield "archives take as much room as the files in them: how well they compress is not known"


def _target(facts: ScheduleFacts) -> Iterator[str]:
    yield (
        f"cleared bricks are room of the target {_days(facts.handover_days)} after they are cleared"
        if facts.bricks_join
        else "cleared bricks are not given to the target"
    )
    yield from _storage(facts)
    if facts.target_inodes_free is None:
        yield "how many files the target can take is not known, and limits nothing here"


def _storage(facts: ScheduleFacts) -> Iterator[str]:
    low_bytes = facts.target_low_bytes
    if low_bytes is None:
        yield "the target is counted as one: the room of its single storage targets is not known"
        return
    passed = sum(not part.takes_new for part in facts.target)
    if passed:
        yield f"{several(passed, 'storage target takes', 'storage targets take')} no new files now, and none later here"
    if low_bytes:
        default = low_bytes in DEFAULT_LOW_LIMITS
        how = "BeeGFS's own default; which limit is set is not known" if default else "as it does already"
        yield (
            f"new files go evenly to all storage targets that take any; one with less than {format_size(low_bytes)} free is "
            f"passed over ({how})"
        )
    else:
        yield (
            "new files go evenly to all storage targets that take any, until the first is full: from which room on BeeGFS "
            "passes over one is not known"
        )


def _days(days: float) -> str:
    return "1 day" if days == 1 else f"{days:g} days"


def day_words(day: float, begins_at_s: float) -> str:
    """A day of a schedule with its date in UTC: `37.4, 2026-12-29`."""
    return f"{day:.1f}{_date(day, begins_at_s, ', ')}"


def _date(day: float, begins_at_s: float, before: str, after: str = "") -> str:
    at_s = begins_at_s + day * DAY_S
    return f"{before}{datetime.fromtimestamp(at_s, UTC).date()}{after}" if at_s < _LAST_S else ""


def obstacle_words(obstacle: Obstacle, begins_at_s: float) -> str:
    """What stops a schedule that begins at that time (seconds since the epoch)."""
    day = f"on day {obstacle.day:.0f}{_date(obstacle.day, begins_at_s, ' (', ')')}"
    match obstacle.kind:
        case ObstacleKind.TARGET_BYTES:
            return f"{day} batch {obstacle.batch} lacks {format_size(obstacle.lacking_bytes)} on the target, and nothing frees room there any more"
        case ObstacleKind.TARGET_INODES:
            return f"{day} batch {obstacle.batch} lacks {several(obstacle.lacking_inodes, 'inode')} on the target"
        case ObstacleKind.TARGET_GROWTH:
            return f"{day} what moved users add begins to fill the target beyond [capacity] max_fill"
        case ObstacleKind.SOURCE_GROWTH:
            return f"{day} what users add begins to fill subvolume {obstacle.subvolume} beyond [capacity] max_fill"
        case ObstacleKind.SOURCE_ROOM:
            return f"{day} subvolume {obstacle.subvolume} cannot be drained: what stays on the source does not fit on the others"
        case ObstacleKind.COPY_TOO_SLOW:
            return f"users of batch {obstacle.batch} add faster than they are copied"
        case _:
            assert_never(obstacle.kind)


def schedule_problem(schedule: Schedule, begins_at_s: float) -> str | None:
    """What speaks against relying on the plan, which was made at that time; None where its own order comes to its end, or
    nothing is known of it.
    """
    if not schedule.orders or schedule.orders[0].outcome.obstacle is None:
        return None
    return f"the bricks cannot be converted by this plan: {obstacle_words(schedule.orders[0].outcome.obstacle, begins_at_s)}"
