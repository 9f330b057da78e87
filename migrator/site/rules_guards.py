"""Guards of both file systems: identity, completeness, room, places. Pure."""

from collections.abc import Iterable, Sequence

from migrator.core.events import Finding, warning
from migrator.core.paths import is_beneath, show
from migrator.core.units import GIB, format_count, format_size, several
from migrator.fs.kinds.table import KINDS, PLAIN
from migrator.fs.model import LOCAL_FILESYSTEMS, Capacity, Mount, MountIdentity, SourceHealth, mount_of
from migrator.gluster.model import VolumeState, volume_state

# Identity, completeness and room. Each guard returns problems as sentences; a fact that is unknown is a problem too.


_IN_ITS_PLACE = LOCAL_FILESYSTEMS | {"overlay"}
"""File systems that appear at an unused mount point."""


def mount_problems(
    recorded: MountIdentity | None, current: MountIdentity | None, *, where: str = "the mount"
) -> tuple[str, ...]:
    """Differences between the mounted file system and the one that `init` recorded. Each sentence begins with `where`
    (`the source`).

    `recorded` is None before `init`, `current` if the mount could not be read.
    """
    if recorded is None:
        return (f"{where} was never recorded: run `migrator init`",)
    if current is None:
        return (f"{where} cannot be read: its mount point is missing or does not answer",)
    if not current.filesystem or recorded.filesystem != current.filesystem:
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


def volume_of(identity: MountIdentity) -> str:
    """The mounted volume, without the server: all servers of a Gluster pool provide the same volume."""
    if identity.filesystem == "fuse.glusterfs":
        return identity.mounted_from.rpartition(":")[2].strip("/")
    return identity.mounted_from


def health_problems(
    before: SourceHealth | None, after: SourceHealth | None, *, tasks_count: bool = True
) -> tuple[str, ...]:
    """Reasons why the source may have been incomplete between two observations. None is a failed observation.

    Problems of either observation count, and every change between them. A rebalance or a drain counts in either: a
    missing file may be in flight, so the caller must not delete files. `tasks_count` False: ignore tasks and doubts, for
    verbs that only copy listed files.
    """
    if before is None or after is None:
        missing = "before" if before is None else "after"
        seen = after if before is None else before
        return (f"the state of the source {missing} the scan is unknown", *(seen.problems if seen else ()))
    problems = [*before.problems, *after.problems, *(before.doubts + after.doubts if tasks_count else ())]
    state, state_after = volume_state(before), volume_state(after)
    if state is not None and state_after is not None:
        problems.extend(_state_changes(state, state_after, tasks_count=tasks_count))
    elif (state is None) != (state_after is None):
        problems.append("the state of the volume could be read only before or only after")
    if before.fingerprint != after.fingerprint and not problems:
        problems.append("the volume's bricks or options changed while it was read")
    return tuple(dict.fromkeys(problems))


def capacity_problems(
    capacity: Capacity | None,
    need_bytes: int,
    need_inodes: int,
    inodes_free_override: int | None = None,
    reserve_bytes: int = 0,
) -> tuple[str, ...]:
    """The reason why the target has no room for these bytes and inodes; `capacity` is None if it could not be read.

    `inodes_free_override` (`[target] inodes_free`) counts only if the file system does not report inodes.
    `reserve_bytes` always stay free.
    """
    if capacity is None:
        return ("the free space of the target is unknown",)
    problems = (
        "the target is mounted read-only" if capacity.read_only else None,
        bytes_problem(capacity, need_bytes, reserve_bytes),
        inodes_problem(capacity, need_inodes, inodes_free_override),
    )
    return tuple(problem for problem in problems if problem is not None)


def bytes_problem(capacity: Capacity, need_bytes: int, reserve_bytes: int) -> str | None:
    """A sentence if the target has no room for these bytes, of which `reserve_bytes` always stay free."""
    if need_bytes <= max(capacity.free_bytes - reserve_bytes, 0):
        return None
    lacking = format_size(need_bytes + reserve_bytes - capacity.free_bytes)
    kept = f", and {format_size(reserve_bytes)} must stay free" if reserve_bytes else ""
    return (
        f"the target lacks {lacking}: {format_size(need_bytes)} are needed, "
        f"{format_size(capacity.free_bytes)} are free{kept}"
    )


def inodes_problem(capacity: Capacity, need_inodes: int, given: int | None) -> str | None:
    """A sentence if the target has no room for these inodes. `given` (`[target] inodes_free`) counts only if the file
    system does not report inodes.
    """
    free = capacity.free_inodes if capacity.free_inodes is not None else given
    if free is None:
        return "the target's file system does not report its free inodes (statfs returns 0 of 0: unknown, not full)"
    if need_inodes <= free:
        return None
    return (
        f"the target lacks {several(need_inodes - free, 'inode')}: {format_count(need_inodes)} are "
        f"needed, {format_count(free)} are free"
    )


def _other_filesystem(recorded: MountIdentity, current: MountIdentity, where: str) -> str:
    expected = f"{recorded.filesystem} from {recorded.mounted_from}"
    if not current.filesystem:
        return f"{where} cannot be identified: its mount is not listed; expected: {expected}"
    if recorded.filesystem not in _IN_ITS_PLACE and current.filesystem in _IN_ITS_PLACE:
        return f"{where} is not mounted: a directory of {current.filesystem} is in its place; expected: {expected}"
    found = f"{current.filesystem} from {current.mounted_from}"
    return f"{where} is another file system: {found} is mounted there; expected: {expected}"


def _changed(where: str, fact: str, recorded: int | None, current: int | None) -> Iterable[str]:
    if recorded is None or recorded == current:
        return
    shown = "unknown" if current is None else str(current)
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
                known = "is down" if brick.online is False else "may be down: its state is unknown"
                yield f"brick {brick.name} {known}"
        for task in state.tasks if tasks_count else ():
            yield f"a task in progress on volume {state.volume} moves files: {task}"


def same_place_problem(source: MountIdentity, target: MountIdentity) -> str | None:
    """A sentence if both are one directory that is mounted twice, which paths cannot show."""
    if source.root_ino != target.root_ino or source.filesystem != target.filesystem:
        return None
    if source.device is not None or target.device is not None:
        same = source.device == target.device
    else:
        same = volume_of(source) == volume_of(target)
    if not same:
        return None
    return f"source and target are the same directory of {target.mounted_from}, mounted twice"


def kind_problem(filesystem: str, mounted_from: str, kind: str, *, where: str) -> str | None:
    """A sentence if the mounted file system is not of the kind in site.toml; `posix` accepts any."""
    if KINDS[kind].matches(filesystem, mounted_from):
        return None
    found = f"{filesystem or 'nothing that is known'} from {mounted_from or 'nowhere'}"
    return f"{where} is no {kind} file system but {found}: it is not mounted, or the path is wrong"


# Places that site.toml names


_GLUSTER = "fuse.glusterfs"


def misplaced(directories: Iterable[tuple[str, bytes]], roots: Iterable[tuple[str, bytes]]) -> str | None:
    """A sentence if a directory of the program (by key) is on one of the file systems (by side) that it reads or
    writes. All paths are absolute and without symlinks.
    """
    sides = tuple(roots)
    for key, directory in directories:
        for side, root in sides:
            if is_beneath(directory, root.rstrip(b"/")):
                return f"[site] {key} {show(directory)} lies on the {side} ({show(root)})"
    return None


def unmounted_problem(where: str, kind: str, root: bytes, mounts: Sequence[Mount]) -> str | None:
    """A sentence if a place of a plain kind is a plain directory: its file system may then be unmounted without any
    sign.

    Other kinds are recognized by their type. `root` is absolute and without symlinks.
    """
    mount = mount_of(mounts, root)
    if kind not in PLAIN or mount is None or mount.point == root:
        return None
    source = show(mount.source)
    return (
        f"{where} is not a mount point: {show(root)} is a directory of {mount.filesystem} from {source}, mounted at "
        f"{show(mount.point)}; its own file system may not be mounted"
    )


def one_device_problem(source: MountIdentity, target: MountIdentity) -> str | None:
    """A sentence if both sides are on one local file system."""
    if source.device is None or source.device != target.device:
        return None
    return f"source and target are on one file system ({target.filesystem} from {target.mounted_from})"


def check_places(
    sides: Iterable[tuple[str, str, bytes]],
    mounts: Sequence[Mount],
    source: MountIdentity | None,
    target: MountIdentity | None,
) -> list[Finding]:
    """Check that source and target are mount points of two file systems. `sides`: name, kind, root."""
    findings = [
        warning(f"{side} place", problem, "mount it; a plain directory is fine if intended, as in a lab")
        for side, kind, root in sides
        if (problem := unmounted_problem(f"the {side}", kind, root, mounts))
    ]
    if source is not None and target is not None and (problem := one_device_problem(source, target)):
        findings.append(
            warning("target place", problem, "mount the target if it is another file system; in a lab this is fine")
        )
    return findings


def mounted_volume(mounted_from: str) -> str:
    """`gl1:/vol1/below` is volume `vol1`."""
    return mounted_from.rpartition(":")[2].strip("/").partition("/")[0]


# How much a user tree may lose.


SHRINK_FLOOR_NAMES = 100
SHRINK_FLOOR_BYTES = GIB
"""A smaller loss is never too large: a user with three files may delete two of them."""


def shrink_losses(
    *, names: int, of_names: int, size_bytes: int, of_bytes: int, max_shrink: float, floor: bool
) -> tuple[str, ...]:
    """The losses of a tree, of its names and of its bytes, that exceed the share `max_shrink` and, if there is one, the floor;
    for display.
    """
    lost: list[str] = []
    if names > SHRINK_FLOOR_NAMES * floor and not names <= max_shrink * of_names:
        lost.append(f"{format_count(names)} of {format_count(of_names)} names")
    if size_bytes > SHRINK_FLOOR_BYTES * floor and not size_bytes <= max_shrink * of_bytes:
        lost.append(f"{format_size(size_bytes)} of {format_size(of_bytes)}")
    return tuple(lost)


def shrink_remedy(max_shrink: float) -> str:
    """How to allow a loss that is right."""
    return f"if this is expected, allow it once with a larger [transfer] max_shrink (now {max_shrink:.0%})"
