"""Preflight checks of an addition, and of the places of new bricks. An unknown fact is a failed check. Pure."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from migrator.bricks.add.model import AdditionRecord, AdditionSide, AdditionSnapshot, AdditionState, Wish
from migrator.bricks.volume import condition_problems, halt_until, host_of, other_work, path_of
from migrator.core.units import format_size, several
from migrator.gluster.model import Brick, DiskFacts, NewPlace, VolumeState
from migrator.gluster.rules import disk_problems, is_on, subvolumes, version_problems
from migrator.operations.model import Halt
from migrator.scan.rules import strange_problems

# Messages about additions.


def against(record: AdditionRecord, problems: Sequence[str]) -> Halt:
    """Halt with the preflight checks that failed."""
    words = f"Cannot add {record.shown_bricks}: {several(len(problems), 'preflight check')} failed"
    return halt_until(words, "fix these problems", reasons=tuple(problems))


def describe_end(record: AdditionRecord) -> str:
    """Describe the result."""
    if record.state is AdditionState.FORGOTTEN:
        return f"the addition of {record.shown_bricks} was a mistake and is forgotten"
    if record.side is AdditionSide.TARGET:
        return f"{record.shown_bricks} is part of the target, which shows the new capacity"
    if record.state is AdditionState.TAKEN_BACK:
        return f"{record.shown_bricks} serves its old content again, and is healed"
    if record.in_place:
        return (
            f"{record.shown_bricks} is in volume {record.volume} on its new file system, and healed (with --once-more its disk "
            "is exchanged again)"
        )
    if record.instead_of is not None:
        return f"{record.shown_bricks} has replaced {record.instead_of} in volume {record.volume}, and is healed"
    return f"{record.shown_bricks} is in volume {record.volume}, and directories take new files there"


def _unmarking(place: NewPlace) -> str:
    """Return the command that removes Gluster's marks from an empty brick."""
    quoted = shlex.quote(path_of(place.name))
    commands = []
    if place.volume_id:
        commands.append(f"setfattr -x trusted.glusterfs.volume-id {quoted}")
    if place.gfid:
        commands.append(f"setfattr -x trusted.gfid {quoted}")
    if place.has_gluster_directory:
        commands.append(f"rm -rf -- {quoted}/.glusterfs")
    shown = " && ".join(commands)
    return f"on {host_of(place.name)}, `{shown}` takes them off; a new file system does too"


# The places of new bricks, and whether Gluster may have them.


SMALLEST_SHARE = 0.8
"""Share of the smallest other brick. Gluster places files by their names, so the smallest brick is full first."""


def place_problems(record: AdditionRecord, snapshot: AdditionSnapshot, wish: Wish) -> Iterator[str]:
    """Yield the problems of the places of the new bricks."""
    for place in map(snapshot.place, record.bricks):
        if place.unread:
            yield f"the content of {place.name} is unknown: {place.unread}"
            continue
        yield from _place(place, record, snapshot)
        if not wish.accept_unlike:
            yield from _unlike(place, record, snapshot)
    mounts = Counter((host_of(name), place.mount) for name, place in snapshot.places.items() if place.own)
    for (host, mount), count in mounts.items():
        if count > 1:
            yield f"{count} of the new bricks are on one file system ({host}:{mount})"


def _place(place: NewPlace, record: AdditionRecord, snapshot: AdditionSnapshot) -> Iterator[str]:
    path = path_of(place.name)
    if not place.own:
        yield (
            f"{place.name} is on the file system of {place.mount or '/'}, and not on one of its own: mount the brick's file "
            "system first, or the root partition is filled"
        )
        return
    if place.mount == path:
        yield f"{place.name} is a mount point: name a directory in it ({path}/brick), so that an unmounted brick is noticed"
        return
    if place.served_by:
        yield f"a brick process serves {place.name} (pid {place.served_by[0]}): it belongs to a volume"
        return
    if record.in_place:
        yield from _own_place(place, record)
        return
    if place.entries:
        stale = " of an old brick" if place.stale else ""
        yield (
            f"{place.name} is not empty: it holds what is left{stale} ({', '.join(place.entries[:3])}). Taking marks off is "
            "not enough then: directories would be listed twice. Check that no one needs it, and make a new file system"
        )
        return
    if place.others:
        yield f"the file system of {place.name} has other entries: {', '.join(place.others[:3])}"
    if place.stale:
        yield from _stale(place, snapshot)


def _own_place(place: NewPlace, record: AdditionRecord) -> Iterator[str]:
    """Check the brick's own former place. It must hold nothing of the brick, except what an interrupted commit wrote to
    the new file system.
    """
    if place.entries or place.marked_above:
        known = [name for name in place.entries if not name.startswith(".glusterfs")]
        shown = ", ".join((known or [*place.entries, *place.marked_above])[:3])
        yield (
            f"{place.name} still holds the brick ({shown}): unmount it on "
            f"{host_of(place.name)}, exchange its disk, make a new file system, and mount that at {place.mount}"
        )
        return
    if place.others:
        yield f"the file system of {place.name} has other entries: {', '.join(place.others[:3])}"
    if not place.filesystem_id:
        yield f"the file system at {place.mount} on {host_of(place.name)} has no id of its own: use XFS"
    elif place.stale and not begun_to_put_in(record, place):
        yield f"{place.name} carries the marks of the brick, and holds no file: {_unmarking(place)}"


def begun_to_put_in(record: AdditionRecord, place: NewPlace) -> bool:
    """Return whether an in-place replacement has its new file system there, marked by a commit that was interrupted."""
    own = place.volume_id == record.volume_id.replace("-", "")
    is_new = bool(place.filesystem_id) and place.filesystem_id == record.notes.filesystem_id
    return record.state is AdditionState.ADDING and own and is_new and not place.entries


def _stale(place: NewPlace, snapshot: AdditionSnapshot) -> Iterator[str]:
    """Give the command only if no volume has the brick."""
    if snapshot.owners is None or place.name in snapshot.owners:
        yield f"{place.name} carries the marks of a brick, and its volume is unknown"
    elif place.marked_above:
        yield (
            f"directories above {place.name} carry the marks of a brick: {', '.join(place.marked_above)}; Gluster refuses it. "
            "Make a new file system"
        )
    else:
        yield (
            f"{place.name} was a brick, and carries its marks. No volume of this pool has it, no process serves it, and it "
            f"holds no file: {_unmarking(place)}"
        )


def _unlike(place: NewPlace, record: AdditionRecord, snapshot: AdditionSnapshot) -> Iterator[str]:
    if snapshot.rooms is None:
        yield "the sizes of the other bricks are unknown: see `gluster volume status VOLUME detail`, or accept that with --accept-unlike"
        return
    arbiters = {brick.name for brick in snapshot.state.bricks if brick.arbiter}
    left_out = {*arbiters, *record.bricks, record.instead_of}
    rooms = [room for name, room in snapshot.rooms.items() if name not in left_out]
    kinds = {room.filesystem for room in rooms if room.filesystem}
    if kinds and place.filesystem not in kinds:
        yield f"{place.name} is {place.filesystem}, and the other bricks are {', '.join(sorted(kinds))}: accept that with --accept-unlike"
    sizes = [room.total_bytes for room in rooms if room.total_bytes]
    if not sizes or place.total_bytes is None:
        yield f"the size of {place.name}, or of the other bricks, is unknown: accept that with --accept-unlike"
    elif place.total_bytes < SMALLEST_SHARE * min(sizes) and not _arbiter(place.name, record, snapshot.state):
        yield (
            f"{place.name} has {format_size(place.total_bytes)}, and the smallest of the others {format_size(min(sizes))}: it "
            "would be full first; accept that with --accept-unlike"
        )


def _arbiter(name: str, record: AdditionRecord, state: VolumeState) -> bool:
    """Return whether a new brick will hold names only: the last of a set, if the volume has arbiters."""
    if not any(brick.arbiter for brick in state.bricks):
        return False
    if record.instead_of is not None:
        return any(brick.arbiter for brick in state.bricks if brick.name == record.instead_of)
    return record.bricks.index(name) % state.replica_count == state.replica_count - 1


# Preflight checks before bricks are added.


_TWO = 2
"""Number of copies for which Gluster sets no quorum by default."""


def health_problems(record: AdditionRecord, snapshot: AdditionSnapshot) -> Iterator[str]:
    """Yield the reasons why the volume is not healthy, and the tasks that move files."""
    yield from condition_problems(snapshot.state, instead_of=record.instead_of)
    yield from other_work(snapshot.tasks, snapshot.drains, snapshot.additions)


def before_problems(record: AdditionRecord, snapshot: AdditionSnapshot, wish: Wish) -> Iterator[str]:
    """Yield the reasons why these bricks do not make whole sets that the volume can take."""
    yield from _sets(record, snapshot.state)
    yield from _foreign(record, snapshot)
    if wish.rebalance:
        hosts = {brick.host for brick in snapshot.state.bricks} | {host_of(name) for name in record.bricks}
        yield from version_problems(snapshot.versions, hosts, otherwise="; --no-rebalance moves no file")
    yield from strange_problems(snapshot.strange or ())


def _sets(record: AdditionRecord, state: VolumeState) -> Iterator[str]:
    if state.stripe_count > 1 or dict(state.options).get("features.shard") in ("on", "enable", "1", "true", "yes"):
        yield "the volume is striped or sharded: a rebalance of it has lost data, and this program does not begin one"
    copies, pieces = max(state.replica_count, 1), max(state.disperse_count, 1)
    size, count = copies * pieces, len(record.bricks)
    if count % size:
        kind = "disperse" if pieces > 1 else "replica"
        yield f"the volume grows by whole {kind} sets of {size} bricks, and {count} were named"
        return
    for start in range(0, count, size):
        members = record.bricks[start : start + size]
        hosts = Counter(host_of(name) for name in members)
        for host, number in hosts.items():
            if size > 1 and number > 1:
                yield (
                    f"{number} bricks of one set are on {host}: the set is lost with that host; name the bricks so that those "
                    f"of a set follow each other and are on {size} hosts"
                )
    yield from _hosts_known(record, state)


def _hosts_known(record: AdditionRecord, state: VolumeState) -> Iterator[str]:
    for name in record.bricks:
        if host_of(name) in (state.peers_down or ()):
            yield f"host {host_of(name)} of the new brick is not connected"


def swap_problems(record: AdditionRecord, snapshot: AdditionSnapshot) -> Iterator[str]:
    """Yield the failed checks of replacing one brick by another."""
    yield from _foreign(record, snapshot)
    state = snapshot.state
    old = record.instead_of
    names = [brick.name for brick in state.bricks]
    if old not in names:
        yield f"volume {state.volume} has no brick {old}"
        return
    if len(record.bricks) != 1:
        yield f"{several(len(record.bricks), 'brick')} cannot take the place of one"
    if state.disperse_count > 1:
        yield "the volume is dispersed: exchange the brick by hand, this program does not judge whether its set is whole"
        return
    if state.replica_count < 2:
        would = "take it offline" if record.in_place else "exchange it for an empty one"
        yield (
            f"{old} has the only copy of its files: Gluster would {would}. Add the new brick, then drain "
            f"the old one (`migrator brick drain {old}`)"
        )
        return
    members = next(members for members in subvolumes(state) if old in {brick.name for brick in members})
    whole = [brick for brick in members if brick.name != old and not brick.arbiter and brick.online]
    if not whole:
        yield f"no other copy of {old} is up: there is nothing to fill the new brick from"
    if record.in_place:
        yield from _without(old, state, members, snapshot)
        return
    for name in record.bricks:
        if any(brick.host == host_of(name) for brick in members if brick.name != old):
            yield f"another brick of the same set is on {host_of(name)}: the set would be lost with that host"
    yield from _hosts_known(record, state)


def _without(away: str, state: VolumeState, members: Sequence[Brick], snapshot: AdditionSnapshot) -> Iterator[str]:
    """Yield the reasons why a set cannot be without one of its bricks for a while, or cannot fill it again."""
    place = snapshot.place(away)
    if any(brick.name == away and brick.online for brick in members) and place.unread:
        yield f"the content of {away} is unknown: {place.unread}"
    if place.own and place.mount == path_of(away):
        yield (
            f"{away} is a mount point itself, which Gluster takes into its own place by force alone: add a brick in a directory "
            f"of another file system with `--instead-of {away}`"
        )
    options = dict(state.options)
    up = [brick for brick in members if brick.name != away and brick.online]
    if not has_quorum(members, up, options):
        yield f"while {away} is away users could not write to its set: it has no quorum (cluster.quorum-type) without it"
    if is_on(options, "cluster.self-heal-daemon", default=True) is not True:
        yield "cluster.self-heal-daemon is not on: nothing would fill the new file system"
    if snapshot.blamed is None:
        yield f"the pending heals of the other copies of {away} are unknown: their hosts do not report them (see `migrator doctor`)"
        return
    for name, entries in sorted(snapshot.blamed.items()):
        if name != away and entries:
            yield (
                f"{several(entries, 'entry', 'entries')} or more have pending heals on {name}: {away} may have their only good "
                "copy. Wait until they are healed"
            )


def has_quorum(members: Sequence[Brick], up: Sequence[Brick], options: Mapping[str, str]) -> bool:
    """Return whether users can write to a set of copies while only these bricks are up, by the volume's options or
    Gluster's defaults.
    """
    kind = options.get("cluster.quorum-type", "auto" if len(members) > _TWO else "none")
    if kind == "fixed":
        count = options.get("cluster.quorum-count", "")
        return count.isdigit() and len(up) >= int(count)
    if kind != "auto":
        return bool(up)
    # Half of an even number is enough if it includes the first brick.
    return 2 * len(up) > len(members) or (2 * len(up) == len(members) and members[0] in up)


def _foreign(record: AdditionRecord, snapshot: AdditionSnapshot) -> Iterator[str]:
    if snapshot.owners is None:
        yield "the volumes of the bricks of this pool are unknown: see `gluster volume info`"
    for name in record.bricks:
        owner = (snapshot.owners or {}).get(name)
        if owner is not None and record.instead_of != name:
            yield f"{name} is a brick of volume {owner}"
    for name, count in Counter(record.bricks).items():
        if count > 1:
            yield f"{name} is named {count} times"


def disks_to_check(disks: Mapping[str, DiskFacts], *, prepared: bool) -> Mapping[str, DiskFacts]:
    """Return the disks that may hold something: unless `prepared`, hooks have yet to mount file systems."""
    return {name: disk for name, disk in disks.items() if prepared or disk.mount or disk.unread}


def target_problems(record: AdditionRecord, snapshot: AdditionSnapshot, *, prepared: bool) -> Iterator[str]:
    """Yield the reasons not to give bricks to the target, with `prepared` also that a file system is not mounted: the
    `pre-add` hooks make and mount it.
    """
    if record.instead_of is not None:
        yield "--instead-of is for bricks of the source"
    yield from _foreign(record, snapshot)
    for place in map(snapshot.place, record.bricks):
        if place.served_by:
            yield f"a brick process serves {place.name} still (pid {place.served_by[0]})"
    if record.state is not AdditionState.HANDING:
        # A hook may have unmounted it, or written to it, before.
        yield from disk_problems(disks_to_check(snapshot.disks, prepared=prepared))
    yield from other_work(additions=snapshot.additions)
    before = record.notes.room_before or snapshot.target
    if before is None or (before.total_bytes is None and before.storage_targets is None):
        yield "the size of the target is unknown: see `migrator doctor`"
