"""The path of a descriptor inside its file system, from mountinfo and through any bind mount; in plain Python 3.9."""

from __future__ import annotations

import os
import re

_ESCAPED = re.compile(rb"\\([0-7]{3})")


def read(path: bytes) -> bytes:
    """Read a file of /proc or /sys."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        return file.read()


def below(path: bytes, directory: bytes) -> bool:
    """Whether a path is the directory or lies in it."""
    return not directory or path == directory or path.startswith(directory + b"/")


def open_beneath(root: int, path: bytes) -> int:
    """Open a path below a descriptor with O_PATH, without symlinks."""
    fd = os.dup(root)
    try:
        for name in path.split(b"/") if path else ():
            deeper = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = deeper
    except OSError:
        os.close(fd)
        raise
    return fd


class Mounts:
    """The mounts of one namespace, by number and by place. Each is the device of its file system (`8:1`), the directory
    of that file system that is mounted, and the mount point. `types` are the file system types by device.
    """

    def __init__(self, text: bytes) -> None:
        self.by_number: dict[bytes, tuple[bytes, bytes, bytes]] = {}
        self._by_point: dict[bytes, tuple[bytes, bytes, bytes]] = {}
        self.types: dict[bytes, bytes] = {}
        for line in text.split(b"\n"):
            words = [_ESCAPED.sub(lambda found: bytes((int(found[1], 8) & 255,)), word) for word in line.split(b" ")]
            if len(words) > 5:
                mount = (words[2], words[3], words[4])
                self.by_number[words[0]] = self._by_point[words[4].rstrip(b"/")] = mount
                self.types[words[2]] = words[words.index(b"-") + 1]

    def of(self, path: bytes) -> tuple[bytes, bytes, bytes] | None:
        """The mount that shows a path."""
        while path not in self._by_point:
            if not path:
                return None
            path = path.rpartition(b"/")[0]
        return self._by_point[path]


def inside(mount: tuple[bytes, bytes, bytes], shown: bytes) -> bytes | None:
    """The path inside the file system; None if the mount does not show it."""
    point = mount[2].rstrip(b"/")
    if not below(shown, point):
        return None
    return (mount[1].rstrip(b"/") + shown[len(point) :]).rstrip(b"/")


def look_at_descriptor(fdinfo: bytes) -> tuple[int, bytes]:
    """The flags of a descriptor, and the number of its mount."""
    facts = dict(line.split(b":", 1) for line in read(fdinfo).split(b"\n") if b":" in line)
    return int(facts[b"flags"], 8), facts[b"mnt_id"].strip()
