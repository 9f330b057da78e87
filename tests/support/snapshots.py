"""What lies in a tree, for comparing two of them: everything that a copy has to bring over."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from migrator.fs.model import JOURNAL_NAME
from migrator.fs.rules_owners import OwnerMap


def snapshot(tree: bytes, *, directories: bool = True) -> dict[bytes, tuple[object, ...]]:
    """Every path below a tree, by its name relative to it, whatever its length; the tree's own directory is left out, and the
    journal, which every command writes to.
    """
    seen: dict[bytes, tuple[object, ...]] = {}
    groups: dict[tuple[int, int], list[bytes]] = {}
    for name, fd, last, found in walk(tree):
        if name == JOURNAL_NAME or (stat.S_ISDIR(found.st_mode) and not directories):
            continue
        seen[name] = (*_facts(found), *_content(fd, last, found))
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            groups.setdefault((found.st_dev, found.st_ino), []).append(name)
    for names in groups.values():
        for name in names if len(names) > 1 else ():
            seen[name] += (tuple(sorted(names)),)
    return seen


def mapped_snapshot(tree: Path, owners: OwnerMap) -> dict[bytes, tuple[object, ...]]:
    """As `snapshot`, with owners and ACLs in another numbering, and without the form in which XFS stores an ACL."""

    def mapped(fact: Any) -> Any:
        if not isinstance(fact, tuple) or not all(isinstance(one, tuple) for one in fact):
            return fact
        named = [(name, owners.acl(value) if "posix_acl" in name else value) for name, value in fact]
        return tuple(one for one in named if not one[0].startswith("trusted.SGI_ACL_"))

    found: dict[bytes, tuple[Any, ...]] = snapshot(os.fsencode(tree))
    return {
        name: (mode, owners.uid(uid), owners.gid(gid), *map(mapped, others))
        for name, (mode, uid, gid, *others) in found.items()
    }


def names_of(tree: bytes) -> tuple[list[bytes], list[bytes]]:
    """The directories, outermost first, and everything else, in order."""
    directories: list[bytes] = []
    others: list[bytes] = []
    for name, _, _, found in walk(tree):
        (directories if stat.S_ISDIR(found.st_mode) else others).append(name)
    return directories, others


def walk(
    tree: bytes, *, but: Callable[[bytes], bool] = lambda _: False, _prefix: bytes = b"", _above: int | None = None
) -> Iterator[tuple[bytes, int, bytes, os.stat_result]]:
    """Paths below a tree, outermost first, but `but` in its top: path, descriptor of the directory, name, lstat."""
    fd = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NOATIME, dir_fd=_above)
    try:
        for name in sorted(os.fsencode(name) for name in os.listdir(fd)):
            if _above is None and but(name):
                continue
            found = os.lstat(name, dir_fd=fd)
            yield _prefix + name, fd, name, found
            if stat.S_ISDIR(found.st_mode):
                yield from walk(name, _prefix=_prefix + name + b"/", _above=fd)
    finally:
        os.close(fd)


def _facts(found: os.stat_result) -> tuple[object, ...]:
    size = 0 if stat.S_ISDIR(found.st_mode) else found.st_size
    return (stat.filemode(found.st_mode), found.st_uid, found.st_gid, size, found.st_mtime_ns, found.st_rdev)


def _content(directory_fd: int, last: bytes, found: os.stat_result) -> tuple[object, ...]:
    path = b"/proc/self/fd/%d/%s" % (directory_fd, last)
    names = sorted(os.listxattr(path, follow_symlinks=False))
    attributes = tuple((name, os.getxattr(path, name, follow_symlinks=False)) for name in names)
    if stat.S_ISLNK(found.st_mode):
        return (attributes, os.readlink(last, dir_fd=directory_fd))
    if not stat.S_ISREG(found.st_mode):
        return (attributes,)
    fd = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NOATIME, dir_fd=directory_fd)
    with open(fd, "rb") as file:
        return (attributes, hashlib.file_digest(file, "blake2b").hexdigest())
