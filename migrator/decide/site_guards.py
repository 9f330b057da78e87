"""Guards over the two file systems: is this what `init` recorded, does the source show everything, is there room.

Each returns problems as sentences, none when all is well. What cannot be evaluated is a problem too.
"""

from collections.abc import Iterable

from migrator.domain.brick import SourceHealth, VolumeState
from migrator.domain.filesystems import LOCAL_FILESYSTEMS
from migrator.domain.site import Capacity, MountIdentity
from migrator.domain.units import format_count, format_size, several

_IN_ITS_PLACE = LOCAL_FILESYSTEMS | {"overlay"}
"""What is seen at a mount point where nothing is mounted."""


def mount_problems(
    recorded: MountIdentity | None, current: MountIdentity | None, *, where: str = "the mount"
) -> tuple[str, ...]:
    """Why what is mounted now is not what `init` recorded; `where` begins each sentence (`the source`).

    `recorded` is None before `init`, `current` where the look at the mount failed.
    """
    if recorded is None:
        return (f"{where} was never recorded: there is nothing to compare it with",)
    if current is None:
        return (f"{where} cannot be looked at: its mount point is missing, or does not answer",)
    if not same_mount_kind(recorded, current):
        return (_other_filesystem(recorded, current, where),)
    problems: list[str] = []
    if recorded.sentinel is None:
        if volume_of(recorded) != volume_of(current):
            problems.append(f"{where} was mounted from {recorded.mounted_from}, now it is from {current.mounted_from}")
    elif current.sentinel is None:
        problems.append(f"{where} has no sentinel in its root: it is another directory, or the file was removed")
    elif current.sentinel != recorded.sentinel:
        problems.append(f"{where} carries the sentinel of another site ({current.sentinel})")
    problems.extend(_changed(where, "device number", recorded.device, current.device))
    problems.extend(_changed(where, "file system id", recorded.fsid, current.fsid))
    problems.extend(_changed(where, "inode number of the root", recorded.root_ino, current.root_ino))
    return tuple(problems)


def same_mount_kind(recorded: MountIdentity, current: MountIdentity) -> bool:
    """Whether both are the same kind of file system."""
    return bool(current.filesystem) and recorded.filesystem == current.filesystem


def volume_of(identity: MountIdentity) -> str:
    """What was mounted, without the server it was asked of: any server of a Gluster pool gives the same volume."""
    if identity.filesystem == "fuse.glusterfs":
        return identity.mounted_from.rpartition(":")[2].strip("/")
    return identity.mounted_from


def health_problems(
    before: SourceHealth | None, after: SourceHealth | None, *, tasks_count: bool = True
) -> tuple[str, ...]:
    """Why what the source showed between two looks may not be everything; None stands for a look that failed.

    Every problem of either look counts, and any change between them. A task that moves files (a rebalance, a brick
    being drained) counts whenever it was there: files move under the reader then, so nothing may be decided to be
    gone. Whoever only copies what is listed may go on meanwhile: `tasks_count` False.
    """
    if before is None or after is None:
        missing = "before" if before is None else "after"
        seen = after if before is None else before
        return (f"the state of the source {missing} it was read is not known", *(seen.problems if seen else ()))
    problems = [*before.problems, *after.problems]
    if before.state is not None and after.state is not None:
        problems.extend(_state_changes(before.state, after.state, tasks_count=tasks_count))
    elif (before.state is None) != (after.state is None):
        problems.append("the state of the volume could be read only once, before or after")
    if before.fingerprint != after.fingerprint and not problems:
        problems.append("the volume's bricks or options changed while it was read")
    return _each_once(problems)


def capacity_problems(
    capacity: Capacity | None,
    need_bytes: int,
    need_inodes: int,
    inodes_free_override: int | None = None,
    reserve_bytes: int = 0,
) -> tuple[str, ...]:
    """Why the target has no room for that many bytes and inodes; `capacity` is None where the look failed.

    `inodes_free_override` (`[target] inodes_free`) is believed only where the file system itself cannot tell.
    `reserve_bytes` stay free in any case.
    """
    if capacity is None:
        return ("the room on the target is not known",)
    problems: list[str] = []
    if capacity.read_only:
        problems.append("the target is mounted read-only")
    usable_bytes = max(capacity.free_bytes - reserve_bytes, 0)
    if need_bytes > usable_bytes:
        kept = f", and {format_size(reserve_bytes)} have to stay free" if reserve_bytes else ""
        problems.append(
            f"the target lacks {format_size(need_bytes + reserve_bytes - capacity.free_bytes)}: {format_size(need_bytes)} are needed, "
            f"{format_size(capacity.free_bytes)} are free{kept}"
        )
    free_inodes = capacity.free_inodes if capacity.free_inodes is not None else inodes_free_override
    if free_inodes is None:
        problems.append(
            "the target's file system does not tell how many inodes are free (statfs says 0 of 0: unknown, not full)"
        )
    elif need_inodes > free_inodes:
        problems.append(
            f"the target lacks {several(need_inodes - free_inodes, 'inode')}: {format_count(need_inodes)} are "
            f"needed, {format_count(free_inodes)} are free"
        )
    return tuple(problems)


def _other_filesystem(recorded: MountIdentity, current: MountIdentity, where: str) -> str:
    expected = f"{recorded.filesystem} from {recorded.mounted_from}"
    if not current.filesystem:
        return f"{where} cannot be told from its surroundings: its mount is not listed; expected is {expected}"
    if recorded.filesystem not in _IN_ITS_PLACE and current.filesystem in _IN_ITS_PLACE:
        return f"{where} is not mounted: a directory of {current.filesystem} is in its place; expected is {expected}"
    found = f"{current.filesystem} from {current.mounted_from}"
    return f"{where} is another file system: {found} is mounted there; expected is {expected}"


def _changed(where: str, fact: str, recorded: int | None, current: int | None) -> Iterable[str]:
    if recorded is None or recorded == current:
        return
    shown = "not known" if current is None else str(current)
    yield f"{where} has another {fact} than at `init`: {recorded} then, {shown} now"


def _state_changes(before: VolumeState, after: VolumeState, *, tasks_count: bool) -> Iterable[str]:
    names_before = {brick.name for brick in before.bricks}
    names_after = {brick.name for brick in after.bricks}
    if before.volume_id != after.volume_id:
        yield f"the volume is another one: id {before.volume_id} before, {after.volume_id} after"
    for gone in sorted(names_before - names_after):
        yield f"brick {gone} left the volume while it was read"
    for new in sorted(names_after - names_before):
        yield f"brick {new} joined the volume while it was read"
    for state in (before, after):
        if not state.started:
            yield f"volume {state.volume} is not started"
        for brick in state.bricks:
            if brick.online is not True:
                known = "is down" if brick.online is False else "may be down: its state is not known"
                yield f"brick {brick.name} {known}"
        for task in state.tasks if tasks_count else ():
            yield f"a task is under way on volume {state.volume} and moves files: {task}"


def _each_once(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sentences))


def same_place_problem(source: MountIdentity, target: MountIdentity) -> str | None:
    """A sentence where both are one directory that is mounted twice; two paths alone cannot show that."""
    if source.root_ino != target.root_ino or source.filesystem != target.filesystem:
        return None
    if source.device is not None or target.device is not None:
        same = source.device == target.device
    else:
        same = volume_of(source) == volume_of(target)
    if not same:
        return None
    return f"source and target are the same directory of {target.mounted_from}, mounted twice"


def kind_problem(identity: MountIdentity, kind: str, *, where: str) -> str | None:
    """A sentence where what is mounted is not of the kind that site.toml names; `posix` is any file system."""
    expected = {"gluster": ("fuse.glusterfs",), "beegfs": ("beegfs",)}.get(kind)
    if expected is None or identity.filesystem in expected:
        return None
    found = f"{identity.filesystem or 'nothing that is known'} from {identity.mounted_from or 'nowhere'}"
    return f"{where} is no {kind} file system but {found}: it is not mounted, or the path is wrong"
