"""The conversion schedule: facts, tried orders, the best outcome, remedies and sentences. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from math import ceil
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.collected import collected
from migrator.core.units import DAY_S, GIB, PIB, YEAR_S, format_size, local_datetime, several
from migrator.fs.model import Need
from migrator.gluster.model import Brick, BrickRoom, VolumeState
from migrator.gluster.rules import subvolumes
from migrator.operations.ports import TreeMove
from migrator.plan.model import Batch, TransferCost, TreeUsage
from migrator.plan.rules_forecast import Growth
from migrator.plan.schedule import model
from migrator.plan.schedule.rules_drains import SlowerInDrains
from migrator.plan.schedule.rules_habits import Habits
from migrator.plan.schedule.rules_play import play
from migrator.reap.model import ReapedTree
from migrator.site.model import ReapAction

# --- Orders of drains and batches, and the best outcome


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


def best_outcome(facts: model.ScheduleInput, batch_order: Sequence[int]) -> model.ScheduleOutcome:
    """The outcome with the best order of drains for this order of batches."""
    return min((play(facts, batch_order, order) for order in drain_orders(facts)), key=merit)


def is_possible(facts: model.ScheduleInput, batch_order: Sequence[int]) -> bool:
    """Whether the schedule can be completed with any order of drains."""
    return any(play(facts, batch_order, order).obstacle is None for order in drain_orders(facts))


def merit(outcome: model.ScheduleOutcome) -> tuple[float, ...]:
    """A sort key, less is better: completion, bricks free early, servers free early; or else progress before the obstacle."""
    cleared = [step.cleared_day for step in outcome.subvolumes if step.cleared_day is not None]
    free = [host.free_day for host in outcome.hosts if host.free_day is not None]
    if outcome.obstacle is not None:
        return (1.0, -len(outcome.batches), -len(cleared), outcome.obstacle.lacking_bytes, sum(cleared))
    return (0.0, sum(cleared), sum(free))


def heaviest_first(batches: Sequence[model.ScheduledBatch]) -> tuple[int, ...]:
    """Places of the batches, by bytes."""
    return _by(len(batches), lambda place: -batches[place].placed.all_bytes)


def likely_orders(facts: model.ScheduleInput) -> Iterator[tuple[int, ...]]:
    """Orders of the batches that may free bricks sooner than the heaviest first."""
    batches, count = facts.batches, len(facts.batches)
    yield tuple(range(count))
    yield heaviest_first(batches)
    yield _by(count, lambda place: batches[place].placed.all_bytes)
    yield _by(count, lambda place: batches[place].copy_days / max(batches[place].placed.all_bytes, 1))
    for on in _by(len(facts.subvolumes), lambda place: facts.subvolumes[place].used_bytes)[:2]:
        # Those with the most on one of the two lightest, for each day of copying.
        freed = [-one.placed.size_bytes[on] / max(one.copy_days, 1e-9) for one in batches]
        yield _by(count, freed.__getitem__)


def soonest(facts: model.ScheduleInput) -> model.ScheduleOutcome:
    """The outcome, among the likely orders, that frees bricks soonest."""
    return min((best_outcome(facts, order) for order in dict.fromkeys(likely_orders(facts))), key=merit)


# --- Remedies for an impossible schedule


_MOST_BYTES = 1024 * PIB
_MOST_INODES = 10**12
_EXACT_SHARE = 1 / 256
"""The precision of remedies: disks are not bought by the byte."""

_FULLEST_PERCENT = 98
"""Fuller XFS and BeeGFS slow down, and a few hours of writing fill a disk."""


def remedies(facts: model.ScheduleInput, order: Sequence[int]) -> model.Remedies:
    """Remedies for an order of batches that is impossible with these facts."""
    more_bytes, more_inodes = _more_room(facts, order)
    reap_users = _reaped_users(facts, order)
    saved = None
    if reap_users is not None:
        saved = sum(old.size_bytes for batch in facts.batches for old in batch.old if old.user in reap_users)
    return model.Remedies(
        more_bytes=more_bytes,
        more_inodes=more_inodes,
        reap_bytes=saved,
        reap_users=reap_users or (),
        max_fill=_fuller(facts, order),
    )


def with_room(facts: model.ScheduleInput, more_bytes: int, more_inodes: int) -> model.ScheduleInput:
    """The facts with that much more usable room on the target (beyond the share that `max_fill` keeps free)."""
    inodes = facts.target_inodes_free
    whole = ceil(more_bytes / facts.max_fill) if facts.max_fill else more_bytes
    return replace(
        facts,
        target_total_bytes=facts.target_total_bytes + whole,
        target_free_bytes=facts.target_free_bytes + whole,
        target_inodes_free=None if inodes is None else inodes + more_inodes,
    )


def _more_room(facts: model.ScheduleInput, order: Sequence[int]) -> tuple[int | None, int | None]:
    def possible(more_bytes: int, more_inodes: int) -> bool:
        return is_possible(with_room(facts, more_bytes, more_inodes), order)

    if not possible(_MOST_BYTES, _MOST_INODES):
        return None, None
    inodes_suffice = possible(_MOST_BYTES, 0)
    more_bytes = _least(lambda most: possible(most, 0 if inodes_suffice else _MOST_INODES), GIB, _MOST_BYTES)
    if inodes_suffice:
        return more_bytes, 0
    return more_bytes, _least(lambda most: possible(more_bytes, most), 1000, _MOST_INODES)


def _least(possible: Callable[[int], bool], step: int, most: int) -> int:
    """The least amount that suffices, in whole steps and approximately. `most` must suffice, and so must more than the least."""
    if possible(0):
        return 0
    low, high = 0, step
    while high < most and not possible(high):
        low, high = high, high * 2
    while high - low > max(step, round(high * _EXACT_SHARE)):
        middle = (low + high) // 2 // step * step
        if middle <= low:
            break
        low, high = (low, middle) if possible(middle) else (middle, high)
    return min(high, most)


def _fuller(facts: model.ScheduleInput, order: Sequence[int]) -> float | None:
    """The least whole percentage of `max_fill` that suffices, on both sides."""
    percents = range(int(facts.max_fill * 100) + 1, _FULLEST_PERCENT + 1)
    found = (percent / 100 for percent in percents if is_possible(replace(facts, max_fill=percent / 100), order))
    return next(found, None)


def _reaped_users(facts: model.ScheduleInput, order: Sequence[int]) -> tuple[str, ...] | None:
    """The users with the most old files, as few as suffice."""
    old: dict[str, int] = {}
    for batch in facts.batches:
        for one in batch.old:
            old[one.user] = old.get(one.user, 0) + one.size_bytes
    users = sorted((user for user in old if old[user]), key=lambda user: (-old[user], user))

    def possible(count: int) -> bool:
        return is_possible(without_old(facts, users[:count]), order)

    if not users or not possible(len(users)):
        return None
    return tuple(users[: _least(possible, 1, len(users))])


def without_old(facts: model.ScheduleInput, users: Sequence[str]) -> model.ScheduleInput:
    """The facts if old files of these users are not copied. They stay on the source until it is purged."""
    return replace(facts, batches=tuple(_without(batch, frozenset(users)) for batch in facts.batches))


def _without(batch: model.ScheduledBatch, users: frozenset[str]) -> model.ScheduledBatch:
    saved = sum(old.size_bytes for old in batch.old if old.user in users)
    share = saved / batch.placed.all_bytes if batch.placed.all_bytes else 0.0
    return replace(
        batch, target_bytes=max(batch.target_bytes - saved, 0), copy_days=batch.copy_days * max(1.0 - share, 0.0)
    )


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
        yield "users add nothing, which is not known: too little was measured here yet, and [capacity] growth is not set"
    yield from _sources(facts, reaped)
    yield from _target(facts)


def _sources(facts: model.ScheduleInput, reaped: Mapping[bytes, ReapedTree]) -> Iterator[str]:
    kept = f"their sources are kept for {_days(facts.retain_days)} ([cutover] retain), then purged"
    yield kept if facts.move_days else f"users work on the target as soon as their batch is copied; {kept}"
    if facts.cutovers.windows:
        yield f"they are moved in the windows {', '.join(one.when for one in facts.cutovers.windows)} ([cutover] windows)"
    yield "Gluster spreads what is new, and what a drain moves, over the bricks by their size"
    full = [one.number for one in facts.subvolumes if one.used_bytes > facts.max_fill * one.total_bytes]
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


def _target(facts: model.ScheduleInput) -> Iterator[str]:
    yield (
        f"cleared bricks are room of the target {_days(facts.handover_days)} after they are cleared"
        if facts.bricks_join
        else "cleared bricks are not given to the target"
    )
    yield "the room of the target is what new files have now, and BeeGFS spreads them so that all of it is used"
    if facts.target_inodes_free is None:
        yield "how many files the target can take is not known, and limits nothing here"


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
            return f"{day} batch {obstacle.batch} lacks {format_size(obstacle.lacking_bytes)} on the target, and nothing frees room there any more"
        case model.ObstacleKind.TARGET_INODES:
            return f"{day} batch {obstacle.batch} lacks {several(obstacle.lacking_inodes, 'inode')} on the target"
        case model.ObstacleKind.TARGET_GROWTH:
            return f"{day} what moved users add begins to fill the target beyond [capacity] max_fill"
        case model.ObstacleKind.SOURCE_GROWTH:
            return f"{day} what users add begins to fill subvolume {obstacle.subvolume} beyond [capacity] max_fill"
        case model.ObstacleKind.SOURCE_ROOM:
            return f"{day} subvolume {obstacle.subvolume} cannot be drained: what stays on the source does not fit on the others"
        case model.ObstacleKind.COPY_TOO_SLOW:
            return f"users of batch {obstacle.batch} add faster than they are copied"
        case _:
            assert_never(obstacle.kind)


def schedule_problems(schedule: model.Schedule | None, begins_at_s: float) -> tuple[str, ...]:
    """The reason why the plan, made at that time, cannot be completed in its own order; none if it can, or if unknown."""
    obstacle = schedule.orders[0].outcome.obstacle if schedule is not None and schedule.orders else None
    if obstacle is None:
        return ()
    return (f"the bricks cannot be converted by this plan: {describe_obstacle(obstacle, begins_at_s)}",)


# --- The schedule


_DIGITS = 3
"""In days: a minute and a half."""


def make_schedule(facts: model.ScheduleInput, *, assumptions: Sequence[str] = ()) -> model.Schedule:
    """The schedule of the planned order, with the heaviest first and the order that frees bricks soonest for
    comparison.

    Deterministic. Raises ValueError if there is no subvolume or no batch.
    """
    if not facts.subvolumes or not facts.batches:
        raise ValueError("a schedule needs bricks and batches")
    planned = tuple(range(len(facts.batches)))
    outcome = best_outcome(facts, planned)
    heaviest = heaviest_first(facts.batches)
    orders = [
        (model.ScheduleOrder.PLANNED, outcome),
        (model.ScheduleOrder.HEAVIEST, outcome if heaviest == planned else best_outcome(facts, heaviest)),
        (model.ScheduleOrder.SOONEST, soonest(facts)),
    ]
    return model.Schedule(
        problem=None,
        assumptions=tuple(assumptions),
        max_fill=facts.max_fill,
        growth_bytes_per_day=ceil(facts.growth_bytes_per_day),
        every_drain_order=len(facts.subvolumes) <= EVERY_ORDER_UP_TO,
        orders=tuple(model.OrderSchedule(order=order, outcome=_round_days(found)) for order, found in orders),
        what_if=tuple(_what_if(change, facts, planned) for change in model.Change),
        remedies=None if outcome.obstacle is None else remedies(facts, planned),
    )


def changed(facts: model.ScheduleInput, change: model.Change) -> model.ScheduleInput:
    """The facts with one change of circumstances."""
    match change:
        case model.Change.COPY_HALVED:
            return replace(facts, batches=tuple(map(_copied_in_twice_the_time, facts.batches)))
        case model.Change.DRAIN_HALVED:
            return replace(
                facts,
                drain_days_per_byte=2 * facts.drain_days_per_byte,
                drain_days_per_file=2 * facts.drain_days_per_file,
            )
        case model.Change.GROWTH_DOUBLED:
            return replace(facts, growth_bytes_per_day=2 * facts.growth_bytes_per_day)
        case model.Change.BRICKS_NOT_JOINED:
            return replace(facts, bricks_join=False)


def _copied_in_twice_the_time(batch: model.ScheduledBatch) -> model.ScheduledBatch:
    in_drain = batch.copy_days_in_drain
    return replace(batch, copy_days=2 * batch.copy_days, copy_days_in_drain=None if in_drain is None else 2 * in_drain)


def _what_if(change: model.Change, facts: model.ScheduleInput, planned: Sequence[int]) -> model.WhatIf:
    outcome: model.ScheduleOutcome = _round_days(best_outcome(changed(facts, change), planned))
    cleared = [step.cleared_day for step in outcome.subvolumes if step.cleared_day is not None]
    return model.WhatIf(
        change=change,
        done_day=outcome.done_day,
        first_cleared_day=min(cleared, default=None),
        hosts=outcome.hosts,
        obstacle=outcome.obstacle,
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
            "a dispersed volume keeps pieces of files on its bricks: who uses how much of which is not known"
        )
    try:
        sets = subvolumes(state)
    except ValueError as error:
        raise NoSchedule(f"the bricks of the volume are not understood: {error}") from None
    return tuple(_subvolume(number, members, rooms) for number, members in enumerate(sets, start=1))


def _subvolume(number: int, members: Sequence[Brick], rooms: Mapping[str, BrickRoom]) -> model.ScheduledSubvolume:
    found = {brick.name: rooms[brick.name] for brick in members if brick.name in rooms}
    unknown = [name for name in (brick.name for brick in members) if name not in found or _size(found[name]) is None]
    if unknown:
        raise NoSchedule(
            f"the room on {', '.join(unknown)} is not known: see `gluster volume status VOLUME detail`; the volume must be "
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
        old=tuple(
            model.OldFiles(
                user=tree.user, size_bytes=min(_old_bytes(usages[tree.path], reaped.get(tree.path)), need.size_bytes)
            )
            for tree, need in zip(batch.trees, needs, strict=True)
        ),
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


def _old_bytes(usage: TreeUsage, reaped: ReapedTree | None) -> int:
    old = sum(bucket.size_bytes for bucket in usage.by_mtime if bucket.max_age_s is None or bucket.max_age_s > YEAR_S)
    skipped = reaped.allocated_bytes if reaped is not None and reaped.action is ReapAction.SKIP else 0
    return max(old - skipped, 0)


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
