"""Counters of a verification, thread-safe, which feed the manifest; and the comparison of hard links."""

import threading
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct

from migrator.catalog.model import ArchivedMember, ContentReading
from migrator.catalog.ports import LinkedPath, LinkFinding, LinkFindingKind, VerifiedPath
from migrator.core.entry import Entry, EntryType
from migrator.core.paths import show
from migrator.fs.model import Difference, DifferenceKind, ScanProblem, SurpriseKind, TargetCapabilities
from migrator.fs.rules import ExpectedLoss
from migrator.verify.joined import EqualTotals

if TYPE_CHECKING:
    from migrator.catalog.manifest import ParquetDraft


class EqualContent(Struct, frozen=True):
    """The digest of content that is equal on both sides, the verification that read it, and whether that was an earlier
    one, or hosts before the comparison.
    """

    digest: bytes
    reading: ContentReading
    carried: bool = False
    by_hosts: bool = False


class VerifyTally:
    """The counters of one verification, which feed its manifest. Thread-safe.

    Every name of a file adds its part of the size, so a file with several names counts once; the sums are rounded down.
    """

    def __init__(self, draft: "ParquetDraft") -> None:
        self._draft = draft
        self._lock = threading.Lock()
        self.paths = self.files = self.digested_files = self.carried_files = self.unread = self.proven_gone = 0
        self.host_files = 0
        self.size_bytes = self.digested_bytes = self.carried_bytes = 0
        self.differences: Counter[str] = Counter()
        self.expected: Counter[str] = Counter()

    @property
    def difference_count(self) -> int:
        """The number of differences so far."""
        with self._lock:
            return self.differences.total()

    def record(
        self,
        source: Entry,
        target: Entry | None,
        *,
        differences: Sequence[Difference] = (),
        losses: Sequence[ExpectedLoss] = (),
        content: EqualContent | None = None,
        archived: ArchivedMember | None = None,
    ) -> None:
        """Count a path of the source, and add it to the manifest if it arrived without a difference."""
        with self._lock:
            self.paths += 1
            size_bytes = source.content_bytes // max(source.nlink, 1)
            if source.type is EntryType.FILE:
                self.files += 1
                self.size_bytes += size_bytes
            if archived is not None or (content is not None and content.carried):
                # The content of an archive counts as proven only after it was read back.
                self.carried_files += 1
                self.carried_bytes += size_bytes
            elif content is not None:
                self.digested_files += 1
                self.digested_bytes += size_bytes
                self.host_files += content.by_hosts
        verified = VerifiedPath(
            source=source,
            target=target,
            digest=None if content is None else content.digest,
            reading=None if content is None else content.reading,
            archived=archived,
        )
        arrived = not differences and (target is not None or archived is not None)
        self.note(differences, losses, verified=(verified,) if arrived else (), links=_linked(source, target))

    def add_equal(self, totals: EqualTotals) -> None:
        """Count paths that are in the draft already."""
        with self._lock:
            self.paths += totals.paths
            self.files += totals.files
            self.size_bytes += totals.size_bytes
            self.digested_files += totals.digested_files
            self.host_files += totals.digested_files
            self.digested_bytes += totals.digested_bytes
            self.carried_files += totals.carried_files
            self.carried_bytes += totals.carried_bytes
            self.expected += Counter({SurpriseKind.LOSS_TIME.value: totals.floored_times})
            self.expected += Counter({SurpriseKind.SYMLINK_REWRITTEN.value: totals.rewritten_links})

    def note(
        self,
        differences: Sequence[Difference] = (),
        losses: Sequence[ExpectedLoss] = (),
        *,
        verified: Sequence[VerifiedPath] = (),
        links: Sequence[LinkedPath] = (),
    ) -> None:
        """Count differences, and losses that are expected."""
        with self._lock:
            for difference in differences:
                self.differences[difference.kind.value] += 1
                self.unread += difference.kind is DifferenceKind.UNREADABLE
            for loss in losses:
                self.expected[loss.kind.value] += 1
        self._draft.add(verified=verified, differences=differences, losses=losses, links=links)

    def unreadable(self, problem: ScanProblem, *, on_source: bool) -> None:
        """Count a path that could not be read on one side; the verification is then not whole."""
        words = f"{problem.operation}: {problem.reason}"
        sides = (words, NOT_COMPARED) if on_source else (NOT_COMPARED, words)
        self.note([difference_of(problem.path, DifferenceKind.UNREADABLE, *sides)])

    def gone(self) -> None:
        """Count a path of an earlier catalog that is proven to be gone."""
        with self._lock:
            self.proven_gone += 1


NOT_COMPARED = "not compared"
"""The text for the readable side if a file cannot be read on the other."""


def difference_of(path: bytes, kind: DifferenceKind, source: str, target: str) -> Difference:
    """One difference of a path."""
    return Difference(path=path, kind=kind, source=source, target=target)


def _linked(source: Entry, target: Entry | None) -> tuple[LinkedPath, ...]:
    target_nlink = 0 if target is None else target.nlink
    of_one_type = target is None or target.type is source.type
    if source.type is EntryType.DIRECTORY or not of_one_type or max(source.nlink, target_nlink) <= 1:
        return ()
    linked = LinkedPath(
        path=source.path,
        source_ino=source.ino,
        source_nlink=source.nlink,
        target_ino=None if target is None else target.ino,
        target_nlink=target_nlink,
    )
    return (linked,)


def compare_links(
    draft: "ParquetDraft", tally: VerifyTally, capabilities: TargetCapabilities, *, trash: Sequence[str] = ()
) -> None:
    """Compare the link groups of both sides, from the names in the draft, and count differences and losses. `trash` are
    files with the rows of the target's trash.
    """
    # Rows added before are on disk by now, so more may be added while these are read.
    for finding in draft.link_findings(trash):
        found = _link_difference(finding, capabilities)
        if isinstance(found, ExpectedLoss):
            tally.note(losses=[found])
        elif finding.kind is not LinkFindingKind.OUTSIDE or not tally.unread:
            # Names outside the batch may be unreadable ones; the record is then not whole anyway.
            tally.note([found])


def _link_difference(finding: LinkFinding, capabilities: TargetCapabilities) -> Difference | ExpectedLoss:
    same, alone = f"the same file as {show(finding.other)}", "a file of its own"
    kind, path = DifferenceKind.HARD_LINKS, finding.path
    match finding.kind:
        case LinkFindingKind.SPLIT if not capabilities.keeps_hard_links:
            return _loss(path, SurpriseKind.LOSS_HARD_LINK, f"a copy beside {show(finding.other)}")
        case LinkFindingKind.SPLIT:
            return difference_of(path, kind, same, alone)
        case LinkFindingKind.MERGED:
            return difference_of(path, kind, alone, same)
        case LinkFindingKind.OUTSIDE:
            names = f"{finding.names} names in this batch"
            return difference_of(path, kind, names, f"{finding.nlink} names, {finding.names} of them in this batch")
        case LinkFindingKind.IN_TRASH:
            detail = (
                f"{finding.nlink} names, {finding.names} of them in this batch: others are in the trash of the target"
            )
            return _loss(path, SurpriseKind.NAMES_IN_TRASH, detail)
        case LinkFindingKind.BROKEN:
            detail = f"{finding.nlink} names, {finding.names} of them in this batch: a copy of its own here"
            return _loss(path, SurpriseKind.HARD_LINKS_BROKEN, detail)
        case _:
            assert_never(finding.kind)


def _loss(path: bytes, kind: SurpriseKind, detail: str) -> ExpectedLoss:
    return ExpectedLoss(path=path, kind=kind, detail=detail)
