"""What changed in a batch's trees between two scans, and what a delta pass does about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from migrator.core.entry import EntryType


class ChangeKind(StrEnum):
    """What became of a path since the scan before; one kind each.

    `grown`: a file that only became larger, as far as size tells; `rewritten`: its content may be another one (size,
    mtime or nothing but ctime differ, or its type does); `attributes`: owner, mode, ACLs or xattrs differ as well as
    ctime, size and mtime do not; `unsettled`: nothing differs, but it was not known to have arrived, or it had been
    changed so shortly before it was scanned that a later change could look the same.
    """

    NEW = "new"
    GROWN = "grown"
    REWRITTEN = "rewritten"
    ATTRIBUTES = "attributes"
    RENAMED = "renamed"
    VANISHED = "vanished"
    UNSETTLED = "unsettled"


SENT = frozenset({ChangeKind.NEW, ChangeKind.GROWN, ChangeKind.REWRITTEN, ChangeKind.ATTRIBUTES, ChangeKind.UNSETTLED})
"""Kinds whose paths are sent; renamed ones are renamed on the target, vanished ones are moved to the trash there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTally:
    """How many paths of one kind, directories among them, and the bytes of the files."""

    paths: int = 0
    directories: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeChanges:
    """The changes of one tree. `names_before` and `bytes_before` are what was in it in the scan before (all paths; files'
    bytes): what shrank too much is not believed.
    """

    tree: bytes
    names_before: int
    bytes_before: int
    by_kind: Mapping[ChangeKind, ChangeTally] = field(default_factory=dict)

    def tally(self, kind: ChangeKind) -> ChangeTally:
        """Of one kind; all zero where there is none."""
        return self.by_kind.get(kind, ChangeTally())


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """All that changed in some trees from the catalog `base` to the catalog `now`."""

    base: str
    now: str
    trees: tuple[TreeChanges, ...]

    def tally(self, kind: ChangeKind) -> ChangeTally:
        """Of one kind, over all trees."""
        found = [tree.tally(kind) for tree in self.trees]
        return ChangeTally(
            paths=sum(one.paths for one in found),
            directories=sum(one.directories for one in found),
            size_bytes=sum(one.size_bytes for one in found),
        )

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to do at all."""
        return not any(self.tally(kind).paths for kind in ChangeKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """A path of one tree that has another name now: the same inode (and gfid, where both looks have one), of the same type,
    size and mtime, and the old name is gone. Of a renamed directory only the directory itself is listed: what lies in it moved along.

    `old` is what the path is called when all renames before it in order have been made.
    """

    tree: bytes
    old: bytes
    new: bytes
    type: EntryType
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """A path of one tree that is on the source no more; of a directory that vanished only the directory is listed.

    `path` is its name before all renames; what a rename brought out of it is not in it any more. `names` counts it and
    all that vanished with it.
    """

    tree: bytes
    path: bytes
    type: EntryType
    names: int
