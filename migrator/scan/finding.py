"""Finding the directories that globs name, level by level, and never through a symlink."""

import errno
from collections.abc import Iterator, Sequence

from migrator.core.entry import EntryType
from migrator.core.errors import Refused
from migrator.core.paths import join, show
from migrator.fs.ports import FileSystem
from migrator.scan.rules import TreePattern, component_matches, is_literal


def find_directories(source: FileSystem, pattern: TreePattern) -> Sequence[bytes]:
    """The directories that a glob matches, in order. Blocking. Raises Refused if a directory above is unreadable."""
    level: list[bytes] = [b""]
    for component in pattern.components:
        level = sorted({path for directory in level for path in _matching(source, directory, component)})
    return level


def is_directory(source: FileSystem, path: bytes) -> bool:
    """Whether the path is a directory, without symlinks on the way. Blocking. Raises Refused if that is unknown."""
    try:
        entry = source.look(path)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            return False
        raise _unreadable(path, error.strerror) from error
    return entry is not None and entry.type is EntryType.DIRECTORY


def _matching(source: FileSystem, directory: bytes, component: bytes) -> Iterator[bytes]:
    if is_literal(component):
        path = join(directory, component)
        if is_directory(source, path):
            yield path
        return
    for block in source.read_directory(directory):
        for problem in block.problems:
            if problem.path == directory and problem.errno != errno.EXDEV:
                raise _unreadable(directory, problem.reason)
        for entry in block.entries:
            if entry.type is EntryType.DIRECTORY and component_matches(component, entry.path.rpartition(b"/")[2]):
                yield entry.path


def _unreadable(path: bytes, reason: str | None) -> Refused:
    return Refused(
        f"the user trees cannot be found: {show(path) or 'the root of the source'} cannot be read: {reason}",
        cause="no permission, or the source's file system is ill",
        hint="run as root, look at the mount, then run `migrator scan` again",
    )
