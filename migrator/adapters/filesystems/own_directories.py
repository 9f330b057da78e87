"""Directories on source and target that are this user's alone, so that nobody else can change names in them."""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress

from migrator.adapters.filesystems.writing import descriptor_path, remove_acls
from migrator.decide.compare import CLOSED_MODE
from migrator.domain.errors import Refused

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_own(
    above_fd: int, name: bytes, refused: Callable[[str], Refused], *, make: bool = True, lasting: bool = False
) -> int:
    """The directory `name` in another one, of mode 0700 and on the same file system; open for reading, and the caller closes it.

    With `make` it is made where it is missing. With `lasting` its name is on the disks then; `above_fd` has to be open for
    reading for that. May be called again. Raises FileNotFoundError where it is missing and is not made, what `refused` makes
    of the reason where it is anybody else's or no directory, and OSError.
    """
    made = False
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, CLOSED_MODE, dir_fd=above_fd)
            made = True
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=above_fd)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise refused("it is no directory") from error
        raise
    try:
        if made:
            # A default ACL of the directory above may have given others a way in.
            remove_acls(descriptor_path(fd))
            os.fchmod(fd, CLOSED_MODE)
            if lasting:
                os.fsync(above_fd)
        why = _why_not_own(os.fstat(fd), os.fstat(above_fd).st_dev)
    except BaseException:
        os.close(fd)
        raise
    if why:
        os.close(fd)
        raise refused(why)
    return fd


def _why_not_own(facts: os.stat_result, device: int) -> str:
    if facts.st_uid != os.geteuid():
        return f"it belongs to user {facts.st_uid}"
    if stat.S_IMODE(facts.st_mode) & 0o777 != CLOSED_MODE:
        return f"its mode is {stat.S_IMODE(facts.st_mode):04o}, and not {CLOSED_MODE:04o}"
    return "another file system is mounted on it" if facts.st_dev != device else ""
