"""A user swaps directories and files for symlinks in mid-copy and mid-verification: nothing outside is ever touched."""

import ctypes
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Self

import pytest

from migrator.core.entry import Entry
from migrator.fs.reading import ReadingFileSystem
from migrator.fs.writing import MountedTarget
from tests.support.verify_world import TREE, verify_world
from tests.transfer.native_copy import copy_entries, listed, run_copy

pytestmark = pytest.mark.needs_root

TIMES = 1000
SECRET = b"root's own secret"
_libc = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def exchange(one: Path, other: Path) -> None:
    """Swap two names atomically."""
    if _libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class Swaps:
    """Exchanges two names again and again, until the block ends."""

    def __init__(self, first: Path, second: Path) -> None:
        self._names = (first, second)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._swap)
        self.count = 0
        self.failure: OSError | None = None

    def _swap(self) -> None:
        try:
            while not self._ended.is_set():
                exchange(*self._names)
                self.count += 1
        except OSError as error:
            self.failure = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        assert self.failure is None


@contextmanager
def outside(directory: Path) -> Iterator[Path]:
    """A directory that must stay as it is, with a secret under the names that the tree uses."""
    path = directory / "outside"
    (path / "inner").mkdir(parents=True)
    for name in ("file", "leftover", "inner/file"):
        (path / name).write_bytes(SECRET)

    def state() -> list[tuple[str, int, int, int, int, bytes]]:
        found = []
        for name in sorted([path, *path.rglob("*")]):
            facts = name.lstat()
            content = name.read_bytes() if name.is_file() else b""
            found.append((str(name), facts.st_mode, facts.st_uid, facts.st_nlink, facts.st_mtime_ns, content))
        return found

    before = state()
    yield path
    assert state() == before


def look(root: Path, path: bytes) -> Entry:
    source = ReadingFileSystem(os.fsencode(root))
    entry = source.look(path)
    source.close()
    assert entry is not None
    return entry


def copy_or_raise(source: Path, target: Path, entry: Entry) -> None:
    if failed := copy_entries(source, target, [entry]):
        raise OSError(failed[0].errno or 0, failed[0].reason)


@pytest.mark.parametrize("kind", ["directory", "symlink", "fifo", "device", "hard link"])
def test_copying_what_is_swapped(scratch: Path, kind: str) -> None:
    """The directory above a file for a symlink, or the file itself for something else."""
    source, target_path = scratch / "source", scratch / "target"
    (source / "tree" / "dir").mkdir(parents=True)
    (source / "tree" / "dir" / "file").write_bytes(b"inside")
    (source / "tree" / "other").write_bytes(b"inside")
    (target_path / "tree" / "dir").mkdir(parents=True)
    copied = target_path / "tree" / "dir" / "file"
    arrived = failed = 0
    with outside(scratch) as secret:
        swapped = source / "tree" / "swapped"
        match kind:
            case "directory":
                swapped.symlink_to(secret)
            case "symlink":
                swapped.symlink_to(secret / "file")
            case "fifo":
                os.mkfifo(swapped)
            case "hard link":
                # Another user's closed file, of the same size.
                swapped.write_bytes(SECRET[:6])
                os.chown(swapped, 1002, 1002)
                swapped.chmod(0o600)
                (scratch / "theirs").hardlink_to(swapped)
            case _:
                os.mknod(swapped, 0o20600, os.makedev(1, 5))
        victim = source / "tree" / "dir"
        with Swaps(victim if kind == "directory" else victim / "file", swapped) as swaps:
            while arrived + failed < TIMES or swaps.count < TIMES or not ((arrived and failed) or kind != "directory"):
                # The other file makes the program open the directory anew each time.
                ended = run_copy(source, target_path, listed(*[b"tree/dir/file", b"tree/other"] * 50), "--recopy")
                assert ended.returncode == 0
                failures = len(re.findall(rb"(?m)^F ", ended.stdout))
                arrived, failed = arrived + 50 - failures, failed + failures
                if not arrived:
                    continue
                now = copied.lstat()
                assert kind != "directory" or stat.S_ISREG(now.st_mode)
                if stat.S_ISREG(now.st_mode):
                    theirs = (now.st_uid, stat.S_IMODE(now.st_mode)) == (1002, 0o600)
                    # Content never comes with the owner and mode of another file.
                    assert copied.read_bytes() == (SECRET[:6] if theirs else b"inside")
                    assert kind == "hard link" or not theirs
                elif stat.S_ISLNK(now.st_mode):
                    assert copied.readlink() == secret / "file"


def test_writing_to_a_directory_that_is_swapped(scratch: Path) -> None:
    source, target_path = scratch / "source", scratch / "target"
    tree = target_path / "tree"
    for root in (source, target_path):
        (root / "tree" / "dir" / "inner").mkdir(parents=True)
        (root / "tree" / "dir" / "file").write_bytes(b"inside")
        (root / "tree" / "dir" / "inner" / "file").write_bytes(b"inside")
    (tree / "first").write_bytes(b"first")
    os.chown(source / "tree" / "dir" / "inner", 1001, 1001)
    entries = [look(source, path) for path in (b"tree/dir/file", b"tree/dir/inner", b"tree/dir/inner/file")]
    target = MountedTarget(os.fsencode(target_path))
    acts: list[Callable[[], object]] = [
        *(partial(copy_or_raise, source, target_path, entry) for entry in entries),
        partial(target.link, b"tree/first", b"tree/dir/linked"),
        partial(target.remove_leftover, b"tree/dir/leftover"),
        partial(target.make_parents, b"tree/dir/user", ()),
        partial(target.make_directory, b"tree/dir/laid/out"),
    ]
    failed = done = 0
    with outside(scratch) as secret:
        (tree / "swapped").symlink_to(secret)
        with Swaps(tree / "dir", tree / "swapped") as swaps:
            while done + failed < TIMES or swaps.count < TIMES or not (done and failed):
                for act in acts:
                    try:
                        act()
                    except OSError:
                        failed += 1
                    else:
                        done += 1
    target.close()
    assert done
    assert failed


def test_verifying_trees_that_are_swapped(scratch: Path) -> None:
    source, target_path = scratch / "source", scratch / "target"
    source.mkdir()
    target_path.mkdir()
    with outside(scratch) as secret, verify_world(scratch, source, target_path) as world:
        (world.tree / "dir" / "inner").mkdir(parents=True)
        for name in ("dir/file", "dir/inner/file"):
            (world.tree / name).write_bytes(b"inside")
        world.copy_trees()
        (world.tree / "swapped").symlink_to(secret)
        seen = set()
        with Swaps(world.tree / "dir", world.tree / "swapped") as swaps:
            runs = 0
            inside = (TREE + b"/dir/file", "file", 6)
            # How the two take turns is the scheduler's: until a verification has met the directory itself.
            while swaps.count < TIMES or runs < 8 or inside not in seen:
                record = world.verify()
                runs += 1
                for row in world.manifest_rows(record):
                    seen.add((row["path"], row["type"], row["size"]))
        assert len(SECRET) not in {size for path, kind, size in seen if kind == "file"}
        assert not [path for path, _, _ in seen if b"leftover" in path]
