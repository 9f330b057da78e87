"""Lists everything else on the disk of a brick: other names, file systems, bricks and storage targets. Plain Python
3.9, run on the brick's host as root. Changes nothing.

Reads a question (JSON, paths as latin-1) from standard input. `path` is a brick or the mount point of its file system;
`mine` are paths that may be on it (if not `full`, only empty ones). Prints the answer as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

_SHOWN = 20
BLOCK_DEVICES = "/sys/dev/block"
_VOLUME_ID = "trusted.glusterfs.volume-id"
_BEEGFS_STORAGE = {b"chunks", b"format.conf"}
_PARTS_OF_THIN_POOLS = ("-pool", "-tpool", "-tdata", "-tmeta")


def line_of(path: str) -> str:
    """The first line of a file of sysfs; empty if there is none."""
    try:
        with open(path, "rb") as file:
            return file.readline().replace(b"\0", b"").strip().decode("utf-8", "backslashreplace")
    except OSError:
        return ""


def names_in(path: Any) -> list[Any]:
    """The names in a directory, in order; none if it cannot be read."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def is_within(path: bytes, directory: bytes) -> bool:
    """Whether a path is a directory or below it."""
    return path == directory or path.startswith(directory.rstrip(b"/") + b"/")


class DiskMount:
    """One line of a mount table. `own`: it belongs to this process's namespace."""

    def __init__(self, line: bytes, *, own: bool) -> None:
        words, _, after = line.partition(b" - ")
        self.device, point = words.split(b" ")[2].decode(), words.split(b" ")[4]
        self.point = point.decode("unicode_escape").encode("latin-1")
        self.filesystem, self.source = after.decode("utf-8", "backslashreplace").split(" ")[:2]
        self.own = own
        if self.filesystem == "btrfs" and os.path.exists(self.source):
            # sysfs does not know its device numbers.
            number = os.stat(self.source).st_rdev
            self.device = f"{os.major(number)}:{os.minor(number)}"

    def shares(self, other: DiskMount) -> bool:
        """Whether both are on one pool of ZFS, which does not report its disks."""
        same = self.source.split("/")[0] == other.source.split("/")[0]
        return self.filesystem == other.filesystem == "zfs" and same


def mounts() -> list[DiskMount]:
    """Every mount of every mount namespace, once each: a container may have mounted the disk elsewhere."""
    seen: set[str] = set()
    found: dict[tuple[str, bytes], DiskMount] = {}
    for process in ["self", *filter(str.isdigit, names_in("/proc"))]:
        try:
            namespace = os.readlink("/proc/" + process + "/ns/mnt")
            if namespace in seen:
                continue
            with open("/proc/" + process + "/mountinfo", "rb") as table:
                for line in table:
                    mount = DiskMount(line, own=process == "self")
                    found.setdefault((mount.device, mount.point), mount)
            seen.add(namespace)
        except OSError:
            continue
    return list(found.values())


class Disk:
    """The block devices (`names` by major:minor) that share a disk with one of them, through partitions, LVM, md and
    the like.

    `ends` are devices on which no other device is built. `identity` is independent of the content of the disk.
    """

    def __init__(self, device: str) -> None:
        self.names: dict[str, str] = {}
        self.ends: list[str] = []
        self._disks: list[str] = []
        own = os.path.realpath(BLOCK_DEVICES + "/" + device)
        self._down(own)
        for disk in list(self._disks):
            self._up(disk)
        part = line_of(own + "/partition") or line_of(own + "/dm/uuid")
        self.identity = " ".join([*(identity_of(disk) for disk in sorted(self._disks)), part]).strip()

    def _down(self, directory: str) -> None:
        """Find the disks below a device."""
        if os.path.exists(directory + "/partition"):
            self._down(os.path.dirname(directory))
            return
        below = names_in(directory + "/slaves")
        for name in below:
            self._down(os.path.realpath(directory + "/slaves/" + name))
        if not below and directory not in self._disks and os.path.isdir(directory):
            self._disks.append(directory)

    def _up(self, directory: str) -> None:
        """Find all devices that are built on a device."""
        device = line_of(directory + "/dev")
        if device in self.names:
            return
        self.names[device] = os.path.basename(directory)
        parts = [directory + "/" + name for name in names_in(directory)]
        above = [part for part in parts if os.path.exists(part + "/partition")]
        above += [os.path.realpath(directory + "/holders/" + name) for name in names_in(directory + "/holders")]
        for one in above:
            self._up(one)
        if not above and not line_of(directory + "/dm/uuid").endswith(_PARTS_OF_THIN_POOLS):
            self.ends.append(device)


def identity_of(disk: str) -> str:
    """The identity of a disk, to distinguish it from others. A disk without a serial number is identified only by name
    and size.
    """
    keys = ("wwid", "device/wwid", "serial", "device/serial", "loop/backing_file", "dm/uuid", "md/uuid")
    known = [value for key in keys if (value := line_of(disk + "/" + key))]
    return known[0] if known else os.path.basename(disk) + ":" + line_of(disk + "/size")


def what_is(path: bytes) -> str:
    """The known purpose of a directory, for people."""
    try:
        return "a brick of volume " + os.getxattr(path, _VOLUME_ID).hex()
    except OSError:
        return "a storage target of BeeGFS" if set(names_in(path)) >= _BEEGFS_STORAGE else ""


def beside(top: bytes, mine: list[bytes]) -> Iterator[bytes]:
    """The outermost paths of a file system that neither are nor contain one of `mine`."""
    for name in names_in(top):
        path = top.rstrip(b"/") + b"/" + name
        if path in mine or name == b"lost+found":
            continue
        if any(is_within(one, path) for one in mine):
            yield from beside(path, mine)
        else:
            yield path


def unexplained(
    disk: Disk, path: bytes, mine: list[bytes], own: DiskMount, table: list[DiskMount], *, full: bool
) -> Iterator[str]:
    """Everything on a disk that is not in `mine`."""
    of_disk = [one for one in table if one.device in (own.device, *disk.names) or one.shares(own)]
    for mount in of_disk:
        if mount.device != own.device:
            yield shown(mount.point) + " (" + disk.names.get(mount.device, mount.source) + ", on the same disk)"
        elif mount.point != own.point:
            yield shown(mount.point) + " (the same file system, mounted again)"
    for other in beside(own.point, mine):
        label = what_is(other)
        yield shown(other) + (" (" + label + ")" if label else "")
    for one in () if full else mine:
        yield from (shown(one + b"/" + name) for name in names_in(one) if one != own.point)
    for mount in table:
        if mount.own and mount.point not in (path, own.point) and is_within(mount.point, path):
            yield shown(mount.point) + " (a file system that is mounted in it)"
    used = {one.device for one in of_disk}
    for device in disk.ends:
        if device not in used:
            yield disk.names[device] + " (on the same disk, not mounted)"


def shown(path: bytes) -> str:
    """A path for people."""
    return path.decode("utf-8", "backslashreplace").encode("unicode_escape").decode()


def answer(path: bytes, mine: list[bytes], *, full: bool) -> dict[str, Any]:
    """The inventory; `mount` is empty if the path is on the file system of the root directory."""
    there = path
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if os.path.realpath(there) != there:
        raise SystemExit("a symlink is on the way to it")
    table = mounts()
    above = [one for one in table if one.own and is_within(there, one.point)]
    deepest = max(len(one.point) for one in above)
    # The last one covers the others.
    own = [one for one in above if len(one.point) == deepest][-1]
    if own.point == b"/":
        return {"mount": "", "identity": "", "unexplained": []}
    disk = Disk(own.device)
    found = list(unexplained(disk, path, mine, own, table, full=full))
    return {"mount": shown(own.point), "identity": disk.identity or own.source, "unexplained": found[:_SHOWN]}


def main() -> None:
    """Answer the question."""
    question = json.load(sys.stdin)
    mine = [one.encode("latin-1") for one in question["mine"]]
    json.dump(answer(question["path"].encode("latin-1"), mine, full=question["full"]), sys.stdout)
