"""Proving that a path is gone from the source: doubt is no proof."""

import errno

from migrator.domain.entry import Entry, EntryType
from migrator.ports.filesystem import FileSystem


def look_or_prove_gone(file_system: FileSystem, path: bytes) -> Entry | None:
    """The entry that is there now; None where it is proven that there is none.

    A directory on the way that is a file or a symlink by now proves it too. Raises OSError in doubt.
    """
    try:
        return file_system.look(path)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        if not _leads_nowhere(file_system, path):
            raise
        return None


def _leads_nowhere(file_system: FileSystem, path: bytes) -> bool:
    components = path.split(b"/")
    for depth in range(1, len(components)):
        ancestor = file_system.look(b"/".join(components[:depth]))
        if ancestor is None or ancestor.type is not EntryType.DIRECTORY:
            return True
    return False
