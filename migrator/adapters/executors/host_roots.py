"""What lies at the roots that streams of a host will read and write, as that host sees them."""

import msgspec

from migrator.adapters.far_source import far_argv
from migrator.domain.errors import ToolFailed
from migrator.domain.host import HostRoots
from migrator.domain.paths import show
from migrator.domain.site import SENTINEL_NAME
from migrator.ports.processes import Command, Processes

_TIMEOUT_S = 60.0
_SCRIPT = b"""
import json, os, sys
target, brick, name = [os.fsencode(word) for word in sys.argv[1:4]]
found = {"sentinel": None, "target_error": None, "volume_id": None, "brick_error": None}
if target:
    try:
        fd = os.open(os.path.join(target, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        found["sentinel"] = os.read(fd, 4096).decode("utf-8", "backslashreplace").strip()
    except OSError as error:
        found["target_error"] = error.strerror
if brick:
    try:
        found["volume_id"] = os.getxattr(brick, b"trusted.glusterfs.volume-id").hex()
    except OSError as error:
        found["brick_error"] = error.strerror
print(json.dumps(found))
"""


class _Found(msgspec.Struct, frozen=True):
    sentinel: str | None
    target_error: str | None
    volume_id: str | None
    brick_error: str | None


async def look_at_roots(processes: Processes, *, python: bytes, target: bytes, brick: bytes) -> HostRoots:
    """Look at the root of the target and of a brick there (empty: not asked for). Raises HostLost, ToolFailed."""
    command = Command(argv=far_argv(python, _SCRIPT, target, brick, SENTINEL_NAME), timeout_s=_TIMEOUT_S)
    completed = await processes.run(command)
    try:
        found = msgspec.json.decode(completed.stdout, type=_Found)
    except msgspec.DecodeError as error:
        said = show(completed.stderr.strip()[-300:]) or f"exit code {completed.exit_code}"
        raise ToolFailed(f"the roots of a host cannot be looked at: {said}", cause="its Python fails") from error
    return HostRoots(
        sentinel=found.sentinel,
        target_error=found.target_error,
        volume_id=found.volume_id,
        brick_error=found.brick_error,
    )
