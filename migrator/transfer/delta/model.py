"""Changes of user trees between two scans, and the resulting renames and deletions."""

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct

from migrator.core.entry import EntryType


class ChangeKind(StrEnum):
    """The kind of change of a path since the scan before; one kind for each path.

    `grown`: a larger file; `rewritten`: its content may differ (size, mtime, ctime alone, or the type differs);
    `attributes`: owner, mode, ACLs or xattrs and ctime differ, size and mtime do not; `unsettled`: nothing differs, but
    the path is not known to have arrived, or it changed so shortly before its scan that a later change could look the
    same.
    """

    NEW = "new"
    GROWN = "grown"
    REWRITTEN = "rewritten"
    ATTRIBUTES = "attributes"
    RENAMED = "renamed"
    VANISHED = "vanished"
    UNSETTLED = "unsettled"


SENT = frozenset({ChangeKind.NEW, ChangeKind.GROWN, ChangeKind.REWRITTEN, ChangeKind.ATTRIBUTES, ChangeKind.UNSETTLED})
"""Kinds whose paths are sent. Renamed paths are renamed on the target; vanished ones move to its trash."""


class ChangeTally(Struct, frozen=True, kw_only=True):
    """Paths of one kind of change."""

    paths: int = 0
    """Number of paths."""
    directories: int = 0
    """Number of directories among them."""
    size_bytes: int = 0
    """Bytes of the files."""


class TreeChanges(Struct, frozen=True, kw_only=True):
    """The changes of one tree. A pass refuses a tree that shrank too much."""

    tree: bytes
    names_before: int
    """Number of its paths in the scan before."""
    bytes_before: int
    """Bytes of its files in the scan before."""
    by_kind: Mapping[ChangeKind, ChangeTally] = {}
    """Its changes by kind."""

    def tally(self, kind: ChangeKind) -> ChangeTally:
        return self.by_kind.get(kind, ChangeTally())


class Changes(Struct, frozen=True, kw_only=True):
    """All changes of some trees between two catalogs."""

    NO_KEYS: ClassVar = frozenset({"nothing"})

    base: str
    """The earlier catalog."""
    now: str
    """The later catalog."""
    trees: tuple[TreeChanges, ...]
    """The changes of each tree."""

    def tally(self, kind: ChangeKind) -> ChangeTally:
        found = [tree.tally(kind) for tree in self.trees]
        return ChangeTally(
            paths=sum(one.paths for one in found),
            directories=sum(one.directories for one in found),
            size_bytes=sum(one.size_bytes for one in found),
        )

    @property
    def nothing(self) -> bool:
        """Nothing has changed."""
        return not any(self.tally(kind).paths for kind in ChangeKind)


class Rename(Struct, frozen=True, kw_only=True):
    """A path of one tree with a new name: same inode (and gfid, if both scans have one), type, size and mtime, and the
    old name is gone. A renamed directory is listed alone: its content moved with it.

    `old` is the name of the path before all renames. The content of a directory precedes the directory in order.
    """

    tree: bytes
    old: bytes
    new: bytes
    type: EntryType
    size_bytes: int
    mtime_ns: int


class Gone(Struct, frozen=True, kw_only=True):
    """A path of one tree that is no longer on the source; a vanished directory is listed alone.

    `path` is its name before all renames; it excludes paths that were renamed out of it.
    """

    tree: bytes
    path: bytes


# Move lists on disk.


class WrittenMoves(Struct, frozen=True, kw_only=True):
    """A move list on disk. `gone` counts the outermost vanished paths."""

    move_list: str
    digest: str
    renames: int
    gone: int


# Extras: paths that the target has but the source lacks, and that no list of vanished paths names. Either an earlier
# plan copied them, and they were gone by the scan of the present plan; or the newest verification found them only on
# the target.


class ExtrasOfTree(Struct, frozen=True, kw_only=True):
    """Where to search for extras of one tree. `brought` are the catalogs of all passes over it: this program did not
    copy a path that none of them lists, so it is no extra. `earlier` are the catalogs among them since the last pass
    that removed extras. `manifest` belongs to the verification whose findings count, `differences_digest` to its list
    of differences.
    """

    tree: bytes
    brought: tuple[str, ...]
    earlier: tuple[str, ...] = ()
    manifest: str | None = None
    differences_digest: str | None = None
