"""Paths that are absent: proven gone, not kept by the target, or reaped. Doubt is no proof."""

import errno
from typing import TYPE_CHECKING

from msgspec import Struct

from migrator.catalog.model import ArchivedMember
from migrator.core.entry import Entry, EntryType
from migrator.core.paths import parent
from migrator.fs.model import SurpriseKind, TargetCapabilities
from migrator.fs.ports import ReadablePaths
from migrator.fs.rules import ExpectedLoss, absence
from migrator.reap.archive import ProvenArchives
from migrator.reap.model import same_file
from migrator.site.model import ReapAction

if TYPE_CHECKING:
    from migrator.reap.store import ReapIndex


def look_up_or_prove_gone(file_system: ReadablePaths, path: bytes) -> Entry | None:
    """The entry that exists now; None if its absence is proven.

    An ancestor that is a file or a symlink proves it too. Raises OSError in doubt.
    """
    try:
        return file_system.look(path)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        if not _leads_nowhere(file_system, path):
            raise
        return None


def _leads_nowhere(file_system: ReadablePaths, path: bytes) -> bool:
    components = path.split(b"/")
    for depth in range(1, len(components)):
        ancestor = file_system.look(b"/".join(components[:depth]))
        if ancestor is None or ancestor.type is not EntryType.DIRECTORY:
            return True
    return False


class Absence(Struct, frozen=True, kw_only=True):
    """Why a path may be absent; `member` is its place in an archive, None if it is on the source only."""

    loss: ExpectedLoss
    member: ArchivedMember | None = None


class Absences(Struct, frozen=True, kw_only=True):
    """Decides which absences are expected. Thread-safe.

    `reaped` is the plan's reap list of the `trees`, None if it reaps nothing. An archived path may be absent only if a
    proven archive in `archived` holds its present content on the source. If `archived` is None, the list suffices, as
    for a user who moves back to the source, which has everything. `name_seed`: that of the site.
    """

    capabilities: TargetCapabilities
    trees: frozenset[bytes]
    name_seed: int
    reaped: "ReapIndex | None"
    archived: ProvenArchives | None

    def __post_init__(self) -> None:
        """Load the indexes of the archives. Raises Refused if one is missing or differs from the proven one."""
        if self.archived is not None and self.reaped is not None:
            for tree in sorted(self.trees):
                self.archived.of_block(tree, ())

    def of(self, source: Entry) -> Absence | None:
        """Why a path may be absent; None: it is missing. Raises Refused if an index of an archive is missing or
        differs.
        """
        if (lost := absence(source, self.capabilities)) is not None:
            return Absence(loss=lost)
        if self.reaped is None or source.type is not EntryType.FILE:
            return None
        times = {"mtime_ns": source.mtime_ns, "ctime_ns": source.ctime_ns}
        action = self.reaped.action(source.path, size_bytes=source.size_bytes, **times)
        if action is None or action is ReapAction.LIST:
            return None
        kind, detail, member = SurpriseKind.ARCHIVED, "the plan archives it", self._member(source)
        if member is not None:
            detail = f"it is in archive {member.archive}"
        elif action is ReapAction.SKIP:
            kind, detail = SurpriseKind.SKIPPED, "the plan skips it"
        elif self.archived is not None:
            return None
        return Absence(loss=ExpectedLoss(path=source.path, kind=kind, detail=detail), member=member)

    def _member(self, source: Entry) -> ArchivedMember | None:
        if self.archived is None:
            return None
        tree = parent(source.path)
        while tree and tree not in self.trees:
            tree = parent(tree)
        member = self.archived.of_block(tree, (source.path,)).get(source.path) if tree else None
        return member if member is not None and same_file(member, source) else None
