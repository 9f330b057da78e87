"""After a pass over a batch: what the ledger says of its passes, the decision about another one, and its record."""

from collections.abc import Callable, Collection

from migrator.decide.convergence import decide
from migrator.decide.forecast import choose_cost
from migrator.domain.changes import ChangeKind
from migrator.domain.convergence import ConvergenceRecord, Decision, FreezeCheck, Limits, PassFacts
from migrator.domain.scan import CatalogRecord
from migrator.domain.states import PassState
from migrator.ports.ledger import Ledger
from migrator.ports.passes import PassRecord
from migrator.stages.run.bases import covers

MovesOf = Callable[[PassRecord], tuple[int, int]]
"""How many renames a pass made, and how many outermost paths it took away: what its move list holds."""


def judge_passes(
    ledger: Ledger,
    *,
    plan: str,
    batch: int,
    trees: Collection[bytes],
    at_s: float,
    streams: int,
    check: FreezeCheck,
    limits: Limits,
    made: int,
    moves_of: MovesOf,
) -> Decision:
    """Whether to make another delta pass over these trees, once the last one has been closed; the prediction is recorded
    with that one. Passes over some of them alone, as final ones, tell nothing of it.

    `at_s` is now, `made` how many delta passes this run has made. May be called again: the record is replaced, and the
    freeze that was predicted after the pass before stays what it is compared with. Blocking.
    """
    records = [
        one
        for one in ledger.passes.of_batch(plan, batch)
        if one.state is PassState.DONE and covers(ledger.passes, one, trees)
    ]
    scans = {scan.name: scan for scan in ledger.scans.all()}
    earlier = {one.pass_id: one.prediction.freeze_s for one in ledger.predictions.of_batch(plan, batch)}
    decision = decide(
        [_facts(ledger, one, scans.get(one.catalog), moves_of) for one in records],
        batch=batch,
        at_s=at_s,
        cost=choose_cost(ledger.samples.measured_cost(), streams),
        check=check,
        limits=limits,
        made=made,
        earlier_freeze_s=earlier.get(records[-2].id) if len(records) > 1 else None,
    )
    if decision.prediction is not None:
        ledger.predictions.record(
            ConvergenceRecord(
                pass_id=records[-1].id,
                at_s=at_s,
                batch=batch,
                outcome=decision.outcome,
                max_freeze_s=limits.max_freeze_s,
                prediction=decision.prediction,
            )
        )
    return decision


def facts_of_passes(ledger: Ledger, plan: str, batch: int, moves_of: MovesOf) -> list[PassFacts]:
    """Every pass over a batch, or over some of its trees, that has gone through; oldest first. Blocking."""
    scans = {scan.name: scan for scan in ledger.scans.all()}
    done = [one for one in ledger.passes.of_batch(plan, batch) if one.state is PassState.DONE]
    return [_facts(ledger, one, scans.get(one.catalog), moves_of) for one in done]


def _facts(ledger: Ledger, record: PassRecord, scan: CatalogRecord | None, moves_of: MovesOf) -> PassFacts:
    changes = ledger.passes.changes(record.id)
    totals = ledger.passes.totals(record.id)
    renames, gone = moves_of(record) if record.move_list is not None else (0, 0)
    finished_at_s = record.started_at_s if record.finished_at_s is None else record.finished_at_s
    return PassFacts(
        kind=record.kind,
        number=record.number,
        scanned_at_s=_scanned_at_s(record, scan),
        scan_s=_scan_s(record, scan),
        started_at_s=record.started_at_s,
        finished_at_s=finished_at_s,
        sent_files=totals.done_files,
        sent_bytes=totals.done_bytes,
        changes={} if changes is None else {kind: changes.tally(kind) for kind in ChangeKind},
        renames=renames,
        gone=gone,
        trees=() if changes is None else changes.trees,
    )


def _scanned_at_s(record: PassRecord, scan: CatalogRecord | None) -> float:
    """A ledger that was restored from a backup may not know the scan: then it began as long before as it took."""
    return scan.started_at_s if scan is not None else record.started_at_s - (record.scan_s or 0.0)


def _scan_s(record: PassRecord, scan: CatalogRecord | None) -> float:
    if record.scan_s is not None:
        return record.scan_s
    if scan is None or scan.finished_at_s is None:
        return 0.0
    return max(scan.finished_at_s - scan.started_at_s, 0.0)
