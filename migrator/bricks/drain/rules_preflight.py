"""Preflight checks of a drain, and retained sources on its bricks. An unknown fact is a failed check. Pure."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from msgspec.structs import replace

from migrator.bricks.drain.model_preflight import BrickLoad, DrainFacts, RetainedSource
from migrator.bricks.drain.rules import structure_problems
from migrator.bricks.model import BrickOperation
from migrator.bricks.volume import condition_problems, other_work
from migrator.catalog.model import StrangeFiles, TreeOnBricks
from migrator.core.collected import collected
from migrator.core.paths import show
from migrator.core.units import first_of, format_duration, format_size, several
from migrator.cutover.model import SETTLED_STATES, CutoverRecord, CutoverState
from migrator.gluster.model import Brick, BrickMarks, BrickRoom
from migrator.gluster.rules import subvolumes, version_problems
from migrator.scan.rules import strange_problems

# Retained sources on the bricks, which a drain would move in vain.
#
# A schedule with a purge before a drain relies on it: otherwise the drain takes longer, and may lack the room planned
# for it.


def retained_sources(
    trees: Sequence[TreeOnBricks], newest: Mapping[bytes, CutoverRecord], *, retain_s: float, now_s: float
) -> tuple[RetainedSource, ...]:
    """Return the `trees` on these bricks of users who work on the target, by the newest cutover of each, those with
    most bytes first.
    """
    found = []
    for tree in trees:
        record = newest.get(tree.tree)
        if record is None or record.state not in SETTLED_STATES or record.state is CutoverState.PURGED:
            continue
        due_at_s = record.times.get(CutoverState.THAWED, record.since_s) + retain_s
        found.append(
            RetainedSource(
                tree=tree.tree,
                user=record.tree.user,
                plan=record.plan,
                files=tree.files,
                size_bytes=tree.size_bytes,
                due_in_s=max(due_at_s - now_s, 0.0),
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.size_bytes, one.tree)))


def retained_problems(sources: Sequence[RetainedSource], *, accepted: bool) -> Iterator[str]:
    """Return why a drain should wait for a purge."""
    if sources and not accepted:
        later_s = max(one.due_in_s for one in sources)
        due = f", in {format_duration(later_s)} when [cutover] retain is over" if later_s > 0 else ""
        yield (
            f"{describe_retained(sources)}: purge them{due} ({' and '.join(purge_commands(sources))}, then with --confirm), or "
            "drain them in vain with --accept-retained"
        )


def describe_retained(sources: Sequence[RetainedSource]) -> str:
    """Describe whose sources are there, and how large they are."""
    files, size_bytes = sum(one.files for one in sources), sum(one.size_bytes for one in sources)
    users = list(dict.fromkeys(one.user for one in sources))
    return (
        f"{several(files, 'file')} ({format_size(size_bytes)}) of {several(len(users), 'user')} who work on the target still lie "
        f"on the bricks ({first_of(users)})"
    )


def purge_commands(sources: Sequence[RetainedSource]) -> tuple[str, ...]:
    """Return the commands that show how to purge them, for each plan that they were cut over by."""
    users: dict[str, list[str]] = {}
    for one in sources:
        own = users.setdefault(one.plan, [])
        if one.user not in own:
            own.append(one.user)
    return tuple(
        f"`migrator purge --plan {shlex.quote(plan)} {' '.join(f'--user {shlex.quote(user)}' for user in own)} --dry-run`"
        for plan, own in users.items()
    )


# The checks.
#
# A drain takes days and slows down all users, and one that runs out of room leaves work for admins. So every known
# cause of a failure is checked before it.


_MARGIN_SHARE = 0.05
"""Share of the moved bytes to reserve: users continue to write, and directories and link-to files take room too."""

_SIZES = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40, "PB": 1 << 50, "B": 1}
"""Units in Gluster's options: powers of 1,024."""


def failure_causes(facts: DrainFacts) -> tuple[str, ...]:
    """Return possible causes of a failed drain: bricks, hosts, heals, and too little room for the files."""
    room = () if structure_problems(facts.state, facts.bricks) else _room(facts)
    return (*condition_problems(facts.state), *room)


@collected
def drain_problems(facts: DrainFacts) -> Iterator[str]:
    """Return all failed preflight checks, each with its remedy; empty if the drain may begin."""
    state = facts.state
    structure = structure_problems(state, facts.bricks)
    yield from structure
    yield from condition_problems(state)
    if not structure:
        yield from _room(facts)
    yield from other_work([one for one in facts.tasks if one.id != facts.task_of_record], facts.drains_elsewhere)
    yield from version_problems(facts.versions, {brick.host for brick in state.bricks})
    # The largest file, the linked symlinks and the retained sources are those at the time of the scan.
    if not facts.scanned:
        yield "the content of the bricks is unknown: run `migrator scan --via bricks`"
    elif facts.catalog_is_old:
        yield (
            "a drain or an addition has moved files between bricks since their newest scan, so their content is unknown: run "
            "`migrator scan --via bricks`"
        )
    yield from _open_files(facts)
    yield from _linked_symlinks(facts.linked_symlinks)
    yield from _marked(facts.marks)
    marked = {one.brick for one in facts.marks or () if one.strange}
    yield from strange_problems([one for one in facts.strange if one.brick not in marked])
    yield from retained_problems(facts.retained, accepted=facts.retained_accepted)


def catalog_is_old(
    scanned_at_s: float, operations: Sequence[BrickOperation[Any, Any]], *, bricks: Sequence[str]
) -> bool:
    """Return whether a scan that began at that time is older than the last drain or addition that moved files to these
    bricks, or away from them.
    """
    return any(scanned_at_s < at_s for one in operations for at_s in one.moved_at_s(bricks))


def _room(facts: DrainFacts) -> Iterator[str]:
    """Gluster places a file by its name and not by room. Every brick must have room for its share, and for the largest
    file.
    """
    rooms, load, min_free_disk = facts.rooms, facts.load, facts.min_free_disk
    if rooms is None or min_free_disk is None or load is None:
        if facts.scanned:
            yield "the room on the bricks is unknown: see `gluster volume status VOLUME detail`"
        return
    leaving = set(facts.bricks)
    staying = [members for members in subvolumes(facts.state) if not leaving & {brick.name for brick in members}]
    sizes = [min((_total(rooms, brick) for brick in members if not brick.arbiter), default=0) for members in staying]
    disks = Counter(_disk(rooms, brick) for members in staying for brick in members)
    for members, size_bytes in zip(staying, sizes, strict=True):
        # Gluster weights layouts by size if the volume is set so, and evenly otherwise. The greater share counts.
        by_size = size_bytes / sum(sizes) if all(sizes) else 0.0
        weight = max(1 / len(staying), by_size) * (1 + _MARGIN_SHARE)
        need = BrickLoad(
            files=ceil(load.files * weight),
            allocated_bytes=ceil(load.allocated_bytes * weight),
            largest_bytes=load.largest_bytes,
        )
        for brick in members:
            room = rooms.get(brick.name)
            if room is not None and room.free_bytes is not None and (count := disks[_disk(rooms, brick)]) > 1:
                # Bricks on one disk share its room.
                room = replace(room, free_bytes=room.free_bytes // count)
            yield from _room_on(brick, room, min_free_disk, need)


def _disk(rooms: Mapping[str, BrickRoom], brick: Brick) -> tuple[str, str]:
    """Return the file system of a brick: its host and device, or the brick's own name if that is unknown."""
    room = rooms.get(brick.name)
    return brick.host, brick.name if room is None or room.device is None else room.device


def _total(rooms: Mapping[str, BrickRoom], brick: Brick) -> int:
    room = rooms.get(brick.name)
    return 0 if room is None or room.total_bytes is None else room.total_bytes


def _room_on(brick: Brick, room: BrickRoom | None, min_free_disk: str, need: BrickLoad) -> Iterator[str]:
    if room is None or room.free_bytes is None or room.total_bytes is None or room.free_inodes is None:
        yield f"the room on {brick.name} is unknown"
        return
    kept_bytes = _kept(min_free_disk, room.total_bytes)
    if kept_bytes is None:
        yield f"cluster.min-free-disk is {min_free_disk!r}, which is not understood"
        return
    usable = room.free_bytes - kept_bytes
    # An arbiter holds names without content.
    if not brick.arbiter and need.allocated_bytes + need.largest_bytes > usable:
        yield (
            f"{brick.name} has {format_size(max(usable, 0))} beyond cluster.min-free-disk ({min_free_disk}), and needs "
            f"{format_size(need.allocated_bytes)} for its share and {format_size(need.largest_bytes)} for the largest file"
        )
    if need.files > room.free_inodes:
        yield f"{brick.name} has {several(room.free_inodes, 'free inode')}, and needs {need.files:,} for its share"


def _kept(option: str, total_bytes: int) -> int | None:
    """Return the bytes that Gluster keeps free on a brick, set as a percentage or a size; None if the
    option is neither.
    """
    text = option.strip().upper()
    try:
        if text.endswith("%"):
            share = float(text[:-1]) / 100.0
            return round(total_bytes * share) if 0.0 <= share <= 1.0 else None
        for unit, factor in _SIZES.items():
            if text.endswith(unit):
                return _not_negative(round(float(text.removesuffix(unit)) * factor))
        return _not_negative(round(float(text)))
    except (ValueError, OverflowError):
        return None


def _not_negative(size_bytes: int) -> int | None:
    return size_bytes if size_bytes >= 0 else None


def _open_files(facts: DrainFacts) -> Iterator[str]:
    if facts.open_files_accepted:
        return
    if facts.open_files is None:
        yield "the number of open files on the bricks is unknown: see `gluster volume status VOLUME fd`, or pass --accept-open-files"
    elif facts.open_files:
        yield (
            f"{several(facts.open_files, 'file is', 'files are')} open on the bricks: wait until few users work, or pass "
            "--accept-open-files"
        )


def _linked_symlinks(paths: Sequence[bytes]) -> Iterator[str]:
    if paths:
        yield (
            f"{several(len(paths), 'symlink')} with several names cannot be moved, and would make the drain fail: "
            f"{first_of(list(map(show, paths)))}. Give each name a symlink of its own (`cp -P`, then `mv`)"
        )


def _marked(marks: Sequence[BrickMarks] | None) -> Iterator[str]:
    """Gluster mistakes such a mark for one that it has just set, and tries to link the file at the mark's target.
    Nothing is there to link (ESTALE in its log), and the file counts as a failure (dht-rebalance.c,
    gf_defrag_handle_hardlink).
    """
    if marks is None:
        yield "marks of an earlier drain on hard-linked files are unknown: a brick cannot be read on its host"
    for one in marks or ():
        if one.unseen:
            yield f"{several(one.unseen, 'entry', 'entries')} of {one.brick} cannot be read for marks of an earlier drain"
        if one.strange:
            yield from strange_problems((StrangeFiles(brick=one.brick, files=one.strange, paths=one.strange_examples),))
        if one.files:
            host, _, path = one.brick.partition(":")
            yield (
                f"{several(one.files, 'hard-linked file')} of {one.brick} {'carries' if one.files == 1 else 'carry'} the mark of an "
                f"earlier drain, and would make this one fail: {first_of(list(map(show, one.examples)), 3, of=one.files)}. "
                f"While nothing moves files, take the marks off on {host}: {unmark_command(path)}"
            )


def unmark_command(path: str) -> str:
    """Return the command that removes the marks of hard-linked data files on a brick. It skips link-to files (mode
    1000) and files that are being moved (set-group-ID and sticky). The second name of a file has no mark any more,
    which setfattr reports as an error.
    """
    files = f"find {shlex.quote(path)} -xdev -name .glusterfs -prune -o -type f -links +2 ! -perm 1000 ! -perm -3000"
    return f"`{files} -exec setfattr -h -x trusted.glusterfs.dht.linkto {{}} + 2>/dev/null`"
