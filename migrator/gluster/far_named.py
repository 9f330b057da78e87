"""Finds names of files by their gfids. Plain Python 3.9, run on a brick's host. Changes nothing, and follows no symlink.

Reads one question (JSON) from standard input, and prints a line of JSON for each of these files that the brick has: its gfid
and one of its paths (latin-1), or null if no name was found. The brick is walked only if it has such a file.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from typing import Any
from uuid import UUID

from migrator.gluster import far_brick

_GONE = (errno.ENOENT, errno.ENOTDIR)


def inodes_of(root: int, gfids: list[str]) -> dict[int, str]:
    """The gfid of each of these files that has a name, by inode number."""
    found = {}
    for gfid in gfids:
        handle = f".glusterfs/{gfid[:2]}/{gfid[2:4]}/{UUID(gfid)}"
        try:
            facts = os.stat(handle, dir_fd=root, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if facts.st_nlink > 1:
            found[facts.st_ino] = gfid
    return found


def find(root: int, wanted: dict[int, str]) -> None:
    """Walk until each of the wanted files is found, and print their paths."""
    waiting = [b""]
    while waiting and wanted:
        path = waiting.pop()
        try:
            with far_brick.listed(root, path) as directory:
                for entry, _, full in far_brick.entries_of(directory, path):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(full)
                    elif entry.inode() in wanted:
                        say(wanted.pop(entry.inode()), full.decode("latin-1"))
        except OSError as error:
            # Users continue to work: what was in a deleted directory is elsewhere, or gone.
            if error.errno not in _GONE:
                raise


def say(gfid: str, path: str | None) -> None:
    """Print one line."""
    sys.stdout.write(json.dumps([gfid, path]) + "\n")


def main() -> None:
    """Answer the question."""
    question: dict[str, Any] = json.load(sys.stdin)
    root = far_brick.open_root(question["root"].encode("latin-1"), question["volume_id"])
    wanted = inodes_of(root, question["gfids"])
    find(root, wanted)
    for gfid in wanted.values():
        say(gfid, None)
