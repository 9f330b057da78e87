"""What is mounted where, as the kernel's mountinfo tells it (proc_pid_mountinfo(5))."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.domain.paths import is_beneath

_ESCAPED = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line: where it is mounted, the type of the file system (`fuse.glusterfs`), what was mounted, and whether the
    times of reading are left alone there (`noatime`).
    """

    point: bytes
    filesystem: str
    source: bytes
    no_atime: bool = False


def parse_mountinfo(text: bytes) -> tuple[Mount, ...]:
    r"""Every mount, in the order in which the kernel lists them; lines that cannot be read are left out.

    Blanks, tabs, newlines and backslashes in names come as `\ooo` and are turned back.
    """
    mounts: list[Mount] = []
    for line in text.split(b"\n"):
        before, separator, after = line.partition(b" - ")
        fields, tail = before.split(b" "), after.split(b" ")
        if not separator or len(fields) < 6 or len(tail) < 2:
            continue
        mounts.append(
            Mount(
                point=_plain(fields[4]),
                filesystem=tail[0].decode("ascii", "replace"),
                source=_plain(tail[1]),
                no_atime=b"noatime" in fields[5].split(b","),
            )
        )
    return tuple(mounts)


def mount_of(mounts: Sequence[Mount], path: bytes) -> Mount | None:
    """The mount that shows an absolute path without symlinks: the deepest, and of several at one place the last."""
    found: Mount | None = None
    for mount in mounts:
        if _shows(mount.point, path) and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def mounts_beneath(mounts: Sequence[Mount], path: bytes) -> frozenset[bytes]:
    """Mount points below an absolute path, relative to it; the path itself is not among them."""
    return frozenset(
        mount.point[len(path.rstrip(b"/")) + 1 :]
        for mount in mounts
        if mount.point != path and _shows(path, mount.point)
    )


def _shows(directory: bytes, path: bytes) -> bool:
    # The root of all lies at "/", which as a directory of a path without its slash is b"".
    return is_beneath(path, directory.rstrip(b"/"))


def _plain(escaped: bytes) -> bytes:
    return _ESCAPED.sub(lambda found: bytes((int(found.group(1), 8) & 0xFF,)), escaped)
