"""Walk a Gluster brick: the same frames as `migrator-native walk`, for hosts where that cannot run.

For Python 3.9 or later and its standard library alone; `walker_program` makes it one file for a brick's host. The rules
are those of the compiled walker (`adapters/native/src`); one suite of tests holds both to them.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from migrator.adapters.bricks.walker_attributes import (
    GFID,
    LINKTO,
    MDATA,
    attribute,
    is_carried,
    list_attributes,
    parse_mdata,
    read_carried,
)
from migrator.adapters.bricks.walker_frames import (
    ASK_THE_MOUNT,
    DIRECTORIES,
    DIRECTORY,
    ROWS,
    STRANGE,
    Output,
    Problems,
    Rows,
)

SENTINEL = b".migrator-sentinel"
PURGE = b".migrator-purge"
BENCH = b".migrator-bench"
PROBE = b".migrator-probe"
ANONYMOUS_PREFIX = b".glusterfs-anonymous-inode-"

TOTALS = struct.Struct("<10Q")
EARLIEST_NS, LATEST_NS = -(2**63), 2**63 - 1
LOOKS = 3
NEW_S = 60.0
MOMENT_S = 0.02
LOOKS_AT_NEW, PATIENCE = 10, 100
HELD_DIRECTORIES = 32
# What a mount shows as the size and blocks of every directory (DHT's fixed values).
DIRECTORY_SIZE, DIRECTORY_BLOCKS = 4096, 8

TYPES = {
    stat.S_IFREG: 0,
    stat.S_IFDIR: 1,
    stat.S_IFLNK: 2,
    stat.S_IFIFO: 3,
    stat.S_IFSOCK: 4,
    stat.S_IFBLK: 5,
    stat.S_IFCHR: 6,
}
OTHER_MOUNT = "another file system is mounted here; not entered"
OUT_OF_RANGE = "a time lies outside the years 1677 to 2262"


class Task(NamedTuple):
    """A directory to read: its path from the brick's root, and its user tree's number or -1."""

    path: bytes
    tree: int


class Changed(Exception):
    """An entry turned into something else between two looks."""


class Nameless(Exception):
    """An entry has no gfid: Gluster gives one right after it has made the entry, and `changed_s` tells whether that may be now."""

    def __init__(self, *, changed_s: float, inner: Task | None) -> None:
        super().__init__()
        self.changed_s = changed_s
        self.inner = inner


class Totals:
    """What has been counted, in the order of the last frame."""

    NAMES = (
        "rows",
        "directories",
        "size_bytes",
        "problems",
        "vanished",
        "migrating",
        "links",
        "filling_links",
        "ask_the_mount",
        "strange",
    )

    def __init__(self) -> None:
        self.rows = self.directories = self.size_bytes = self.problems = self.vanished = 0
        self.migrating = self.links = self.filling_links = self.ask_the_mount = self.strange = 0

    def packed(self) -> bytes:
        """As in the last frame."""
        return TOTALS.pack(*(getattr(self, name) for name in self.NAMES))

    def add(self, packed: bytes) -> None:
        """Add another's."""
        for name, value in zip(self.NAMES, TOTALS.unpack(packed)):
            setattr(self, name, getattr(self, name) + value)


class Shares(NamedTuple):
    """What all workers need to know. `ways` are the trees and the directories that lead to them, where nothing else
    outside the trees is looked at. `own`: the program's own in the root is looked at, too.
    """

    root: int
    output: Output
    trees: dict[bytes, int]
    ways: set[bytes] | None
    mounts: set[bytes]
    times_from_mdata: bool
    block_rows: int
    own: bool


class Walker:
    """One process at work. The directory that is read is its current directory: entries go by their last names."""

    def __init__(self, shares: Shares) -> None:
        self._root = shares.root
        self._device = os.fstat(shares.root).st_dev
        self._trees = shares.trees
        self._ways = shares.ways
        self._mounts = shares.mounts
        self._own = shares.own
        self._from_mdata = shares.times_from_mdata
        self._files = Rows(shares.output, ROWS, shares.block_rows)
        self._directories = Rows(shares.output, DIRECTORIES, shares.block_rows)
        self._problems = Problems(shares.output)
        self._held: list[tuple[bytes, int]] = []
        self.totals = Totals()
        self._patience = PATIENCE

    def finish(self) -> None:
        """Write what waits, and close what is open."""
        while self._held:
            os.close(self._held.pop()[1])
        self._files.flush()
        self._directories.flush()
        self._problems.flush()

    def walk(self, task: Task) -> None:
        """A directory and all beneath it."""
        waiting = [task]
        while waiting:
            waiting += self.read(waiting.pop())

    def read(self, task: Task) -> list[Task]:
        """One directory; returns those in it."""
        found: list[Task] = []
        try:
            fd = self._open(task.path)
            try:
                if os.fstat(fd).st_dev != self._device:
                    self._problem(task.path, "open", errno.EXDEV, OTHER_MOUNT)
                    return found
                os.fchdir(fd)
            finally:
                if not task.path:
                    os.close(fd)
        except OSError as error:
            self._failed(task.path, "open", error)
            return found
        try:
            with os.scandir(b".") as listing:
                for listed in listing:
                    name = listed.name
                    if not (task.path == b"" and is_internal(name, own=self._own)) and self._is_wanted(task, name):
                        self._entry(task, name, found)
        except OSError as error:
            self._failed(task.path, "list", error)
        return found

    def _is_wanted(self, task: Task, name: bytes) -> bool:
        if self._ways is None or task.tree >= 0:
            return True
        return (task.path + b"/" + name if task.path else name) in self._ways

    def _open(self, path: bytes) -> int:
        """Component by component beneath the root, never through a symlink; those above stay open for the next one."""
        while self._held and not path.startswith(self._held[-1][0] + b"/"):
            os.close(self._held.pop()[1])
        flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        if not path:
            return os.open(b".", flags | os.O_RDONLY, dir_fd=self._root)
        above, parent = self._held[-1] if self._held else (b"", self._root)
        names = path[len(above) + 1 if above else 0 :].split(b"/")
        for number, name in enumerate(names):
            last = number == len(names) - 1
            parent = os.open(name, flags | (os.O_RDONLY if last else os.O_PATH), dir_fd=parent)
            above = above + b"/" + name if above else name
            self._held.append((above, parent))
            if len(self._held) > HELD_DIRECTORIES:
                os.close(self._held.pop(0)[1])
        return parent

    def _entry(self, task: Task, name: bytes, found: list[Task]) -> None:
        path = task.path + b"/" + name if task.path else name
        operation = ["lstat"]
        try:
            changed = 0
            for looks in range(1, LOOKS_AT_NEW + LOOKS):
                try:
                    self._look(task, name, path, found, operation)
                except Changed:
                    changed += 1
                    if changed == LOOKS:
                        self._problem(path, "readlink", 0, "changes its type all the time")
                        return
                except Nameless as nameless:
                    if looks >= LOOKS_AT_NEW or not self._waited(nameless.changed_s):
                        found += [] if nameless.inner is None else [nameless.inner]
                        self._strange(path)
                        return
                else:
                    return
        except OSError as error:
            self._failed(path, operation[0], error)

    def _look(self, task: Task, name: bytes, path: bytes, found: list[Task], operation: list[str]) -> None:
        """One entry as a row; `operation` says what failed where this raises OSError."""
        operation[0] = "lstat"
        facts = os.stat(name, follow_symlinks=False)
        if facts.st_dev != self._device or path in self._mounts:
            self._problem(path, "open", errno.EXDEV, OTHER_MOUNT)
            return
        mode, kind = facts.st_mode & 0o7777, TYPES[stat.S_IFMT(facts.st_mode)]
        target = None
        if stat.S_ISLNK(facts.st_mode):
            operation[0] = "readlink"
            target = target_of(name)
        operation[0] = "xattrs"
        listed = list_attributes(name)
        if stat.S_ISREG(facts.st_mode) and LINKTO in listed:
            data_mode = self._mode_of_data(path, mode, facts.st_size, known=GFID in listed)
            if data_mode is None:
                return
            mode = data_mode
        tree = task.tree
        inner = None
        if kind == DIRECTORY:
            tree = tree if tree >= 0 else self._trees.get(path, -1)
            inner = Task(path, tree)
        gfid = attribute(name, GFID) if GFID in listed else None
        if gfid is None or len(gfid) != 16:
            raise Nameless(changed_s=facts.st_ctime, inner=inner)
        if inner is not None:
            found.append(inner)
        ctime_ns, mtime_ns, atime_ns = self._times(name, path, facts, listed)
        digest, largest, kinds, acl_entries = None, 0, 0, 0
        carried = sorted(key for key in listed if is_carried(key))
        if carried:
            try:
                digest, largest, kinds, acl_entries = read_carried(name, carried)
            except FileNotFoundError:
                raise
            except OSError as error:
                self._problem(path, "xattrs", error.errno or 0, error.strerror or str(error))
        rows, size, blocks, nlink = self._files, facts.st_size, facts.st_blocks, facts.st_nlink
        if kind == DIRECTORY:
            rows, size, blocks = self._directories, DIRECTORY_SIZE, DIRECTORY_BLOCKS
            self.totals.directories += 1
        else:
            # As Gluster tells it: no more than the size takes, whatever XFS keeps ready beyond the end.
            blocks = min(blocks, (size + 511) // 512)
            # One of the names is Gluster's own, in .glusterfs.
            nlink = max(nlink - 1, 1)
            self.totals.rows += 1
            if stat.S_ISREG(facts.st_mode):
                self.totals.size_bytes += size
        wide = (size, blocks, mtime_ns, atime_ns, ctime_ns, facts.st_rdev, int.from_bytes(gfid[8:], "big"))
        narrow = (facts.st_uid, facts.st_gid, mode, nlink, largest, kinds, acl_entries, tree)
        rows.add((kind, *wide, *narrow, path, gfid, target, digest))

    def _mode_of_data(self, path: bytes, mode: int, size: int, *, known: bool) -> int | None:
        """The mode of a file that has the linkto attribute, without Gluster's own bits; None where it is no row."""
        if mode == stat.S_ISVTX:
            self.totals.links += 1
            self.totals.filling_links += size > 0
            return None
        if mode & stat.S_ISGID and mode & stat.S_ISVTX:
            self.totals.migrating += 1
            return mode & ~(stat.S_ISGID | stat.S_ISVTX)
        if size == 0:
            if known:
                self._ask(path, "empty, with the attribute of a link-to file and the mode of a data file")
            else:
                self._strange(path)
            return None
        return mode

    def _times(self, name: bytes, path: bytes, facts: os.stat_result, listed: Sequence[bytes]) -> list[int]:
        """Of change, modification and access: from Gluster's attribute where it counts, else the brick's own."""
        times = [facts.st_ctime_ns, facts.st_mtime_ns, facts.st_atime_ns]
        if self._from_mdata and MDATA in listed:
            value = attribute(name, MDATA)
            if value is not None:
                kept = parse_mdata(value)
                if kept is None:
                    self._problem(path, "times", 0, "trusted.glusterfs.mdata has a form that is not known")
                else:
                    times = kept
        held = [min(max(time, EARLIEST_NS), LATEST_NS) for time in times]
        if held != times:
            self._problem(path, "times", 0, OUT_OF_RANGE)
        return held

    def _failed(self, path: bytes, operation: str, error: OSError) -> None:
        if error.errno == errno.ENOENT:
            # A rename may have put another file under this name on another brick.
            self.totals.vanished += 1
            self._ask(path, "vanished while it was read")
        else:
            self._problem(path, operation, error.errno or 0, error.strerror or str(error))

    def _problem(self, path: bytes, operation: str, number: int, reason: str) -> None:
        self.totals.problems += 1
        self._problems.add(path, operation, number, reason)

    def _ask(self, path: bytes, reason: str) -> None:
        self.totals.problems += 1
        self.totals.ask_the_mount += 1
        self._problems.add(path, "ask-the-mount", 0, reason, kind=ASK_THE_MOUNT)

    def _strange(self, path: bytes) -> None:
        """Nobody may ask the mount for its name: a client of GlusterFS 10.3 can hang on that (#3688 there)."""
        self.totals.problems += 1
        self.totals.strange += 1
        self._problems.add(path, "gfid", 0, "has no trusted.gfid: it was put there past Gluster", kind=STRANGE)

    def _waited(self, changed_s: float) -> bool:
        """Wait a moment where an entry may be so new that it has no gfid yet; False where it is not."""
        if self._patience == 0 or changed_s < time.time() - NEW_S:
            return False
        self._patience -= 1
        time.sleep(MOMENT_S)
        return True


def target_of(name: bytes) -> bytes:
    """The target of a symlink. Raises OSError, Changed."""
    try:
        return os.readlink(name)  # noqa: PTH115 -- paths are bytes
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise Changed from None
        raise


def ways_to(trees: Iterable[bytes]) -> set[bytes]:
    """The trees, and all directories above them but the root."""
    ways: set[bytes] = set()
    for tree in trees:
        names = tree.split(b"/")
        ways.update(b"/".join(names[:depth]) for depth in range(1, len(names) + 1))
    return ways


def is_internal(name: bytes, *, own: bool) -> bool:
    """Whether a name in the root is Gluster's own, or the program's own where that is not looked at (`own`)."""
    if name == b".glusterfs" or name.startswith(ANONYMOUS_PREFIX):
        return True
    return not own and name in (SENTINEL, PURGE, PROBE, BENCH)
