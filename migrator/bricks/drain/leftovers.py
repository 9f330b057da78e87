"""What an audit of drained bricks leaves to an administrator: each leftover with the evidence, and the commands to give."""

import os
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from migrator.bricks.drain.model_audit import LeftKind, Leftover, VolumeName
from migrator.bricks.drain.rules_leftovers import commands
from migrator.core.durable import replacing
from migrator.core.entry import EntryType
from migrator.core.tasks import Blocking
from migrator.fs.beneath import Root, entry_path

_NAME = "left.sh"
_TIMEOUT_S = 3600.0
_GFID = "glusterfs.gfid.string"
_LISTED_S = 60.0
_EXAMINED = 8


class VolumeNames:
    """Looks up names through the mount of a volume."""

    def __init__(self, root: bytes) -> None:
        self.root = root
        self._listed: dict[bytes, float] = {}

    def look(self, path: bytes) -> VolumeName | None:
        """Look up a name; None if the volume shows nothing there. It does not find a file on a drained brick by its name if
        no other brick has a link-to file for it (cluster.lookup-optimize), but does after its directory was listed. So the
        directory is listed. Raises OSError.
        """
        directory, _, name = path.rpartition(b"/")
        try:
            with Root(self.root) as root, root.directory(directory) as fd:
                seen = _look(fd, name)
                if seen is None and self._listed.get(directory, -_LISTED_S) <= time.monotonic() - _LISTED_S:
                    self._listed[directory] = time.monotonic()
                    _list(fd)
                    seen = _look(fd, name)
                return seen
        except FileNotFoundError:
            return None


def _look(directory: int, name: bytes) -> VolumeName | None:
    try:
        facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    try:
        gfid = uuid.UUID(os.getxattr(entry_path(directory, name), _GFID, follow_symlinks=False).decode("ascii")).bytes
    except (OSError, ValueError):
        gfid = b""
    return VolumeName(gfid=gfid, type=EntryType.of_mode(facts.st_mode), size_bytes=facts.st_size)


def _list(directory: int) -> None:
    """List a directory with a look-up of each entry. After the first entries the kernel requests look-ups only if the
    caller examines some (FUSE_READDIRPLUS_AUTO).
    """
    with os.scandir(directory) as listing:
        for number, entry in enumerate(listing):
            if number % _EXAMINED == 0:
                with suppress(OSError):
                    os.stat(entry.name, dir_fd=directory, follow_symlinks=False)


async def write_commands(
    directory: str,
    leftovers: Sequence[Leftover],
    *,
    names: VolumeNames,
    blocking: Blocking,
    in_volume: bool,
    again: str,
) -> str | None:
    """Write the commands for leftovers to a file in a run's directory, and return its path; None for none. `again` is the
    command that drains the bricks. `in_volume`: the bricks still belong to it. A name that the volume does not answer for
    has no commands. Raises OSError, TimeoutError.
    """
    if not leftovers:
        return None
    file = Path(directory) / _NAME

    def look(one: Leftover) -> VolumeName | OSError | None:
        if one.kind is not LeftKind.FILE:
            # A client that looks up a file without a gfid may hang (GlusterFS #3688).
            return None
        try:
            return names.look(one.path)
        except OSError as error:
            return error

    def write() -> None:
        seen = [(one, look(one)) for one in leftovers]
        with replacing(file) as stream:
            for line in commands(seen, mount=os.path.realpath(names.root), in_volume=in_volume, again=again):
                stream.write(line.encode("utf-8", "surrogateescape") + b"\n")

    await blocking(write, timeout_s=_TIMEOUT_S)
    return str(file)
