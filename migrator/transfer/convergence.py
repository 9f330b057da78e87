"""After a pass over a batch: the predicted freeze and the decision about another pass, from the ledger."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from migrator.catalog.model import CatalogRecord, earlier_verifications
from migrator.core import states
from migrator.fs.model import DigestPolicy
from migrator.plan.model import Plan
from migrator.plan.rules_forecast import choose_cost
from migrator.transfer.bases import covers
from migrator.transfer.delta.model import SENT
from migrator.transfer.model import PassRecord
from migrator.transfer.model_convergence import ConvergenceRecord, Decision, FinishedPass, FreezeCheck, PassLimits
from migrator.transfer.rules_convergence import check_cost, decide

if TYPE_CHECKING:
    from migrator.transfer.records import TransferLedger

MovesOf = Callable[[PassRecord], tuple[int, int]]
"""The number of renames and outermost deletions in the move list of a pass."""


def judge_passes(
    ledger: "TransferLedger",
    *,
    plan: str,
    batch: int,
    trees: Collection[bytes],
    at_s: float,
    streams: int,
    check: FreezeCheck,
    limits: PassLimits,
    made: int,
    moves_of: MovesOf,
) -> Decision:
    """Decide whether to make another delta pass over these trees, after the last one was closed. The prediction is
    recorded with that pass. Passes over only some of the trees, such as final ones, do not count.

    `at_s` is now, `made` the number of delta passes of this run. May be called again: the record is replaced, and the
    comparison is still with the freeze predicted after the pass before. Blocking.
    """
    done = _done(ledger, plan, batch)
    records = [(one, scan) for one, scan in done if covers(ledger.passes, one, trees)]
    earlier = {one.pass_id: one.prediction.freeze_s for one in ledger.predictions.of_batch(plan, batch)}
    decision = decide(
        [_facts(ledger, one, scan, moves_of) for one, scan in records],
        batch=batch,
        at_s=at_s,
        cost=choose_cost(ledger.samples.measured_cost(), streams),
        check=check,
        limits=limits,
        made=made,
        earlier_freeze_s=earlier.get(records[-2][0].id) if len(records) > 1 else None,
    )
    if decision.prediction is not None:
        ledger.predictions.record(
            ConvergenceRecord(
                pass_id=records[-1][0].id,
                at_s=at_s,
                batch=batch,
                outcome=decision.outcome,
                max_freeze_s=limits.max_freeze_s,
                prediction=decision.prediction,
            )
        )
    return decision


def facts_of_passes(ledger: "TransferLedger", plan: str, batch: int, moves_of: MovesOf) -> list[FinishedPass]:
    """Every finished pass over a batch or some of its trees, oldest first. Blocking."""
    return [_facts(ledger, one, scan, moves_of) for one, scan in _done(ledger, plan, batch)]


def _done(ledger: "TransferLedger", plan: str, batch: int) -> list[tuple[PassRecord, CatalogRecord]]:
    """The finished passes whose scan is in the ledger, with that scan. A restored ledger may lack scans."""
    scans = {scan.name: scan for scan in ledger.scans.all()}
    records = ledger.passes.of_batch(plan, batch)
    return [(one, scans[one.catalog]) for one in records if one.state is states.PassState.DONE and one.catalog in scans]


def _facts(ledger: "TransferLedger", record: PassRecord, scan: CatalogRecord, moves_of: MovesOf) -> FinishedPass:
    changes = ledger.passes.changes(record.id)
    totals = ledger.passes.totals(record.id)
    renames, gone = moves_of(record)
    finished_at_s = record.started_at_s if record.finished_at_s is None else record.finished_at_s
    scanned_s = (scan.finished_at_s or scan.started_at_s) - scan.started_at_s
    return FinishedPass(
        kind=record.kind,
        number=record.number,
        scanned_at_s=scan.started_at_s,
        scan_s=scanned_s if record.scan_s is None else record.scan_s,
        started_at_s=record.started_at_s,
        finished_at_s=finished_at_s,
        sent_files=totals.done_files,
        sent_bytes=totals.done_bytes,
        renames=renames,
        gone=gone,
        trees=() if changes is None else changes.trees,
    )


def check_of_trees(
    ledger: "TransferLedger", plan: Plan, batch: int, trees: Collection[bytes], policy: DigestPolicy | None = None
) -> FreezeCheck:
    """The cost of verifying some trees of a batch in the freeze, if earlier proofs are reused. `policy`: which content
    to compare; None: as the newest verification did, or all of it. Blocking.
    """
    records = ledger.verifications.all()
    wanted = policy or (records[-1].policy if records else None)
    share = 1.0 if wanted is None else wanted.share
    files = size_bytes = 0
    for usage in plan.ranking:
        if (tree := usage.tree.path) not in trees:
            continue
        files += usage.files + usage.directories
        earlier = (
            earlier_verifications(ledger.verifications.covering(tree, ledger.plans.batches_with(tree)), wanted)
            if wanted
            else ()
        )
        # An earlier verification proves everything except the paths sent since.
        size_bytes += (
            min(_changed_bytes(ledger, plan.name, batch, tree, since_s=earlier[0].started_at_s), usage.size_bytes)
            if earlier
            else usage.size_bytes
        )
    fixed_s, s_per_path, s_per_byte = check_cost(records)
    return FreezeCheck(
        s_per_file=s_per_path,
        s_per_byte=s_per_byte * share,
        files=files,
        size_bytes=size_bytes,
        fixed_s=fixed_s,
    )


def _changed_bytes(ledger: "TransferLedger", plan: str, batch: int, tree: bytes, *, since_s: float) -> int:
    """Bytes that passes of this plan have sent since; a pass in progress at that time counts completely."""
    total = 0
    for record in ledger.passes.of_batch(plan, batch):
        if record.finished_at_s is not None and record.finished_at_s <= since_s:
            continue
        changes = ledger.passes.changes(record.id)
        for one in changes.trees if changes else ():
            if one.tree == tree:
                total += sum(one.tally(kind).size_bytes for kind in SENT)
    return total
