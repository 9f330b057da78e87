"""What a final pass found out that speaks against a switch."""

from dataclasses import dataclass

from migrator.domain.states import ChunkState
from migrator.domain.transfer import FileProblemKind
from migrator.ports.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalPassFacts:
    """Of one pass: files that `changed` or `vanished` while they were copied, and those that did not arrive (`failed`:
    also the files of chunks that were not brought to their end, or a chunk without files).
    """

    changed: int
    vanished: int
    failed: int


def final_pass_facts(ledger: Ledger, pass_id: int) -> FinalPassFacts:
    """By what the ledger knows of the pass now. Raises LedgerCorrupt where it knows no such pass."""
    passes = ledger.passes
    passes.read(pass_id)
    counts, totals = passes.problem_counts(pass_id), passes.totals(pass_id)
    left = sum(count for state, count in totals.chunks.items() if state not in (ChunkState.DONE, ChunkState.SPLIT))
    return FinalPassFacts(
        changed=counts.get(FileProblemKind.CHANGED, 0),
        vanished=counts.get(FileProblemKind.VANISHED, 0),
        failed=counts.get(FileProblemKind.BAD, 0)
        + counts.get(FileProblemKind.MOVED, 0)
        + max(totals.files - totals.done_files, left),
    )
