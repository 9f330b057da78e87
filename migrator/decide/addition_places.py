"""What lies where new bricks are to be: whether Gluster may have it, as sentences. Pure. What is not known speaks against it."""

from collections import Counter
from collections.abc import Iterator, Mapping

from migrator.decide.addition_words import host_of, path_of, removal_commands
from migrator.domain.addition import AdditionRecord, AdditionState
from migrator.domain.addition_seen import AdditionSeen, NewPlace, Wish
from migrator.domain.brick import VolumeState
from migrator.domain.brick_list import BrickRoom
from migrator.domain.units import format_size

SMALLEST_SHARE = 0.8
"""Of the smallest of the others: Gluster places files by their names, and the smallest brick is full first."""


def place_problems(record: AdditionRecord, seen: AdditionSeen, wish: Wish) -> tuple[str, ...]:
    """What speaks against what lies where the bricks are to be."""
    return tuple(_places(record, seen, wish))


def _places(record: AdditionRecord, seen: AdditionSeen, wish: Wish) -> Iterator[str]:
    if seen.places is None:
        yield "what lies where the bricks are to be is not known"
        return
    for name in record.bricks:
        place = seen.places.get(name)
        if place is None or place.unread:
            yield f"what lies at {name} is not known: {'it was not looked at' if place is None else place.unread}"
            continue
        yield from _place(place, record, seen)
        if not wish.accept_unlike:
            yield from _unlike(place, record, seen)
    mounts = Counter((host_of(name), place.mount) for name, place in seen.places.items() if place.own)
    for (host, mount), count in mounts.items():
        if count > 1:
            yield f"{count} of the new bricks lie on one file system ({host}:{mount})"
    if not wish.accept_unlike:
        yield from _unequal(record, seen)


def _place(place: NewPlace, record: AdditionRecord, seen: AdditionSeen) -> Iterator[str]:
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
            "not enough then: directories would be listed twice. Look whether anybody needs it, and make a new file system"
        )
        return
    if place.others:
        yield f"other things lie on the same file system as {place.name}: {', '.join(place.others[:3])}"
    if place.stale:
        yield from _stale(place, path, seen)


def _own_place(place: NewPlace, record: AdditionRecord) -> Iterator[str]:
    """Where the brick itself was: nothing of it may be left, but for what an interrupted commit has put on the new file system."""
    if place.entries or place.marked_above:
        known = [name for name in place.entries if not name.startswith(".glusterfs")]
        shown = ", ".join((known or [*place.entries, *place.marked_above])[:3])
        yield (
            f"{place.name} still holds the brick ({shown}): unmount it on "
            f"{host_of(place.name)}, exchange its disk, make a new file system, and mount that at {place.mount}"
        )
        return
    if place.others:
        yield f"other things lie on the same file system as {place.name}: {', '.join(place.others[:3])}"
    if not place.filesystem_id:
        yield f"which file system is mounted at {place.mount} on {host_of(place.name)} cannot be told from others: XFS can"
    elif place.stale and not begun_to_put_in(record, place):
        yield (
            f"{place.name} carries the marks of the brick, and holds no file: on {host_of(place.name)}, "
            f"`{_removal(place, path_of(place.name))}` takes them off; a new file system does too"
        )


def begun_to_put_in(record: AdditionRecord, place: NewPlace) -> bool:
    """Whether what lies where a brick takes its own place is the new file system, marked by a commit that did not come to its end."""
    own = place.volume_id == record.volume_id.replace("-", "")
    is_new = bool(place.filesystem_id) and place.filesystem_id == record.notes.filesystem_id
    return record.state is AdditionState.ADDING and own and is_new and not place.entries


def _removal(place: NewPlace, path: str) -> str:
    return removal_commands(
        path,
        gluster_directory=place.has_gluster_directory,
        volume_id=bool(place.volume_id),
        gfid=bool(place.gfid),
    )


def _stale(place: NewPlace, path: str, seen: AdditionSeen) -> Iterator[str]:
    """Marks are told apart by whose they are; the command is told only where nothing has the brick."""
    own = seen.state is not None and place.volume_id == seen.state.volume_id.replace("-", "")
    whose = (
        "of this volume"
        if own
        else "of a volume that this pool may not know"
        if place.volume_id
        else "without a volume"
    )
    if seen.owners is None or place.name in seen.owners:
        yield f"{place.name} carries the marks of a brick, and whether it belongs to a volume is not known"
        return
    if place.marked_above:
        yield (
            f"directories above {place.name} carry the marks of a brick: {', '.join(place.marked_above)}; Gluster refuses it. "
            "Make a new file system"
        )
        return
    yield (
        f"{place.name} was a brick {whose}, and carries its marks. No volume of this pool has it, no process serves it, and it "
        f"holds no file: on {host_of(place.name)}, `{_removal(place, path)}` takes them off; a new file system does too"
    )


def _unlike(place: NewPlace, record: AdditionRecord, seen: AdditionSeen) -> Iterator[str]:
    rooms = _others(record, seen)
    if rooms is None:
        yield "how large the other bricks are is not known: see `gluster volume status VOLUME detail`, or accept it by name"
        return
    kinds = {room.filesystem for room in rooms.values() if room.filesystem}
    if kinds and place.filesystem not in kinds:
        yield f"{place.name} is {place.filesystem}, and the other bricks are {', '.join(sorted(kinds))}: accept it by name"
    sizes = [room.total_bytes for room in rooms.values() if room.total_bytes]
    if not sizes or place.total_bytes is None:
        yield f"whether {place.name} is as large as the other bricks is not known: accept it by name"
    elif place.total_bytes < SMALLEST_SHARE * min(sizes) and not _arbiter(place.name, record, seen.state):
        yield (
            f"{place.name} has {format_size(place.total_bytes)}, and the smallest of the others {format_size(min(sizes))}: it "
            "would be full first; accept it by name"
        )


def _unequal(record: AdditionRecord, seen: AdditionSeen) -> Iterator[str]:
    """The smallest brick of a set decides what the set takes."""
    state = seen.state
    size = 1 if state is None else max(state.replica_count, 1) * max(state.disperse_count, 1)
    if size == 1 or record.instead_of is not None:
        return
    for start in range(0, len(record.bricks), size):
        members = [name for name in record.bricks[start : start + size] if not _arbiter(name, record, state)]
        sizes = [place.total_bytes or 0 for name in members if (place := (seen.places or {}).get(name)) is not None]
        if sizes and min(sizes) < SMALLEST_SHARE * max(sizes):
            shown = f"{format_size(min(sizes))} to {format_size(max(sizes))}"
            yield f"the bricks of one set differ in size ({shown}), and the smallest counts for all: accept it by name"


def _others(record: AdditionRecord, seen: AdditionSeen) -> Mapping[str, BrickRoom] | None:
    if seen.rooms is None or seen.state is None:
        return None
    arbiters = {brick.name for brick in seen.state.bricks if brick.arbiter}
    left_out = {*arbiters, *record.bricks, record.instead_of}
    return {name: room for name, room in seen.rooms.items() if name not in left_out}


def _arbiter(name: str, record: AdditionRecord, state: VolumeState | None) -> bool:
    """Whether a new brick will hold names alone: the last of a set, where the volume has arbiters."""
    if state is None or not any(brick.arbiter for brick in state.bricks):
        return False
    if record.instead_of is not None:
        return any(brick.arbiter for brick in state.bricks if brick.name == record.instead_of)
    return record.bricks.index(name) % state.replica_count == state.replica_count - 1
