"""Looking at `hooks_dir`: nothing is followed, nothing is judged."""

import os
import stat

from migrator.domain.entry import EntryType
from migrator.domain.hooks import FileLook, HooksLook, StageLook

_SUFFIX = b".d"


def look_at_hooks(directory: bytes) -> HooksLook:
    """What lies there, one look at each path. The way to the directory is resolved as it is now; the directory itself,
    and all below it, is looked at without following a symlink. Blocking.
    """
    parent, own = os.path.split(directory.rstrip(b"/"))
    real = os.path.realpath(parent)
    above: list[FileLook] = []
    place = b"/"
    try:
        for part in (b"", *(part for part in real.split(b"/") if part), own):
            place = os.path.join(place, part)
            above.append(_look(place))
    except (FileNotFoundError, NotADirectoryError):
        return HooksLook()
    except OSError as error:
        return HooksLook(above=tuple(above), unread=f"{error.strerror}")
    if above[-1].type is not EntryType.DIRECTORY:
        return HooksLook(above=tuple(above))
    try:
        names = sorted(os.listdir(place))
    except OSError as error:
        return HooksLook(above=tuple(above), unread=f"{error.strerror}")
    looks = (_stage(os.path.join(place, entry)) for entry in names if entry.endswith(_SUFFIX) and entry[:1] != b".")
    return HooksLook(above=tuple(above), stages=tuple(looks))


def _stage(path: bytes) -> StageLook:
    look = _look(path)
    if look.type is not EntryType.DIRECTORY:
        return StageLook(directory=look)
    try:
        entries = tuple(_look(os.path.join(path, entry)) for entry in sorted(os.listdir(path)))
    except OSError as error:
        return StageLook(directory=look, unread=error.strerror or str(error))
    return StageLook(directory=look, entries=entries)


def _look(path: bytes) -> FileLook:
    found = os.lstat(path)
    return FileLook(
        path=path, type=EntryType.of_mode(found.st_mode), uid=found.st_uid, mode=stat.S_IMODE(found.st_mode)
    )
