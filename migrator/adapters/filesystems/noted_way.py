"""The way to a directory, gone by descriptor: every step is noted, and only root's symlinks are followed."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from migrator.domain.entry import EntryType
from migrator.domain.hooks import FileLook

_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_SYMLINKS_LIMIT = 40  # as many as the kernel follows (path_resolution(7))


@dataclass(slots=True)
class Way:
    """What was passed, and where it leads, without symlinks."""

    looks: list[FileLook] = field(default_factory=list)
    real: bytes = b"/"


@contextmanager
def walk(directory: bytes, way: Way) -> Iterator[int]:
    """The directory, open (O_PATH), with all that was passed on the way. Symlinks are followed by hand, and only root's.

    Raises OSError; ELOOP where a symlink on the way is somebody else's, which then is the last look.
    """
    pending = [part for part in directory.split(b"/") if part]
    fd = os.open(b"/", _PATH | os.O_DIRECTORY)
    symlinks = 0
    try:
        _note(way, fd)
        while pending:
            part = pending.pop(0)
            deeper = os.open(part, _PATH, dir_fd=fd)
            if part == b"..":
                way.real = os.path.dirname(way.real)
            else:
                way.real = os.path.join(way.real, part)
            try:
                look = _note(way, deeper)
                if look.type is EntryType.SYMLINK:
                    symlinks += 1
                    _refuse_to_follow(look, symlinks)
                    text = os.readlink(b"", dir_fd=deeper)
                    pending[:0] = [piece for piece in text.split(b"/") if piece not in (b"", b".")]
                    way.real = b"/" if text.startswith(b"/") else os.path.dirname(way.real)
                    os.close(deeper)
                    deeper = os.open(b"/", _PATH | os.O_DIRECTORY) if text.startswith(b"/") else os.dup(fd)
                elif look.type is not EntryType.DIRECTORY:
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), way.real)
            except OSError:
                os.close(deeper)
                raise
            os.close(fd)
            fd = deeper
        if way.looks[-1].type is not EntryType.DIRECTORY:  # a symlink to a place that was passed before
            _note(way, fd)
        yield fd
    finally:
        os.close(fd)


def _refuse_to_follow(look: FileLook, symlinks: int) -> None:
    if look.uid not in (0, os.geteuid()) or symlinks > _SYMLINKS_LIMIT:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), look.path)


def _note(way: Way, fd: int) -> FileLook:
    facts = os.fstat(fd)
    kind = EntryType.of_mode(facts.st_mode)
    look = FileLook(path=way.real, type=kind, uid=facts.st_uid, mode=stat.S_IMODE(facts.st_mode))
    way.looks.append(look)
    return look
