"""Users at work: writing, renaming and deleting in their trees at a given rate, with a journal of every path."""

import asyncio
import os
import random
import stat
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from migrator.domain.errors import UsageError
from migrator.domain.paths import is_beneath, join, parent, show
from migrator.domain.units import KIB
from migrator.ports.cancelling import to_the_end
from migrator.ports.clock import Clock
from migrator.stages.lab.churn_index import ChurnIndex
from migrator.stages.lab.churn_journal import ChurnJournal
from migrator.stages.lab.content import file_content, seeded_random

_LARGEST_WRITE_BYTES = 128 * KIB
_DRAWS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ChurnSummary:
    """What a churn did: operations by kind, those that the file system refused, and how long it took."""

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

    Only regular files whose names all lie in the trees are touched, and directories that the churn has made itself are
    renamed and removed. Each operation is in the journal (appended to) before it is done; the one under way when it is
    stopped is done to its end. What the file system refuses is counted. Raises UsageError for a tree or a place of the journal that
    is not there, OSError where a tree cannot be read.
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
            # Nothing may be written after the churn has ended.
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
    """One operation after the other. Everything random comes from the seed."""

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
        """Do one operation; returns its kind and whether the file system let it."""
        weights = [weight for weight, _ in self._kinds.values()]
        kind = self._draw.choices(tuple(self._kinds), weights)[0]
        self._count += 1
        try:
            self._kinds[kind][1]()
        except OSError:
            # A user's tree may be full, read-only, or changed by somebody else meanwhile: users live with that.
            return kind, False
        return kind, True

    def _place(self, path: bytes) -> bytes:
        return join(self._root, path)

    def _some_file(self) -> bytes:
        path = self._index.files.draw(self._draw)
        if path is None:
            raise FileNotFoundError
        return path

    def _some_directory(self) -> bytes:
        path = self._index.directories.draw(self._draw)
        if path is None:
            raise FileNotFoundError
        return path

    def _directory_of_same_tree(self, path: bytes) -> bytes:
        """Users move and link their files within their own tree."""
        for _ in range(_DRAWS):
            directory = self._some_directory()
            if self._index.tree_of(directory) == self._index.tree_of(path):
                return directory
        return parent(path)

    def _own_directory(self) -> bytes:
        path = self._index.own_directories.draw(self._draw)
        if path is None:
            raise FileNotFoundError
        return path

    def _content(self) -> bytes:
        size_bytes = int(_LARGEST_WRITE_BYTES * self._draw.random() ** 4) + 1
        return file_content(self._seed, b"churn-%d" % self._count, size_bytes)

    def _create(self) -> None:
        path = self._index.free_name(self._draw, self._some_directory())
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
        self._write_into(path, os.O_APPEND, content, 0)

    def _overwrite(self) -> None:
        path = self._some_file()
        size_bytes = os.stat(self._place(path), follow_symlinks=False).st_size
        offset = self._draw.randrange(size_bytes) if size_bytes else 0
        content = self._content()[: max(size_bytes - offset, 0)]
        self._journal.intend("overwrite", self._index.names(path))
        self._write_into(path, 0, content, offset)

    def _write_into(self, path: bytes, flags: int, content: bytes, offset: int) -> None:
        fd = os.open(self._place(path), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags)
        try:
            if flags & os.O_APPEND:
                os.write(fd, content)
            else:
                os.pwrite(fd, content, offset)
        finally:
            os.close(fd)

    def _replace(self) -> None:
        """As editors do: write a new file beside it, and rename."""
        path = self._some_file()
        new = self._index.free_name(self._draw, parent(path))
        content = self._content()
        self._journal.intend("replace", {path, new} | self._index.names(path))
        self._write_new(new, content)
        os.rename(self._place(new), self._place(path))  # noqa: PTH104 (bytes)
        self._index.rename_file(new, path)

    def _truncate(self) -> None:
        path = self._some_file()
        size_bytes = os.stat(self._place(path), follow_symlinks=False).st_size
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
        path = self._index.free_name(self._draw, self._some_directory())
        self._journal.intend("make-directory", (path,))
        os.mkdir(self._place(path), 0o755)  # noqa: PTH102 (bytes)
        self._index.add_directory(path)
        like = os.stat(self._place(parent(path)), follow_symlinks=False)
        if os.geteuid() == 0:
            os.chown(self._place(path), like.st_uid, like.st_gid, follow_symlinks=False)

    def _rename_directory(self) -> None:
        old = self._own_directory()
        directory = self._directory_of_same_tree(old)
        if is_beneath(directory, old):
            raise OSError("a directory cannot go into itself")
        new = self._index.free_name(self._draw, directory)
        self._journal.intend("rename-directory", (old, new), (old, new))
        os.rename(self._place(old), self._place(new))  # noqa: PTH104 (bytes)
        self._index.rename_directory(old, new)

    def _remove_directory(self) -> None:
        path = self._own_directory()
        if not self._index.is_empty(path):
            raise OSError("the directory is not empty")
        self._journal.intend("remove-directory", (path,))
        os.rmdir(self._place(path))  # noqa: PTH106 (bytes)
        self._index.remove_directory(path)
