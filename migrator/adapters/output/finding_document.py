"""What `doctor` found, as a table: failures first, each with its fix."""

from collections.abc import Sequence

from migrator.adapters.output.document import Document, Section, clean, paragraph, table, text, wide
from migrator.domain.finding import Finding, FindingStatus
from migrator.domain.units import several

_WORDS = {FindingStatus.FAILURE: "FAILURE", FindingStatus.WARNING: "warning", FindingStatus.OK: "ok"}


def finding_document(findings: Sequence[Finding], *, title: str = "Preflight") -> Document:
    """All findings, the worst first, otherwise in the order of the checks."""
    counts = {status: sum(finding.status is status for finding in findings) for status in _WORDS}
    rows = [
        (_WORDS[status], finding.check, finding.message, finding.fix)
        for status in _WORDS
        for finding in findings
        if finding.status is status
    ]
    found = table("", [text(""), wide("check"), wide("what was found"), wide("what to do")], rows)
    verdict = (
        f"{several(counts[FindingStatus.FAILURE], 'failure')}, {several(counts[FindingStatus.WARNING], 'warning')}, "
        f"{counts[FindingStatus.OK]:,} ok."
    )
    return Document(
        title=clean(title),
        subtitle=verdict,
        sections=(
            Section(
                title="Findings",
                blocks=(found,)
                if not counts[FindingStatus.FAILURE]
                else (found, paragraph("Mend the failures before you begin.", alert=True)),
            ),
        ),
    )
