"""Lists owner, mode and ACLs of every directory of a brick. Plain Python 3.9, run on the brick's host. Changes nothing,
and follows no symlink.

Reads one question (JSON, names as latin-1) from standard input and prints one line of JSON per directory, parents
first; the last line has the number of unreadable ones. Files are only listed, never read.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from typing import Any

from migrator.fs import far_xattrs
from migrator.gluster import far_brick

_GONE = (errno.ENOENT, errno.ENOTDIR)
_LINES_AT_ONCE = 500


class Directories:
    """A walk of all directories of a brick."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._lines: list[str] = []
        self._unseen = 0

    def walk(self) -> None:
        """Print all directories."""
        waiting = [(b"", "")]
        while waiting:
            path, gfid = waiting.pop()
            try:
                waiting.extend(self._look_into(path, gfid))
            except OSError as error:
                # Users continue to work: a deleted directory needs no repair.
                self._unseen += error.errno not in _GONE

    def look_at(self, path: bytes) -> None:
        """Print this directory, without the gfid of its parent."""
        try:
            with far_brick.above(self._root, path) as (directory, name):
                self._take(directory, name, path, "")
        except OSError as error:
            self._unseen += error.errno not in _GONE

    def finish(self) -> None:
        """Print the last line."""
        self._lines.append(json.dumps({"unseen": self._unseen}))
        self._flush()

    def _look_into(self, path: bytes, gfid: str) -> list[tuple[bytes, str]]:
        inner = []
        with far_brick.listed(self._root, path) as directory:
            for entry, name, full in far_brick.entries_of(directory, path):
                if entry.is_dir(follow_symlinks=False):
                    found = self._take(directory, name, full, gfid)
                    if found is not None:
                        inner.append((full, found))
        return inner

    def _take(self, directory: int, name: bytes, path: bytes, above: str) -> str | None:
        """Print one line; returns the gfid, None if the directory is gone or has none."""
        place = far_brick.place_of(directory, name)
        try:
            facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
            gfid = far_brick.attribute_of_place(place, far_brick.GFID).hex()
            line = {
                "path": path.decode("latin-1"),
                "gfid": gfid,
                "above": above,
                "mode": stat.S_IMODE(facts.st_mode),
                "uid": facts.st_uid,
                "gid": facts.st_gid,
                "access": far_brick.attribute_of_place(place, far_xattrs.ACL_ACCESS).hex(),
                "default": far_brick.attribute_of_place(place, far_xattrs.ACL_DEFAULT).hex(),
                "times": far_brick.parse_mdata(far_brick.attribute_of_place(place, far_brick.MDATA)),
            }
        except OSError as error:
            self._unseen += error.errno not in _GONE
            return None
        if not stat.S_ISDIR(facts.st_mode) or not gfid:
            self._unseen += 1
            return None
        self._lines.append(json.dumps(line))
        if len(self._lines) >= _LINES_AT_ONCE:
            self._flush()
        return gfid

    def _flush(self) -> None:
        sys.stdout.write("".join(f"{line}\n" for line in self._lines))
        sys.stdout.flush()
        self._lines.clear()


def main() -> None:
    """Answer the question."""
    question: dict[str, Any] = json.load(sys.stdin)
    root = far_brick.open_root(question["root"].encode("latin-1"), question["volume_id"])
    directories = Directories(root)
    if "only" in question:
        for path in question["only"]:
            directories.look_at(path.encode("latin-1"))
    else:
        directories.walk()
    directories.finish()
