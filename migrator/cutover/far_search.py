"""Finds processes with open files below some trees, by /proc; in plain Python 3.9.

Reads one question (JSON) from standard input and writes one answer to standard output. It accesses only the file system
of the trees, so a hanging mount elsewhere cannot block it.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Callable
from typing import Any

from migrator.cutover.far_mounts import Mounts, inside, look_at_descriptor, read
from migrator.cutover.far_trees import GONE, Trees, identity

_DELETED = b" (deleted)"
_ROUNDS = 3
_LIMIT = 20_000
_WORKING_DIRECTORY = "working-directory"


class Search:
    """One search. `way` is `brick` (only the Gluster processes that serve the brick), `source` (all processes of this
    machine), or `client` (the same, but it leaves files that it cannot identify to the searches on bricks).
    `filesystem` is the type that the root must have; empty: any.
    """

    def __init__(self, question: dict[str, Any]) -> None:
        self._way = question["way"]
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
                " (as in some containers; docs/cutover.md, Freeze)"
            )
        return {"open": found[:_LIMIT], "unseen": unseen, "served": self._served or not self._bricks}

    def _try(self, pid: int, look: Callable[..., None], *arguments: Any) -> None:
        try:
            look(*arguments)
        except OSError as error:
            if error.errno not in GONE:
                self._unreadable.append(f"process {pid}: {error.strerror}")

    def _look_at(self, pid: int) -> None:
        base = b"/proc/%d" % pid
        program = read(base + b"/comm").rstrip(b"\n")
        if self._bricks and not program.startswith(b"glusterfsd"):
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
            self._try(pid, self._look_at_descriptor, who, mounts, holder, name)
        if self._bricks:
            return
        for task in tasks:
            for link in (b"cwd", b"root"):
                self._try(pid, self._look_at_directory, who, mounts, b"%s/task/%s/%s" % (base, task, link))
        self._try(pid, self._look_at_maps, who, mounts, holder)

    def _look_at_descriptor(self, who: tuple[Any, ...], mounts: Mounts, holder: bytes, name: bytes) -> None:
        link = holder + b"/fd/" + name
        shown = _shown(link)
        if shown is not None and not shown.startswith(b"/"):
            return
        flags, number = look_at_descriptor(holder + b"/fdinfo/" + name)
        writable = flags & os.O_ACCMODE in (os.O_WRONLY, os.O_RDWR) and not flags & os.O_PATH
        self._consider((*who, "", writable), mounts.by_number.get(number), link, shown)

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


def main() -> None:
    """Answer one question."""
    search = Search(json.load(sys.stdin))
    search.run()
    json.dump(search.answer(), sys.stdout)
