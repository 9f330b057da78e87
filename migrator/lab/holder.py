"""The process that holds one host of a lab: a script of its own, which imports nothing of the program.

It runs in namespaces made by nsenter and unshare, with these arguments:

    HOSTNAME SLEEP LIB LOG NEEDED...

It leaves a `sleep infinity` that keeps the namespaces, and prints its pid. In the mount namespace `/run` and `/srv` are
empty and private, and LIB and LOG are mounted over the directories of glusterd. Every mount that does not lead to one
of the NEEDED directories is detached: a copy of a foreign mount would keep its disk busy forever.
"""

import ctypes
import os
import socket
import sys
from pathlib import Path

_MS_BIND = 4096
_MS_NOSUID, _MS_NODEV = 2, 4
_MNT_DETACH = 2
_GSYNCD = ("lib/*/glusterfs/gsyncd", "lib*/glusterfs/gsyncd", "libexec/glusterfs/gsyncd")
_NO_GSYNCD = """#!/bin/sh
[ "$1" != --version ] || echo gsyncd.none
"""
"""The stub that replaces it: glusterd checks whether the program exists, and requires every call to succeed."""

_SYSTEM = (b"/proc", b"/sys", b"/dev", b"/usr", b"/etc")

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, subject: bytes) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), subject)


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None) -> None:
    _check(_libc.mount(source, target, kind, ctypes.c_ulong(flags), data), target)


def _beneath(path: bytes, directory: bytes) -> bool:
    return path == directory or path.startswith(directory.rstrip(b"/") + b"/")


def _unescaped(field: bytes) -> bytes:
    """Decode a mount point of mountinfo, in which blanks, tabs, newlines and backslashes are three octal digits."""
    first, *others = field.split(b"\\")
    return first + b"".join(bytes((int(other[:3], 8),)) + other[3:] for other in others)


def _detach_what_is_not_needed(needed: list[bytes]) -> None:
    with open("/proc/self/mountinfo", "rb") as mounts:
        points = [_unescaped(line.split(b" ")[4]) for line in mounts]
    for point in sorted(points, key=len, reverse=True):
        holds_needed = any(_beneath(path, point) for path in needed)
        if not holds_needed and not any(_beneath(point, directory) for directory in _SYSTEM):
            _libc.umount2(point, _MNT_DETACH)  # a mount beneath a detached one is gone already


def _become_the_host(hostname: str, library: bytes, log: bytes, needed: list[bytes]) -> None:
    socket.sethostname(hostname)
    _detach_what_is_not_needed(needed)
    _mount(library, b"/var/lib/glusterd", None, _MS_BIND, None)
    _mount(log, b"/var/log/glusterfs", None, _MS_BIND, None)
    _mount(b"tmpfs", b"/srv", b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=755")
    _mount(b"tmpfs", b"/run", b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=755")
    os.makedirs("/run/gluster")
    os.makedirs("/run/lock")
    _leave_out_geo_replication()


def _leave_out_geo_replication() -> None:
    """Mount a stub over glusterd's geo-replication program. No lab uses it, and glusterd calls it a dozen times at each
    start: each call starts a Python process, which takes longer than everything else.
    """
    stub = Path("/run/gsyncd")
    stub.write_text(_NO_GSYNCD)
    stub.chmod(0o755)
    for place in {found.resolve() for pattern in _GSYNCD for found in Path("/usr").glob(pattern)}:
        _mount(bytes(stub), bytes(place), None, _MS_BIND, None)


def _hold(sleep: str, ready_fd: int) -> None:
    os.setsid()
    null_fd = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null_fd, fd)
    os.chdir("/")
    os.write(ready_fd, b"1")
    os.execv(sleep, ["sleep", "infinity"])  # noqa: S606 (this script is what the executor started)


def main(arguments: list[str]) -> int:
    """Set up the host, start its holder, and print the holder's pid."""
    hostname, sleep, *rest = arguments
    library, log, *needed = [os.fsencode(argument) for argument in rest]
    try:
        _become_the_host(hostname, library, log, [b"/", library, log, *needed])
    except OSError as error:
        sys.stderr.write(f"{error.strerror}: {os.fsdecode(error.filename or b'')}\n")
        return 1
    ready_fd, hold_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready_fd)
        _hold(sleep, hold_fd)
    os.close(hold_fd)
    if os.read(ready_fd, 1) != b"1":
        sys.stderr.write("the holder ended before it was ready\n")
        return 1
    sys.stdout.write(f"{pid}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
