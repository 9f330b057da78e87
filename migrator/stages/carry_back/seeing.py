"""What the ledger of a rollback says of its passes and its verifications."""

from migrator.domain.changes import ChangeKind, Changes
from migrator.domain.cutover import CutoverRecord, TargetChanges
from migrator.domain.cutover_seen import PassSeen, ProofSeen
from migrator.domain.states import PassKind, PassState
from migrator.domain.verification import DigestPolicy, VerificationRecord
from migrator.ports.ledger import Ledger
from migrator.ports.passes import PassRecord
from migrator.stages.run.final import final_pass_facts

_MADE = (ChangeKind.NEW, ChangeKind.GROWN, ChangeKind.REWRITTEN)
_TOUCHED = (*_MADE, ChangeKind.ATTRIBUTES, ChangeKind.RENAMED)


def pass_seen(ledger: Ledger, found: PassRecord) -> PassSeen:
    """One pass that carries back."""
    scan = next((one for one in ledger.scans.all() if one.name == found.catalog), None)
    facts = final_pass_facts(ledger, found.id)
    done = found.state is PassState.DONE
    return PassSeen(
        id=found.id,
        catalog=found.catalog,
        finished_at_s=found.finished_at_s if done else None,
        changed=facts.changed,
        vanished=facts.vanished,
        failed=facts.failed,
        whole=done and scan is not None and scan.whole,
    )


def proof_seen(ledger: Ledger, proven: VerificationRecord, policy: DigestPolicy, plan: str) -> ProofSeen:
    """One verification, against the catalog of the newest pass that has ended: whether it began after that is told by numbers
    (see `CutoverNotes.proofs_before`), not by times.
    """
    ended = [one for one in ledger.passes.of_batch(plan, proven.batch) if one.state is PassState.DONE]
    return ProofSeen(
        id=proven.id,
        catalog=ended[-1].catalog if ended else "",
        whole=proven.whole,
        differences=sum(proven.differences.values()),
        by_policy=proven.policy.algorithm == policy.algorithm and proven.policy.share >= policy.share,
        manifest=proven.manifest,
        reasons=proven.reasons,
    )


def target_changes(ledger: Ledger, record: CutoverRecord, plan: str) -> TargetChanges:
    """What the user changed since the switch, by all passes that carried it back. Directories count with what is gone."""
    found = [
        changes
        for one in ledger.passes.of_batch(plan, record.id)
        if one.kind is not PassKind.SEED and (changes := ledger.passes.changes(one.id)) is not None
    ]
    return TargetChanges(
        files=sum(_files(changes) for changes in found),
        size_bytes=sum(changes.tally(kind).size_bytes for changes in found for kind in _MADE),
        gone=sum(changes.tally(ChangeKind.VANISHED).paths for changes in found),
    )


def _files(changes: Changes) -> int:
    tallies = [changes.tally(kind) for kind in _TOUCHED]
    return sum(tally.paths - tally.directories for tally in tallies)
