"""Invented users with heavy-tailed trees, drawn from a seed."""

import os
import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

from migrator.core.units import DAY_S, KIB, MIB, NS_PER_S, YEAR_S
from migrator.lab import odd
from migrator.lab.model import FIRST_UID, LabSpec, OddKind

# Drawing users: heavy-tailed in bytes and files, with old and new, tiny and big files. Pure.


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


class InventedFile(Struct, frozen=True, kw_only=True):
    """One ordinary file of a user."""

    name: bytes
    size_bytes: int
    mode: int
    mtime_ns: int
    atime_ns: int


class InventedDirectory(Struct, frozen=True, kw_only=True):
    """One directory of a user, relative to the user's tree; the first one is the tree itself (`b""`)."""

    path: bytes
    mode: int
    mtime_ns: int
    files: tuple[InventedFile, ...]


class InventedUser(Struct, frozen=True, kw_only=True):
    """One user; `uid` is the gid too. Parents precede their children."""

    name: bytes
    uid: int
    directories: tuple[InventedDirectory, ...]

    @property
    def tree(self) -> bytes:
        """The user's tree, relative to the root of the source."""
        return b"home/" + self.name


def invent_users(spec: LabSpec, reference_time_s: int) -> tuple[InventedUser, ...]:
    """The users of a lab, the heaviest in bytes first. Equal arguments give equal users."""
    draw = odd.seeded_random(spec.seed, b"users")
    by_bytes = _shares(spec.data_bytes, spec.users, exponent=1.4)
    by_files = _shares(spec.files, spec.users, exponent=1.0)
    draw.shuffle(by_files)  # the user with the most bytes is not the one with the most files
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
    draw = odd.seeded_random(spec.seed, b"user", name)
    sizes = _sizes(draw, files, data_bytes)
    mean_age_s = draw.choice((20 * DAY_S, 120 * DAY_S, 2 * YEAR_S, 4 * YEAR_S))
    paths = _directory_paths(draw, max(1, files // _FILES_PER_DIRECTORY))
    directories: list[InventedDirectory] = []
    for number, path in enumerate(paths):
        # Files of one directory have similar ages.
        age_s = min(draw.expovariate(1 / mean_age_s), _OLDEST_S)
        mine = sizes[number :: len(paths)]
        made = _files(draw, mine, reference_time_s - age_s, age_s)
        mtime_ns = max((file.mtime_ns for file in made), default=round((reference_time_s - age_s) * NS_PER_S))
        mode = draw.choices((0o755, 0o750, 0o700, 0o775), (60, 20, 15, 5))[0]
        directories.append(InventedDirectory(path=path, mode=mode, mtime_ns=mtime_ns, files=made))
    return InventedUser(name=name, uid=uid, directories=tuple(directories))


def _sizes(draw: random.Random, files: int, data_bytes: int) -> list[int]:
    """Most files are tiny, and most bytes are in a few: the remaining bytes go into the biggest files, halving."""
    small: list[int] = []
    left = data_bytes
    big = min(_BIG_FILES, files // 10)
    for _ in range(files - big):
        size = draw.choices(
            (draw.randrange(4 * KIB), draw.randrange(4 * KIB, 64 * KIB), draw.randrange(64 * KIB, MIB)),
            (65, 30, 5),
        )[0]
        size = size if size <= left // 2 else draw.randrange(4 * KIB)
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
        files.append(
            InventedFile(
                name=name,
                size_bytes=size,
                mode=draw.choices((0o644, 0o600, 0o664, 0o755, 0o444), (60, 15, 10, 10, 5))[0],
                mtime_ns=round(mtime_s * NS_PER_S),
                atime_ns=round(atime_s * NS_PER_S),
            )
        )
    return tuple(files)


# Writing their trees, several files at once: on a Gluster mount one stream makes some hundred files a second


_THREADS = 12
_ODD_TREES = 3
"""The number of the heaviest users with odd files: together they are the first batch of a rehearsal."""


class Filled(Struct, frozen=True, kw_only=True):
    """The result: trees relative to the root, files and bytes of ordinary content, and what could not be made."""

    trees: tuple[bytes, ...]
    files: int
    data_bytes: int
    skipped: tuple[tuple[OddKind, str], ...]


def fill(
    root: bytes, spec: LabSpec, reference_time_s: int, users: Sequence[InventedUser], stop: threading.Event
) -> Filled:
    """Make all users' trees, some with odd files, and a little outside every tree. Blocking, for some minutes at
    most; ends early when `stop` is set. Raises OSError.
    """
    with odd.writing(root) as writer:  # sets the times of `home` at the end, after all trees
        _outside(writer, spec.seed, reference_time_s)
        skipped = _fill_trees(root, spec, users, stop)
    files = [file for user in users for directory in user.directories for file in directory.files]
    return Filled(
        trees=tuple(user.tree for user in users),
        files=len(files),
        data_bytes=sum(file.size_bytes for file in files),
        skipped=skipped,
    )


def _fill_trees(
    root: bytes, spec: LabSpec, users: Sequence[InventedUser], stop: threading.Event
) -> tuple[tuple[OddKind, str], ...]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="fill") as pool:
        for user in users:
            _make_directories(root, user)
        work = [(user, directory) for user in users for directory in user.directories]
        # Big files first, so that no single one remains at the end.
        work.sort(key=lambda pair: sum(file.size_bytes for file in pair[1].files), reverse=True)
        for future in [pool.submit(_fill_directory, root, spec.seed, *pair, stop) for pair in work]:
            future.result()
        skipped = _make_odd(root, spec, users, pool, stop) if spec.odd and not stop.is_set() else ()
        for finished in [pool.submit(_finish_directories, root, user) for user in users]:
            finished.result()
    return skipped


def _outside(writer: odd.TreeWriter, seed: int, reference_time_s: int) -> None:
    time_ns = reference_time_s * NS_PER_S
    for path in (b"home", b"shared"):
        writer.directory(path, odd.Attributes(mode=0o755, mtime_ns=time_ns))
    for path, size_bytes in ((b"shared/reference.dat", 200_000), (b"shared/README", 300), (b"home/NOTICE", 100)):
        writer.file(path, odd.pieces(seed, path, size_bytes), size_bytes, odd.Attributes(mode=0o644, mtime_ns=time_ns))


def _make_directories(root: bytes, user: InventedUser) -> None:
    for directory in user.directories:
        os.mkdir(_place(root, user, directory), 0o700)  # noqa: PTH102 (bytes)


def _place(root: bytes, user: InventedUser, directory: InventedDirectory) -> bytes:
    tree = root + b"/" + user.tree
    return tree + b"/" + directory.path if directory.path else tree


def _fill_directory(
    root: bytes, seed: int, user: InventedUser, directory: InventedDirectory, stop: threading.Event
) -> None:
    with odd.writing(_place(root, user, directory)) as writer:
        for file in directory.files:
            if stop.is_set():
                return
            pieces = odd.pieces(seed, b"/".join((user.tree, directory.path, file.name)), file.size_bytes)
            attributes = odd.Attributes(owner=user.uid, mode=file.mode, mtime_ns=file.mtime_ns, atime_ns=file.atime_ns)
            writer.file(file.name, pieces, file.size_bytes, attributes)


def _make_odd(
    root: bytes, spec: LabSpec, users: Sequence[InventedUser], pool: ThreadPoolExecutor, stop: threading.Event
) -> tuple[tuple[OddKind, str], ...]:
    chosen = users[:_ODD_TREES]

    def make(number: int) -> dict[OddKind, str]:
        if stop.is_set():
            return {}
        user, beside = chosen[number], chosen[(number + 1) % len(chosen)]
        neighbour = root + b"/" + beside.tree if beside is not user else None
        tree = root + b"/" + user.tree
        return dict(odd.odd_files(tree, seed=spec.seed, uid=user.uid, neighbour=neighbour, source_mount=root).skipped)

    skipped: dict[OddKind, str] = {}
    for future in [pool.submit(make, number) for number in range(len(chosen))]:
        skipped.update(future.result())
    return tuple(sorted(skipped.items()))


def _finish_directories(root: bytes, user: InventedUser) -> None:
    with odd.writing(root + b"/" + user.tree) as writer:
        for directory in reversed(user.directories):
            attributes = odd.Attributes(
                owner=user.uid,
                mode=directory.mode,
                mtime_ns=directory.mtime_ns,
                atime_ns=directory.mtime_ns + NS_PER_S,
            )
            writer.attributes_of_directory(directory.path, attributes)
