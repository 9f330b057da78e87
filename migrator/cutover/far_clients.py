"""Finds the connections to bricks that belong to this site or to Gluster, by /proc; in plain Python 3.9.

Reads one question (JSON) from standard input and writes one answer to standard output: the kind of every root process
of Gluster, with the local ends of its connections.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from typing import Any

_ESTABLISHED = "01"
_DAEMONS = ("shd/", "rebalance/", "quotad/", "gluster/", "snapd/", "bitd", "scrub", "tierd/")
"""Names of the volfiles of Gluster's own processes (glusterd, GlusterFS 10)."""


def kind_of(words: list[str], volume: str, mount: str) -> str | None:
    """The owner of a process, by its command line; None if it is neither this site's nor Gluster's."""
    volfile = ""
    for index, word in enumerate(words):
        if word == "--volfile-id" and index + 1 < len(words):
            volfile = words[index + 1]
        elif word.startswith("--volfile-id="):
            volfile = word.partition("=")[2]
    if volfile.startswith(_DAEMONS):
        return "gluster"
    if volfile.strip("/").partition("/")[0] == volume and os.path.normpath(words[-1]) in (
        os.path.normpath(mount),
        os.path.realpath(mount),
    ):
        return "own-mount"
    return None


def local_ends(text: str) -> dict[str, str]:
    """The local ends of the connections in /proc/PID/net/tcp or tcp6, by the inode of the socket."""
    found = {}
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) > 9 and words[3] == _ESTABLISHED:
            host, _, port = words[1].partition(":")
            found[words[9]] = f"{address_of(host)}:{int(port, 16)}"
    return found


def address_of(digits: str) -> str:
    """Decode an address of /proc, which is written in words of the machine's byte order."""
    raw = b"".join(struct.pack("=I", int(digits[at : at + 8], 16)) for at in range(0, len(digits), 8))
    if len(raw) == 4:
        return socket.inet_ntop(socket.AF_INET, raw)
    if raw[:12] == bytes(10) + b"\xff\xff":
        return socket.inet_ntop(socket.AF_INET, raw[12:])
    return socket.inet_ntop(socket.AF_INET6, raw)


def look(question: dict[str, Any]) -> list[list[str]]:
    """Every connection with its owner."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            found += _of_process(f"/proc/{name}", question["volume"], question["mount"])
        except OSError:
            continue  # gone meanwhile; one that cannot be read is nobody's here, and counts as another client
    return found


def _of_process(base: str, volume: str, mount: str) -> list[list[str]]:
    if not _read(f"{base}/comm").startswith("glusterfs") or os.stat(base).st_uid != 0:
        return []
    words = _read(f"{base}/cmdline").rstrip("\0").split("\0")
    kind = kind_of(words, volume, mount)
    if kind is None:
        return []
    ends = {}
    for table in ("tcp", "tcp6"):
        try:
            ends.update(local_ends(_read(f"{base}/net/{table}")))
        except FileNotFoundError:
            continue  # a kernel without IPv6
    found = []
    for descriptor in os.listdir(f"{base}/fd"):
        try:
            shown = os.readlink(f"{base}/fd/{descriptor}")
        except FileNotFoundError:
            continue
        if shown.startswith("socket:[") and shown[8:-1] in ends:
            found.append([kind, ends[shown[8:-1]]])
    return found


def _read(path: str) -> str:
    with open(path, encoding="latin-1") as file:
        return file.read()


def main() -> None:
    """Answer one question."""
    json.dump(look(json.load(sys.stdin)), sys.stdout)
