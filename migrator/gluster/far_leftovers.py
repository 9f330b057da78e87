"""Lists and reads the files left on a drained brick. Plain Python 3.9, run on the brick's host. Changes nothing.

Reads one question (JSON, names as latin-1) from standard input: `look` answers in JSON, `read` with the content of one
file. Directories are opened from the brick's root by descriptor, and no symlink is followed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import signal
import stat
import sys
from collections.abc import Iterator
from typing import Any

from migrator.fs.far_xattrs import is_carried
from migrator.gluster import far_brick
from migrator.gluster.far_open import OpenFiles, is_held, leases_tell

_PIECE_BYTES = 1 << 20
_MIGRATING = stat.S_ISGID | stat.S_ISVTX
_AFR = b"trusted.afr."
_PROBE = re.compile(rb"\.migrator-probe/(?:(?:probe|entry)-[0-9]{2}|complete)")
"""Files of this program's probes: no user data, and they change every minute."""


def _text(value: bytes) -> str:
    return value.decode("latin-1")


class Look:
    """A walk of everything on a brick that is neither a directory nor an empty link-to file nor Gluster's own."""

    def __init__(self, question: dict[str, Any]) -> None:
        self._root = far_brick.open_root(question["root"].encode("latin-1"), question["volume_id"])
        self._digests = question["digests"]
        self._found: dict[int, dict[str, Any]] = {}
        self._leases = leases_tell()
        self._blamed: list[str] = []
        self._unseen: list[str] = []

    def run(self) -> dict[str, Any]:
        """The answer."""
        waiting = [b""]
        while waiting:
            path = waiting.pop()
            try:
                waiting += self._list(path)
            except OSError as error:
                self._miss(path, error)
        if self._found:
            opened = OpenFiles(os.fstat(self._root).st_dev)
            opened.find()
            held = [self._held(one) for one in self._found.values()]
            for one, told in zip(self._found.values(), held):
                one["open"] = one["inode"] in opened.inodes or (bool(opened.unknown) if told is None else told)
            if None in held:
                self._unseen += opened.unknown[:20]
        found = sorted(self._found.values(), key=lambda one: str(min(one["names"])))
        return {"found": found, "unseen": self._unseen[:100]}

    def _miss(self, path: bytes, error: OSError) -> None:
        self._unseen.append(f"{path.decode('utf-8', 'backslashreplace')}: {error.strerror}")

    def _list(self, path: bytes) -> list[bytes]:
        with far_brick.listed(self._root, path) as directory:
            self._blamed = _pending(b"/proc/self/fd/%d" % directory, of_directory=True)
            inner = []
            for _, name, full in far_brick.entries_of(directory, path):
                if _PROBE.fullmatch(full):
                    continue
                try:
                    facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
                    if stat.S_ISDIR(facts.st_mode):
                        inner.append(full)
                    else:
                        self._take(directory, name, full, facts)
                except OSError as error:
                    self._miss(full, error)
            return inner

    def _take(self, directory: int, name: bytes, path: bytes, facts: os.stat_result) -> None:
        known = self._found.get(facts.st_ino)
        if known is not None:
            known["names"].append(_text(path))
            return
        place = far_brick.place_of(directory, name)
        mode = stat.S_IMODE(facts.st_mode)
        linkto = far_brick.attribute_of_place(place, far_brick.LINKTO) if stat.S_ISREG(facts.st_mode) else b""
        link_to = bool(linkto) and mode == stat.S_ISVTX
        if link_to and not facts.st_size:
            return
        if linkto and mode & _MIGRATING == _MIGRATING:
            mode &= ~_MIGRATING
        gfid = far_brick.attribute_of_place(place, far_brick.GFID)
        times = far_brick.parse_mdata(far_brick.attribute_of_place(place, far_brick.MDATA))
        keys = sorted(filter(is_carried, far_brick.list_attributes(place)))
        self._found[facts.st_ino] = {
            "names": [_text(path)],
            "kind": stat.S_IFMT(facts.st_mode),
            "gfid": gfid.hex(),
            "inode": facts.st_ino,
            "link_count": facts.st_nlink - self._stored(gfid, facts),
            "mode": mode,
            "link_to": link_to,
            "uid": facts.st_uid,
            "gid": facts.st_gid,
            "size_bytes": facts.st_size,
            "blocks": facts.st_blocks,
            "mtime_ns": facts.st_mtime_ns,
            "ctime_ns": facts.st_ctime_ns,
            "atime_ns": facts.st_atime_ns,
            # Only modification and access times: no program can set the ctime.
            "own_times": None if times is None else times[1:],
            "xattrs": {_text(key): _text(far_brick.attribute_of_place(place, key)) for key in keys},
            "target": _text(os.readlink(name, dir_fd=directory)) if stat.S_ISLNK(facts.st_mode) else "",
            "open": True,
            "pending": _pending(place, of_directory=False) + self._blamed,
            "digest": self._digest(directory, name, facts) if self._digests else "",
        }

    def _stored(self, gfid: bytes, facts: os.stat_result) -> int:
        """Whether the file has its link in .glusterfs."""
        if len(gfid) != 16:
            return 0
        text = gfid.hex()
        name = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        path = f".glusterfs/{text[:2]}/{text[2:4]}/{name}".encode()
        try:
            stored = os.stat(path, dir_fd=self._root, follow_symlinks=False)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return 0
            raise
        return int((stored.st_dev, stored.st_ino) == (facts.st_dev, facts.st_ino))

    def _digest(self, directory: int, name: bytes, facts: os.stat_result) -> str:
        digest = hashlib.sha256()
        if stat.S_ISLNK(facts.st_mode):
            digest.update(os.fsencode(os.readlink(name, dir_fd=directory)))
            return digest.hexdigest()
        if not stat.S_ISREG(facts.st_mode):
            return ""
        with far_brick.held(open_file(directory, name, facts)) as fd:
            for piece in _pieces(fd):
                digest.update(piece)
            if _moment(os.fstat(fd)) != _moment(facts):
                raise OSError(errno.EBUSY, "it changes while it is read")
        return digest.hexdigest()

    def _held(self, one: dict[str, Any]) -> bool | None:
        """Whether any process has it open; None if the kernel cannot report it."""
        if not self._leases or not stat.S_ISREG(one["kind"]):
            return None
        try:
            with far_brick.above(self._root, one["names"][0].encode("latin-1")) as (directory, name):
                facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if facts.st_ino != one["inode"]:
                    return True
                fd = open_file(directory, name, facts)
        except OSError:
            return None
        with far_brick.held(fd):
            return is_held(fd)


def _pending(place: bytes, *, of_directory: bool) -> list[str]:
    """The AFR counters that are not zero: they name the copies with pending heals. On a directory, the counter of
    changes in flight is ignored: it is set whenever users work in it.
    """
    follow = of_directory  # by descriptor
    try:
        keys = [key for key in map(os.fsencode, os.listxattr(place, follow_symlinks=follow)) if key.startswith(_AFR)]
    except OSError as error:
        if error.errno in far_brick.ABSENT:
            return []
        raise
    if of_directory:
        keys = [key for key in keys if key != _AFR + b"dirty"]
    found = []
    for key in keys:
        try:
            if any(os.getxattr(place, key, follow_symlinks=follow)):
                found.append(_text(key))
        except OSError as error:
            if error.errno not in far_brick.ABSENT:
                raise
    return found


def open_file(directory: int, name: bytes, facts: os.stat_result) -> int:
    """Open a regular file if it still has this inode, without changing its access time."""
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOATIME | os.O_CLOEXEC, dir_fd=directory)
    now = os.fstat(fd)
    if (now.st_dev, now.st_ino) != (facts.st_dev, facts.st_ino) or not stat.S_ISREG(now.st_mode):
        os.close(fd)
        raise OSError(errno.ESTALE, "it was replaced")
    return fd


def read(question: dict[str, Any]) -> None:
    """Write the content of one file to standard output."""
    root = far_brick.open_root(question["root"].encode("latin-1"), question["volume_id"])
    with far_brick.above(root, question["path"].encode("latin-1")) as (directory, name):
        fd = open_file(directory, name, os.stat(name, dir_fd=directory, follow_symlinks=False))
    if _moment(os.fstat(fd)) != question["facts"]:
        raise SystemExit("it changed")
    for piece in _pieces(fd):
        left = piece
        while left:
            left = left[os.write(1, left) :]
    if _moment(os.fstat(fd)) != question["facts"]:
        raise SystemExit("it changed while it was read")


def _pieces(fd: int) -> Iterator[bytes]:
    return iter(lambda: os.read(fd, _PIECE_BYTES), b"")


def _moment(facts: os.stat_result) -> list[int]:
    """The facts that distinguish the file from another one, and from itself after a change."""
    return [facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns]


def main() -> None:
    """Answer one question."""
    # The kernel sends it when a process opens the file while a lease is held.
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    question = json.load(sys.stdin)
    if question["what"] == "read":
        read(question)
    else:
        json.dump(Look(question).run(), sys.stdout)
