"""Invented users: heavy-tailed in bytes and files, with old and new, tiny and big files. Drawn from a seed, all pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.domain.lab import FIRST_UID, LabSpec
from migrator.domain.units import DAY_S, KIB, MIB, NS_PER_S, YEAR_S
from migrator.stages.lab.content import seeded_random

_NAMES = (
    *("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "karl", "lena", "mallory"),
    *("niaj", "olivia", "peggy", "quentin", "rupert", "sybil", "trent", "ursula", "victor", "walter", "xenia"),
)
_DIRECTORY_WORDS = (b"runs", b"data", b"results", b"src", b"figures", b"thesis", b"old", b"tmp", b"Backup of laptop")
_FILE_WORDS = (b"out", b"traj", b"conf", b"log", b"slurm", b"mesh", b"notes", b"frame", b"checkpoint", b"report")
_SUFFIXES = (b".dat", b".txt", b".h5", b".log", b".nc", b".csv", b".py", b"", b".tar", b".tmp")
_FILES_PER_DIRECTORY = 24
_BIG_FILES = 6
_OLDEST_S = 12 * YEAR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class InventedFile:
    """One ordinary file of a user. With `same_as` it is another name of that earlier file of its directory; with
    `symlink_target` a symlink.
    """

    name: bytes
    size_bytes: int
    mode: int
    mtime_ns: int
    atime_ns: int
    note: bytes | None = None
    same_as: bytes | None = None
    symlink_target: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InventedDirectory:
    """One directory of a user, relative to the user's tree; the first one is the tree itself (`b""`)."""

    path: bytes
    mode: int
    mtime_ns: int
    files: tuple[InventedFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InventedUser:
    """One user; `uid` is the gid too. Parents come before what lies in them."""

    name: bytes
    uid: int
    directories: tuple[InventedDirectory, ...]

    @property
    def tree(self) -> bytes:
        """The user's tree, relative to the root of the source."""
        return b"home/" + self.name


def invent_users(spec: LabSpec, reference_time_s: int) -> tuple[InventedUser, ...]:
    """The users of a lab, the heaviest in bytes first. Equal arguments give equal users."""
    draw = seeded_random(spec.seed, b"users")
    by_bytes = _shares(spec.data_bytes, spec.users, exponent=1.4)
    by_files = _shares(spec.files, spec.users, exponent=1.0)
    draw.shuffle(by_files)  # the one with the most bytes is not the one with the most files
    names = [user_name(number) for number in range(spec.users)]
    draw.shuffle(names)
    return tuple(
        _invent_user(
            spec,
            name=name,
            uid=FIRST_UID + number,
            files=by_files[number],
            data_bytes=by_bytes[number],
            reference_time_s=reference_time_s,
        )
        for number, name in enumerate(names)
    )


def user_name(number: int) -> bytes:
    """The name of the nth user: alice, bob, ... alice2, ..."""
    times, index = divmod(number, len(_NAMES))
    return (_NAMES[index] + (str(times + 1) if times else "")).encode("ascii")


def _shares(total: int, count: int, *, exponent: float) -> list[int]:
    weights = [1 / (rank + 1) ** exponent for rank in range(count)]
    return [round(total * weight / sum(weights)) for weight in weights]


def _invent_user(
    spec: LabSpec, *, name: bytes, uid: int, files: int, data_bytes: int, reference_time_s: int
) -> InventedUser:
    draw = seeded_random(spec.seed, b"user", name)
    sizes = _sizes(draw, files, data_bytes, spec.tiny_below_bytes)
    mean_age_s = draw.choice((20 * DAY_S, 120 * DAY_S, 2 * YEAR_S, 4 * YEAR_S))
    paths = _directory_paths(draw, max(1, files // _FILES_PER_DIRECTORY))
    directories: list[InventedDirectory] = []
    for number, path in enumerate(paths):
        # One directory holds what was made at one time.
        age_s = min(draw.expovariate(1 / mean_age_s), _OLDEST_S)
        mine = sizes[number :: len(paths)]
        made = _files(draw, mine, reference_time_s - age_s, age_s)
        mtime_ns = max((file.mtime_ns for file in made), default=round((reference_time_s - age_s) * NS_PER_S))
        mode = draw.choices((0o755, 0o750, 0o700, 0o775), (60, 20, 15, 5))[0]
        directories.append(InventedDirectory(path=path, mode=mode, mtime_ns=mtime_ns, files=made))
    return InventedUser(name=name, uid=uid, directories=tuple(directories))


def _sizes(draw: random.Random, files: int, data_bytes: int, tiny_below_bytes: int) -> list[int]:
    """Most files are tiny, most bytes are in a few: what is left of the bytes goes into the biggest, halving."""
    small: list[int] = []
    left = data_bytes
    big = min(_BIG_FILES, files // 10)
    for _ in range(files - big):
        size = draw.choices(
            (draw.randrange(tiny_below_bytes), draw.randrange(4 * KIB, 64 * KIB), draw.randrange(64 * KIB, MIB)),
            (65, 30, 5),
        )[0]
        size = size if size <= left // 2 else draw.randrange(tiny_below_bytes)
        small.append(min(size, left))
        left -= small[-1]
    large: list[int] = []
    for number in range(big):
        large.append(left if number == big - 1 else left // 2)
        left -= large[-1]
    sizes = small + large
    draw.shuffle(sizes)
    return sizes


def _directory_paths(draw: random.Random, count: int) -> Sequence[bytes]:
    paths = [b""]
    while len(paths) < count:
        above = draw.choice(paths[-12:])
        word = draw.choice(_DIRECTORY_WORDS)
        paths.append((above + b"/" if above else b"") + b"%s-%03d" % (word, len(paths)))
    return paths


def _files(draw: random.Random, sizes: Sequence[int], made_at_s: float, age_s: float) -> tuple[InventedFile, ...]:
    files: list[InventedFile] = []
    for number, size in enumerate(sizes):
        mtime_s = made_at_s + draw.random() * min(age_s, 7 * DAY_S)
        atime_s = mtime_s + draw.random() ** 3 * max(made_at_s + age_s - mtime_s, 0)
        name = b"%s-%03d%s" % (draw.choice(_FILE_WORDS), number, draw.choice(_SUFFIXES))
        kind = draw.random()
        earlier = [file.name for file in files if file.symlink_target is None and file.same_as is None]
        files.append(
            InventedFile(
                name=name,
                size_bytes=size,
                mode=draw.choices((0o644, 0o600, 0o664, 0o755, 0o444), (60, 15, 10, 10, 5))[0],
                mtime_ns=round(mtime_s * NS_PER_S),
                atime_ns=round(atime_s * NS_PER_S),
                note=b"run %d" % number if kind > 0.99 else None,
                same_as=earlier[-1] if kind < 0.01 and earlier and size < MIB else None,
                symlink_target=earlier[-1] if 0.01 <= kind < 0.02 and earlier and size < MIB else None,
            )
        )
    return tuple(files)
