"""Trees in memory that change as a file system's do, and a target to which a comparison of them is applied."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from msgspec import Struct

from migrator.catalog.rules_packing import PathSequence
from migrator.core.entry import Entry, EntryType
from migrator.core.paths import is_beneath, parent
from migrator.core.states import ChunkKind
from migrator.transfer.delta.model import Gone, Rename
from tests.support.catalogs import invented
from tests.support.making import made

Path = bytes


@dataclass(eq=False, kw_only=True)
class Inode:
    """One of the source's."""

    number: int
    type: EntryType
    mtime_ns: int
    ctime_ns: int
    size_bytes: int = 0
    mode: int = 0o644
    content: int = 0
    symlink_target: bytes | None = None


class Source:
    """Names and inodes. Every change takes a nanosecond. A change that no file system would make does nothing."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(roots)
        self.names: dict[Path, Inode] = {}
        self._clock = 1000
        self._number = 100
        for root in roots:
            self.names[root] = self._inode(EntryType.DIRECTORY)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _inode(self, kind: EntryType) -> Inode:
        self._number += 1
        now = self._tick()
        return Inode(number=self._number, type=kind, mtime_ns=now, ctime_ns=now, content=now)

    def _is_directory(self, path: Path) -> bool:
        return path in self.names and self.names[path].type is EntryType.DIRECTORY

    def _enter(self, directory: Path) -> None:
        inode = self.names[directory]
        inode.mtime_ns = inode.ctime_ns = self._tick()

    def beneath(self, path: Path) -> list[Path]:
        return [one for one in self.names if is_beneath(one, path)]

    def nlink(self, inode: Inode) -> int:
        return 2 if inode.type is EntryType.DIRECTORY else sum(one is inode for one in self.names.values())

    def make(self, path: Path, kind: EntryType, size_bytes: int = 0) -> None:
        if path in self.names or not self._is_directory(parent(path)):
            return
        inode = self.names[path] = self._inode(kind)
        if kind is EntryType.FILE:
            inode.size_bytes = size_bytes
        elif kind is EntryType.SYMLINK:
            inode.symlink_target = b"%d" % (size_bytes % 3)
            inode.size_bytes = 1
        self._enter(parent(path))

    def remove(self, path: Path) -> None:
        if path in self.roots or path not in self.names:
            return
        inode = self.names[path]
        for one in self.beneath(path):
            self.names.pop(one).ctime_ns = self._tick()
        inode.ctime_ns = self._tick()
        self._enter(parent(path))

    def link(self, path: Path, other: Path) -> None:
        if other in self.names or not self._is_directory(parent(other)) or self._is_directory(path):
            return
        self.names[other] = self.names[path]
        self.names[path].ctime_ns = self._tick()
        self._enter(parent(other))

    def _taken(self, path: Path) -> dict[Path, Inode]:
        return {one[len(path) :]: self.names.pop(one) for one in self.beneath(path)}

    def rename(self, old: Path, new: Path) -> None:
        if old in self.roots or new in self.roots or not self._is_directory(parent(new)) or is_beneath(new, old):
            return
        if new in self.names:
            if self._is_directory(old) != self._is_directory(new) or len(self.beneath(new)) > 1:
                return
            if self.names[new] is self.names[old]:
                return
            self.names.pop(new).ctime_ns = self._tick()
        for rest, inode in self._taken(old).items():
            self.names[new + rest] = inode
        self.names[new].ctime_ns = self._tick()
        self._enter(parent(old))
        self._enter(parent(new))

    def exchange(self, one: Path, other: Path) -> None:
        if one in self.roots or other in self.roots or is_beneath(one, other) or is_beneath(other, one):
            return
        first, second = self._taken(one), self._taken(other)
        self.names |= {other + rest: inode for rest, inode in first.items()}
        self.names |= {one + rest: inode for rest, inode in second.items()}
        for path in (one, other):
            self.names[path].ctime_ns = self._tick()
            self._enter(parent(path))

    def write(self, path: Path, size_bytes: int, *, times_put_back: bool = False) -> None:
        inode = self.names[path]
        if inode.type is EntryType.FILE:
            inode.content = inode.ctime_ns = self._tick()
            if not times_put_back:
                inode.mtime_ns, inode.size_bytes = inode.ctime_ns, size_bytes

    def change_mode(self, path: Path) -> None:
        inode = self.names[path]
        if path not in self.roots and inode.type is not EntryType.SYMLINK:
            inode.mode ^= 0o22
            inode.ctime_ns = self._tick()

    def put_time_back(self, path: Path) -> None:
        """As `touch -d` of a directory does: what happened in it cannot be told by its mtime."""
        inode = self.names[path]
        if inode.type is EntryType.DIRECTORY:
            inode.mtime_ns, inode.ctime_ns = 1, self._tick()

    def entries(self, *, gfids: bool = False) -> list[Entry]:
        """What a scan sees."""
        return [
            invented(
                path,
                inode.type,
                size_bytes=inode.size_bytes,
                blocks=0,
                mode=inode.mode,
                mtime_ns=inode.mtime_ns,
                ctime_ns=inode.ctime_ns,
                ino=inode.number,
                nlink=self.nlink(inode),
                symlink_target=inode.symlink_target,
                gfid=inode.number.to_bytes(16, "big") if gfids else None,
            )
            for path, inode in sorted(self.names.items())
        ]


NAMES = (b"a", b"b", b"a-", b"a0", b"\xff\n")

Step = tuple[str, int, int, int]
"""An operation, and which paths and names it takes."""


def change(source: Source, step: Step, *, size_bytes: int | None = None) -> None:
    """Carry out a step; `size_bytes` is that of every new file."""
    operation, first, second, number = step
    paths = sorted(source.names)
    directories = [path for path in paths if source.names[path].type is EntryType.DIRECTORY]
    path, place = paths[first % len(paths)], directories[second % len(directories)] + b"/" + NAMES[number]
    other = paths[second % len(paths)]
    actions: dict[str, Callable[[], None]] = {
        "file": lambda: source.make(place, EntryType.FILE, first % 3 if size_bytes is None else size_bytes),
        "directory": lambda: source.make(place, EntryType.DIRECTORY),
        "symlink": lambda: source.make(place, EntryType.SYMLINK, first),
        "remove": lambda: source.remove(path),
        "link": lambda: source.link(path, place),
        "write": lambda: source.write(path, second % 4),
        "write_back": lambda: source.write(path, 0, times_put_back=True),
        "time_back": lambda: source.put_time_back(path),
        "mode": lambda: source.change_mode(path),
        "rename": lambda: source.rename(path, place if second % 2 else other),
        "exchange": lambda: source.exchange(path, other),
    }
    actions[operation]()


class Copy(Struct, eq=False, kw_only=True):
    """What stands under a name of the target; shared by the names of a link group."""

    type: EntryType
    size_bytes: int
    mtime_ns: int
    mode: int
    content: int
    symlink_target: bytes | None

    @property
    def shown(self) -> tuple[object, ...]:
        content = 0 if self.type is EntryType.DIRECTORY else self.content
        size_bytes = 0 if self.type is EntryType.DIRECTORY else self.size_bytes
        return (self.type, size_bytes, self.mtime_ns, self.mode, content, self.symlink_target)


def _copy(inode: Inode) -> Copy:
    return Copy(**{name: getattr(inode, name) for name in Copy.__struct_fields__})


CHANGED_NOW = -1
"""The mtime of a directory of the target in which something was made, renamed or taken away."""


class Target:
    """A copy of a source, to which renames, removals and lists are applied as a delta pass does."""

    def __init__(self, source: Source) -> None:
        copies: dict[Inode, Copy] = {}
        self.names = {path: copies.setdefault(inode, _copy(inode)) for path, inode in source.names.items()}
        self.roots = source.roots
        self.sent: list[Path] = []
        self.removed = 0

    def leave(self, places: Collection[tuple[int, int]]) -> list[Path]:
        """Leave files of an earlier pass under free names of directories; returns their paths."""
        directories = sorted(path for path, copy in self.names.items() if copy.type is EntryType.DIRECTORY)
        found = []
        for number, name in sorted(places):
            path = directories[number % len(directories)] + b"/" + NAMES[name]
            if path not in self.names:
                found.append(path)
                self.names[path] = made(Copy, type=EntryType.FILE, mtime_ns=CHANGED_NOW, content=-7)
        return found

    def _touch(self, path: Path) -> None:
        if parent(path) in self.names:
            self.names[parent(path)].mtime_ns = CHANGED_NOW

    def move(self, renames: Sequence[Rename], gone: Sequence[Gone]) -> None:
        """Take out everything that is renamed, then what is gone, and put everything in at last, directories first."""
        taken: dict[Path, dict[Path, Copy]] = {}
        for rename in renames:
            taken[rename.old] = self._take_out(self.names, rename.old)
            assert taken[rename.old][b""].type is rename.type
        for one in gone:
            above = next((path for path in _above(one.path) if path in taken), None)
            names, path = (self.names, one.path) if above is None else (taken[above], one.path[len(above) :])
            self.removed += len(self._take_out(names, path))
        for rename in sorted(renames, key=lambda one: (one.type is not EntryType.DIRECTORY, one.new)):
            self._put(rename, taken[rename.old])

    def _take_out(self, names: dict[Path, Copy], path: Path) -> dict[Path, Copy]:
        if parent(path) in names:
            names[parent(path)].mtime_ns = CHANGED_NOW
        assert path in names, f"{path!r} is not there"
        return {one[len(path) :]: names.pop(one) for one in list(names) if is_beneath(one, path)}

    def _put(self, rename: Rename, held: dict[Path, Copy]) -> None:
        there = self.names.get(rename.new)
        if there is not None:
            directories = {there.type, rename.type} & {EntryType.DIRECTORY}
            assert not directories, f"{rename.new!r} is taken"
        for above in reversed(list(_above(rename.new))):
            if not any(_is_in(above, root) for root in self.roots):
                continue
            if above not in self.names:
                self.names[above] = made(Copy, type=EntryType.DIRECTORY, mtime_ns=CHANGED_NOW)
                self._touch(above)
            assert self.names[above].type is EntryType.DIRECTORY, f"{above!r} is no directory"
        self._touch(rename.new)
        self.names |= {rename.new + rest: copy for rest, copy in held.items()}

    def receive(self, source: Source, listings: Sequence[PathSequence]) -> None:
        """Send lists: directories, files with their link groups, links, and the times of directories."""
        groups: dict[int, Copy] = {}
        directories: list[Path] = []
        for kind in (ChunkKind.DIRECTORIES, ChunkKind.FILES, ChunkKind.LINKS):
            for listing in listings:
                if listing.kind is not kind:
                    continue
                for path, group, link_to in zip(listing.paths, listing.link_groups, listing.links_to, strict=True):
                    self.sent.append(path)
                    inode = source.names[path]
                    there = self.names.get(path)
                    assert self.names[parent(path)].type is EntryType.DIRECTORY
                    if kind is ChunkKind.DIRECTORIES:
                        directories.append(path)
                        assert there is None or there.type is EntryType.DIRECTORY
                        if there is None:
                            self._touch(path)
                        self.names[path] = _copy(inode)
                        continue
                    assert there is None or there.type is not EntryType.DIRECTORY
                    self._touch(path)
                    if kind is ChunkKind.LINKS:
                        assert link_to is not None
                        self.names[path] = self.names[link_to]
                    elif group is None:
                        self.names[path] = _copy(inode)
                    else:
                        self.names[path] = groups.setdefault(group, _copy(inode))
        for path in directories:
            self.names[path].mtime_ns = source.names[path].mtime_ns

    def differences(self, source: Source) -> list[str]:
        """Where the target is not what the source is."""
        found = [f"{path!r} is too much" for path in self.names.keys() - source.names.keys()]
        found += [f"{path!r} is missing" for path in source.names.keys() - self.names.keys()]
        for path in self.names.keys() & source.names.keys():
            if path not in self.roots and self.names[path].shown != _copy(source.names[path]).shown:
                found.append(f"{path!r} is {self.names[path].shown}, not {_copy(source.names[path]).shown}")
        if not found:
            for path in source.names:
                for other in source.names:
                    linked = self.names[path] is self.names[other]
                    if linked != (source.names[path] is source.names[other]):
                        found.append(f"{path!r} and {other!r} are {'one' if linked else 'two'}")
        return found


def _is_in(path: Path, directory: Path) -> bool:
    return path.startswith(directory + b"/")


def _above(path: Path) -> Iterator[Path]:
    while path := parent(path):
        yield path
