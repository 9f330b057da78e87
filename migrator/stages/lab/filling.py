"""Putting invented users on a file system, several files at once: a mount of Gluster makes some hundred files a second
in one stream, and more in several.
"""

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from migrator.domain.lab import LabSpec, OddKind
from migrator.domain.units import NS_PER_S
from migrator.stages.lab.odd import odd_files
from migrator.stages.lab.odd_maker import pieces
from migrator.stages.lab.placing import Attributes, Owner, TreeWriter, apply_attributes, write_file
from migrator.stages.lab.users import InventedDirectory, InventedFile, InventedUser

_THREADS = 12
_ODD_TREES = 3
"""So many of the heaviest users have odd files: together they are the first batch of a rehearsal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What was made: trees relative to the root, files and bytes of ordinary content, and what could not be made."""

    trees: tuple[bytes, ...]
    files: int
    data_bytes: int
    skipped: tuple[tuple[OddKind, str], ...]


def fill(
    root: bytes, spec: LabSpec, reference_time_s: int, users: Sequence[InventedUser], stop: threading.Event
) -> Filled:
    """Make all users' trees, some odd ones among them, and a little that lies outside every tree.

    Blocking, some minutes at most; ends early, with a part of the files, when `stop` is set. Raises OSError.
    """
    with TreeWriter(root) as writer:  # sets the times of `home` at the end, when all trees are there
        _outside(writer, spec.seed, reference_time_s)
        skipped = _fill_trees(root, spec, users, stop)
    files = [file for user in users for directory in user.directories for file in directory.files]
    return Filled(
        trees=tuple(user.tree for user in users),
        files=len(files),
        data_bytes=sum(file.size_bytes for file in files if file.same_as is None and file.symlink_target is None),
        skipped=skipped,
    )


def _fill_trees(
    root: bytes, spec: LabSpec, users: Sequence[InventedUser], stop: threading.Event
) -> tuple[tuple[OddKind, str], ...]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="fill") as pool:
        for user in users:
            _make_directories(root, user)
        work = [(user, directory) for user in users for directory in user.directories]
        # The big ones first, so that they do not come last and alone.
        work.sort(key=lambda pair: sum(file.size_bytes for file in pair[1].files), reverse=True)
        for future in [pool.submit(_fill_directory, root, spec.seed, *pair, stop) for pair in work]:
            future.result()
        skipped = _make_odd(root, spec, users, pool, stop) if spec.odd and not stop.is_set() else ()
        for finished in [pool.submit(_finish_directories, root, user) for user in users]:
            finished.result()
    return skipped


def _outside(writer: TreeWriter, seed: int, reference_time_s: int) -> None:
    time_ns = reference_time_s * NS_PER_S
    for path in (b"home", b"shared"):
        writer.directory(path, Attributes(mode=0o755, mtime_ns=time_ns))
    for path, size_bytes in ((b"shared/reference.dat", 200_000), (b"shared/README", 300), (b"home/NOTICE", 100)):
        writer.file(path, pieces(seed, path, size_bytes), size_bytes, Attributes(mode=0o644, mtime_ns=time_ns))


def _make_directories(root: bytes, user: InventedUser) -> None:
    for directory in user.directories:
        os.mkdir(_place(root, user, directory), 0o700)  # noqa: PTH102 (bytes)


def _place(root: bytes, user: InventedUser, directory: InventedDirectory) -> bytes:
    tree = root + b"/" + user.tree
    return tree + b"/" + directory.path if directory.path else tree


def _fill_directory(
    root: bytes, seed: int, user: InventedUser, directory: InventedDirectory, stop: threading.Event
) -> None:
    place = _place(root, user, directory)
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for file in directory.files:
            if stop.is_set():
                return
            _make_file(fd, seed, user, directory, file)
    finally:
        os.close(fd)


def _make_file(fd: int, seed: int, user: InventedUser, directory: InventedDirectory, file: InventedFile) -> None:
    owner = Owner(uid=user.uid, gid=user.uid)
    if file.same_as is not None:
        os.link(file.same_as, file.name, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
    elif file.symlink_target is not None:
        os.symlink(file.symlink_target, file.name, dir_fd=fd)
        apply_attributes(fd, file.name, Attributes(owner=owner, mtime_ns=file.mtime_ns, atime_ns=file.atime_ns))
    else:
        path = b"/".join((user.tree, directory.path, file.name))
        write_file(fd, file.name, pieces(seed, path, file.size_bytes), file.size_bytes)
        attributes = Attributes(
            owner=owner,
            mode=file.mode,
            mtime_ns=file.mtime_ns,
            atime_ns=file.atime_ns,
            xattrs={b"user.comment": file.note} if file.note is not None else {},
        )
        apply_attributes(fd, file.name, attributes)


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
        return dict(odd_files(tree, seed=spec.seed, uid=user.uid, neighbour=neighbour, source_mount=root).skipped)

    skipped: dict[OddKind, str] = {}
    for future in [pool.submit(make, number) for number in range(len(chosen))]:
        skipped.update(future.result())
    return tuple(sorted(skipped.items()))


def _finish_directories(root: bytes, user: InventedUser) -> None:
    with TreeWriter(root + b"/" + user.tree) as writer:
        for directory in reversed(user.directories):
            attributes = Attributes(
                owner=Owner(uid=user.uid, gid=user.uid),
                mode=directory.mode,
                mtime_ns=directory.mtime_ns,
                atime_ns=directory.mtime_ns + NS_PER_S,
            )
            writer.attributes_of_directory(directory.path, attributes)
