"""A file system that is mounted here, seen at the same path by the hosts of a lab, which have mounts of their own.

Run as `python -m tests.support.cluster.shared_mount PATH PID`, it puts the mount at PATH into the namespace of a process.
"""

import ctypes
import os
import sys

# linux/mount.h; the numbers of these calls are the same on every architecture.
_OPEN_TREE, _MOVE_MOUNT = 428, 429
_OPEN_TREE_CLONE, _FROM_EMPTY_PATH = 1, 4
_AT_FDCWD = -100
_CLONE_NEWNS = 0x00020000


def _put(path: bytes, pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    mount = _checked(libc, libc.syscall(_OPEN_TREE, _AT_FDCWD, path, _OPEN_TREE_CLONE))
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    _checked(libc, libc.setns(namespace, _CLONE_NEWNS))
    _checked(libc, libc.syscall(_MOVE_MOUNT, mount, b"", _AT_FDCWD, path, _FROM_EMPTY_PATH))


def _checked(libc: ctypes.CDLL, result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


if __name__ == "__main__":
    _put(os.fsencode(sys.argv[1]), int(sys.argv[2]))
