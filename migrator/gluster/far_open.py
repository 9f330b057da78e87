"""Finds the open files of a brick. Plain Python 3.9, run on the brick's host. Changes nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct

_LOOP_GET_STATUS64 = 0x4C05
_LOOP_STATUS_BYTES = 232
"""linux/loop.h: device (as the kernel packs it) and inode of the file come first."""

_GONE = (errno.ENOENT, errno.ESRCH)

_LEASES_TELL_SINCE = (5, 4)
"""The first Linux version whose leases are reliable: before, a second cached name of a file prevented a lease just as
an open descriptor does."""


class OpenFiles:
    """The `inodes` that processes and loop devices of this machine have open on one device. `unknown` has a sentence
    for each process or device that may have files open there but could not be read.
    """

    def __init__(self, device: int) -> None:
        self._device = device
        self._elsewhere: dict[bytes, frozenset[bytes]] = {}
        self.inodes: set[int] = set()
        self.unknown: list[str] = []

    def find(self) -> None:
        """Read all processes and loop devices."""
        own = os.getpid()
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != own:
                try:
                    self._look_at_process(b"/proc/" + name.encode())
                except OSError as error:
                    if error.errno not in _GONE and self._sees_the_brick(b"/proc/" + name.encode()):
                        self.unknown.append(f"process {name}: {error.strerror}")
        try:
            for device in os.listdir("/sys/block"):
                if os.path.exists(f"/sys/block/{device}/loop"):  # only while it has a file
                    self._look_at_loop_device(f"/dev/{device}")
        except OSError as error:
            self.unknown.append(f"loop devices: {error.strerror}")

    def _see(self, device: int, inode: int) -> None:
        if device == self._device:
            self.inodes.add(inode)

    def _look_at_loop_device(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = fcntl.ioctl(fd, _LOOP_GET_STATUS64, bytes(_LOOP_STATUS_BYTES))
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        finally:
            os.close(fd)
        encoded, inode = struct.unpack_from("=QQ", status)
        self._see(os.makedev((encoded >> 8) & 0xFFF, (encoded & 0xFF) | ((encoded >> 12) & 0xFFF00)), inode)

    def _look_at_process(self, base: bytes) -> None:
        for task in _tasks(base):
            elsewhere = self._mounted_elsewhere(task)
            for name in map(os.fsencode, os.listdir(task + b"/fd")):
                try:
                    if _mount_of(task + b"/fdinfo/" + name) in elsewhere:
                        continue
                    facts = os.stat(task + b"/fd/" + name)
                except OSError as error:
                    if error.errno in _GONE:
                        continue
                    raise
                self._see(facts.st_dev, facts.st_ino)
        with open(base + b"/maps", "rb") as maps:
            for line in maps:
                words = line.split(None, 5)
                major, _, minor = words[3].partition(b":")
                self._see(os.makedev(int(major, 16), int(minor, 16)), int(words[4]))

    def _sees_the_brick(self, base: bytes) -> bool:
        """Whether an unreadable process may have files of the brick open: not if the brick's file system is not mounted
        in its namespace. Unlike its descriptors, its mounts are readable for all (proc(5)).
        """
        try:
            with open(base + b"/mountinfo", "rb") as table:
                return any(_device_of(line) == self._device for line in table)
        except OSError as error:
            return error.errno not in _GONE

    def _mounted_elsewhere(self, task: bytes) -> frozenset[bytes]:
        """The mounts of a process's namespace that belong to other file systems: a hung one must not block the search."""
        namespace = os.readlink(task + b"/ns/mnt")
        if namespace not in self._elsewhere:
            found = set()
            with open(task + b"/mountinfo", "rb") as table:
                for line in table:
                    if _device_of(line) != self._device:
                        found.add(line.split(b" ", 1)[0])
            self._elsewhere[namespace] = frozenset(found)
        return self._elsewhere[namespace]


def leases_tell() -> bool:
    """Whether `is_held` is reliable on this kernel."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return found is not None and (int(found[1]), int(found[2])) >= _LEASES_TELL_SINCE


def is_held(fd: int) -> bool | None:
    """Whether any other process has a regular file open, by the kernel's count for a lease: this includes descriptors
    and maps from outside a container. None if the kernel cannot report it. The caller must ignore SIGIO, which
    arrives if a process opens the file meanwhile.
    """
    try:
        # A process that opens the file now waits until the lease is released.
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    return False


def _tasks(base: bytes) -> list[bytes]:
    """The process, or its threads if the main thread has ended: their descriptor tables may then differ."""
    with open(base + b"/stat", "rb") as file:
        ended = file.read().rpartition(b") ")[2][:1] in (b"Z", b"X")
    if not ended:
        return [base]
    found = [b"%s/task/%s" % (base, os.fsencode(one)) for one in os.listdir(base + b"/task")]
    return found if len(found) > 1 else []


def _device_of(mount: bytes) -> int:
    """The number of the device in a line of mountinfo."""
    major, _, minor = mount.split(b" ")[2].partition(b":")
    return os.makedev(int(major), int(minor))


def _mount_of(fdinfo: bytes) -> bytes:
    with open(fdinfo, "rb") as file:
        for line in file:
            if line.startswith(b"mnt_id:"):
                return line.split()[1]
    return b""
