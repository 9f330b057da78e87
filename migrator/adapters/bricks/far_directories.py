"""Type, owner, mode and ACLs of every directory of a brick; plain Python 3.9, run on the brick's host. Changes nothing.

One question (JSON, names as latin-1) on standard input. Every directory is one line of JSON on standard output, after the one
that it lies in; the last line says how many could not be looked at. Files are not looked at: of them only the kind is read that
their directory has of them. No symlink is followed.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import struct
import sys
from typing import Any

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GFID = "trusted.gfid"
_MDATA = "trusted.glusterfs.mdata"
_ACCESS = "system.posix_acl_access"
_DEFAULT = "system.posix_acl_default"
_MDATA_BYTES = 57
_NS_PER_S = 1_000_000_000
_ABSENT = (errno.ENODATA, errno.EOPNOTSUPP)
_GONE = (errno.ENOENT, errno.ENOTDIR)
_LINES_AT_ONCE = 500


class Directories:
    """A walk of all directories of a brick."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._device = os.fstat(root).st_dev
        self._lines: list[str] = []
        self._unseen = 0

    def walk(self) -> None:
        """Write everything."""
        waiting = [(b"", "")]
        while waiting:
            path, gfid = waiting.pop()
            try:
                waiting.extend(self._look_into(path, gfid))
            except OSError as error:
                # Users go on working: what is gone is not to be mended.
                self._unseen += error.errno not in _GONE

    def look_at(self, path: bytes) -> None:
        """Write this one, without the one that it lies in."""
        above, _, name = path.rpartition(b"/")
        try:
            directory = self._open(above)
            try:
                self._take(directory, name, path, "")
            finally:
                os.close(directory)
        except OSError as error:
            self._unseen += error.errno not in _GONE

    def finish(self) -> None:
        """Write the last line."""
        self._lines.append(json.dumps({"unseen": self._unseen}))
        self._flush()

    def _look_into(self, path: bytes, gfid: str) -> list[tuple[bytes, str]]:
        directory = self._open(path)
        try:
            if os.fstat(directory).st_dev != self._device:
                raise OSError(errno.EXDEV, "another file system is mounted there")
            inner = []
            with os.scandir(directory) as entries:
                for entry in entries:
                    name = os.fsencode(entry.name)
                    if not path and (name == b".glusterfs" or name.startswith(b".glusterfs-anonymous-inode-")):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        full = path + b"/" + name if path else name
                        found = self._take(directory, name, full, gfid)
                        if found is not None:
                            inner.append((full, found))
            return inner
        finally:
            os.close(directory)

    def _open(self, path: bytes) -> int:
        """Component by component: a whole path may be too long. The caller closes it."""
        fd = os.dup(self._root)
        for component in path.split(b"/") if path else ():
            try:
                deeper = os.open(component, _DIRECTORY, dir_fd=fd)
            finally:
                os.close(fd)
            fd = deeper
        return fd

    def _take(self, directory: int, name: bytes, path: bytes, above: str) -> str | None:
        """Write the line of one; returns its gfid, None where it is not one of Gluster's or is gone."""
        place = b"/proc/self/fd/%d/%s" % (directory, name)
        try:
            facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
            gfid = _attribute(place, _GFID).hex()
            line = {
                "path": path.decode("latin-1"),
                "gfid": gfid,
                "above": above,
                "mode": stat.S_IMODE(facts.st_mode),
                "uid": facts.st_uid,
                "gid": facts.st_gid,
                "access": _attribute(place, _ACCESS).hex(),
                "default": _attribute(place, _DEFAULT).hex(),
                "times": _times(_attribute(place, _MDATA)),
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


def _attribute(place: bytes, key: str) -> bytes:
    try:
        return os.getxattr(place, key, follow_symlinks=False)
    except OSError as error:
        if error.errno in _ABSENT:
            return b""
        raise


def _times(value: bytes) -> list[int] | None:
    """Of Gluster's own record the times of change and modification, in nanoseconds."""
    if len(value) != _MDATA_BYTES or value[0] != 1:
        return None
    ctime_s, ctime_ns, mtime_s, mtime_ns = struct.unpack_from(">qQqQ", value, 9)
    return [ctime_s * _NS_PER_S + ctime_ns, mtime_s * _NS_PER_S + mtime_ns]


def main() -> None:
    """Answer the question."""
    question: dict[str, Any] = json.load(sys.stdin)
    root = os.open(question["root"].encode("latin-1"), _DIRECTORY)
    try:
        found = os.getxattr(root, "trusted.glusterfs.volume-id").hex()
    except OSError:
        found = ""
    if found != question["volume_id"].replace("-", ""):
        raise SystemExit("there is no brick of this volume (its file system may not be mounted)")
    directories = Directories(root)
    if "only" in question:
        for path in question["only"]:
            directories.look_at(path.encode("latin-1"))
    else:
        directories.walk()
    directories.finish()


if __name__ == "__main__":
    main()
