"""What a churn knows of the trees: files with all their names, and directories. Kept up to date by the churn itself."""

import os
import random
import stat
from collections.abc import Sequence

from migrator.domain.paths import is_beneath, join

_LONGEST_PATH_BYTES = 3500
"""Deeper than that the churn does not go: it works with whole paths."""


class NameList:
    """A set with a fair draw. Drawing is the same for the same history."""

    def __init__(self) -> None:
        self._items: list[bytes] = []
        self._places: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: bytes) -> bool:
        return item in self._places

    def add(self, item: bytes) -> None:
        """Add an item that is not there."""
        self._places[item] = len(self._items)
        self._items.append(item)

    def remove(self, item: bytes) -> None:
        """Remove an item that is there."""
        place, last = self._places.pop(item), self._items.pop()
        if last != item:
            self._items[place] = last
            self._places[last] = place

    def all(self) -> tuple[bytes, ...]:
        """All of them."""
        return tuple(self._items)

    def draw(self, random_source: random.Random) -> bytes | None:
        """One of them; None where there are none."""
        return random_source.choice(self._items) if self._items else None


class ChurnIndex:
    """Regular files whose names are all known, and directories. Paths are relative to the root."""

    def __init__(self, root: bytes, trees: Sequence[bytes]) -> None:
        self.files = NameList()
        self.directories = NameList()
        self.own_directories = NameList()
        self._trees = tuple(trees)
        self._inode_of: dict[bytes, int] = {}
        self._names_of: dict[int, set[bytes]] = {}
        links: dict[int, int] = {}
        for tree in trees:
            self._walk(root, tree, links)
        for inode, count in links.items():
            if len(self._names_of[inode]) != count:  # another name lies elsewhere: changing it would change that
                for path in self._names_of.pop(inode):
                    del self._inode_of[path]
        for path in sorted(self._inode_of):
            self.files.add(path)

    def _walk(self, root: bytes, directory: bytes, links: dict[int, int]) -> None:
        waiting = [directory]
        while waiting:
            current = waiting.pop()
            self.directories.add(current)
            with os.scandir(join(root, current)) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
            for entry in found:
                path = join(current, entry.name)
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # somebody else is at work here too
                    continue
                if stat.S_ISDIR(status.st_mode) and len(path) < _LONGEST_PATH_BYTES:
                    waiting.append(path)
                elif stat.S_ISREG(status.st_mode):
                    self._inode_of[path] = status.st_ino
                    self._names_of.setdefault(status.st_ino, set()).add(path)
                    links[status.st_ino] = status.st_nlink

    def tree_of(self, path: bytes) -> bytes:
        """The tree that a path lies in."""
        return next(tree for tree in self._trees if is_beneath(path, tree))

    def names(self, path: bytes) -> frozenset[bytes]:
        """All names of the file at a path."""
        return frozenset(self._names_of[self._inode_of[path]])

    def add_file(self, path: bytes, inode: int) -> None:
        """A file was made, or got another name."""
        self.files.add(path)
        self._inode_of[path] = inode
        self._names_of.setdefault(inode, set()).add(path)

    def link(self, existing: bytes, path: bytes) -> None:
        """A file got another name."""
        self.add_file(path, self._inode_of[existing])

    def remove_file(self, path: bytes) -> int:
        """A name of a file is gone; returns its inode."""
        self.files.remove(path)
        inode = self._inode_of.pop(path)
        names = self._names_of[inode]
        names.remove(path)
        if not names:
            del self._names_of[inode]
        return inode

    def rename_file(self, old: bytes, new: bytes) -> None:
        """A file has another path; what was at `new` is gone."""
        if new in self.files:
            self.remove_file(new)
        self.add_file(new, self.remove_file(old))

    def add_directory(self, path: bytes) -> None:
        """The churn made a directory."""
        self.directories.add(path)
        self.own_directories.add(path)

    def remove_directory(self, path: bytes) -> None:
        """A directory that the churn had made is gone."""
        self.directories.remove(path)
        self.own_directories.remove(path)

    def rename_directory(self, old: bytes, new: bytes) -> None:
        """A directory that the churn had made has another path, with everything in it."""
        for listed in (self.directories, self.own_directories):
            for path in self._beneath(listed, old):
                listed.remove(path)
                listed.add(new + path[len(old) :])
        for path in self._beneath(self.files, old):
            self.rename_file(path, new + path[len(old) :])

    def is_empty(self, directory: bytes) -> bool:
        """Whether the churn knows of nothing in a directory of its own."""
        return not any(
            path != directory for listed in (self.files, self.directories) for path in self._beneath(listed, directory)
        )

    def free_name(self, random_source: random.Random, directory: bytes) -> bytes:
        """A path that is not taken by anything that is known."""
        while True:
            path = join(directory, b"churn-%08x" % random_source.getrandbits(32))
            if path not in self.files and path not in self.directories:
                return path

    @staticmethod
    def _beneath(listed: NameList, directory: bytes) -> list[bytes]:
        return [path for path in listed.all() if is_beneath(path, directory)]
