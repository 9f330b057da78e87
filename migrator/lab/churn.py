"""Simulated users: writes, renames and deletions at a given rate, with a journal of every path."""

import asyncio
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from migrator.core.clock import Clock
from migrator.core.errors import UsageError
from migrator.core.paths import is_beneath, join, parent, percent_escape, show
from migrator.core.tasks import to_the_end
from migrator.core.units import KIB
from migrator.fs.beneath import held
from migrator.lab.odd import file_content, seeded_random

# The files that may change: regular files whose names are all in the trees, and directories. The churn keeps them up to
# date.


_LONGEST_PATH_BYTES = 3500
"""The churn works with whole paths, so it leaves longer ones alone."""


class ChurnIndex:
    """Paths relative to the root, in an order that equal histories repeat."""

    def __init__(self, root: bytes, trees: Sequence[bytes]) -> None:
        self.inode_of: dict[bytes, int] = {}
        self.directories: dict[bytes, None] = {}
        self.own_directories: dict[bytes, None] = {}
        self._trees = tuple(trees)
        links: dict[int, int] = {}
        found: dict[bytes, int] = {}
        for tree in trees:
            self._walk(root, tree, found, links)
        names = Counter(found.values())
        for path, inode in sorted(found.items()):
            if names[inode] == links[inode]:  # otherwise a name outside the trees would change too
                self.inode_of[path] = inode

    def _walk(self, root: bytes, tree: bytes, found: dict[bytes, int], links: dict[int, int]) -> None:
        waiting = [tree]
        while waiting:
            current = waiting.pop()
            self.directories[current] = None
            with os.scandir(join(root, current)) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
            for entry in listed:
                path = join(current, entry.name)
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # another process works here too
                    continue
                if stat.S_ISDIR(status.st_mode) and len(path) < _LONGEST_PATH_BYTES:
                    waiting.append(path)
                elif stat.S_ISREG(status.st_mode):
                    found[path] = status.st_ino
                    links[status.st_ino] = status.st_nlink

    def tree_of(self, path: bytes) -> bytes:
        """The tree of a path."""
        return next(tree for tree in self._trees if is_beneath(path, tree))

    def names(self, path: bytes) -> set[bytes]:
        """All names of the file at a path."""
        inode = self.inode_of[path]
        return {name for name, other in self.inode_of.items() if other == inode}

    def rename_directory(self, old: bytes, new: bytes) -> None:
        """Move a directory that the churn made, with everything in it."""
        known: tuple[dict[bytes, Any], ...] = (self.directories, self.own_directories, self.inode_of)
        for listed in known:
            for path in [path for path in listed if is_beneath(path, old)]:
                listed[new + path[len(old) :]] = listed.pop(path)


# Users
#
# The journal has every path, written before it is changed: JSON lines with percent-escaped paths relative to the root.
# `paths` are names whose entry, content or attributes change; `parents` are directories whose mtime changes; `subtrees`
# are directories that change with everything in them.


_LARGEST_WRITE_BYTES = 128 * KIB
_DRAWS = 20


class ChurnSummary(Struct, frozen=True, kw_only=True):
    """The result of `lab churn`."""

    operations: Mapping[str, int]
    """Number of operations by kind."""
    refused: int
    """Number of refused operations."""
    duration_s: float
    """Duration of the churn."""


async def lab_churn(
    root: bytes,
    trees: Sequence[bytes],
    *,
    journal: bytes,
    rate_per_s: float,
    seed: int,
    clock: Clock,
    stop: asyncio.Event,
    operations: int | None = None,
) -> ChurnSummary:
    """Work in trees (relative to `root`) until `stop` is set, or so many operations are done.

    Changes only regular files whose names are all in the trees; renames and removes only directories that the churn
    made. Each operation is appended to the journal before it is done; the one in flight at a stop is finished.
    Refusals of the file system are counted. Raises UsageError if a tree or the journal's directory is missing,
    OSError if a tree cannot be read.
    """
    _check(root, trees, journal)
    index = await asyncio.to_thread(ChurnIndex, root, trees)
    started_s = clock.monotonic_s()
    done: Counter[str] = Counter()
    refused = count = 0
    worker = await asyncio.to_thread(_Churn, root, index, journal, seed)
    try:
        while not stop.is_set() and (operations is None or count < operations):
            early_s = started_s + count / rate_per_s - clock.monotonic_s()
            if early_s > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), early_s)
                continue
            # No operation may outlast the churn.
            kind, worked = await to_the_end(asyncio.to_thread(worker.step))
            done[kind] += 1
            refused += not worked
            count += 1
    finally:
        os.close(worker.journal_fd)
    return ChurnSummary(operations=dict(done), refused=refused, duration_s=clock.monotonic_s() - started_s)


def _check(root: bytes, trees: Sequence[bytes], journal: bytes) -> None:
    for tree in trees:
        if not Path(os.fsdecode(join(root, tree))).is_dir():
            raise UsageError(
                f"{show(tree)} is no directory of {show(root)}",
                cause="it is no user tree of this lab, or the lab is not up",
                hint="name a tree as in `home/alice`, without the lab's own path",
            )
    if not Path(os.fsdecode(journal)).absolute().parent.is_dir():
        raise UsageError(f"the journal {show(journal)} cannot be made: there is no directory above it")


class _Churn:
    """One operation after the other. All random choices come from the seed."""

    def __init__(self, root: bytes, index: ChurnIndex, journal: bytes, seed: int) -> None:
        self._root = root
        self._index = index
        self.journal_fd = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._seed = seed
        self._draw = seeded_random(seed, b"churn")
        self._count = 0
        self._kinds: Mapping[str, tuple[int, Callable[[], None]]] = {
            "create": (25, self._create),
            "write": (35, self._write_into),
            "replace": (6, self._replace),
            "rename": (14, self._rename),
            "link": (3, self._link),
            "delete": (12, self._delete),
            "chmod": (4, self._chmod),
            "make-directory": (5, self._make_directory),
            "rename-directory": (2, self._rename_directory),
        }

    def step(self) -> tuple[str, bool]:
        """Do one operation; returns its kind and whether it succeeded."""
        weights = [weight for weight, _ in self._kinds.values()]
        kind = self._draw.choices(tuple(self._kinds), weights)[0]
        self._count += 1
        try:
            self._kinds[kind][1]()
        except OSError:
            # A user's tree may be full, read-only, or changed by others meanwhile: such errors are expected.
            return kind, False
        return kind, True

    def _intend(self, operation: str, paths: Iterable[bytes], subtrees: Iterable[bytes] = ()) -> None:
        named, moved = sorted(paths), sorted(subtrees)
        above = sorted({parent(path) for path in (*named, *moved)})
        listed = {"paths": named, "parents": above, "subtrees": moved}
        line = {"operation": operation} | {key: list(map(percent_escape, found)) for key, found in listed.items()}
        os.write(self.journal_fd, json.dumps(line).encode("ascii") + b"\n")  # such a line survives `kill -9`

    def _place(self, path: bytes) -> bytes:
        return join(self._root, path)

    def _some(self, listed: Mapping[bytes, object]) -> bytes:
        if not listed:
            raise FileNotFoundError
        return self._draw.choice(tuple(listed))

    def _directory_of_same_tree(self, path: bytes) -> bytes:
        """A random directory of the path's tree: users move and link files only within their own tree."""
        for _ in range(_DRAWS):
            directory = self._some(self._index.directories)
            if self._index.tree_of(directory) == self._index.tree_of(path):
                return directory
        return parent(path)

    def _free_name(self, directory: bytes) -> bytes:
        while True:
            path = join(directory, b"churn-%08x" % self._draw.getrandbits(32))
            if path not in self._index.inode_of and path not in self._index.directories:
                return path

    def _content(self) -> bytes:
        size_bytes = int(_LARGEST_WRITE_BYTES * self._draw.random() ** 4) + 1
        return file_content(self._seed, b"churn-%d" % self._count, size_bytes)

    def _size(self, path: bytes) -> int:
        return os.stat(self._place(path), follow_symlinks=False).st_size

    def _give_to_owner(self, path: bytes) -> None:
        """Give a new path to the owner of its directory."""
        if os.geteuid() == 0:
            like = os.stat(self._place(parent(path)), follow_symlinks=False)
            os.chown(self._place(path), like.st_uid, like.st_gid, follow_symlinks=False)

    def _write(self, path: bytes, offset: int, content: bytes, flags: int = 0) -> None:
        with held(os.open(self._place(path), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o644)) as fd:
            self._index.inode_of[path] = os.fstat(fd).st_ino
            if flags & os.O_CREAT:
                self._give_to_owner(path)
            os.pwrite(fd, content, offset)

    def _create(self) -> None:
        path = self._free_name(self._some(self._index.directories))
        content = self._content()
        self._intend("create", (path,))
        self._write(path, 0, content, os.O_CREAT | os.O_EXCL)

    def _write_into(self) -> None:
        """Overwrite a part of a file, or append to it."""
        path, content = self._some(self._index.inode_of), self._content()
        offset = self._draw.choice((self._draw.randrange(self._size(path) + 1), self._size(path)))
        self._intend("write", self._index.names(path))
        self._write(path, offset, content)

    def _replace(self) -> None:
        """Write a new file and rename it over the old one, as editors do."""
        path = self._some(self._index.inode_of)
        new = self._free_name(parent(path))
        content = self._content()
        self._intend("replace", {path, new} | self._index.names(path))
        self._write(new, 0, content, os.O_CREAT | os.O_EXCL)
        self._move(new, path)

    def _rename(self) -> None:
        old = self._some(self._index.inode_of)
        new = self._free_name(self._draw.choice((parent(old), self._directory_of_same_tree(old))))
        self._intend("rename", {new} | self._index.names(old))
        self._move(old, new)

    def _move(self, old: bytes, new: bytes) -> None:
        os.rename(self._place(old), self._place(new))  # noqa: PTH104 (bytes)
        self._index.inode_of[new] = self._index.inode_of.pop(old)

    def _link(self) -> None:
        existing = self._some(self._index.inode_of)
        new = self._free_name(self._directory_of_same_tree(existing))
        self._intend("link", {new} | self._index.names(existing))
        os.link(self._place(existing), self._place(new), follow_symlinks=False)
        self._index.inode_of[new] = self._index.inode_of[existing]

    def _delete(self) -> None:
        path = self._some(self._index.inode_of)
        self._intend("delete", self._index.names(path))
        os.unlink(self._place(path))  # noqa: PTH108 (bytes)
        del self._index.inode_of[path]

    def _chmod(self) -> None:
        path = self._some(self._index.inode_of)
        mode = self._draw.choice((0o644, 0o600, 0o640, 0o755, 0o444))
        self._intend("chmod", self._index.names(path))
        os.chmod(self._place(path), mode)  # noqa: PTH101 (bytes)

    def _make_directory(self) -> None:
        path = self._free_name(self._some(self._index.directories))
        self._intend("make-directory", (path,))
        os.mkdir(self._place(path), 0o755)  # noqa: PTH102 (bytes)
        self._index.directories[path] = self._index.own_directories[path] = None
        self._give_to_owner(path)

    def _rename_directory(self) -> None:
        old = self._some(self._index.own_directories)
        directory = self._directory_of_same_tree(old)
        if is_beneath(directory, old):
            raise OSError("a directory cannot go into itself")
        new = self._free_name(directory)
        self._intend("rename-directory", (old, new), (old, new))
        os.rename(self._place(old), self._place(new))  # noqa: PTH104 (bytes)
        self._index.rename_directory(old, new)
