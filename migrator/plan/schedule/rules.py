"""The conversion schedule: its input, the order of drains, the outcome, and its assumptions as sentences. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from math import ceil
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.collected import collected
from migrator.core.units import DAY_S, format_size, local_datetime, several
from migrator.fs.model import Need
from migrator.gluster.model import Brick, BrickRoom, VolumeState
from migrator.gluster.rules import subvolumes
from migrator.operations.ports import TreeMove
from migrator.plan.model import Batch, Plan, TransferCost, TreeUsage
from migrator.plan.rules_forecast import Growth
from migrator.plan.schedule import model
from migrator.plan.schedule.rules_drains import SlowerInDrains
from migrator.plan.schedule.rules_habits import Habits
from migrator.plan.schedule.rules_play import play
from migrator.reap.model import ReapedTree
from migrator.site.model import ReapAction

# --- Orders of drains, and the best outcome


EVERY_ORDER_UP_TO = 4
"""Maximum number of subvolumes (24 orders) for which all orders of drains are tried; above it, only likely ones."""


def _by(count: int, key: Callable[[int], Any]) -> tuple[int, ...]:
    """So many places in the order of a key, equal ones by number."""
    return tuple(sorted(range(count), key=lambda place: (key(place), place)))


def drain_orders(facts: model.ScheduleInput) -> list[tuple[int, ...]]:
    """The orders of places in `facts.subvolumes` to try; the last of each is retired."""
    sets, count = facts.subvolumes, len(facts.subvolumes)
    if count <= EVERY_ORDER_UP_TO:
        return list(permutations(range(count)))
    held = [one.used_bytes for one in sets]
    size = [one.total_bytes for one in sets]
    of_host: dict[tuple[str, ...], int] = {}
    for one in sets:
        of_host[one.hosts] = of_host.get(one.hosts, 0) + one.used_bytes
    found = [
        # Server after server, the lightest first: this frees whole servers soonest.
        _by(count, lambda place: (of_host[sets[place].hosts], sets[place].hosts, held[place])),
        _by(count, lambda place: held[place]),
        _by(count, lambda place: (-size[place], held[place])),
        _by(count, lambda place: (size[place], held[place])),
        # Subvolumes without spare room cannot receive files from others, so they are drained first.
        _by(count, lambda place: size[place] - held[place]),
        tuple(range(count)),
    ]
    return list(dict.fromkeys(found))


def best_outcome(facts: model.ScheduleInput) -> model.ScheduleOutcome:
    """The outcome of the planned order of batches with the best order of drains."""
    return min((play(facts, order) for order in drain_orders(facts)), key=merit)


def merit(outcome: model.ScheduleOutcome) -> tuple[float, ...]:
    """A sort key, less is better: completion, bricks free early, servers free early; or else progress before the obstacle."""
    cleared = [step.cleared_day for step in outcome.subvolumes if step.cleared_day is not None]
    free = [host.free_day for host in outcome.hosts if host.free_day is not None]
    if outcome.obstacle is not None:
        return (1.0, -len(outcome.batches), -len(cleared), outcome.obstacle.lacking_bytes, sum(cleared))
    return (0.0, sum(cleared), sum(free))


# --- Assumptions and obstacles, in words


@collected
def assumptions(
    facts: model.ScheduleInput,
    *,
    copying: TransferCost,
    slower: SlowerInDrains,
    drains: TransferCost,
    growth: Growth,
    reaped: Mapping[bytes, ReapedTree],
    habits: Habits,
) -> Iterator[str]:
    """The sentences of a schedule with these facts: measured or assumed rates, the sources, the target."""
    yield f"copying: {copying.basis}"
    yield from habits.basis
    yield f"copying while a drain moves files, when only the mount is read: {slower.basis}"
    yield f"drains: {drains.basis}; one at a time, beside the copying"
    if facts.growth_bytes_per_day:
        yield (
            f"users together add {format_size(facts.growth_bytes_per_day)} a day ({growth.basis}), each in proportion to "
            "what they have; the trash holds as much as is added in the time that it is kept"
        )
    elif growth.basis:
        yield f"users add nothing: {growth.basis}"
    else:
        yield "growth is unknown and counts as zero: too little was measured yet, and [capacity] growth is not set"
    yield from _sources(facts, reaped)
    yield from _target(facts)


def _sources(facts: model.ScheduleInput, reaped: Mapping[bytes, ReapedTree]) -> Iterator[str]:
    kept = f"their sources are kept for {_days(facts.retain_days)} ([cutover] retain), then purged"
    yield kept if facts.move_days else f"users work on the target as soon as their batch is copied; {kept}"
    if facts.cutovers.windows:
        yield f"they are moved in the windows {', '.join(one.when for one in facts.cutovers.windows)} ([cutover] windows)"
    yield "Gluster distributes new files, and those that a drain moves, over the bricks by their size"
    full = [one.number for one in facts.subvolumes if one.used_bytes > facts.max_fill * one.total_bytes]
    if full:
        yield (
            f"{several(len(full), 'subvolume is', 'subvolumes are')} fuller than [capacity] max_fill already: no drain begins until "
            "they are below it"
        )
    outside = facts.outside.all_bytes
    if outside:
        yield (
            f"{format_size(outside)} outside every user tree move from brick to brick with every drain; move or delete them "
            "before the last brick is retired"
        )
    if any(tree.action is ReapAction.SKIP for tree in reaped.values()):
        yield "skipped files are released before their users are purged (`migrator reap release`)"
    if any(tree.action is ReapAction.ARCHIVE for tree in reaped.values()):
        yield "archives take as much space as the files in them: their compression is unknown"


def _target(facts: model.ScheduleInput) -> Iterator[str]:
    yield f"cleared bricks join the target {_days(facts.handover_days)} after they are cleared"
    yield "the target's free space is that of its storage targets now, and BeeGFS spreads new files over all of them"
    if facts.target_inodes_free is None:
        yield "the target's free inodes are unknown and do not limit the schedule"


def _days(days: float) -> str:
    return "1 day" if days == 1 else f"{days:g} days"


def format_day(day: float, begins_at_s: float) -> str:
    """A day of a schedule with its date on this machine, such as `37.4, 2026-12-29`."""
    return f"{day:.1f}{_date(day, begins_at_s, ', ')}"


def _date(day: float, begins_at_s: float, before: str, after: str = "") -> str:
    at = local_datetime(begins_at_s + day * DAY_S)
    return "" if at is None else f"{before}{at.date()}{after}"


def describe_obstacle(obstacle: model.Obstacle, begins_at_s: float) -> str:
    """A sentence about an obstacle; the schedule begins at that time (seconds since the epoch)."""
    day = f"on day {obstacle.day:.0f}{_date(obstacle.day, begins_at_s, ' (', ')')}"
    match obstacle.kind:
        case model.ObstacleKind.TARGET_BYTES:
            return f"{day} batch {obstacle.batch} lacks {format_size(obstacle.lacking_bytes)} on the target, and no later step frees space there"
        case model.ObstacleKind.TARGET_INODES:
            return f"{day} batch {obstacle.batch} lacks {several(obstacle.lacking_inodes, 'inode')} on the target"
        case model.ObstacleKind.TARGET_GROWTH:
            return f"{day} the growth of moved users fills the target beyond [capacity] max_fill"
        case model.ObstacleKind.SOURCE_GROWTH:
            return f"{day} growth fills subvolume {obstacle.subvolume} beyond [capacity] max_fill"
        case model.ObstacleKind.SOURCE_ROOM:
            return f"{day} subvolume {obstacle.subvolume} cannot be drained: the rest of the source does not fit on the other subvolumes"
        case model.ObstacleKind.COPY_TOO_SLOW:
            return f"users of batch {obstacle.batch} add data faster than it is copied"
        case _:
            assert_never(obstacle.kind)


def scheduled_outcome(plan: Plan | None) -> model.ScheduleOutcome | None:
    """The outcome of the plan's schedule, if it has one."""
    return None if plan is None or plan.schedule is None else plan.schedule.outcome


def schedule_problems(schedule: model.Schedule | None, begins_at_s: float) -> tuple[str, ...]:
    """The reason why the plan, made at that time, cannot be completed in its own order; none if it can, or if unknown."""
    obstacle = schedule.outcome.obstacle if schedule is not None and schedule.outcome is not None else None
    if obstacle is None:
        return ()
    return (f"the bricks cannot be converted by this plan: {describe_obstacle(obstacle, begins_at_s)}",)


# --- The schedule


_DIGITS = 3
"""In days: a minute and a half."""


def make_schedule(facts: model.ScheduleInput, *, assumptions: Sequence[str] = ()) -> model.Schedule:
    """The schedule of the planned order. Deterministic. Raises ValueError if there is no subvolume or no batch."""
    if not facts.subvolumes or not facts.batches:
        raise ValueError("a schedule needs bricks and batches")
    return model.Schedule(
        problem=None,
        assumptions=tuple(assumptions),
        max_fill=facts.max_fill,
        growth_bytes_per_day=ceil(facts.growth_bytes_per_day),
        every_drain_order=len(facts.subvolumes) <= EVERY_ORDER_UP_TO,
        outcome=_round_days(best_outcome(facts)),
    )


def _round_days(value: Any) -> Any:  # noqa: ANN401 - any part of an outcome
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, tuple):
        return tuple(map(_round_days, value))
    if isinstance(value, Struct):
        return replace(value, **{name: _round_days(getattr(value, name)) for name in value.__struct_fields__})
    return value


# --- Facts, from the catalog, the batches and a snapshot of the volume


HANDOVER_DAYS = 1.0
"""From a cleared brick to a storage target: someone has to be there and make a file system."""


class NoSchedule(Exception):
    """There can be no schedule; the message is the reason. The plan is made without one."""


def scheduled_subvolumes(state: VolumeState, rooms: Mapping[str, BrickRoom]) -> tuple[model.ScheduledSubvolume, ...]:
    """The subvolumes with their room. Raises NoSchedule if bricks hold only pieces of files, or their room is unknown."""
    if state.disperse_count > 1:
        raise NoSchedule(
            "the bricks of a dispersed volume hold fragments of files: the usage of users by brick is unknown"
        )
    try:
        sets = subvolumes(state)
    except ValueError as error:
        raise NoSchedule(f"the bricks of the volume cannot be grouped: {error}") from None
    return tuple(_subvolume(number, members, rooms) for number, members in enumerate(sets, start=1))


def _subvolume(number: int, members: Sequence[Brick], rooms: Mapping[str, BrickRoom]) -> model.ScheduledSubvolume:
    found = {brick.name: rooms[brick.name] for brick in members if brick.name in rooms}
    unknown = [name for name in (brick.name for brick in members) if name not in found or _size(found[name]) is None]
    if unknown:
        raise NoSchedule(
            f"the free space of {', '.join(unknown)} is unknown: see `gluster volume status VOLUME detail`; the volume must be "
            "started, and glusterd must run on all hosts"
        )
    # An arbiter holds names without content, so its bytes do not count.
    data = [found[brick.name] for brick in members if not brick.arbiter]
    tightest = min(data, key=lambda room: room.free_bytes or 0)
    return model.ScheduledSubvolume(
        number=number,
        bricks=tuple(brick.name for brick in members),
        hosts=tuple(dict.fromkeys(brick.host for brick in members)),
        total_bytes=tightest.total_bytes or 0,
        free_bytes=tightest.free_bytes or 0,
        added_bytes=sum(room.total_bytes or 0 for room in found.values()),
    )


def _size(room: BrickRoom) -> int | None:
    return None if room.free_bytes is None else room.total_bytes


class Placement:
    """Usage of subvolumes by trees. Files on no known brick count on all of them, by their size."""

    def __init__(self, sets: Sequence[model.ScheduledSubvolume], uses: Iterable[model.TreeOnBrick]) -> None:
        self._weights = [one.total_bytes for one in sets]
        place_of = {brick: place for place, one in enumerate(sets) for brick in one.bricks}
        self._of_tree: dict[bytes | None, list[tuple[int | None, model.TreeOnBrick]]] = {}
        for use in uses:
            place = None if use.brick is None else place_of.get(use.brick)
            self._of_tree.setdefault(use.tree, []).append((place, use))

    def of(self, trees: Iterable[bytes | None]) -> model.PlacedContent:
        """The usage of these trees together; None is outside every tree."""
        size_bytes, files = ([0] * len(self._weights) for _ in range(2))
        for tree in trees:
            for place, use in self._of_tree.get(tree, ()):
                for amounts, amount in ((size_bytes, use.allocated_bytes), (files, use.files)):
                    if place is not None:
                        amounts[place] += amount
                    else:
                        for other, weight in enumerate(self._weights):
                            amounts[other] += ceil(amount * weight / sum(self._weights))
        return model.PlacedContent(size_bytes=tuple(size_bytes), files=tuple(files))


def scheduled_batch(
    batch: Batch,
    usages: Mapping[bytes, TreeUsage],
    placement: Placement,
    *,
    arrived: Mapping[bytes, Need],
    reaped: Mapping[bytes, ReapedTree],
    archived_s: float,
    cost: TransferCost,
    slower: SlowerInDrains,
    run_share: float = 1.0,
) -> model.ScheduledBatch:
    """The facts of one batch. Earlier plans copied `arrived` of its trees; its archives take `archived_s`. The batch's
    forecast is by `cost`, while streams run: `run_share` of the time. During drains it is `slower`.
    """
    copy_days = (batch.forecast_s + archived_s) / run_share / DAY_S
    needs = [_need(usages[tree.path], arrived.get(tree.path), reaped.get(tree.path)) for tree in batch.trees]
    return model.ScheduledBatch(
        number=batch.number,
        placed=placement.of(tree.path for tree in batch.trees),
        target_bytes=sum(need.size_bytes for need in needs),
        target_inodes=sum(need.inodes for need in needs),
        copy_days=copy_days,
        copy_days_in_drain=slower.days_in_drain(copy_days, files=batch.files, size_bytes=batch.size_bytes, cost=cost),
    )


def _need(usage: TreeUsage, arrived: Need | None, reaped: ReapedTree | None) -> Need:
    """The need of a tree on the target. Archives count uncompressed, skipped files not at all."""
    size_bytes = usage.allocated_bytes
    # The usage of a tree counts its own directory.
    inodes = usage.files + usage.directories
    if reaped is not None and reaped.action is not ReapAction.LIST:
        inodes -= reaped.files
        size_bytes -= reaped.allocated_bytes if reaped.action is ReapAction.SKIP else 0
    if arrived is not None:
        size_bytes -= arrived.size_bytes
        inodes -= arrived.inodes
    return Need(size_bytes=max(size_bytes, 0), inodes=max(inodes, 0))


def unpurged_sources(
    records: Mapping[bytes, TreeMove], placement: Placement, *, now_s: float, retain_s: float
) -> tuple[model.UnpurgedSource, ...]:
    """The sources, not yet purged, of users who work on the target."""
    found = []
    for tree, record in sorted(records.items()):
        if record.is_purged():
            continue
        settled_at_s = record.settled_at_s()
        since_s = now_s if settled_at_s is None else settled_at_s
        due_day = max(since_s + retain_s - now_s, 0.0) / DAY_S
        found.append(model.UnpurgedSource(placed=placement.of([tree]), freed_day=due_day))
    return tuple(found)
