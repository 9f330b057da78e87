"""What the root of a brick says of it, in plain Python 3.9."""

from __future__ import annotations

import os
import stat
import struct

from migrator.adapters.bricks.walker_attributes import GFID, VOLUME_ID
from migrator.adapters.bricks.walker_frames import VERSION

UNKNOWN = 0xFFFF_FFFF_FFFF_FFFF
IS_BRICK, HAS_VOLUME_ID, HAS_ROOT_GFID = 1, 2, 4
ROOT_GFID = bytes(15) + b"\1"


def pending_in(root: int, path: bytes, base: bytes) -> int:
    """Entries of an index beside its base file; UNKNOWN where they cannot be counted."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    except FileNotFoundError:
        return 0
    except OSError:
        return UNKNOWN
    try:
        with os.scandir(fd) as listing:
            return sum(not os.fsencode(entry.name).startswith(base) for entry in listing)
    except OSError:
        return UNKNOWN
    finally:
        os.close(fd)


def hello(root: int) -> tuple[bytes, bool]:
    """The first frame's payload, and whether this is a brick's root."""
    values = []
    flags = 0
    for key, flag in ((VOLUME_ID, HAS_VOLUME_ID), (GFID, HAS_ROOT_GFID)):
        try:
            value = os.getxattr(root, key)
        except OSError:
            value = b""
        flags |= flag if len(value) == 16 else 0
        values.append(value if len(value) == 16 else bytes(16))
    try:
        store = stat.S_ISDIR(os.stat(b".glusterfs", dir_fd=root, follow_symlinks=False).st_mode)
    except OSError:
        store = False
    is_brick = flags == HAS_VOLUME_ID | HAS_ROOT_GFID and values[1] == ROOT_GFID and store
    heals = [
        pending_in(root, b".glusterfs/indices/xattrop", b"xattrop-"),
        pending_in(root, b".glusterfs/indices/dirty", b"dirty-"),
    ]
    pending = UNKNOWN if UNKNOWN in heals else sum(heals)
    flags |= IS_BRICK if is_brick else 0
    return struct.pack("<II16s16sQQ", VERSION, flags, *values, pending, os.fstat(root).st_dev), is_brick


def mounts_beneath(brick: bytes) -> set[bytes]:
    """Where something is mounted beneath the brick, from its root: also parts of the same file system."""
    prefix = os.path.realpath(brick).rstrip(b"/") + b"/"
    found = set()
    with open("/proc/self/mountinfo", "rb") as table:
        for line in table:
            words = line.split(b" ")
            if len(words) > 4:
                for code, character in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
                    words[4] = words[4].replace(code, character)
                if words[4].startswith(prefix):
                    found.add(words[4][len(prefix) :])
    return found
