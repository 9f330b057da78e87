"""Questions about bricks and their hosts, each answered by a script on the brick's host. The scripts change nothing."""

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from migrator.core.errors import MigratorError
from migrator.core.tasks import result_or_none
from migrator.gluster.model import Brick, DiskFacts, NewPlace, PlaceSeen, VolumeState
from migrator.gluster.rules import subvolumes, version_in
from migrator.hosts.far_source import ask_script, far_argv, far_source
from migrator.hosts.ports import Command, Hosts

_TIMEOUT_S = 60.0
_COUNTING_TIMEOUT_S = 24 * 3600.0
"""An index of pending heals may have millions of entries, on busy disks."""

T = TypeVar("T")
Asked = TypeVar("Asked")

# Pending heals of a replica set, as recorded by its online bricks.


async def blamed_in_set(hosts: Hosts, state: VolumeState, name: str) -> Mapping[str, int] | None:
    """The pending entries of each brick in the replica set of a brick: for each, the largest number that any online
    brick counts. None if an online brick does not answer, or if the brick has no replicas.
    """
    members = next((one for one in subvolumes(state) if name in {brick.name for brick in one}), ())
    if len(members) <= 1:
        return None
    answers = await asyncio.gather(*(_blamed_by(hosts, state, brick, name) for brick in members if brick.online))
    counts: Counter[str] = Counter()
    for one in answers:
        if one is None:
            return None
        counts |= Counter(one)
    return counts


async def _blamed_by(hosts: Hosts, state: VolumeState, brick: Brick, but: str) -> dict[str, int] | None:
    question = {"root": brick.path.decode("latin-1"), "volume_id": state.volume_id, "volume": state.volume, "but": but}
    script = far_source(__package__, ("far_blamed",))
    answer = await result_or_none(
        _ask_script(hosts, brick.host, script, question=question, timeout_s=_COUNTING_TIMEOUT_S)
    )
    return None if answer is None else answer["blamed"]


# The places of new and of removed bricks.


# Plain Python 3.9. Names are printed escaped; the process of a brick has its path as an argument. The `f_fsid` of XFS
# is only its device number, so the script reads the UUID (XFS_IOC_FSGEOMETRY_V1).
_PLACE_SCRIPT = rb"""
import fcntl, json, os, sys
path = os.fsencode(sys.argv[1])
NAMES = 20
def shown(name):
    return name.decode("utf-8", "backslashreplace").encode("unicode_escape").decode()
def mark(place, name):
    try:
        return os.getxattr(place, name, follow_symlinks=False).hex()
    except OSError:
        return ""
def same(other):
    # As the process sees it: another container or namespace may have another directory of that name.
    try:
        return os.path.samefile(other, path)
    except OSError:
        return False
def names(directory, but=()):
    return sorted(name for name in os.listdir(directory) if name not in but)
there = path
while not os.path.lexists(there):
    there = os.path.dirname(there)
if os.path.realpath(there) != there:
    if len(sys.argv) < 3:
        raise SystemExit("a symlink is on the way to it")
    path, there = os.path.realpath(path), os.path.realpath(there)
mount = there
while not os.path.ismount(mount):
    mount = os.path.dirname(mount)
device = filesystem = options = ""
with open("/proc/self/mounts", "rb") as mounts:
    for line in mounts:
        fields = line.split(b" ")
        if fields[1].replace(b"\\040", b" ") == mount:
            device, filesystem, options = (one.decode("utf-8", "backslashreplace") for one in (fields[0], fields[2], fields[3]))
exists = os.path.lexists(path)
if exists and not os.path.isdir(path):
    raise SystemExit("it is no directory")
inside = names(path) if exists else []
# Every directory from the mount point down to the brick, and what lies beside the way.
others, above, step = [], [], mount
while step != path:
    rest = os.path.relpath(path, step).split(b"/")[0]
    if mark(step, "trusted.gfid") or mark(step, "trusted.glusterfs.volume-id"):
        above.append(shown(step))
    if mount != b"/":
        others += [shown(os.path.join(step, name)) for name in names(step, (rest, b"lost+found"))]
    step = os.path.join(step, rest)
    if not os.path.isdir(step):
        break
serving = []
for pid in os.listdir("/proc"):
    if pid.isdigit():
        try:
            with open("/proc/" + pid + "/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if path in words and os.path.basename(words[0]) == b"glusterfsd" and same(b"/proc/" + pid.encode() + b"/root" + path):
            serving.append(int(pid))
room = os.statvfs(mount)
def identity():
    if filesystem != "xfs":
        return "%x" % room.f_fsid if room.f_fsid else ""
    top = os.open(mount, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(top, 0x80705864, bytes(112))[64:80].hex()
    except OSError:
        return ""
    finally:
        os.close(top)
print(json.dumps({
    "mount": shown(mount), "own": mount != b"/", "in_root": there == mount, "exists": exists, "device": device, "filesystem": filesystem,
    "mount_options": options, "total_bytes": room.f_blocks * room.f_frsize, "free_inodes": room.f_favail,
    "volume_id": mark(path, "trusted.glusterfs.volume-id"), "gfid": mark(path, "trusted.gfid"), "marked_above": above,
    "entries": [shown(name) for name in inside if name != b".glusterfs"][:NAMES],
    "has_gluster_directory": b".glusterfs" in inside, "others": others[:NAMES], "served_by": serving,
    "filesystem_id": identity() if mount != b"/" else "",
}))
"""


async def probe_new_places(hosts: Hosts, bricks: Sequence[str]) -> Mapping[str, NewPlace]:
    """The place of each new brick, by brick name. If it cannot be read, `unread` has the reason."""
    return await _of_each(partial(_probe_new_place, hosts), bricks)


async def _probe_new_place(hosts: Hosts, name: str) -> NewPlace:
    address, _, path = name.partition(":/")
    try:
        answer = await _ask_script(hosts, address, _PLACE_SCRIPT, b"/" + os.fsencode(path))
        del answer["in_root"]
    except MigratorError as error:
        return NewPlace(name=name, unread=error.message)
    facts: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in answer.items()}
    return NewPlace(name=name, **facts)


async def _of_each(look: Callable[[Asked], Awaitable[T]], asked: Collection[Asked]) -> dict[Asked, T]:
    return dict(zip(asked, await asyncio.gather(*map(look, asked)), strict=True))


async def _ask_script(
    hosts: Hosts, address: str, script: bytes, *words: bytes, question: object = None, timeout_s: float = _TIMEOUT_S
) -> dict[str, Any]:
    """The answer of a script on a host. Raises MigratorError with the reason as its message."""
    host = await hosts.reach(address)
    argv = far_argv((await host.identity()).python, script, *words)
    return await ask_script(host.processes, argv, dict[str, Any], question=question, timeout_s=timeout_s)


# Removed bricks, disks, and the GlusterFS versions of hosts.


async def probe_places(hosts: Hosts, bricks: Sequence[Brick], *, volume_id: str) -> Mapping[str, PlaceSeen]:
    """The place of each brick, by brick name; `unknown` if it cannot be read."""
    by_brick = await _of_each(partial(_probe_place, hosts, volume_id), bricks)
    return {brick.name: place for brick, place in by_brick.items()}


async def _probe_place(hosts: Hosts, volume_id: str, brick: Brick) -> PlaceSeen:
    try:
        found = await _ask_script(hosts, brick.host, _PLACE_SCRIPT, brick.path, b"follow")
    except MigratorError:
        return PlaceSeen.UNKNOWN
    if found["volume_id"] == volume_id.replace("-", ""):
        return PlaceSeen.BRICK
    # Most bricks are a directory in the root of their file system; a new file system does not have it yet.
    if not found["own"] or not (found["exists"] or found["in_root"]):
        return PlaceSeen.UNMOUNTED
    # mkfs of ext4 makes lost+found.
    left = any(name != "lost+found" for name in found["entries"]) or found["others"] or found["has_gluster_directory"]
    return PlaceSeen.OTHER if left or found["volume_id"] else PlaceSeen.EMPTY


async def probe_disks(hosts: Hosts, names: Sequence[str], *, full: bool) -> Mapping[str, DiskFacts]:
    """The disk of each `HOST:/PATH`, by that name. The other paths may be on it too; if not `full`, they have to be
    empty.
    """
    return await _of_each(partial(_probe_disk, hosts, names, full=full), names)


async def _probe_disk(hosts: Hosts, mine: Sequence[str], name: str, *, full: bool) -> DiskFacts:
    address, _, path = name.partition(":")
    own = [one.partition(":")[2] for one in mine if one.partition(":")[0] == address]
    question = {"path": _latin(path), "mine": [_latin(one) for one in own], "full": full}
    try:
        answer = await _ask_script(hosts, address, far_source(__package__, ("far_disk",)), question=question)
    except MigratorError as error:
        return DiskFacts(name=name, unread=error.message)
    return DiskFacts(
        name=name, mount=answer["mount"], identity=answer["identity"], unexplained=tuple(answer["unexplained"])
    )


def _latin(path: str) -> str:
    return os.fsencode(path).decode("latin-1")


async def gluster_versions(hosts: Hosts, names: Collection[str]) -> Mapping[str, str | None]:
    """The version of GlusterFS on each host, as in `10.3`; None if not known."""
    return await _of_each(partial(_version, hosts), names)


async def _version(hosts: Hosts, name: str) -> str | None:
    try:
        host = await hosts.reach(name)
        for program in ("glusterfsd", "gluster"):
            path = await host.find(program)
            if path is not None:
                done = await host.processes.run(Command(argv=(path, b"--version"), timeout_s=_TIMEOUT_S))
                return version_in(done.stdout)
    except MigratorError:
        return None
    return None
