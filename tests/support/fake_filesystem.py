"""A file system in memory, as source and as target."""

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from migrator.core.entry import Entry, EntryType
from migrator.core.paths import is_beneath, parent
from migrator.fs.model import Capacity, MountIdentity, SourceHealth, TargetCapabilities
from migrator.fs.ports import Block, Digest
from migrator.fs.rules_owners import SAME_OWNERS
from migrator.gluster.model import VolumeHealth, VolumeState
from migrator.gluster.rules import volume_fingerprint
from tests.support.volumes import volume

GIB = 1024**3


@dataclass(slots=True)
class Node:
    """One file of a fake file system. Names of one file share the node."""

    type: EntryType
    ino: int
    content: bytes = b""


IDENTITY = MountIdentity(filesystem="xfs", mounted_from="/dev/fake", device=1, fsid=1, root_ino=1, sentinel="s")


class FakeFileSystem:
    """Both the source's and the target's port. `writes` counts what changed something."""

    def __init__(self, root: bytes = b"/fake") -> None:
        self.root = root
        self.owners = SAME_OWNERS
        self.nodes: dict[bytes, Node] = {}
        self.mount = IDENTITY
        self.room = Capacity(total_bytes=GIB, free_bytes=GIB, total_inodes=10**6, free_inodes=10**6)
        self.sick: tuple[str, ...] = ()
        self.tasks: tuple[str, ...] = ()
        self.volume: VolumeState | None = None
        self.look_errors: dict[bytes, int] = {}
        self.sync_errors: list[int] = []
        self.dirty: set[bytes] = set()
        self.writes = 0
        self._next_ino = 100

    def add(self, path: bytes, content: bytes | None = None, *, same_as: bytes | None = None) -> None:
        """A file with content, another name of a file, or (neither given) a directory; parents as needed."""
        if (above := parent(path)) and above not in self.nodes:
            self.add(above)
        if same_as is not None:
            self.nodes[path] = self.nodes[same_as]
            return
        self._next_ino += 1
        kind = EntryType.DIRECTORY if content is None else EntryType.FILE
        self.nodes[path] = Node(kind, self._next_ino, content or b"")

    def remove(self, path: bytes) -> None:
        for gone in [name for name in self.nodes if is_beneath(name, path)]:
            del self.nodes[gone]

    def look(self, path: bytes) -> Entry | None:
        if path in self.look_errors:
            raise OSError(self.look_errors[path], "injected", path)
        node = self.nodes.get(path)
        return None if node is None else self._entry(path, node)

    def read_directory(self, path: bytes, *, block_entries: int = 4096) -> Iterator[Block]:
        inside = [self._entry(name, node) for name, node in self.nodes.items() if parent(name) == path]
        yield Block(entries=tuple(inside), problems=())

    def digest(self, path: bytes, algorithm: str) -> Digest:
        return Digest(value=self.nodes[path].content, size_bytes=len(self.nodes[path].content), changed=False)

    def identity(self) -> MountIdentity:
        return self.mount

    def capacity(self) -> Capacity:
        return self.room

    async def health(self) -> SourceHealth:
        state = self.volume or volume(volume_id="v", tasks=self.tasks)
        return VolumeHealth(problems=self.sick, fingerprint=volume_fingerprint(state), state=state)

    async def quotas(self) -> Sequence[tuple[bytes, int]]:
        return ()

    def make_parents(self, tree: bytes, like: Sequence[Entry]) -> None:
        self.writes += 1
        if tree not in self.nodes:
            self.add(tree)

    def link(self, existing: bytes, path: bytes) -> None:
        if existing not in self.nodes:
            raise OSError(errno.ENOENT, "no such file", existing)
        self.put(path, self.nodes[existing])

    def remove_leftover(self, path: bytes) -> None:
        self.writes += 1
        self.nodes.pop(path, None)

    def clock_ns(self) -> int:
        self.writes += 1
        return 0

    def sync(self) -> None:
        if self.sync_errors:
            raise OSError(self.sync_errors.pop(), "injected")
        self.dirty.clear()

    def probe(self) -> TargetCapabilities:
        self.writes += 1
        return TargetCapabilities()

    def put(self, path: bytes, node: Node) -> None:
        """Write a name."""
        self.writes += 1
        self.dirty.add(path)
        self.nodes[path] = node

    def shown(self) -> dict[bytes, tuple[str, bytes]]:
        """Types and contents, for comparing."""
        return {path: (node.type.value, node.content) for path, node in self.nodes.items()}

    def groups(self) -> set[frozenset[bytes]]:
        """Names that share a file."""
        found: dict[int, set[bytes]] = {}
        for path, node in self.nodes.items():
            found.setdefault(node.ino, set()).add(path)
        return {frozenset(names) for names in found.values() if len(names) > 1}

    def _entry(self, path: bytes, node: Node) -> Entry:
        names = sum(1 for other in self.nodes.values() if other is node)
        return Entry(
            path=path, type=node.type, size_bytes=len(node.content), blocks=1, uid=0, gid=0, mode=0o644, mtime_ns=0,
            atime_ns=0, ctime_ns=0, dev=1, rdev=0, ino=node.ino, nlink=names,
        )  # fmt: skip
