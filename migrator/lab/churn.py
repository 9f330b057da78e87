"""Simulated users: writes, renames and deletions at a given rate, with a journal of every path."""

import asyncio
import json
import os
import random
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from migrator.core.clock import Clock
from migrator.core.errors import UsageError
from migrator.core.paths import is_beneath, join, parent, percent_escape, percent_unescape, show
from migrator.core.tasks import to_the_end
from migrator.core.units import KIB
from migrator.lab.odd import file_content, seeded_random

# The journal: every path, written before it is changed
#
# JSON lines with percent-escaped paths relative to the root. `paths` are names whose entry, content or attributes
# change; `parents` are directories whose mtime changes; `subtrees` are directories that change with everything in
# them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """All paths of a journal."""

    paths: frozenset[bytes]
    parents: frozenset[bytes]
    subtrees: frozenset[bytes]
    operations: int

    def covers(self, path: bytes) -> bool:
        """Whether a difference at this path is caused by the churn: the path changed, or it is in a directory that
        moved.
        """
        if path in self.paths or path in self.parents:
            return True
        return any(is_beneath(path, subtree) for subtree in self.subtrees)


class ChurnJournal:
    """Appends to a journal; close it, or use it as a context manager. Its lines survive `kill -9`."""

    def __init__(self, file: bytes) -> None:
        self._fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def intend(self, operation: str, paths: Iterable[bytes], subtrees: Iterable[bytes] = ()) -> None:
        """Record one operation before it is done. Raises OSError."""
        named, moved = sorted(paths), sorted(subtrees)
        above = sorted({parent(path) for path in (*named, *moved)})
        listed = {"paths": named, "parents": above, "subtrees": moved}
        line = {"operation": operation} | {key: list(map(percent_escape, found)) for key, found in listed.items()}
        os.write(self._fd, json.dumps(line).encode("ascii") + b"\n")


def read_journal(file: bytes) -> Touched:
    """All paths of a journal. A last line that a crash truncated was never acted upon."""
    touched: dict[str, set[bytes]] = {"paths": set(), "parents": set(), "subtrees": set()}
    operations = 0
    with open(file, "rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            entry = json.loads(line)
            operations += 1
            for key, paths in touched.items():
                paths.update(map(percent_unescape, entry[key]))
    return Touched(**{key: frozenset(paths) for key, paths in touched.items()}, operations=operations)


# The index: files with all their names, and directories. The churn keeps it up to date.


_LONGEST_PATH_BYTES = 3500
"""The churn works with whole paths, so it leaves longer ones alone."""


class NameList:
    """A set with uniform draws, which are reproducible for the same history."""

    def __init__(self) -> None:
        self._items: list[bytes] = []
        self._places: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: bytes) -> bool:
        return item in self._places

    def add(self, item: bytes) -> None:
        self._places[item] = len(self._items)
        self._items.append(item)

    def remove(self, item: bytes) -> None:
        place, last = self._places.pop(item), self._items.pop()
        if last != item:
            self._items[place] = last
            self._places[last] = place

    def all(self) -> tuple[bytes, ...]:
        return tuple(self._items)

    def draw(self, random_source: random.Random) -> bytes | None:
        """A random item; None if there is none."""
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
            # It has a name outside the trees: changing it would change that too.
            if len(self._names_of[inode]) != count:
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
                except FileNotFoundError:  # another process works here too
                    continue
                if stat.S_ISDIR(status.st_mode) and len(path) < _LONGEST_PATH_BYTES:
                    waiting.append(path)
                elif stat.S_ISREG(status.st_mode):
                    self._inode_of[path] = status.st_ino
                    self._names_of.setdefault(status.st_ino, set()).add(path)
                    links[status.st_ino] = status.st_nlink

    def tree_of(self, path: bytes) -> bytes:
        """The tree of a path."""
        return next(tree for tree in self._trees if is_beneath(path, tree))

    def names(self, path: bytes) -> frozenset[bytes]:
        """All names of the file at a path."""
        return frozenset(self._names_of[self._inode_of[path]])

    def add_file(self, path: bytes, inode: int) -> None:
        """Add a new file."""
        self.files.add(path)
        self._inode_of[path] = inode
        self._names_of.setdefault(inode, set()).add(path)

    def link(self, existing: bytes, path: bytes) -> None:
        """Add a name of a file."""
        self.add_file(path, self._inode_of[existing])

    def remove_file(self, path: bytes) -> int:
        """Remove a name; returns its inode."""
        self.files.remove(path)
        inode = self._inode_of.pop(path)
        names = self._names_of[inode]
        names.remove(path)
        if not names:
            del self._names_of[inode]
        return inode

    def rename_file(self, old: bytes, new: bytes) -> None:
        """Move a file; one at `new` is replaced."""
        if new in self.files:
            self.remove_file(new)
        self.add_file(new, self.remove_file(old))

    def add_directory(self, path: bytes) -> None:
        """Add a directory that the churn made."""
        self.directories.add(path)
        self.own_directories.add(path)

    def remove_directory(self, path: bytes) -> None:
        """Remove a directory that the churn made."""
        self.directories.remove(path)
        self.own_directories.remove(path)

    def rename_directory(self, old: bytes, new: bytes) -> None:
        """Move a directory that the churn made, with everything in it."""
        for listed in (self.directories, self.own_directories):
            for path in self._beneath(listed, old):
                listed.remove(path)
                listed.add(new + path[len(old) :])
        for path in self._beneath(self.files, old):
            self.rename_file(path, new + path[len(old) :])

    def is_empty(self, directory: bytes) -> bool:
        """Whether a directory of the churn is empty in the index."""
        return not any(
            path != directory for listed in (self.files, self.directories) for path in self._beneath(listed, directory)
        )

    def free_name(self, random_source: random.Random, directory: bytes) -> bytes:
        """A path that is not in the index."""
        while True:
            path = join(directory, b"churn-%08x" % random_source.getrandbits(32))
            if path not in self.files and path not in self.directories:
                return path

    @staticmethod
    def _beneath(listed: NameList, directory: bytes) -> list[bytes]:
        return [path for path in listed.all() if is_beneath(path, directory)]


# Users


_LARGEST_WRITE_BYTES = 128 * KIB
_DRAWS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ChurnSummary:
    """The result of a churn: operations by kind, refused operations, and the duration."""

    operations: Mapping[str, int]
    refused: int
    duration_s: float


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
    with ChurnJournal(journal) as book:
        worker = _Churn(root, index, book, seed)
        while not stop.is_set() and (operations is None or count < operations):
            early_s = started_s + count / rate_per_s - clock.monotonic_s()
            if early_s > 0:
                await _sleep_or_stop(clock, early_s, stop)
                continue
            # No operation may outlast the churn.
            kind, worked = await to_the_end(asyncio.to_thread(worker.step))
            done[kind] += 1
            refused += not worked
            count += 1
    return ChurnSummary(operations=dict(done), refused=refused, duration_s=clock.monotonic_s() - started_s)


def _check(root: bytes, trees: Sequence[bytes], journal: bytes) -> None:
    for tree in trees:
        if not _is_directory(join(root, tree)):
            raise UsageError(
                f"{show(tree)} is no directory of {show(root)}",
                cause="it is no user tree of this lab, or the lab is not up",
                hint="name a tree as in `home/alice`, without the lab's own path",
            )
    if not _is_directory(parent(journal) or b"/"):
        raise UsageError(f"the journal {show(journal)} cannot be made: there is no directory above it")


def _is_directory(path: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


async def _sleep_or_stop(clock: Clock, duration_s: float, stop: asyncio.Event) -> None:
    sleeping = asyncio.ensure_future(clock.sleep(duration_s))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((sleeping, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeping.cancel()
        stopping.cancel()
        await asyncio.gather(sleeping, stopping, return_exceptions=True)


class _Churn:
    """One operation after the other. All random choices come from the seed."""

    def __init__(self, root: bytes, index: ChurnIndex, journal: ChurnJournal, seed: int) -> None:
        self._root = root
        self._index = index
        self._journal = journal
        self._seed = seed
        self._draw: random.Random = seeded_random(seed, b"churn")
        self._count = 0
        self._kinds: Mapping[str, tuple[int, Callable[[], None]]] = {
            "create": (25, self._create),
            "append": (20, self._append),
            "overwrite": (12, self._overwrite),
            "replace": (6, self._replace),
            "truncate": (3, self._truncate),
            "rename": (8, self._rename),
            "rename-elsewhere": (6, self._rename_elsewhere),
            "link": (3, self._link),
            "delete": (12, self._delete),
            "chmod": (4, self._chmod),
            "make-directory": (5, self._make_directory),
            "rename-directory": (2, self._rename_directory),
            "remove-directory": (3, self._remove_directory),
        }

    def step(self) -> tuple[str, bool]:
        """Do one operation; returns its kind and whether it succeeded."""
        weights = [weight for weight, _ in self._kinds.values()]
        kind = self._draw.choices(tuple(self._kinds), weights)[0]
        self._count += 1
        try:
            self._kinds[kind][1]()
        except OSError:
            # A user's tree may be full, read-only, or changed by others meanwhile: users accept that too.
            return kind, False
        return kind, True

    def _place(self, path: bytes) -> bytes:
        return join(self._root, path)

    def _some(self, listed: NameList) -> bytes:
        path = listed.draw(self._draw)
        if path is None:
            raise FileNotFoundError
        return path

    def _some_file(self) -> bytes:
        return self._some(self._index.files)

    def _directory_of_same_tree(self, path: bytes) -> bytes:
        """Users move and link their files within their own tree."""
        for _ in range(_DRAWS):
            directory = self._some(self._index.directories)
            if self._index.tree_of(directory) == self._index.tree_of(path):
                return directory
        return parent(path)

    def _content(self) -> bytes:
        size_bytes = int(_LARGEST_WRITE_BYTES * self._draw.random() ** 4) + 1
        return file_content(self._seed, b"churn-%d" % self._count, size_bytes)

    def _create(self) -> None:
        path = self._index.free_name(self._draw, self._some(self._index.directories))
        content = self._content()
        self._journal.intend("create", (path,))
        self._write_new(path, content)

    def _write_new(self, path: bytes, content: bytes) -> None:
        fd = os.open(self._place(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            self._index.add_file(path, os.fstat(fd).st_ino)
            like = os.stat(self._place(parent(path)), follow_symlinks=False)
            if os.geteuid() == 0:
                os.fchown(fd, like.st_uid, like.st_gid)
            os.write(fd, content)
        finally:
            os.close(fd)

    def _append(self) -> None:
        path, content = self._some_file(), self._content()
        self._journal.intend("append", self._index.names(path))
        self._write_into(path, self._size(path), content)

    def _overwrite(self) -> None:
        path = self._some_file()
        size_bytes = self._size(path)
        offset = self._draw.randrange(size_bytes) if size_bytes else 0
        content = self._content()[: max(size_bytes - offset, 0)]
        self._journal.intend("overwrite", self._index.names(path))
        self._write_into(path, offset, content)

    def _size(self, path: bytes) -> int:
        return os.stat(self._place(path), follow_symlinks=False).st_size

    def _write_into(self, path: bytes, offset: int, content: bytes) -> None:
        fd = os.open(self._place(path), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.pwrite(fd, content, offset)
        finally:
            os.close(fd)

    def _replace(self) -> None:
        """As editors do: write a new file, and rename it over the old one."""
        path = self._some_file()
        new = self._index.free_name(self._draw, parent(path))
        content = self._content()
        self._journal.intend("replace", {path, new} | self._index.names(path))
        self._write_new(new, content)
        os.rename(self._place(new), self._place(path))  # noqa: PTH104 (bytes)
        self._index.rename_file(new, path)

    def _truncate(self) -> None:
        path = self._some_file()
        size_bytes = self._size(path)
        self._journal.intend("truncate", self._index.names(path))
        os.truncate(self._place(path), self._draw.randrange(size_bytes + 1))

    def _rename(self) -> None:
        path = self._some_file()
        self._move_file("rename", path, parent(path))

    def _rename_elsewhere(self) -> None:
        path = self._some_file()
        self._move_file("rename-elsewhere", path, self._directory_of_same_tree(path))

    def _move_file(self, operation: str, old: bytes, directory: bytes) -> None:
        new = self._index.free_name(self._draw, directory)
        self._journal.intend(operation, {new} | self._index.names(old))
        os.rename(self._place(old), self._place(new))  # noqa: PTH104 (bytes)
        self._index.rename_file(old, new)

    def _link(self) -> None:
        existing = self._some_file()
        new = self._index.free_name(self._draw, self._directory_of_same_tree(existing))
        self._journal.intend("link", {new} | self._index.names(existing))
        os.link(self._place(existing), self._place(new), follow_symlinks=False)
        self._index.link(existing, new)

    def _delete(self) -> None:
        path = self._some_file()
        self._journal.intend("delete", self._index.names(path))
        os.unlink(self._place(path))  # noqa: PTH108 (bytes)
        self._index.remove_file(path)

    def _chmod(self) -> None:
        path = self._some_file()
        mode = self._draw.choice((0o644, 0o600, 0o640, 0o755, 0o444))
        self._journal.intend("chmod", self._index.names(path))
        os.chmod(self._place(path), mode)  # noqa: PTH101 (bytes)

    def _make_directory(self) -> None:
        path = self._index.free_name(self._draw, self._some(self._index.directories))
        self._journal.intend("make-directory", (path,))
        os.mkdir(self._place(path), 0o755)  # noqa: PTH102 (bytes)
        self._index.add_directory(path)
        like = os.stat(self._place(parent(path)), follow_symlinks=False)
        if os.geteuid() == 0:
            os.chown(self._place(path), like.st_uid, like.st_gid, follow_symlinks=False)

    def _rename_directory(self) -> None:
        old = self._some(self._index.own_directories)
        directory = self._directory_of_same_tree(old)
        if is_beneath(directory, old):
            raise OSError("a directory cannot go into itself")
        new = self._index.free_name(self._draw, directory)
        self._journal.intend("rename-directory", (old, new), (old, new))
        os.rename(self._place(old), self._place(new))  # noqa: PTH104 (bytes)
        self._index.rename_directory(old, new)

    def _remove_directory(self) -> None:
        path = self._some(self._index.own_directories)
        if not self._index.is_empty(path):
            raise OSError("the directory is not empty")
        self._journal.intend("remove-directory", (path,))
        os.rmdir(self._place(path))  # noqa: PTH106 (bytes)
        self._index.remove_directory(path)
