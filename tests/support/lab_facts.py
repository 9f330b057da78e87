"""What is really in a tree of a lab, read by descriptor, and how each odd kind is told by its facts alone."""

import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT
from migrator.lab.model import OddKind


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


Proof = Callable[[bytes, Fact], bool]


def _name_holds(*needles: bytes) -> Proof:
    return lambda _path, fact: any(needle in fact.name for needle in needles)


def _invalid_utf8(_path: bytes, fact: Fact) -> bool:
    try:
        fact.name.decode()
    except UnicodeDecodeError:
        return True
    return False


def _type(file_type: int) -> Proof:
    return lambda _path, fact: fact.type_is(file_type)


def _target(test: Callable[[bytes], bool]) -> Proof:
    return lambda _path, fact: fact.type_is(stat.S_IFLNK) and test(fact.symlink_target)


def _permissions(file_type: int, test: Callable[[int], bool]) -> Proof:
    return lambda _path, fact: fact.type_is(file_type) and test(fact.permissions)


def _under(kind: OddKind, file_type: int, names: int) -> Proof:
    folder = b"/" + kind.value.encode() + b"/"
    return lambda path, fact: folder in b"/" + path and fact.type_is(file_type) and fact.status.st_nlink >= names


def _has(key: bytes) -> Proof:
    return lambda _path, fact: key in fact.xattrs


def _file(test: Callable[[os.stat_result], bool]) -> Proof:
    return lambda _path, fact: fact.type_is(stat.S_IFREG) and test(fact.status)


ODD_PROOFS: Mapping[OddKind, Proof] = {
    OddKind.NAME_NEWLINE: _name_holds(b"\n"),
    OddKind.NAME_INVALID_UTF8: _invalid_utf8,
    OddKind.NAME_LEADING_DASH: lambda _path, fact: fact.name.startswith(b"-"),
    OddKind.NAME_SPACE: lambda _path, fact: fact.name.strip() != fact.name,
    OddKind.NAME_QUOTES: lambda _path, fact: b"'" in fact.name and b'"' in fact.name,
    OddKind.NAME_BACKSLASH: _name_holds(b"\\"),
    OddKind.NAME_OCTAL_ESCAPE: _name_holds(b"\\#012"),
    OddKind.NAME_CONTROL: _name_holds(b"\x1b"),
    OddKind.NAME_PATTERN: lambda _path, fact: fact.name in (b"*", b"[a-z]"),
    OddKind.NAME_MARKUP: _name_holds(b"<script>"),
    OddKind.NAME_UNICODE: _name_holds("\u202e".encode()),
    OddKind.NAME_255_BYTES: lambda _path, fact: len(fact.name) == 255,
    OddKind.NAME_RSYNC_TEMPORARY: lambda _path, fact: fact.name == b".x.AbC123",
    OddKind.NAME_GLUSTERFS: lambda _path, fact: fact.name == b".glusterfs" and fact.type_is(stat.S_IFDIR),
    OddKind.DEEP_PATH: lambda path, fact: len(path) > 3900 and fact.type_is(stat.S_IFREG),
    OddKind.HARD_LINK_SAME_DIRECTORY: _under(OddKind.HARD_LINK_SAME_DIRECTORY, stat.S_IFREG, 4),
    OddKind.HARD_LINK_ACROSS_DIRECTORIES: _under(OddKind.HARD_LINK_ACROSS_DIRECTORIES, stat.S_IFREG, 3),
    OddKind.HARD_LINK_ACROSS_TREES: _under(OddKind.HARD_LINK_ACROSS_TREES, stat.S_IFREG, 2),
    OddKind.HARD_LINK_SYMLINK: _under(OddKind.HARD_LINK_SYMLINK, stat.S_IFLNK, 2),
    OddKind.SYMLINK_RELATIVE: _target(lambda target: target == b"file"),
    OddKind.SYMLINK_ABSOLUTE: _target(lambda target: target == b"/etc/hostname"),
    OddKind.SYMLINK_DANGLING: _target(lambda target: target == b"/no/such/file"),
    OddKind.SYMLINK_LOOP: lambda _path, fact: fact.symlink_target == fact.name == b"itself",
    OddKind.SYMLINK_ACROSS_TREES: _under(OddKind.SYMLINK_ACROSS_TREES, stat.S_IFLNK, 1),
    OddKind.SYMLINK_INTO_SOURCE: _under(OddKind.SYMLINK_INTO_SOURCE, stat.S_IFLNK, 1),
    OddKind.SYMLINK_LONG: _target(lambda target: len(target) == 1000),
    OddKind.SPARSE: _file(lambda status: status.st_size > 1 << 20 and 0 < status.st_blocks * 512 < status.st_size // 2),
    OddKind.HOLE_ONLY: lambda _path, fact: fact.name == b"hole-only" and fact.status.st_blocks == 0,
    OddKind.EMPTY_FILE: _file(lambda status: status.st_size == 0),
    OddKind.SIZE_EDGES: _file(lambda status: status.st_size == 4097),
    OddKind.ACL_ACCESS: _has(ACL_ACCESS),
    OddKind.ACL_DEFAULT: _has(ACL_DEFAULT),
    OddKind.USER_XATTR: lambda _path, fact: fact.xattrs.get(b"user.binary") == bytes(range(256)),
    OddKind.FILE_CAPABILITY: _has(b"security.capability"),
    OddKind.FIFO: _type(stat.S_IFIFO),
    OddKind.SOCKET: _type(stat.S_IFSOCK),
    OddKind.CHARACTER_DEVICE: _type(stat.S_IFCHR),
    OddKind.BLOCK_DEVICE: _type(stat.S_IFBLK),
    OddKind.SETUID: _permissions(stat.S_IFREG, lambda mode: bool(mode & stat.S_ISUID)),
    OddKind.SETGID: _permissions(stat.S_IFREG, lambda mode: bool(mode & stat.S_ISGID)),
    OddKind.SETGID_DIRECTORY: _permissions(stat.S_IFDIR, lambda mode: bool(mode & stat.S_ISGID)),
    OddKind.STICKY_DIRECTORY: _permissions(stat.S_IFDIR, lambda mode: bool(mode & stat.S_ISVTX)),
    OddKind.READ_ONLY_DIRECTORY: _permissions(stat.S_IFDIR, lambda mode: not mode & 0o222),
    OddKind.FOREIGN_OWNER: lambda _path, fact: fact.status.st_uid >= 20900,
    OddKind.EMPTY_DIRECTORY: lambda path, fact: path.endswith(b"empty-directory/c") and fact.type_is(stat.S_IFDIR),
    OddKind.MODE_000: _permissions(stat.S_IFREG, lambda mode: mode == 0),
    OddKind.OLD_TIMES: lambda _path, fact: fact.status.st_mtime_ns == 0,
    OddKind.FUTURE_TIMES: lambda _path, fact: fact.status.st_mtime > 2**31,
    OddKind.SUBSECOND_TIMES: lambda _path, fact: fact.status.st_mtime_ns % 10**9 == 999_999_999,
}
