"""The file system at a path of a host: its type and its room, as that host sees them."""

import msgspec

from migrator.adapters.far_source import far_argv
from migrator.domain.errors import ToolFailed
from migrator.domain.host import HostRoom
from migrator.domain.mounts import mount_of, parse_mountinfo
from migrator.domain.paths import percent_unescape, show
from migrator.ports.processes import Command, Processes

_TIMEOUT_S = 60.0
_SCRIPT = b"""
import json, os, sys, urllib.parse
path = os.path.realpath(os.fsencode(sys.argv[1]))
room = os.statvfs(path)
with open("/proc/self/mountinfo", "rb") as file:
    mounts = file.read()
print(json.dumps({
    "path": urllib.parse.quote_from_bytes(path),
    "mounts": mounts.decode("latin-1"),
    "total_bytes": room.f_blocks * room.f_frsize,
    "free_bytes": room.f_bavail * room.f_frsize,
    "read_only": bool(room.f_flag & os.ST_RDONLY),
}))
"""


class _Found(msgspec.Struct, frozen=True):
    path: str
    mounts: str
    total_bytes: int
    free_bytes: int
    read_only: bool


async def look_at_room(processes: Processes, *, python: bytes, path: bytes) -> HostRoom:
    """Raises HostLost, and ToolFailed where it cannot be read."""
    command = Command(argv=far_argv(python, _SCRIPT, path), timeout_s=_TIMEOUT_S)
    completed = await processes.run(command)
    try:
        found = msgspec.json.decode(completed.stdout, type=_Found)
    except msgspec.DecodeError as error:
        said = show(completed.stderr.strip().rpartition(b"\n")[2][-300:]) or f"exit code {completed.exit_code}"
        raise ToolFailed(f"the room at {show(path)} is not known: {said}") from error
    mount = mount_of(parse_mountinfo(found.mounts.encode("latin-1")), percent_unescape(found.path))
    return HostRoom(
        filesystem=mount.filesystem if mount else "",
        total_bytes=found.total_bytes,
        free_bytes=found.free_bytes,
        read_only=found.read_only,
    )
