"""The trees of a question, and the names of files below them, in plain Python 3.9.

A descriptor shows only one name of its file, on a brick often the one in Gluster's own store. The other names come from the
attributes that Gluster keeps with a file (gfid2path) or, if these are not complete, from a walk that compares inode numbers.
Files are opened with O_PATH only, and symlinks are never followed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress

from migrator.cutover.far_mounts import Mounts, below, inside, look_at_descriptor, open_beneath

GONE = (errno.ENOENT, errno.ESRCH, errno.ENOTDIR, errno.ELOOP)

_ROOT_GFID = b"00000000-0000-0000-0000-000000000001"
_GFID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME_ATTRIBUTE = "trusted.gfid2path."


def identity(facts: os.stat_result) -> tuple[int, int]:
    """Identifies a file on this machine."""
    return facts.st_dev, facts.st_ino


class Trees:
    """Directories below a root. `devices` are the devices of their file systems in mountinfo, `inner_devices` those
    from stat(2); `unseen` are sentences.
    """

    def __init__(self, root: bytes, trees: Sequence[bytes], mounts: Mounts, *, is_brick: bool) -> None:
        self._root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.identity = identity(os.fstat(self._root))
        self.inner_devices = {self.identity[0]}
        self.unseen: list[str] = []
        self._is_brick = is_brick
        self._tops: list[tuple[bytes, bytes, bytes]] = []
        self._directories = {_ROOT_GFID: b""}
        self.devices: set[bytes] = set()
        if is_brick:
            # A brick process always holds the brick open, whatever the trees: that shows that the brick was searched.
            with suppress(KeyError):
                self.devices.add(mounts.by_number[look_at_descriptor(b"/proc/self/fdinfo/%d" % self._root)[1]][0])
        for tree in trees:
            try:
                self._add(tree, mounts)
            except OSError as error:
                # A directory that is missing on a brick has no files there.
                if not (is_brick and error.errno == errno.ENOENT):
                    self._miss(tree, error)
        self.devices |= {device for _, device, _ in self._tops}

    def named(self, path: bytes, mount: tuple[bytes, bytes, bytes]) -> list[bytes]:
        """The names below the trees of a path inside a file system."""
        return [tree + path[len(top) :] for tree, device, top in self._tops if device == mount[0] and below(path, top)]

    def stands(self, names: Sequence[bytes], facts: os.stat_result) -> bool:
        """Whether the file has one of these names now."""
        for name in names:
            try:
                fd = open_beneath(self._root, name)
            except OSError:
                continue
            try:
                if identity(os.fstat(fd)) == identity(facts):
                    return True
            finally:
                os.close(fd)
        return False

    def kept_names(self, link: bytes, facts: os.stat_result) -> list[bytes] | None:
        """The names below the trees of a file on a brick, by Gluster's attributes; None if these are not complete."""
        names = []
        for key in os.listxattr(link):
            if key.startswith(_NAME_ATTRIBUTE):
                parent, _, name = os.getxattr(link, key).partition(b"/")
                directory = self._directory(parent)
                if directory is not None:
                    names.append(directory + b"/" + name if directory else name)
        standing = [name for name in names if self.stands([name], facts)]
        # st_nlink counts one link more than the names: Gluster's own store holds it.
        if len(standing) < facts.st_nlink - 1:
            return None
        return [name for name in standing if any(below(name, tree) for tree, _, _ in self._tops)]

    def find(self, wanted: set[tuple[int, int]]) -> Iterator[tuple[bytes, tuple[int, int]]]:
        """The names of the wanted files, by a walk over the trees."""
        numbers = {number for _, number in wanted}
        waiting = [tree for tree, _, _ in self._tops]
        while waiting:
            path = waiting.pop()
            try:
                fd = open_beneath(self._root, path)
                try:
                    facts = os.fstat(fd)
                    # A file system mounted below a tree is not part of it.
                    if stat.S_ISDIR(facts.st_mode) and facts.st_dev in self.inner_devices:
                        yield path, identity(facts)
                        yield from self._find_in(fd, path, numbers, waiting)
                finally:
                    os.close(fd)
            except OSError as error:
                if error.errno not in GONE:
                    self._miss(path, error)

    @staticmethod
    def _find_in(
        fd: int, path: bytes, numbers: set[int], waiting: list[bytes]
    ) -> Iterator[tuple[bytes, tuple[int, int]]]:
        listing = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
        try:
            with os.scandir(listing) as entries:
                for entry in entries:
                    name = os.fsencode(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(path + b"/" + name)
                    elif entry.inode() in numbers:
                        yield path + b"/" + name, identity(os.stat(name, dir_fd=fd, follow_symlinks=False))
        finally:
            os.close(listing)

    def _add(self, tree: bytes, mounts: Mounts) -> None:
        fd = open_beneath(self._root, tree)
        try:
            facts = os.fstat(fd)
            if not stat.S_ISDIR(facts.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            mount = mounts.by_number[look_at_descriptor(b"/proc/self/fdinfo/%d" % fd)[1]]
            top = inside(mount, os.readlink(b"/proc/self/fd/%d" % fd))
        except KeyError:
            raise OSError(errno.ENODEV, "its mount is not known") from None
        finally:
            os.close(fd)
        if top is None:
            raise OSError(errno.ENODEV, "its mount is not known")
        self.inner_devices.add(facts.st_dev)
        self._tops.append((tree, mount[0], top))

    def _miss(self, path: bytes, error: OSError) -> None:
        self.unseen.append(f"{repr(path)[2:-1]}: {error.strerror}")

    def _directory(self, gfid: bytes) -> bytes | None:
        """The path of a directory on the brick; None if Gluster's links do not lead to it."""
        names: list[bytes] = []
        met: list[bytes] = []
        while gfid not in self._directories:
            if not _GFID.fullmatch(gfid) or gfid in met:
                return None
            met.append(gfid)
            try:
                target = os.readlink(b".glusterfs/%s/%s/%s" % (gfid[:2], gfid[2:4], gfid), dir_fd=self._root)
            except OSError:
                return None
            parts = target.split(b"/")
            if len(parts) != 6:
                return None
            gfid = parts[4]
            names.append(parts[5])
        path = self._directories[gfid]
        for number, name in zip(reversed(met), reversed(names)):
            path = self._directories[number] = path + b"/" + name if path else name
        return path
