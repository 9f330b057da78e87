"""Hard links of both sides: which names are the same file here, and not there."""

from migrator.decide.expectations import Loss
from migrator.domain.paths import show
from migrator.domain.plan import SurpriseKind
from migrator.domain.site import TargetCapabilities
from migrator.domain.verification import Difference, DifferenceKind
from migrator.ports.manifest import LinkFinding, LinkFindingKind, ManifestDraft
from migrator.stages.verify.tally import Tally


def compare_links(draft: ManifestDraft, tally: Tally, capabilities: TargetCapabilities) -> None:
    """Tally what the draft's names of linked files tell: the same files on both sides, or not."""
    # Rows that were added before are on disk by now, so findings may be added while they are read.
    for finding in draft.link_findings():
        _take_link_finding(finding, tally, capabilities)


def _take_link_finding(finding: LinkFinding, tally: Tally, capabilities: TargetCapabilities) -> None:
    other = show(finding.other)
    match finding.kind:
        case LinkFindingKind.SPLIT if not capabilities.keeps_hard_links:
            tally.lost(Loss(path=finding.path, kind=SurpriseKind.LOSS_HARD_LINK, detail=f"a copy beside {other}"))
        case LinkFindingKind.SPLIT:
            _links_differ(tally, finding.path, f"the same file as {other}", "a file of its own")
        case LinkFindingKind.MERGED:
            _links_differ(tally, finding.path, "a file of its own", f"the same file as {other}")
        case LinkFindingKind.OUTSIDE if tally.unread:
            # Its other names may be among what could not be read, for which the record is not whole anyway.
            pass
        case LinkFindingKind.OUTSIDE:
            names = f"{finding.names} names in this batch"
            _links_differ(tally, finding.path, names, f"{finding.nlink} names, {finding.names} of them in this batch")
        case LinkFindingKind.BROKEN:
            detail = f"{finding.nlink} names, {finding.names} of them in this batch: a copy of its own here"
            tally.lost(Loss(path=finding.path, kind=SurpriseKind.HARD_LINKS_BROKEN, detail=detail))


def _links_differ(tally: Tally, path: bytes, source: str, target: str) -> None:
    tally.found(Difference(path=path, kind=DifferenceKind.HARD_LINKS, source=source, target=target))
