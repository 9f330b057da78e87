"""Giving directories back the owner and mode that GlusterFS has taken from them.

Where bricks were added, whoever looks a directory up makes it on the new ones: clients, and a fix-layout on every host. They
do not wait for one another, and one that sees what another has just made takes that for the directory: it becomes root's, with
mode 0000, on all bricks, and nobody else may enter it (GlusterFS 10.3, seen; dht-selfheal.c there releases its lock between
making a directory and giving it its owner).
"""

import os
import stat
from collections.abc import Iterable

from migrator.adapters.filesystems.beneath import Root
from migrator.domain.directory_owners import DirectoryOwner, OwnersPutBack

_EXAMPLES = 10


def put_owners_back(root: bytes, known: Iterable[DirectoryOwner]) -> OwnersPutBack:
    """Look at each directory through the mount. One that is shut (root's, mode 0000), was not so when it was scanned, and is the
    same directory still (its inode), gets owner and mode of then; no other is touched. ACLs come back with the mode. What is
    gone by now is left out. May be called again. Raises OSError where the root cannot be opened.
    """
    looked_at = mended = failed = 0
    examples: list[bytes] = []
    with Root(root) as opened:
        for one in known:
            looked_at += 1
            try:
                if not _mend(opened, one):
                    continue
                mended += 1
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                failed += 1
            if len(examples) < _EXAMPLES:
                examples.append(one.path)
    return OwnersPutBack(looked_at=looked_at, mended=mended, failed=failed, examples=tuple(examples))


def _mend(root: Root, known: DirectoryOwner) -> bool:
    """Whether it had to be mended."""
    with root.parent(known.path) as (above, name):
        seen = os.stat(name, dir_fd=above, follow_symlinks=False)
        if known.shut or not _is_shut(seen, known):
            return False
    with root.directory(known.path) as fd:
        if not _is_shut(os.fstat(fd), known):
            return False
        os.fchown(fd, known.uid, known.gid)
        os.fchmod(fd, known.mode)
        return True


def _is_shut(seen: os.stat_result, known: DirectoryOwner) -> bool:
    found = DirectoryOwner(
        path=known.path, inode=seen.st_ino, mode=stat.S_IMODE(seen.st_mode), uid=seen.st_uid, gid=seen.st_gid
    )
    return stat.S_ISDIR(seen.st_mode) and found.inode == known.inode and found.shut
