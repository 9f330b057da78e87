"""Finds processes with open files below some trees, and the connections to bricks that belong to this site or to
Gluster, by /proc; in plain Python 3.9.

Reads one question, or several searches (JSON), from standard input and writes one answer to standard output. It accesses only the file system
of the trees, so a hanging mount elsewhere cannot block it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

# The connections: the kind of every root process of Gluster, with the local ends of its connections.


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


def entry_timeout_s(words: list[str]) -> float:
    """How long a FUSE client of Gluster keeps names, by its command line (mount.glusterfs(8): 1 s by default)."""
    given = [word.partition("=")[2] for word in words if word.startswith("--entry-timeout=")]
    return float(given[-1]) if given else 1.0


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


def connections(question: dict[str, Any]) -> dict[str, list[Any]]:
    """The local ends of the connections of this site's mount and of Gluster, and how long that mount keeps names."""
    found: dict[str, list[Any]] = {"ends": [], "entry_timeouts_s": []}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            ends, timeouts_s = _of_process(f"/proc/{name}", question["volume"], question["mount"])
        except OSError:
            continue  # gone meanwhile; one that cannot be read is nobody's here, and counts as another client
        found["ends"] += ends
        found["entry_timeouts_s"] += timeouts_s
    return found


def _of_process(base: str, volume: str, mount: str) -> tuple[list[str], list[float]]:
    if not _read(f"{base}/comm").startswith("glusterfs") or os.stat(base).st_uid != 0:
        return [], []
    words = _read(f"{base}/cmdline").rstrip("\0").split("\0")
    kind = kind_of(words, volume, mount)
    if kind is None:
        return [], []
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
            found.append(ends[shown[8:-1]])
    return found, [entry_timeout_s(words)] if kind == "own-mount" else []


def _read(path: str) -> str:
    return read(path.encode("ascii")).decode("latin-1")


# The path of a descriptor inside its file system, from mountinfo and through any bind mount.


_ESCAPED = re.compile(rb"\\([0-7]{3})")


def read(path: bytes) -> bytes:
    """Read a file of /proc or /sys."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        return file.read()


def below(path: bytes, directory: bytes) -> bool:
    """Whether a path is the directory or lies in it."""
    return not directory or path == directory or path.startswith(directory + b"/")


def open_beneath(root: int, path: bytes) -> int:
    """Open a path below a descriptor with O_PATH, without symlinks."""
    fd = os.dup(root)
    try:
        for name in path.split(b"/") if path else ():
            deeper = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = deeper
    except OSError:
        os.close(fd)
        raise
    return fd


class Mounts:
    """The mounts of one namespace, by number and by place. Each is the device of its file system (`8:1`), the directory
    of that file system that is mounted, and the mount point. `types` are the file system types by device.
    """

    def __init__(self, text: bytes) -> None:
        self.by_number: dict[bytes, tuple[bytes, bytes, bytes]] = {}
        self._by_point: dict[bytes, tuple[bytes, bytes, bytes]] = {}
        self.types: dict[bytes, bytes] = {}
        for line in text.split(b"\n"):
            words = [_ESCAPED.sub(lambda found: bytes((int(found[1], 8) & 255,)), word) for word in line.split(b" ")]
            if len(words) > 5:
                mount = (words[2], words[3], words[4])
                self.by_number[words[0]] = self._by_point[words[4].rstrip(b"/")] = mount
                self.types[words[2]] = words[words.index(b"-") + 1]

    def of(self, path: bytes) -> tuple[bytes, bytes, bytes] | None:
        """The mount that shows a path."""
        while path not in self._by_point:
            if not path:
                return None
            path = path.rpartition(b"/")[0]
        return self._by_point[path]


def inside(mount: tuple[bytes, bytes, bytes], shown: bytes) -> bytes | None:
    """The path inside the file system; None if the mount does not show it."""
    point = mount[2].rstrip(b"/")
    if not below(shown, point):
        return None
    return (mount[1].rstrip(b"/") + shown[len(point) :]).rstrip(b"/")


_FDINFO = re.compile(rb"^flags:\s*([0-7]+)\n.*?^mnt_id:\s*(\d+)", re.DOTALL | re.MULTILINE)


def read_descriptor(fdinfo: bytes) -> tuple[int, bytes]:
    """The flags of a descriptor, and the number of its mount."""
    found = _FDINFO.search(read(fdinfo))
    if found is None:
        raise OSError(errno.EIO, "its flags and mount are not known")
    return int(found[1], 8), found[2]


# The trees of a question, and the names of files below them.
#
# A descriptor shows only one name of its file, on a brick often the one in Gluster's own store. The other names come
# from the attributes that Gluster keeps with a file (gfid2path) or, if these are not complete, from a walk that compares
# inode numbers. Files are opened with O_PATH only, and symlinks are never followed.


GONE = (errno.ENOENT, errno.ESRCH, errno.ENOTDIR, errno.ELOOP)

_ROOT_GFID = b"00000000-0000-0000-0000-000000000001"
_GFID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME_ATTRIBUTE = "trusted.gfid2path."


def identity(facts: os.stat_result) -> tuple[int, int]:
    """Identifies a file on this machine."""
    return facts.st_dev, facts.st_ino


class Trees:
    """Directories below a root. `devices` are the devices of their file systems in mountinfo, `inner_devices` those
    from stat(2); `unseen` are sentences.
    """

    def __init__(self, root: bytes, trees: Sequence[bytes], mounts: Mounts, *, is_brick: bool) -> None:
        self._root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.identity = identity(os.fstat(self._root))
        self.inner_devices = {self.identity[0]}
        self.unseen: list[str] = []
        self._is_brick = is_brick
        self._tops: list[tuple[bytes, bytes, bytes]] = []
        self._directories = {_ROOT_GFID: b""}
        self.devices: set[bytes] = set()
        if is_brick:
            # A brick process always holds the brick open, whatever the trees: that shows that the brick was searched.
            with suppress(KeyError):
                self.devices.add(mounts.by_number[read_descriptor(b"/proc/self/fdinfo/%d" % self._root)[1]][0])
        for tree in trees:
            try:
                self._add(tree, mounts)
            except OSError as error:
                # A directory that is missing on a brick has no files there.
                if not (is_brick and error.errno == errno.ENOENT):
                    self._miss(tree, error)
        self.devices |= {device for _, device, _ in self._tops}

    def named(self, path: bytes, mount: tuple[bytes, bytes, bytes]) -> list[bytes]:
        """The names below the trees of a path inside a file system."""
        return [tree + path[len(top) :] for tree, device, top in self._tops if device == mount[0] and below(path, top)]

    def stands(self, names: Sequence[bytes], facts: os.stat_result) -> bool:
        """Whether the file has one of these names now."""
        for name in names:
            try:
                fd = open_beneath(self._root, name)
            except OSError:
                continue
            try:
                if identity(os.fstat(fd)) == identity(facts):
                    return True
            finally:
                os.close(fd)
        return False

    def kept_names(self, link: bytes, facts: os.stat_result) -> list[bytes] | None:
        """The names below the trees of a file on a brick, by Gluster's attributes; None if these are not complete."""
        names = []
        for key in os.listxattr(link):
            if key.startswith(_NAME_ATTRIBUTE):
                parent, _, name = os.getxattr(link, key).partition(b"/")
                directory = self._directory(parent)
                if directory is not None:
                    names.append(directory + b"/" + name if directory else name)
        standing = [name for name in names if self.stands([name], facts)]
        # st_nlink counts one link more than the names: Gluster's own store holds it.
        if len(standing) < facts.st_nlink - 1:
            return None
        return [name for name in standing if any(below(name, tree) for tree, _, _ in self._tops)]

    def find(self, wanted: set[tuple[int, int]]) -> Iterator[tuple[bytes, tuple[int, int]]]:
        """The names of the wanted files, by a walk over the trees."""
        numbers = {number for _, number in wanted}
        waiting = [tree for tree, _, _ in self._tops]
        while waiting:
            path = waiting.pop()
            try:
                fd = open_beneath(self._root, path)
                try:
                    facts = os.fstat(fd)
                    # A file system mounted below a tree is not part of it.
                    if stat.S_ISDIR(facts.st_mode) and facts.st_dev in self.inner_devices:
                        yield path, identity(facts)
                        yield from self._find_in(fd, path, numbers, waiting)
                finally:
                    os.close(fd)
            except OSError as error:
                if error.errno not in GONE:
                    self._miss(path, error)

    @staticmethod
    def _find_in(
        fd: int, path: bytes, numbers: set[int], waiting: list[bytes]
    ) -> Iterator[tuple[bytes, tuple[int, int]]]:
        listing = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
        try:
            with os.scandir(listing) as entries:
                for entry in entries:
                    name = os.fsencode(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(path + b"/" + name)
                    elif entry.inode() in numbers:
                        yield path + b"/" + name, identity(os.stat(name, dir_fd=fd, follow_symlinks=False))
        finally:
            os.close(listing)

    def _add(self, tree: bytes, mounts: Mounts) -> None:
        fd = open_beneath(self._root, tree)
        try:
            facts = os.fstat(fd)
            if not stat.S_ISDIR(facts.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            mount = mounts.by_number[read_descriptor(b"/proc/self/fdinfo/%d" % fd)[1]]
            top = inside(mount, os.readlink(b"/proc/self/fd/%d" % fd))
        except KeyError:
            raise OSError(errno.ENODEV, "its mount is not known") from None
        finally:
            os.close(fd)
        if top is None:
            raise OSError(errno.ENODEV, "its mount is not known")
        self.inner_devices.add(facts.st_dev)
        self._tops.append((tree, mount[0], top))

    def _miss(self, path: bytes, error: OSError) -> None:
        self.unseen.append(f"{repr(path)[2:-1]}: {error.strerror}")

    def _directory(self, gfid: bytes) -> bytes | None:
        """The path of a directory on the brick; None if Gluster's links do not lead to it."""
        names: list[bytes] = []
        met: list[bytes] = []
        while gfid not in self._directories:
            if not _GFID.fullmatch(gfid) or gfid in met:
                return None
            met.append(gfid)
            try:
                target = os.readlink(b".glusterfs/%s/%s/%s" % (gfid[:2], gfid[2:4], gfid), dir_fd=self._root)
            except OSError:
                return None
            parts = target.split(b"/")
            if len(parts) != 6:
                return None
            gfid = parts[4]
            names.append(parts[5])
        path = self._directories[gfid]
        for number, name in zip(reversed(met), reversed(names)):
            path = self._directories[number] = path + b"/" + name if path else name
        return path


_DELETED = b" (deleted)"
_ROUNDS = 3
_LIMIT = 20_000
_WORKING_DIRECTORY = "working-directory"
_UNKNOWN = b""
"""The device of a file whose mount is unknown."""
_OF_STORE = re.compile(rb"/\.glusterfs/[0-9a-f]{2}$")
"""A brick process keeps these 256 directories of Gluster's own store open. Directories that are open decide nothing."""


class Search:
    """One search. `way` is `brick` (only the Gluster processes that serve the brick), `source` (all processes of this
    machine), or `client` (the same, but it leaves files that it cannot identify to the searches on bricks).
    `filesystem` is the type that the root must have; empty: any. `looked_at` are the devices with open files of each process, as
    earlier searches on bricks found them right before: a server of 60 bricks has as many processes of Gluster's.
    """

    def __init__(self, question: dict[str, Any], looked_at: dict[int, set[bytes]]) -> None:
        self._way = question["way"]
        self._looked_at = looked_at
        self._bricks = self._way == "brick"
        self._left_out = {os.getpid(), *question["own"]}
        self._own_namespace = os.readlink(b"/proc/self/ns/mnt")
        self._mounts = {self._own_namespace: Mounts(read(b"/proc/self/mountinfo"))}
        root = question["root"].encode("latin-1")
        trees = [tree.encode("latin-1") for tree in question["trees"]]
        self._trees = Trees(root, trees, self._mounts[self._own_namespace], is_brick=self._bricks)
        self._served = False
        self._open: dict[tuple[Any, ...], bool] = {}
        self._doubtful: dict[tuple[int, int], set[tuple[Any, ...]]] = {}
        self._unreadable: list[str] = []
        self._unseen: set[str] = set()
        wanted = question.get("filesystem")
        mount = self._mounts[self._own_namespace].of(root)
        if wanted and (mount is None or self._mounts[self._own_namespace].types[mount[0]] != wanted.encode()):
            self._unseen.add(f"{question['root']} is not mounted there as {wanted}")

    def run(self) -> None:
        """Search every process, including new ones: they may have inherited files of a process that has ended since."""
        seen = set(self._left_out)
        for _ in range(_ROUNDS):
            new = [int(name) for name in os.listdir(b"/proc") if name.isdigit() and int(name) not in seen]
            for pid in new:
                seen.add(pid)
                self._try(pid, self._look_at, pid)
        if not self._bricks:
            self._look_at_loop_devices()
        # A process that only reads changes no decision and is not worth a walk.
        if self._way != "client" and any(map(_matters, (one for found in self._doubtful.values() for one in found))):
            for path, number in self._trees.find(set(self._doubtful)):
                for entry in self._doubtful.get(number, ()):
                    self._tell(path, entry, unlinked=False)

    def answer(self) -> dict[str, Any]:
        """The findings, writers first. A long list is truncated: the rest would change no decision."""
        found = [[key[0].decode("latin-1"), *key[1:], unlinked] for key, unlinked in self._open.items()]
        found.sort(key=lambda one: (not _matters(one[1:]), one[0], one[1] or 0))
        unseen = [*self._trees.unseen, *sorted(self._unseen)]
        if self._unreadable:
            unseen.append(
                f"{len(self._unreadable)} of the processes cannot be read: {'; '.join(self._unreadable[:3])}"
                " (as in some containers): run the command outside the container or with CAP_SYS_PTRACE, or let a pre-freeze hook"
                ' vouch for it with [cutover] freeze = "hook" (docs/cutover.md, Freeze)'
            )
        return {"open": found[:_LIMIT], "unseen": unseen, "served": self._served or not self._bricks}

    def _try(self, pid: int, look: Callable[..., None], *arguments: Any) -> None:
        try:
            look(*arguments)
        except OSError as error:
            if error.errno not in GONE:
                self._looked_at.setdefault(pid, set()).add(_UNKNOWN)
                self._unreadable.append(f"process {pid}: {error.strerror}")

    def _look_at(self, pid: int) -> None:
        base = b"/proc/%d" % pid
        if self._bricks and pid in self._looked_at and not self._looked_at[pid] & {*self._trees.devices, _UNKNOWN}:
            return
        program = read(base + b"/comm").rstrip(b"\n")
        if self._bricks:
            self._looked_at[pid] = set()
            if not program.startswith(b"glusterfsd"):
                return
        if self._way == "source" and program == b"nfsd" and not read(base + b"/cmdline"):
            self._unseen.add("the kernel's NFS server runs here: what its clients have open is not known")
        who = (pid, program.decode("latin-1"))
        tasks = os.listdir(base + b"/task")
        # If the first thread has ended and others run on, only they still hold anything.
        holder = b"%s/task/%s" % (base, max(tasks, key=int)) if len(tasks) > 1 and _has_ended(base) else base
        namespace = os.readlink(holder + b"/ns/mnt")
        if namespace not in self._mounts:
            self._mounts[namespace] = Mounts(read(holder + b"/mountinfo"))
        mounts = self._mounts[namespace]
        for name in os.listdir(holder + b"/fd"):
            self._try(pid, self._read_descriptor, who, mounts, holder, name)
        if self._bricks:
            return
        for task in tasks:
            for link in (b"cwd", b"root"):
                self._try(pid, self._look_at_directory, who, mounts, b"%s/task/%s/%s" % (base, task, link))
        self._try(pid, self._look_at_maps, who, mounts, holder)

    def _read_descriptor(self, who: tuple[Any, ...], mounts: Mounts, holder: bytes, name: bytes) -> None:
        link = holder + b"/fd/" + name
        shown = _shown(link)
        if shown is not None and not shown.startswith(b"/"):
            return
        if self._bricks and shown is not None and _OF_STORE.search(shown):
            return
        flags, number = read_descriptor(holder + b"/fdinfo/" + name)
        writable = flags & os.O_ACCMODE in (os.O_WRONLY, os.O_RDWR) and not flags & os.O_PATH
        mount = mounts.by_number.get(number)
        if self._bricks:
            self._looked_at[who[0]].add(_UNKNOWN if mount is None else mount[0])
        self._consider((*who, "", writable), mount, link, shown)

    def _look_at_directory(self, who: tuple[Any, ...], mounts: Mounts, link: bytes) -> None:
        shown = _shown(link)
        self._consider((*who, _WORKING_DIRECTORY, False), None if shown is None else mounts.of(shown), link, shown)

    def _look_at_maps(self, who: tuple[Any, ...], mounts: Mounts, base: bytes) -> None:
        found: dict[tuple[bytes, bytes, bool], bytes] = {}
        for line in read(base + b"/maps").split(b"\n"):
            words = line.split(None, 5)
            if len(words) == 6 and words[4] != b"0":
                major, _, minor = words[3].partition(b":")
                if b"%d:%d" % (int(major, 16), int(minor, 16)) in self._trees.devices:
                    found.setdefault((words[3], words[4], words[1][3:4] == b"s"), words[0])
        if found and b"/task/" in base:
            self._unreadable.append(f"process {who[0]}: what it has mapped is not told after its first thread's end")
            return
        for (_, _, shared), addresses in found.items():
            start, _, end = addresses.partition(b"-")
            link = b"%s/map_files/%x-%x" % (base, int(start, 16), int(end, 16))
            self._try(who[0], self._look_at_map, who, mounts, link, shared)

    def _look_at_map(self, who: tuple[Any, ...], mounts: Mounts, link: bytes, shared: bool) -> None:
        shown = _shown(link)
        # The mode of the link is that of the mapped descriptor: mprotect(2) can use it at any time.
        writable = shared and bool(os.lstat(link).st_mode & stat.S_IWUSR)
        self._consider((*who, "map", writable), None if shown is None else mounts.of(shown), link, shown)

    def _look_at_loop_devices(self) -> None:
        try:
            names = os.listdir(b"/sys/block")
        except OSError:
            return
        for name in names:
            base = b"/sys/block/" + name
            try:
                shown = read(base + b"/loop/backing_file").rstrip(b"\n")
                writable = read(base + b"/ro").strip() == b"0"
                mount = self._mounts[self._own_namespace].of(shown)
                self._consider((None, name.decode("latin-1"), "loop-device", writable), mount, shown, shown)
            except OSError:
                continue  # none, or one whose file is not seen from here

    def _consider(
        self, entry: tuple[Any, ...], mount: tuple[bytes, bytes, bytes] | None, link: bytes, shown: bytes | None
    ) -> None:
        """Record an open file if it lies below the trees. `mount` None: its file system is not known."""
        if mount is not None and mount[0] not in self._trees.devices:
            return
        facts = os.stat(link)
        directory = stat.S_ISDIR(facts.st_mode)
        if not directory and not stat.S_ISREG(facts.st_mode):
            return
        if mount is None and facts.st_dev not in self._trees.inner_devices:
            return
        if self._bricks and directory and identity(facts) == self._trees.identity:
            self._served = True
            return
        entry = (*entry[:2], entry[2] or ("directory" if directory else "file"), entry[3])
        path = None if mount is None or shown is None else inside(mount, shown)
        if mount is None or path is None:
            self._doubtful.setdefault(identity(facts), set()).add(entry)
            return
        names = self._trees.named(path, mount)
        gone = path.endswith(_DELETED) and not (names and self._trees.stands(names, facts))
        last = self._trees.named(path[: -len(_DELETED)], mount) if gone else []
        # On a brick Gluster's own store has a link of every file, too.
        links = int(not gone) if directory else facts.st_nlink - self._bricks
        kept = self._trees.kept_names(link, facts) if self._bricks and links > 0 and not directory else None
        for name in kept if kept is not None else [] if gone else names:
            self._tell(name, entry, unlinked=False)
        if links < 1:
            for name in last:
                self._tell(name, entry, unlinked=True)
        elif kept is None and not directory and (self._bricks or gone or links > 1):
            self._doubtful.setdefault(identity(facts), set()).add(entry)

    def _tell(self, path: bytes, entry: tuple[Any, ...], *, unlinked: bool) -> None:
        key = (path, *entry)
        self._open[key] = unlinked and self._open.get(key, True)


def _matters(entry: tuple[Any, ...] | list[Any]) -> bool:
    return bool(entry[3]) or entry[2] == _WORKING_DIRECTORY


def _has_ended(base: bytes) -> bool:
    return read(base + b"/stat").rpartition(b") ")[2][:1] in (b"Z", b"X")


def _shown(link: bytes) -> bytes | None:
    try:
        return os.readlink(link)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return None


def answer(question: dict[str, Any], looked_at: dict[int, set[bytes]]) -> dict[str, Any]:
    """The answer of one search; with a `failure` if it could not be made."""
    try:
        search = Search(question, looked_at)
        search.run()
        return search.answer()
    except OSError as error:
        return {"open": [], "unseen": [], "served": False, "failure": error.strerror or str(error)}


def main() -> None:
    """Answer a question about connections, or several searches: to begin a process for each takes longer than to search."""
    # Another search, beside which this one waits for its question, must not find a working directory below the trees.
    os.chdir("/")
    question = json.load(sys.stdin)
    looked_at: dict[int, set[bytes]] = {}
    found = connections(question) if isinstance(question, dict) else [answer(one, looked_at) for one in question]
    json.dump(found, sys.stdout)
