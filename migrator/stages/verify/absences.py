"""Paths that need not be at their place on the target: what it cannot keep, and what the plan reaped."""

from collections.abc import Iterable
from dataclasses import dataclass

from migrator.decide.expectations import Loss, absence
from migrator.domain.archives import ArchivedMember, is_archive_path, same_file
from migrator.domain.entry import Entry, EntryType
from migrator.domain.paths import parent
from migrator.domain.plan import SurpriseKind
from migrator.domain.reap import ReapAction
from migrator.domain.site import TargetCapabilities
from migrator.ports.reap import ReapIndex
from migrator.stages.reap.archived import ProvenArchives


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """Why a path need not be at its place; `member` is it in an archive, None where it is on the source alone."""

    loss: Loss
    member: ArchivedMember | None = None


class Absences:
    """Says which absences are expected. Thread-safe.

    `reaped` is the plan's reap list of the `trees`, None where it reaps nothing. `archived` is asked for what it archives:
    only what a proven archive holds as it is now on the source is expected not to be there. None: the list alone is believed,
    for a user who goes back to the source, where all of it is.
    """

    def __init__(
        self,
        capabilities: TargetCapabilities,
        trees: Iterable[bytes],
        *,
        reaped: ReapIndex | None,
        archived: ProvenArchives | None,
    ) -> None:
        self._capabilities = capabilities
        self._trees = frozenset(trees)
        self._reaped = reaped
        self._archived = archived

    def load(self) -> None:
        """Read what is known of the archives. Raises Refused where one is missing or is not the one that was proven."""
        if self._archived is not None and self._reaped is not None:
            for tree in sorted(self._trees):
                self._archived.of_block(tree, ())

    def is_archive(self, path: bytes) -> bool:
        """Whether a path of the target is where archives lie: nothing that came from the source."""
        return any(is_archive_path(tree, path) for tree in self._trees)

    def impossible(self, source: Entry) -> Loss | None:
        """Why the target cannot have a path at all."""
        return absence(source, self._capabilities)

    def of(self, source: Entry) -> Absence | None:
        """Why a path that is not there need not be; None: it is missing. Raises Refused as `load`."""
        lost = self.impossible(source)
        if lost is not None:
            return Absence(loss=lost)
        if self._reaped is None or source.type is not EntryType.FILE:
            return None
        action = self._reaped.action(
            source.path, size_bytes=source.size_bytes, mtime_ns=source.mtime_ns, ctime_ns=source.ctime_ns
        )
        if action is None or action is ReapAction.LIST:
            return None
        member = self._member(source)
        if member is not None:
            words = f"it is in archive {member.archive}"
            return Absence(loss=_loss(source, SurpriseKind.ARCHIVED, words), member=member)
        if action is ReapAction.SKIP:
            return Absence(loss=_loss(source, SurpriseKind.SKIPPED, "the plan skips it"))
        if self._archived is None:
            return Absence(loss=_loss(source, SurpriseKind.ARCHIVED, "the plan archives it"))
        return None

    def _member(self, source: Entry) -> ArchivedMember | None:
        if self._archived is None:
            return None
        tree = parent(source.path)
        while tree and tree not in self._trees:
            tree = parent(tree)
        member = self._archived.of_block(tree, (source.path,)).get(source.path) if tree else None
        return member if member is not None and same_file(member, source) else None


def _loss(source: Entry, kind: SurpriseKind, detail: str) -> Loss:
    return Loss(path=source.path, kind=kind, detail=detail)
