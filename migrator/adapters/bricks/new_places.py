"""What lies where new bricks are to be: a look on each host over its connection."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence

from migrator.adapters.far_source import far_argv
from migrator.domain.addition_seen import NewPlace
from migrator.domain.errors import MigratorError
from migrator.domain.paths import show
from migrator.ports.hosts import Hosts
from migrator.ports.processes import Command

_TIMEOUT_S = 60.0

# Python 3.9, standard library. Names are printed escaped; a brick's process has its path as an argument. XFS makes its `f_fsid` of
# the number of its device alone, so it is asked for its UUID (XFS_IOC_FSGEOMETRY_V1).
_LOOK = rb"""
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
    raise SystemExit("a symlink is on the way to it")
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
    "mount": shown(mount), "own": mount != b"/", "exists": exists, "device": device, "filesystem": filesystem,
    "mount_options": options, "total_bytes": room.f_blocks * room.f_frsize, "free_inodes": room.f_favail,
    "volume_id": mark(path, "trusted.glusterfs.volume-id"), "gfid": mark(path, "trusted.gfid"), "marked_above": above,
    "entries": [shown(name) for name in inside if name != b".glusterfs"][:NAMES],
    "has_gluster_directory": b".glusterfs" in inside, "others": others[:NAMES], "served_by": serving,
    "filesystem_id": identity() if mount != b"/" else "",
}))
"""


async def look_at_new_places(hosts: Hosts, bricks: Sequence[str]) -> Mapping[str, NewPlace]:
    """By brick name what lies there. A look that fails says why."""
    found = await asyncio.gather(*(_look(hosts, name) for name in bricks))
    return {place.name: place for place in found}


async def _look(hosts: Hosts, name: str) -> NewPlace:
    address, _, path = name.partition(":/")
    try:
        host = await hosts.reach(address)
        python = (await host.identity()).python
        argv = far_argv(python, _LOOK, b"/" + os.fsencode(path))
        done = await host.processes.run(Command(argv=argv, timeout_s=_TIMEOUT_S))
    except MigratorError as error:
        return NewPlace(name=name, unread=error.message)
    if done.timed_out or done.exit_code != 0:
        said = show(done.stderr.strip()[-200:])
        return NewPlace(name=name, unread="no answer" if done.timed_out else said or "no reason given")
    try:
        told = json.loads(done.stdout)
        lists = {key: tuple(value) for key, value in told.items() if isinstance(value, list)}
        return NewPlace(name=name, **{**told, **lists})
    except (ValueError, TypeError):
        return NewPlace(name=name, unread="its answer was not understood")
