"""The mounts of this process's namespace."""

import os

from migrator.fs.model import Mount, parse_mountinfo

_MOUNTINFO = b"/proc/self/mountinfo"


def read_mounts() -> tuple[Mount, ...]:
    """Raises OSError."""
    fd = os.open(_MOUNTINFO, os.O_RDONLY | os.O_CLOEXEC)
    with open(fd, "rb") as stream:
        return parse_mountinfo(stream.read())
