"""Renaming beneath the target's root by descriptor, and the trash there."""

import ctypes
import errno
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from msgspec import Struct

from migrator.core.entry import EntryType, time_of_entry_ns
from migrator.core.errors import Refused
from migrator.core.paths import join, parent, show
from migrator.core.paths import name as last_name
from migrator.fs.beneath import HeldRoot, exists, held, into, read_mounts, remove_tree
from migrator.fs.model import TRASH_NAME, mounts_beneath, place_time_s
from migrator.fs.writing import descriptor_path, open_own, remove_acls


class TargetEntry(Struct, frozen=True, kw_only=True):
    """The entry under a name of the target."""

    type: EntryType
    size_bytes: int
    mtime_ns: int


class Expired(Struct, frozen=True, kw_only=True):
    """The removed places of the trash, and the number of names in them. `problems` are sentences about entries that
    could not be removed; the next call retries them.
    """

    places: int = 0
    names: int = 0
    problems: tuple[str, ...] = ()


_RENAME_NOREPLACE = 1
_NOT_KNOWN = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_NAME_LIMIT_BYTES = 255
_SUFFIXES = 10_000
"""The number of names that are tried in the trash for one path."""

_libc = ctypes.CDLL(None, use_errno=True)


class MovingTarget(HeldRoot):
    """Moves paths on a mounted target. Thread-safe. `close` may be called again.

    A rename never overwrites: `renameat2(2)` with RENAME_NOREPLACE. If the file system does not support the flag
    (BeeGFS, some FUSE and NFS mounts), the new name is checked first, and then a plain rename follows. Only another
    process of root could create the name in between, as long as the tree is closed to its user.
    """

    def open_place(self, place: str, *, again: bool = False) -> None:
        """Make a place in the trash if it is missing, and check the trash itself. May be called again. `again`: a place that
        differs in its date alone becomes this one.

        Raises Refused if the trash is not a private directory of this user on the target's own file system.
        """
        with self._trash_directory(make=True) as trash_fd:
            for earlier in os.listdir(trash_fd) if again else ():
                if earlier != place and earlier.partition("-")[2] == place.partition("-")[2]:
                    _rename(trash_fd, os.fsencode(earlier), trash_fd, _place_name(place))
            os.close(_open_own(trash_fd, _place_name(place), make=True))

    def look(self, path: bytes) -> TargetEntry | None:
        """The entry under a name; None if there is none, or if a component above it is not a directory."""
        try:
            with self._parent(path) as (fd, name):
                facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
            self._check_root()
            return None
        return TargetEntry(
            type=EntryType.of_mode(facts.st_mode),
            size_bytes=facts.st_size,
            mtime_ns=time_of_entry_ns(facts.st_mtime_ns),
        )

    def entries(self, path: bytes) -> list[tuple[bytes, TargetEntry]]:
        """The names in a directory, with their entries. Raises OSError if it cannot be listed."""
        with held(self.beneath.open(path, os.O_RDONLY | os.O_DIRECTORY)) as fd:
            names = sorted(map(os.fsencode, os.listdir(fd)))
        found = ((name, self.look(join(path, name))) for name in names)
        return [(name, standing) for name, standing in found if standing is not None]

    def move(self, old: bytes, new: bytes, *, shared: bool = False) -> None:
        """Rename a path; a directory moves with its content. Missing directories above `new` are made, owned by root
        with mode 0700. `shared`: a user may create `new` at any time.

        Raises FileExistsError if `new` exists, FileNotFoundError if `old` does not.
        """
        with self._parent(old) as (old_fd, old_name), self._made_parent(new) as (new_fd, new_name):
            _rename(old_fd, old_name, new_fd, new_name, shared=shared)

    def make_directory(self, path: bytes) -> None:
        """Make a directory and the missing directories above it, owned by root with mode 0700. May be called again."""
        _check(path)
        os.close(self.beneath.make(path, os.O_PATH, _dress))

    def trash(self, path: bytes, place: str, *, name: bytes | None = None) -> bytes | None:
        """Move a path with its content into a place of the trash, under its own path or under `name`, with a suffix if
        that name is taken. Returns the new path; None if the path does not exist.
        """
        if self.look(path) is None:
            return None
        wanted = path if name is None else name
        _check(wanted)
        with (
            self._trash_directory(make=True) as trash_fd,
            held(_open_own(trash_fd, _place_name(place), make=True)) as place_fd,
        ):
            directory, fd = _descend(place_fd, parent(wanted))
        with held(fd), self._parent(path) as (old_fd, old_name):
            for candidate in _candidates(last_name(wanted)):
                try:
                    _rename(old_fd, old_name, fd, candidate)
                except FileExistsError:
                    continue
                return b"/".join((TRASH_NAME, _place_name(place), join(directory, candidate)))
        raise OSError(errno.EEXIST, "no free name in the trash", path)

    def expire(self, before_s: float, *, keep: Collection[str] = ()) -> Expired:
        """Remove the places begun before a time, except those of passes in progress (`keep`). Other names stay. May be
        called again. Raises Refused as `open_place` does.
        """
        try:
            with self._trash_directory(make=False) as trash_fd:
                listed = sorted(os.fsencode(name) for name in os.listdir(trash_fd))
        except FileNotFoundError:
            return Expired()
        places = names = 0
        problems: list[str] = []
        mount_points = mounts_beneath(read_mounts(), os.path.realpath(self.root))
        for name in listed:
            begun_s = place_time_s(os.fsdecode(name))
            if begun_s is None or begun_s >= before_s or os.fsdecode(name) in keep:
                continue
            removed = remove_tree(self.beneath, join(TRASH_NAME, name), mount_points)
            names += removed.names
            problems += removed.problems
            places += not removed.problems
        return Expired(places=places, names=names, problems=tuple(problems))

    def _check_root(self) -> None:
        if self.beneath.facts().st_nlink == 0:
            raise OSError(errno.ESTALE, "the target's root itself is gone", self.root)

    @contextmanager
    def _parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        _check(path)
        with self.beneath.parent(path) as found:
            yield found

    @contextmanager
    def _made_parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        _check(path)
        directory = parent(path)
        try:
            fd = self.beneath.open(directory, os.O_PATH | os.O_DIRECTORY)
        except FileNotFoundError:
            fd = self.beneath.make(directory, os.O_PATH, _dress)
        with held(fd):
            yield fd, last_name(path)

    @contextmanager
    def _trash_directory(self, *, make: bool) -> Iterator[int]:
        """The checked trash. Raises FileNotFoundError if it is missing and `make` is false."""
        with held(self.beneath.open(b"", os.O_PATH | os.O_DIRECTORY)) as root_fd:
            fd = _open_own(root_fd, TRASH_NAME, make=make)
        with held(fd):
            yield fd


def _rename(old_fd: int, old: bytes, new_fd: int, new: bytes, *, shared: bool = False) -> None:
    code = _rename_without_replacing(old_fd, old, new_fd, new)
    if code in _NOT_KNOWN:
        # A rename of a directory replaces an empty one at most; link(2) replaces nothing.
        if shared and not stat.S_ISDIR(os.stat(old, dir_fd=old_fd, follow_symlinks=False).st_mode):
            os.link(old, new, src_dir_fd=old_fd, dst_dir_fd=new_fd, follow_symlinks=False)
            os.unlink(old, dir_fd=old_fd)
            return
        if not exists(new_fd, new):
            os.rename(old, new, src_dir_fd=old_fd, dst_dir_fd=new_fd)
            return
        # Report a missing old name first, as the system call does.
        os.stat(old, dir_fd=old_fd, follow_symlinks=False)
        code = errno.EEXIST
    if code:
        raise OSError(code, os.strerror(code), old, None, new)


def _rename_without_replacing(old_fd: int, old: bytes, new_fd: int, new: bytes) -> int:
    """The error number of renameat2(2)."""
    while _libc.renameat2(old_fd, old, new_fd, new, _RENAME_NOREPLACE) != 0:
        code = ctypes.get_errno()
        if code != errno.EINTR:
            return code
    return 0


def _dress(made: int) -> None:
    remove_acls(descriptor_path(made))


def _descend(place_fd: int, directory: bytes) -> tuple[bytes, int]:
    """Open a directory in a place of the trash, made if missing; returns its path there and its descriptor.

    If a file or a symlink from an earlier move has a component's name, the component gets a suffix.
    """
    fd = os.dup(place_fd)
    taken: list[bytes] = []
    for component in directory.split(b"/") if directory else ():
        with held(fd):
            candidate, fd = _step(fd, component)
        taken.append(candidate)
    return b"/".join(taken), fd


def _step(fd: int, component: bytes) -> tuple[bytes, int]:
    for candidate in _candidates(component):
        try:
            return candidate, into(os.dup(fd), candidate, os.O_PATH, _dress)
        except NotADirectoryError:
            continue
    raise OSError(errno.EEXIST, "no free name in the trash", component)


def _candidates(name: bytes) -> Iterator[bytes]:
    yield name
    for number in range(1, _SUFFIXES):
        suffix = b".~%d~" % number
        yield name[: _NAME_LIMIT_BYTES - len(suffix)] + suffix


def _check(path: bytes) -> None:
    if any(component in (b"", b".", b"..") for component in path.split(b"/")):
        raise OSError(errno.EINVAL, "not the path of an entry", path)


def _place_name(place: str) -> bytes:
    if place_time_s(place) is None:
        raise OSError(errno.EINVAL, "not the name of a place in the trash", place)
    return os.fsencode(place)


def _open_own(above_fd: int, name: bytes, *, make: bool) -> int:
    return open_own(above_fd, name, lambda why: _not_own(name, why), make=make)


def _not_own(name: bytes, why: str) -> Refused:
    return Refused(
        f"the trash of the target cannot be used: {show(name)} is not a directory of root's alone: {why}",
        cause="somebody else made it, or changed its owner or its mode",
        hint=f"look into {show(TRASH_NAME)} in the target's root; give it back to root with mode 0700, or move it away, then "
        "run the same command again",
    )
