"""Counts, on one brick of a replica set, the entries whose copies on other bricks have missed changes. Plain Python
3.9, run on the brick's host. Changes nothing.

Gluster keeps an index of these entries on each brick, and attributes on each entry that name the bricks. The script
reads one question (JSON) from standard input and prints the counts by brick as JSON.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from typing import Any

_AFR = b"trusted.afr."
_INDEX = b".glusterfs/indices/xattrop"
_GFID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OF_DIRECTORY = re.compile(rb"\.\./\.\./(?:\.\.|[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f-]{36}/[^/]+)")
"""A directory's gfid is a symlink to its name; a user's symlink is stored as a hard link."""
_VOLUMES = "/var/lib/glusterd/vols"
_ENOUGH = 1000
"""Stop counting at this many entries of a brick other than the one in question."""


def clients_of(volume: str, volumes: str = _VOLUMES) -> dict[bytes, str]:
    """The bricks of a volume by their names in attributes, from the files of this host's glusterd. Raises OSError."""
    found = {}
    directory = os.path.join(volumes, volume, "bricks")
    for name in os.listdir(directory):
        with open(os.path.join(directory, name), encoding="utf-8", errors="surrogateescape") as file:
            facts = dict(line.rstrip("\n").partition("=")[::2] for line in file)
        if "brick-id" in facts:
            found[os.fsencode(facts["brick-id"])] = f"{facts.get('hostname', '')}:{facts.get('path', '')}"
    return found


def blamed(root: bytes, clients: dict[bytes, str], but: str) -> dict[str, int]:
    """The number of entries on this brick that record missed changes of each other brick. Raises OSError, and
    ValueError for an unknown name.
    """
    counts: dict[str, int] = {}
    try:
        entries = os.scandir(os.path.join(root, _INDEX))
    except FileNotFoundError:
        # Gluster creates it with the first entry.
        return counts
    with entries:
        for entry in entries:
            if not _GFID.fullmatch(entry.name):
                continue
            for client in lacking(os.path.join(root, b".glusterfs", entry.name[:2], entry.name[2:4], entry.name)):
                if client not in clients:
                    raise ValueError(f"glusterd knows no brick {client.decode('utf-8', 'backslashreplace')}")
                counts[clients[client]] = counts.get(clients[client], 0) + 1
            if any(count >= _ENOUGH for name, count in counts.items() if name != but):
                break
    return counts


def lacking(place: bytes) -> set[bytes]:
    """The copies that have missed a change of one entry; none if the entry is gone meanwhile. Raises OSError."""
    try:
        follow = _is_of_directory(place)
        found = set()
        for key in os.listxattr(place, follow_symlinks=follow):
            name = os.fsencode(key)
            is_counter = name.startswith(_AFR) and b"-client-" in name
            if is_counter and any(os.getxattr(place, key, follow_symlinks=follow)):
                found.add(name[len(_AFR) :])
    except FileNotFoundError:
        return set()
    return found


def _is_of_directory(place: bytes) -> bool:
    try:
        return _OF_DIRECTORY.fullmatch(os.readlink(place)) is not None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False


def require_brick(path: bytes, volume_id: str) -> None:
    """Exit unless this is the root of a brick of this volume."""
    try:
        found = os.getxattr(path, b"trusted.glusterfs.volume-id", follow_symlinks=False).hex()
    except OSError:
        found = ""
    if found != volume_id.replace("-", ""):
        raise SystemExit("there is no brick of this volume (its file system may not be mounted)")


def main() -> None:
    """Answer one question."""
    question: dict[str, Any] = json.load(sys.stdin)
    root = question["root"].encode("latin-1")
    require_brick(root, question["volume_id"])
    try:
        answer = blamed(root, clients_of(question["volume"]), question["but"])
    except (OSError, ValueError) as error:
        raise SystemExit(str(error)) from error
    json.dump({"blamed": answer}, sys.stdout)
