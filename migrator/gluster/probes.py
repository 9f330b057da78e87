"""Questions about bricks and their hosts, each answered by a script on the brick's host. The scripts change nothing."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeVar

from migrator.core.errors import MigratorError, ToolFailed
from migrator.core.paths import show
from migrator.core.tasks import result_or_none
from migrator.gluster.model import Brick, BrickDirectory, BrickMarks, DiskFacts, NewPlace, PlaceSeen, VolumeState
from migrator.gluster.rules import subvolumes, version_in
from migrator.hosts.far_source import ask_script, far_argv, far_source
from migrator.hosts.ports import Command, Hosts, OnOutput

# Running a script about a brick: it is sent to the brick's host with every question.


_SAID_BYTES = 300

T = TypeVar("T")
Asked = TypeVar("Asked")


async def ask_brick(
    hosts: Hosts,
    brick: Brick,
    modules: tuple[str, ...],
    question: Mapping[str, Any],
    *,
    volume_id: str,
    take: OnOutput,
) -> str | None:
    """Run a script about a brick on its host: `far_brick` and these `modules`, each of which imports only earlier ones.

    `take` receives its output as it arrives. Returns why the script failed, or None. Raises MigratorError if the host
    cannot be reached, and the errors of `take`.
    """
    host = await hosts.reach(brick.host)
    python = (await host.identity()).python
    asked = {**question, "root": brick.path.decode("latin-1"), "volume_id": volume_id}
    stderr: list[bytes] = []
    completed = await host.processes.stream(
        Command(argv=far_argv(python, _script(modules)), stdin=json.dumps(asked).encode(), timeout_s=None),
        on_start=lambda _identity: None,
        on_stdout=take,
        on_stderr=stderr.append,
    )
    if completed.exit_code == 0:
        return None
    return show(b"".join(stderr).strip()[-_SAID_BYTES:]) or f"exit code {completed.exit_code}"


async def _answer(
    hosts: Hosts,
    brick: Brick,
    modules: tuple[str, ...],
    question: Mapping[str, Any],
    parse: Callable[[dict[str, Any]], T],
    *,
    volume_id: str,
) -> T:
    """The result of `parse` for the whole answer of a script. Raises ToolFailed, also if the answer cannot be parsed,
    and MigratorError if the host cannot be reached.
    """
    pieces: list[bytes] = []
    failure = await ask_brick(hosts, brick, modules, question, volume_id=volume_id, take=pieces.append)
    if failure is None:
        try:
            return parse(json.loads(b"".join(pieces)))
        except (ValueError, KeyError, TypeError):
            failure = "an answer cannot be parsed"
    raise ToolFailed(f"{brick.name} cannot be read: {failure}")


@cache
def _script(modules: tuple[str, ...]) -> bytes:
    return far_source(__package__, ("migrator.fs.far_xattrs", "far_brick", *modules))


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
    question, modules = {"volume": state.volume, "but": but}, ("far_blamed",)
    answer = _answer(hosts, brick, modules, question, lambda answer: dict(answer["blamed"]), volume_id=state.volume_id)
    return await result_or_none(answer)


# Directories of a brick with owner, mode and ACLs.


class HostDirectories:
    """Lists directories of bricks on their hosts."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts

    async def walk(
        self,
        brick: Brick,
        *,
        volume_id: str,
        take: Callable[[Sequence[BrickDirectory]], None],
        only: Sequence[bytes] | None = None,
    ) -> int:
        """Pass on every directory except the root, parents first, in blocks; or `only` these, without their parents'
        gfids. Returns the number of unreadable ones. Raises ToolFailed, HostLost, UsageError, and the errors of
        `take`.
        """
        question = {} if only is None else {"only": [path.decode("latin-1") for path in only]}
        lines = _Lines(brick.name, take)
        failure = await ask_brick(
            self._hosts, brick, ("far_directories",), question, volume_id=volume_id, take=lines.take
        )
        if failure is not None or lines.unseen is None:
            raise ToolFailed(f"the directories of {brick.name} cannot be read: {failure or 'the answer has no end'}")
        return lines.unseen


class _Lines:
    """The output of one walk, in complete lines."""

    def __init__(self, brick: str, take: Callable[[Sequence[BrickDirectory]], None]) -> None:
        self._brick = brick
        self._take = take
        self._rest = b""
        self.unseen: int | None = None

    def take(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        try:
            answer = [json.loads(line) for line in lines]
            if answer and "unseen" in answer[-1]:
                self.unseen = int(answer.pop()["unseen"])
            found = [_facts(one) for one in answer]
        except (ValueError, KeyError, TypeError) as error:
            raise ToolFailed(f"the directories of {self._brick} cannot be read: an answer cannot be parsed") from error
        if found:
            self._take(found)


def _facts(answer: dict[str, Any]) -> BrickDirectory:
    times = answer["times"]
    return BrickDirectory(
        path=answer["path"].encode("latin-1"),
        gfid=bytes.fromhex(answer["gfid"]),
        above=bytes.fromhex(answer["above"]),
        mode=answer["mode"],
        uid=answer["uid"],
        gid=answer["gid"],
        access=bytes.fromhex(answer["access"]),
        default=bytes.fromhex(answer["default"]),
        changed_ns=None if times is None else int(times[0]),
        modified_ns=None if times is None else int(times[1]),
    )


# Marks of earlier drains, and files without a gfid.


_MARKS = ("far_marks",)


async def marks_on_bricks(hosts: Hosts, bricks: Sequence[Brick], volume_id: str) -> tuple[BrickMarks, ...] | None:
    """The marks on each brick, read from all bricks in parallel; None if one cannot be read. Reads every directory of
    the bricks.
    """

    async def marks(brick: Brick) -> BrickMarks:
        return await _answer(hosts, brick, _MARKS, {}, lambda answer: _marks(brick.name, answer), volume_id=volume_id)

    found = await asyncio.gather(*(result_or_none(marks(brick)) for brick in bricks))
    known = tuple(one for one in found if one is not None)
    return known if len(known) == len(bricks) else None


def _marks(brick: str, answer: dict[str, Any]) -> BrickMarks:
    lists: dict[str, Any] = {name: _paths(answer.pop(name)) for name in ("examples", "strange_examples")}
    return BrickMarks(brick=brick, **answer, **lists)


async def still_strange_on(hosts: Hosts, brick: Brick, volume_id: str, paths: Sequence[bytes]) -> frozenset[bytes]:
    """The paths that exist on the brick without a gfid; all of them if the brick cannot be read."""
    question = {"paths": [path.decode("latin-1") for path in paths]}
    answer = _answer(
        hosts, brick, _MARKS, question, lambda answer: frozenset(_paths(answer["strange"])), volume_id=volume_id
    )
    still = await result_or_none(answer)
    return frozenset(paths) if still is None else still


def _paths(answer: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(path.encode("latin-1") for path in answer)


# The places of new and of removed bricks.


_TIMEOUT_S = 60.0

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
    hosts: Hosts, address: str, script: bytes, *words: bytes, question: object = None
) -> dict[str, Any]:
    """The answer of a script on a host. Raises MigratorError with the reason as its message."""
    host = await hosts.reach(address)
    argv = far_argv((await host.identity()).python, script, *words)
    return await ask_script(host.processes, argv, dict[str, Any], question=question)


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
