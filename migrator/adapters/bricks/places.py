"""What lies where a brick was, and which GlusterFS a host has: looks on hosts over their connections."""

import asyncio
import json
import re
from collections.abc import Collection, Mapping, Sequence

from migrator.adapters.far_source import far_argv
from migrator.domain.brick import Brick
from migrator.domain.drain_seen import PlaceSeen
from migrator.domain.errors import MigratorError
from migrator.ports.hosts import Hosts
from migrator.ports.processes import Command

_TIMEOUT_S = 60.0
_VERSION = re.compile(rb"glusterfs (\d+(?:\.\d+)+)")

# The nearest directory that is there, and the mount point that it lies on: bricks are most often a directory in the root of
# their file system, and a new file system does not have it yet. Python 3.9.
_LOOK = b"""
import json, os, sys
def mount_of(place):
    while not os.path.ismount(place):
        place = os.path.dirname(place)
    return place
path = os.fsencode(sys.argv[1])
there = path
while not os.path.lexists(there):
    there = os.path.dirname(there)
try:
    volume_id = os.getxattr(path, b"trusted.glusterfs.volume-id", follow_symlinks=False).hex()
except OSError:
    volume_id = ""
mount = mount_of(os.path.realpath(there))
chain, entries = path, []
def stray(directory):
    inner = os.path.relpath(path, directory).split(b"/")[0] if there != directory else b""
    return [name for name in os.listdir(directory) if name not in (b"lost+found", inner)]
empty, step = True, mount
while True:
    if stray(step):
        empty = False
        break
    if step == there or not os.path.isdir(step):
        break
    step = os.path.join(step, os.path.relpath(there, step).split(b"/")[0])
own = mount != b"/" and (there == path or there == mount)
print(json.dumps({"volume_id": volume_id, "own": own, "empty": empty}))
"""


async def look_at_places(hosts: Hosts, bricks: Sequence[Brick], *, volume_id: str) -> Mapping[str, PlaceSeen]:
    """By brick name what lies there. A look that fails is `unknown`."""
    found = await asyncio.gather(*(_look(hosts, brick, volume_id) for brick in bricks))
    return {brick.name: place for brick, place in zip(bricks, found, strict=True)}


async def _look(hosts: Hosts, brick: Brick, volume_id: str) -> PlaceSeen:
    try:
        host = await hosts.reach(brick.host)
        python = (await host.identity()).python
        done = await host.processes.run(Command(argv=far_argv(python, _LOOK, brick.path), timeout_s=_TIMEOUT_S))
        said = json.loads(done.stdout) if done.exit_code == 0 and not done.timed_out else {}
    except (MigratorError, ValueError):
        return PlaceSeen.UNKNOWN
    if not said:
        return PlaceSeen.UNKNOWN
    if said["volume_id"] == volume_id.replace("-", ""):
        return PlaceSeen.BRICK
    if not said["own"]:
        return PlaceSeen.UNMOUNTED
    return PlaceSeen.EMPTY if said["empty"] and not said["volume_id"] else PlaceSeen.OTHER


async def gluster_versions(hosts: Hosts, names: Collection[str]) -> Mapping[str, str | None]:
    """By host the version of GlusterFS there, as in `10.3`; None where it is not told."""
    found = await asyncio.gather(*(_version(hosts, name) for name in names))
    return dict(zip(names, found, strict=True))


async def _version(hosts: Hosts, name: str) -> str | None:
    try:
        host = await hosts.reach(name)
        for program in ("glusterfsd", "gluster"):
            path = await host.find(program)
            if path is not None:
                done = await host.processes.run(Command(argv=(path, b"--version"), timeout_s=_TIMEOUT_S))
                told = _VERSION.match(done.stdout)
                return None if told is None else told[1].decode("ascii")
    except MigratorError:
        return None
    return None
