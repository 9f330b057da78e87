"""What every function that makes a kind of odd file is given."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from migrator.domain.lab import OddKind
from migrator.stages.lab.content import content_blocks
from migrator.stages.lab.placing import Attributes, Owner, TreeWriter


class CannotMake(Exception):
    """This kind cannot be made here; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another tree on the same file system, and what this tree is called from there."""

    name: bytes
    writer: TreeWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class OddMaker:
    """Makes plain paths in the directory of one kind; `plain` is what their attributes start from."""

    writer: TreeWriter
    base: bytes
    tree_name: bytes
    seed: int
    plain: Attributes
    owner: Owner
    foreign: Owner
    neighbour: Neighbour | None
    source_mount: bytes
    is_root: bool

    def with_mode(self, mode: int, xattrs: Mapping[bytes, bytes] | None = None) -> Attributes:
        """The plain attributes with other permission bits."""
        return replace(self.plain, mode=mode, xattrs=xattrs or {})

    def with_times(self, mtime_ns: int, atime_ns: int) -> Attributes:
        """The plain attributes with other times."""
        return replace(self.plain, mtime_ns=mtime_ns, atime_ns=atime_ns)

    def in_base(self, name: bytes) -> bytes:
        """A path in the directory of the odd files."""
        return self.base + b"/" + name if self.base else name

    def directory(self, name: bytes, attributes: Attributes | None = None) -> bytes:
        """Make a directory; returns its path."""
        return self.writer.directory(self.in_base(name), attributes or self.with_mode(0o755))

    def file(self, name: bytes, size_bytes: int = 300, attributes: Attributes | None = None) -> bytes:
        """Make a file with content from the seed; returns its path."""
        path = self.in_base(name)
        return self.writer.file(path, pieces(self.seed, path, size_bytes), size_bytes, attributes or self.plain)

    def symlink(self, name: bytes, target: bytes) -> bytes:
        """Make a symlink; returns its path."""
        return self.writer.symlink(self.in_base(name), target, self.plain)


OddFunction = Callable[[OddMaker], Iterable[bytes]]
"""Makes all paths of one kind and returns those that the kind is about. Raises CannotMake or OSError."""

OddFunctions = Mapping[OddKind, OddFunction]


def pieces(seed: int, path: bytes, size_bytes: int) -> Iterable[tuple[int, bytes]]:
    """The content of a file with the offset of each piece."""
    offset = 0
    for block in content_blocks(seed, path, size_bytes):
        yield offset, block
        offset += len(block)
