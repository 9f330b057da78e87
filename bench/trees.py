"""What the lab volume holds: seeded trees of users, written through the mount as users write.

A quarter of the files get their times set (what came out of archives), the rest keep the times of their writing: for
those a brick's own times differ from the volume's, which whoever reads bricks has to put right.
"""

import os
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from migrator.core.units import GIB, KIB, MIB

FIRST_UID = 30001
WRITERS = 4
TREE, MIXED, BIG = "tree", "mixed", "big"

_PROJECT_RUNS = 40
_RUN_FILES = (5, 60)
_SYMLINK_SHARE, _LINK_SHARE, _XATTR_SHARE, _SET_TIMES_SHARE = 0.01, 0.01, 0.01, 0.25
_PIECE_BYTES = 4 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSpec:
    """One user's tree: `small` files of a few KB, and files of the given sizes."""

    path: str
    uid: int
    seed: int
    small: int
    sizes_bytes: tuple[int, ...] = ()


def small_users(files: int, seed: int, *, users: int = 4) -> tuple[UserSpec, ...]:
    """Users with so many files of a few KB altogether."""
    return _users(TREE, users=users, files=files, sizes=(), seed=seed)


def mixed_users(files: int, unit_bytes: int, seed: int) -> tuple[UserSpec, ...]:
    """Small files, a tenth as many of 1 MiB, and four large ones."""
    return _users(MIXED, users=4, files=files, sizes=(MIB,) * (files // 10) + (unit_bytes,) * 4, seed=seed)


def big_users(total_bytes: int, seed: int) -> tuple[UserSpec, ...]:
    """Seven files, more than half of all bytes in the first."""
    sizes = (total_bytes * 9 // 16, *([total_bytes * 7 // 96] * 6))
    return _users(BIG, users=1, files=0, sizes=sizes, seed=seed)


def sized_users(group: str, sizes: tuple[int, ...], seed: int) -> tuple[UserSpec, ...]:
    """Users with files of exactly these sizes."""
    return _users(group, users=4, files=0, sizes=sizes, seed=seed)


def _users(group: str, *, users: int, files: int, sizes: tuple[int, ...], seed: int) -> tuple[UserSpec, ...]:
    return tuple(
        UserSpec(
            path=f"{group}/user-{number:02d}",
            uid=FIRST_UID + number,
            seed=seed * 1000 + number,
            small=files // users + (number < files % users),
            sizes_bytes=sizes[number::users],
        )
        for number in range(users)
    )


def fill(root: Path, users: tuple[UserSpec, ...]) -> None:
    """Write users' trees, several at once; each as its user."""
    for user in users:
        place = root / user.path
        place.mkdir(parents=True)
        os.chown(place, user.uid, user.uid)
    with ProcessPoolExecutor(WRITERS) as pool:
        for written in [pool.submit(_fill_user, root, user) for user in users]:
            written.result()


def small_size(draw: random.Random) -> int:
    """A few KB: the median is 3 KB, the mean 5 KB."""
    return min(round(draw.lognormvariate(8.0, 1.0)), 64 * KIB)


def runs_of(user: UserSpec) -> Iterator[tuple[str, int]]:
    """The directories of a user's small files, and how many files lie in each."""
    draw = random.Random(user.seed)
    left, number = user.small, 0
    while left > 0:
        files = min(left, draw.randint(*_RUN_FILES))
        yield f"{user.path}/project-{number // _PROJECT_RUNS}/run-{number:04d}", files
        left, number = left - files, number + 1


def _fill_user(root: Path, user: UserSpec) -> None:
    draw = random.Random(user.seed + 1)
    content = random.Random(user.seed).randbytes(_PIECE_BYTES + MIB)
    os.setegid(user.uid)
    os.seteuid(user.uid)
    try:
        for path, files in runs_of(user):
            os.makedirs(root / path)
            _fill_run(root / path, files, draw, content)
        for number, size in enumerate(user.sizes_bytes):
            _write_large(root / user.path / f"large-{number:03d}.dat", size, content, draw)
    finally:
        os.seteuid(0)
        os.setegid(0)


def _fill_run(place: Path, files: int, draw: random.Random, content: bytes) -> None:
    directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        earlier = ""
        for number in range(files):
            name, kind = f"result-{number:03d}.dat", draw.random()
            if earlier and kind < _SYMLINK_SHARE:
                os.symlink(earlier, name, dir_fd=directory)
            elif earlier and kind < _SYMLINK_SHARE + _LINK_SHARE:
                os.link(earlier, name, src_dir_fd=directory, dst_dir_fd=directory)
            else:
                _write_small(directory, name, draw, content)
                if kind > 1 - _XATTR_SHARE:
                    os.setxattr(place / name, "user.comment", b"of the benchmark")
                earlier = name
    finally:
        os.close(directory)


def _write_small(directory: int, name: str, draw: random.Random, content: bytes) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=directory)
    try:
        offset = draw.randrange(MIB)
        os.write(file, content[offset : offset + small_size(draw)])
    finally:
        os.close(file)
    if draw.random() < _SET_TIMES_SHARE:
        time_s = 1_500_000_000 + draw.random() * 200_000_000
        os.utime(name, (time_s, time_s), dir_fd=directory)


def _write_large(path: Path, size: int, content: bytes, draw: random.Random) -> None:
    with path.open("wb") as file:
        while size > 0:
            offset = draw.randrange(MIB)
            piece = content[offset : offset + min(size, _PIECE_BYTES)]
            file.write(piece)
            size -= len(piece)


def churn(root: Path, users: tuple[UserSpec, ...], *, number: int, share: float = 0.01) -> int:
    """Change a share of the small files as their users would: four of five written anew, one of five a new file.

    Every `number` draws others. Returns how many it was.
    """
    draw = random.Random(number)
    content = draw.randbytes(2 * MIB)
    changed = 0
    for user in users:
        places = [(path, file) for path, files in runs_of(user) for file in range(files)]
        os.setegid(user.uid)
        os.seteuid(user.uid)
        try:
            for path, file in draw.sample(places, max(1, round(len(places) * share))):
                offset, size = draw.randrange(MIB), small_size(draw)
                name = f"new-{number}-{file}.dat" if draw.random() < 0.2 else f"result-{file:03d}.dat"
                place = root / path / name
                if not place.is_symlink():
                    place.write_bytes(content[offset : offset + size])
                    changed += 1
        finally:
            os.seteuid(0)
            os.setegid(0)
    return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What lies in a tree: every name counts, also those of one hard-linked file."""

    files: int
    directories: int
    size_bytes: int


def lengthen(root: Path, *, every: int) -> None:
    """Add to the content of one of `every` files in each directory."""
    for directory, _, names in os.walk(root):
        for name in sorted(names)[::every]:
            file = Path(directory) / name
            if file.is_file() and not file.is_symlink():
                file.write_bytes(file.read_bytes() + b"more")


def tally(root: Path) -> Tally:
    """Count a tree of an ordinary file system."""
    files = directories = size_bytes = 0
    waiting = [os.fspath(root)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories += 1
                    waiting.append(entry.path)
                else:
                    files += 1
                    size_bytes += entry.stat(follow_symlinks=False).st_size
    return Tally(files=files, directories=directories, size_bytes=size_bytes)


def describe(count: Tally) -> str:
    large = count.size_bytes >= 10 * GIB
    size = f"{count.size_bytes / GIB:.1f} GiB" if large else f"{count.size_bytes / MIB:.1f} MiB"
    return f"{count.files:,} files in {count.directories:,} directories, {size}"
