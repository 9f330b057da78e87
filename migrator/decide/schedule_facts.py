"""What the conversion schedule is computed from, out of a catalog, the plan's batches and a look at the volume. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from migrator.decide.drain_copying import SlowerInDrains
from migrator.decide.storage_room import best_pool, low_limit, there
from migrator.decide.subvolumes import subvolumes
from migrator.domain.brick import Brick, VolumeState
from migrator.domain.brick_list import BrickRoom
from migrator.domain.cutover import CutoverRecord, CutoverState
from migrator.domain.plan import Batch, TransferCost, TreeUsage
from migrator.domain.reap import ReapAction, ReapedTree
from migrator.domain.schedule_facts import (
    BatchFacts,
    KeptFacts,
    OldFiles,
    Placed,
    StorageParts,
    SubvolumeFacts,
    TargetPart,
    TreeOnBrick,
)
from migrator.domain.site import Need
from migrator.domain.storage_targets import StorageSeen, TargetKind
from migrator.domain.units import DAY_S, YEAR_S

HANDOVER_DAYS = 1.0
"""From a cleared brick to a storage target: a file system is made anew, and somebody has to be there."""


class NoSchedule(Exception):
    """Why there can be no schedule, as a sentence. It is no failure: the plan is made without."""


def volume_facts(state: VolumeState, rooms: Mapping[str, BrickRoom]) -> tuple[SubvolumeFacts, ...]:
    """The subvolumes with their room. Raises NoSchedule where bricks are not what users have on them, or room is not told."""
    if state.disperse_count > 1:
        raise NoSchedule(
            "a dispersed volume keeps pieces of files on its bricks: who uses how much of which is not known"
        )
    try:
        sets = subvolumes(state)
    except ValueError as error:
        raise NoSchedule(f"the bricks of the volume are not understood: {error}") from None
    return tuple(_subvolume(number, members, rooms) for number, members in enumerate(sets, start=1))


def _subvolume(number: int, members: Sequence[Brick], rooms: Mapping[str, BrickRoom]) -> SubvolumeFacts:
    found = {brick.name: rooms[brick.name] for brick in members if brick.name in rooms}
    unknown = [name for name in (brick.name for brick in members) if name not in found or _size(found[name]) is None]
    if unknown:
        raise NoSchedule(
            f"the room on {', '.join(unknown)} is not known: see `gluster volume status VOLUME detail`; the volume must be "
            "started, and glusterd must run on all hosts"
        )
    # An arbiter has names without content, and room for no more.
    data = [found[brick.name] for brick in members if not brick.arbiter]
    tightest = min(data, key=lambda room: room.free_bytes or 0)
    inodes = [room.free_inodes for room in found.values() if room.free_inodes is not None]
    return SubvolumeFacts(
        number=number,
        bricks=tuple(brick.name for brick in members),
        hosts=tuple(dict.fromkeys(brick.host for brick in members)),
        total_bytes=tightest.total_bytes or 0,
        free_bytes=tightest.free_bytes or 0,
        free_inodes=min(inodes, default=None),
        added_bytes=sum(room.total_bytes or 0 for room in found.values()),
    )


def _size(room: BrickRoom) -> int | None:
    return None if room.free_bytes is None else room.total_bytes


class Placement:
    """Who has what on which subvolume. What was on bricks that are not in the volume any more lies it is not known where."""

    def __init__(self, sets: Sequence[SubvolumeFacts], uses: Iterable[TreeOnBrick]) -> None:
        self._count = len(sets)
        place_of = {brick: place for place, one in enumerate(sets) for brick in one.bricks}
        self._of_tree: dict[bytes | None, list[tuple[int, TreeOnBrick]]] = {}
        for use in uses:
            place = self._count if use.brick is None else place_of.get(use.brick, self._count)
            self._of_tree.setdefault(use.tree, []).append((place, use))

    def of(self, trees: Iterable[bytes | None]) -> Placed:
        """What these trees have together; None is what lies outside every tree."""
        size_bytes, files = [0] * (self._count + 1), [0] * (self._count + 1)
        for tree in trees:
            for place, use in self._of_tree.get(tree, ()):
                size_bytes[place] += use.allocated_bytes
                files[place] += use.files
        return Placed(
            size_bytes=tuple(size_bytes[:-1]),
            files=tuple(files[:-1]),
            unplaced_bytes=size_bytes[-1],
            unplaced_files=files[-1],
        )


def batch_facts(
    batch: Batch,
    usages: Mapping[bytes, TreeUsage],
    placement: Placement,
    *,
    arrived: Mapping[bytes, Need],
    reaped: Mapping[bytes, ReapedTree],
    archived_s: float,
    cost: TransferCost,
    slower: SlowerInDrains,
) -> BatchFacts:
    """One batch. `arrived` is what earlier plans brought of its trees, `archived_s` how long its archives take. What it is
    forecast to take is by `cost`; while a drain moves files it is `slower`.
    """
    copy_days = (batch.forecast_s + archived_s) / DAY_S
    needs = [_need(usages[tree.path], arrived.get(tree.path), reaped.get(tree.path)) for tree in batch.trees]
    return BatchFacts(
        number=batch.number,
        placed=placement.of(tree.path for tree in batch.trees),
        target_bytes=sum(need.size_bytes for need in needs),
        target_inodes=sum(need.inodes for need in needs),
        copy_days=copy_days,
        copy_days_in_drain=slower.days_in_drain(copy_days, files=batch.files, size_bytes=batch.size_bytes, cost=cost),
        old=tuple(
            OldFiles(
                user=tree.user,
                size_bytes=min(_old_bytes(usages[tree.path], reaped.get(tree.path)), need.size_bytes),
            )
            for tree, need in zip(batch.trees, needs, strict=True)
        ),
    )


def _need(usage: TreeUsage, arrived: Need | None, reaped: ReapedTree | None) -> Need:
    """What a tree takes of the target: archives too, uncompressed; what is skipped takes nothing."""
    size_bytes = usage.allocated_bytes
    # The root of the tree is a directory too.
    inodes = usage.files + usage.directories + 1
    if reaped is not None and reaped.action is not ReapAction.LIST:
        inodes -= reaped.inodes
        size_bytes -= reaped.allocated_bytes if reaped.action is ReapAction.SKIP else 0
    if arrived is not None:
        size_bytes -= arrived.size_bytes
        inodes -= arrived.inodes
    return Need(size_bytes=max(size_bytes, 0), inodes=max(inodes, 0))


def _old_bytes(usage: TreeUsage, reaped: ReapedTree | None) -> int:
    old = sum(bucket.size_bytes for bucket in usage.by_mtime if bucket.max_age_s is None or bucket.max_age_s > YEAR_S)
    skipped = reaped.allocated_bytes if reaped is not None and reaped.action is ReapAction.SKIP else 0
    return max(old - skipped, 0)


def storage_parts(seen: StorageSeen | None) -> StorageParts | None:
    """The storage targets that user trees get theirs from, but for those that are not online; None where the room of any is
    not known.
    """
    if seen is None:
        return None
    storage = [
        one for one in seen.targets if one.kind is TargetKind.STORAGE and seen.storage_pool in (None, one.storage_pool)
    ]
    found, taking = there(storage), best_pool(storage)
    parts = tuple(
        TargetPart(total_bytes=one.total_bytes, free_bytes=one.free_bytes, takes_new=one in taking)
        for one in found
        if one.total_bytes is not None and one.free_bytes is not None
    )
    return StorageParts(parts=parts, low_bytes=low_limit(storage)) if parts and len(parts) == len(found) else None


def kept_facts(
    records: Mapping[bytes, CutoverRecord], placement: Placement, *, now_s: float, retain_s: float
) -> tuple[KeptFacts, ...]:
    """The sources of users who work on the target, that are not purged yet."""
    found = []
    for tree, record in sorted(records.items()):
        if record.state is CutoverState.PURGED:
            continue
        since_s = record.times.get(CutoverState.THAWED, now_s)
        due_day = max(since_s + retain_s - now_s, 0.0) / DAY_S
        found.append(KeptFacts(placed=placement.of([tree]), freed_day=due_day))
    return tuple(found)
