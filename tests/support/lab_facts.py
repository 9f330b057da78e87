"""What is really in a tree of a lab, read by descriptor."""

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One path as it is on the disk."""

    name: bytes
    status: os.stat_result
    digest: bytes
    symlink_target: bytes
    xattrs: Mapping[bytes, bytes]

    def type_is(self, file_type: int) -> bool:
        return stat.S_IFMT(self.status.st_mode) == file_type

    @property
    def permissions(self) -> int:
        return stat.S_IMODE(self.status.st_mode)

    @property
    def comparable(self) -> object:
        """What must be equal between two trees of one seed."""
        status = self.status
        directory = self.type_is(stat.S_IFDIR)
        return (
            status.st_mode,
            status.st_uid,
            status.st_gid,
            None if directory else (status.st_size, status.st_nlink, status.st_rdev),
            status.st_mtime_ns,
            self.digest,
            self.symlink_target,
            tuple(sorted(self.xattrs.items())),
        )


def _look(directory_fd: int, name: bytes) -> Fact:
    status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    digest = hashlib.blake2b(digest_size=16)
    if stat.S_ISREG(status.st_mode):
        flags = os.O_RDONLY | os.O_NOFOLLOW | (os.O_NOATIME if os.geteuid() == 0 else 0)
        with os.fdopen(os.open(name, flags, dir_fd=directory_fd), "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    target = os.readlink(name, dir_fd=directory_fd) if stat.S_ISLNK(status.st_mode) else b""
    through = b"/proc/self/fd/%d/%s" % (directory_fd, name)
    keys = [os.fsencode(key) for key in os.listxattr(through, follow_symlinks=False)]
    kept = (ACL_ACCESS, ACL_DEFAULT, b"security.capability")
    xattrs = {
        key: os.getxattr(through, key, follow_symlinks=False) for key in keys if key.startswith(b"user.") or key in kept
    }
    return Fact(name=name, status=status, digest=digest.digest(), symlink_target=target, xattrs=xattrs)


def walk(tree: bytes) -> dict[bytes, Fact]:
    """Every path beneath a tree, relative to it, however deep."""
    found: dict[bytes, Fact] = {}

    def enter(directory_fd: int, prefix: bytes) -> None:
        for name in sorted(os.fsencode(entry) for entry in os.listdir(directory_fd)):
            fact = _look(directory_fd, name)
            found[prefix + name] = fact
            if fact.type_is(stat.S_IFDIR):
                fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory_fd)
                try:
                    enter(fd, prefix + name + b"/")
                finally:
                    os.close(fd)

    root_fd = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    try:
        enter(root_fd, b"")
    finally:
        os.close(root_fd)
    return found
