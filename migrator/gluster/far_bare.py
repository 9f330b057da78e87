"""Lists the files of a brick that have no ACL in a directory with a default ACL. Plain Python 3.9, run on the brick's
host. Changes nothing, and follows no symlink.

Reads one question (JSON, names as latin-1) from standard input and prints one line of JSON per path, with the gfid. Fails
at its end if an entry could not be read.
"""

from __future__ import annotations

import errno
import json
import sys
from typing import Any

from migrator.fs import far_xattrs
from migrator.gluster import far_brick

_GONE = (errno.ENOENT, errno.ENOTDIR)


def unseen_below(root: int) -> int:
    """Print the paths below the root; the result is the number of unreadable entries."""
    waiting, unseen = [b""], 0
    while waiting:
        path = waiting.pop()
        try:
            with far_brick.listed(root, path) as directory:
                here = far_brick.place_of(directory, b".")
                inherited = far_brick.attribute_of_place(here, far_xattrs.ACL_DEFAULT)
                for entry, name, full in far_brick.entries_of(directory, path):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(full)
                    elif inherited and not entry.is_symlink():
                        unseen += not _take(far_brick.place_of(directory, name), full)
        except OSError as error:
            # Users continue to work: a deleted directory is no problem.
            unseen += error.errno not in _GONE
    return unseen


def _take(place: bytes, path: bytes) -> bool:
    try:
        if not far_brick.attribute_of_place(place, far_xattrs.ACL_ACCESS):
            gfid = far_brick.attribute_of_place(place, far_brick.GFID)
            # A file without one is not part of the volume, and Gluster does not move it.
            if gfid:
                sys.stdout.write(json.dumps([path.decode("latin-1"), gfid.hex()]) + "\n")
    except OSError as error:
        return error.errno in _GONE
    return True


def main() -> None:
    """Answer the question."""
    question: dict[str, Any] = json.load(sys.stdin)
    unseen = unseen_below(far_brick.open_root(question["root"].encode("latin-1"), question["volume_id"]))
    if unseen:
        raise SystemExit(f"{unseen} entries cannot be read")
