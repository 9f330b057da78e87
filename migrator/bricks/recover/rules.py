"""Whether a drain's leftovers may be brought back, and which are proven to be in the volume already. Pure.

In doubt a file is left on the brick.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter

from msgspec.structs import replace

from migrator.bricks.recover import model
from migrator.core.collected import collected
from migrator.core.entry import EntryType
from migrator.core.paths import show
from migrator.core.units import several

MOST_LEFTOVERS = 10_000
"""More leftovers point to a larger fault than single files: too little room, or a lost host."""


def original(name: bytes) -> bytes:
    """Return the name that a leftover belongs to, even while it is set aside."""
    return name.removeprefix(model.ASIDE)


def originals(leftover: model.Leftover) -> tuple[bytes, ...]:
    """Return the names of a leftover for messages, each once."""
    return tuple(dict.fromkeys(original(name) for name in leftover.names))


def name_state(
    leftover: model.Leftover, seen: model.VolumeName | None, *, copy_inode: int | None, in_volume: bool
) -> model.NameState:
    """Return the state of one name. `EQUAL` only says that types and sizes agree. With `in_volume` the brick belongs to
    the volume, so the same gfid means the leftover itself. Otherwise it means another copy. For a link-to file only the
    same gfid counts: with another mode than its own, the volume shows the file on the brick where it was moved to.
    """
    if seen is None:
        return model.NameState.ABSENT
    if copy_inode is not None and seen.inode == copy_inode:
        return model.NameState.COPY
    if not seen.gfid:
        return model.NameState.OTHER
    if leftover.link_to and seen.gfid != leftover.gfid:
        return model.NameState.OTHER
    if seen.gfid == leftover.gfid and (seen.mode == leftover.mode if leftover.link_to else in_volume):
        return model.NameState.ITSELF
    alike = leftover.type is seen.type and (
        leftover.type is not EntryType.FILE or leftover.size_bytes == seen.size_bytes
    )
    return model.NameState.EQUAL if alike else model.NameState.OTHER


@collected
def against(leftover: model.Leftover, states: Mapping[bytes, model.NameState]) -> Iterator[str]:
    """Return why a leftover may not be brought back now; nothing if it may. `states` are those of all its names."""
    if leftover.open:
        yield "it is open, or may be"
    if leftover.link_to:
        yield "it is a link-to file that has content, and is not proven to be a copy of what the volume shows (docs/bricks.md, Recover)"
    if leftover.link_count != len(leftover.names):
        yield f"{leftover.link_count} names lead to it on its brick, and {len(leftover.names)} were found"
    if any(name == model.WORK_DIRECTORY or name.startswith(model.COPIES) for name in leftover.names):
        yield "it lies where copies are made"
    for name in originals(leftover):
        state = states.get(name, model.NameState.OTHER)
        if state is model.NameState.OTHER:
            yield f"the volume has something else at {show(name)}"
        elif state is model.NameState.EQUAL and set(states.values()) != {model.NameState.EQUAL}:
            yield f"{show(name)} is another file in the volume, of the same content, and its other names are not"


def times_of(leftover: model.Leftover, *, own: bool) -> tuple[int, int]:
    """Return the modification and access times, as the mount shows them. `own`: Gluster keeps times itself
    (features.ctime).
    """
    if own and leftover.own_times is not None:
        return leftover.own_times
    return leftover.mtime_ns, leftover.atime_ns


def is_done(states: Mapping[bytes, model.NameState]) -> bool:
    """Return whether every name is in the volume without the leftover."""
    return bool(states) and all(state in (model.NameState.COPY, model.NameState.EQUAL) for state in states.values())


def changed(before: model.Leftover, now: model.Leftover | None, aside: Collection[bytes] = ()) -> str:
    """Return why a leftover has changed; empty if it has not. `aside` are names that were set aside since, which
    changes ctime.
    """
    if now is None:
        return "it is not on its brick any more"
    if now.open:
        return "it was opened"
    if _content(before) != _content(now) or (not aside and before.ctime_ns != now.ctime_ns):
        return "it changed"
    expected = {model.ASIDE + name if name in aside else name for name in originals(before)}
    if set(now.names) != (expected if aside else set(before.names)) or now.link_count != len(now.names):
        return "its names changed, or the volume has it on another brick too"
    return ""


_content = attrgetter(*("inode", "gfid", "type", "size_bytes", "mtime_ns", "mode", "uid", "gid", "target", "xattrs"))

_copied = attrgetter("type", "size_bytes", "mode", "uid", "gid", "target", "xattrs", "digest")
"""The fields that copies must share. Each brick has times of its own."""


def united(found: Sequence[model.BrickLeftovers], arbiters: Collection[str] = ()) -> tuple[model.SetLeftover, ...]:
    """Return every leftover of a set of bricks once, ordered by its names, and read from the first brick that holds
    content. A copy is good if it has no pending heals on any brick of the set, and all copies are equal. A stale copy
    does not show that it is stale.
    """
    data = [one for one in found if one.brick not in arbiters]
    copies: dict[bytes, dict[str, model.Leftover]] = {}
    for brick in found:
        for one in brick.found:
            copies.setdefault(one.gfid or b"\0".join(one.names), {})[brick.brick] = one
    result = []
    for of_bricks in copies.values():
        first = next((of_bricks[brick.brick] for brick in data if brick.brick in of_bricks), None)
        if first is not None:
            reasons = _copies_against(of_bricks, [one.brick for one in found], arbiters) if first.gfid else ()
            result.append(model.SetLeftover(leftover=first, reasons=reasons))
    return tuple(sorted(result, key=lambda one: one.leftover.names))


@collected
def _copies_against(
    copies: Mapping[str, model.Leftover], bricks: Sequence[str], arbiters: Collection[str]
) -> Iterator[str]:
    heal = "see `gluster volume heal VOLUME info`, and heal it"
    if waiting := [brick for brick, one in copies.items() if one.pending]:
        yield f"it waits to be healed, so {waiting[0]} does not say which copy is good: {heal}"
        return
    if missing := [brick for brick in bricks if brick not in copies]:
        yield f"{missing[0]} of the same set does not have it: list its directory through the mount, {heal}"
        return
    if len({one.names for one in copies.values()}) > 1:
        yield f"it has other names on another brick of the set: {heal}"
        return
    first, *others = [_copied(one) for brick, one in copies.items() if brick not in arbiters]
    if any(one != first for one in others):
        yield "its copies on the bricks of the set differ, and nothing says which one is good: people have to decide"


def with_open_elsewhere(found: Sequence[model.BrickLeftovers]) -> tuple[model.BrickLeftovers, ...]:
    """Mark a file that is open on one copy of a replica set as open on all."""
    opened = {one.gfid for brick in found for one in brick.found if one.open and one.gfid}
    return tuple(
        replace(
            brick,
            found=tuple(replace(one, open=one.open or (bool(one.gfid) and one.gfid in opened)) for one in brick.found),
        )
        for brick in found
    )


def too_many(count: int) -> str:
    """Return why there are too many leftovers for single files; empty if there are not."""
    if count <= MOST_LEFTOVERS:
        return ""
    return (
        f"{several(count, 'file')} are left, more than {MOST_LEFTOVERS:,}: something else is wrong than with single files; "
        "see why Gluster did not move them, and begin the drain again"
    )
