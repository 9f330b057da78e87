"""Lists hard-linked files of a brick with the mark of an earlier drain, and files without a gfid. Plain Python 3.9, run
on the brick's host. Changes nothing, and follows no symlink.

Reads one question (JSON, names as latin-1) from standard input and prints the answer as JSON. A question with `paths`
asks only which of these have no gfid.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from typing import Any

from migrator.gluster.far_brick import above, entries_of, listed, open_root, place_of

_LINKTO = "trusted.glusterfs.dht.linkto"
_GFID = "trusted.gfid"
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_MIGRATING = stat.S_ISGID | stat.S_ISVTX
_EXAMPLES = 20
_GLUSTERS_OWN_NAMES = 1
"""Each file has one name in .glusterfs."""


def has_no_gfid(directory: int, name: bytes) -> bool:
    """Whether the file was written past Gluster, which sets the gfid of a new file before it makes the name in
    .glusterfs.
    """
    try:
        os.getxattr(place_of(directory, name), _GFID, follow_symlinks=False)
    except OSError as error:
        if error.errno != errno.ENODATA:
            raise
        return True
    return False


class MarkedFiles:
    """A walk of all directories of a brick; each file counts once, under the first name found."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._known: set[int] = set()
        self._examples: list[str] = []
        self._strange: list[str] = []
        self._files = self._strange_files = self._unseen = 0

    def run(self) -> dict[str, Any]:
        """The answer."""
        waiting = [b""]
        while waiting:
            path = waiting.pop()
            try:
                waiting.extend(self._look_into(path))
            except OSError as error:
                # Users continue to work: a deleted directory is no problem.
                self._unseen += error.errno not in (errno.ENOENT, errno.ENOTDIR)
        return {
            "files": self._files,
            "examples": self._examples,
            "strange": self._strange_files,
            "strange_examples": self._strange,
            "unseen": self._unseen,
        }

    def _look_into(self, path: bytes) -> list[bytes]:
        inner = []
        with listed(self._root, path) as directory:
            for entry, name, full in entries_of(directory, path):
                if entry.is_dir(follow_symlinks=False):
                    inner.append(full)
                elif entry.is_file(follow_symlinks=False):
                    self._take(directory, name, full)
        return inner

    def _take(self, directory: int, name: bytes, path: bytes) -> None:
        try:
            facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
            mode = stat.S_IMODE(facts.st_mode)
            if facts.st_nlink <= _GLUSTERS_OWN_NAMES and has_no_gfid(directory, name):
                self._strange_files += 1
                if len(self._strange) < _EXAMPLES:
                    self._strange.append(path.decode("latin-1"))
                return
            few = facts.st_nlink <= 1 + _GLUSTERS_OWN_NAMES
            if few or facts.st_ino in self._known or mode == stat.S_ISVTX or mode & _MIGRATING == _MIGRATING:
                return
            os.getxattr(place_of(directory, name), _LINKTO, follow_symlinks=False)
        except OSError as error:
            self._unseen += error.errno not in (errno.ENODATA, errno.ENOENT)
            return
        self._known.add(facts.st_ino)
        self._files += 1
        if len(self._examples) < _EXAMPLES:
            self._examples.append(path.decode("latin-1"))


def is_strange(root: int, path: bytes) -> bool:
    """Whether a path exists and has no gfid. Raises OSError."""
    try:
        with above(root, path) as (directory, name):
            return has_no_gfid(directory, name)
    except OSError as error:
        if error.errno in _GONE:
            return False
        raise


def main() -> None:
    """Answer the question."""
    question = json.load(sys.stdin)
    root = open_root(question["root"].encode("latin-1"), question["volume_id"])
    if "paths" in question:
        strange = [path for path in question["paths"] if is_strange(root, path.encode("latin-1"))]
        json.dump({"strange": strange}, sys.stdout)
    else:
        json.dump(MarkedFiles(root).run(), sys.stdout)
