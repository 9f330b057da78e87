"""What the ledger says that verifying trees in the freeze will cost."""

from collections.abc import Collection

from migrator.decide.carrying import earlier_verifications
from migrator.decide.freeze_check import TreeToCheck, freeze_check
from migrator.domain.changes import SENT
from migrator.domain.convergence import FreezeCheck
from migrator.domain.plan import Plan, TreeUsage
from migrator.domain.verification import DigestPolicy, VerificationRecord
from migrator.ports.ledger import Ledger


def check_of_trees(
    ledger: Ledger, plan: Plan, batch: int, trees: Collection[bytes], policy: DigestPolicy | None = None
) -> FreezeCheck:
    """The cost of verifying some trees of a batch in the freeze, what is proven before carried over. `policy` says which
    content has to be compared; None: as the newest verification did, or all of it. Blocking.
    """
    records = ledger.verifications.all()
    wanted = policy or (records[-1].policy if records else None)
    return freeze_check(
        records,
        [_to_check(ledger, plan.name, batch, usage, wanted) for usage in plan.ranking if usage.tree.path in trees],
        share=1.0 if wanted is None else wanted.share,
    )


def _to_check(ledger: Ledger, plan: str, batch: int, usage: TreeUsage, policy: DigestPolicy | None) -> TreeToCheck:
    tree = usage.tree.path
    paths = usage.files + usage.directories + 1
    earlier = earlier_verifications(ledger.verifications.covering(tree), policy) if policy else ()
    if not earlier:
        return TreeToCheck(paths=paths, size_bytes=usage.size_bytes)
    newest = earlier[0]
    return TreeToCheck(
        paths=paths,
        size_bytes=usage.size_bytes,
        proven_share=_proven_share(newest),
        changed_bytes=_changed_bytes(ledger, plan, batch, tree, since_s=newest.started_at_s),
    )


def _proven_share(record: VerificationRecord) -> float:
    """Of every tree alike: the ledger has the sums of all trees together."""
    return 1.0 if record.size_bytes <= 0 else min(record.proven_bytes / record.size_bytes, 1.0)


def _changed_bytes(ledger: Ledger, plan: str, batch: int, tree: bytes, *, since_s: float) -> int:
    """What passes of this plan have sent since; a pass that was at work meanwhile counts whole."""
    total = 0
    for record in ledger.passes.of_batch(plan, batch):
        if record.finished_at_s is not None and record.finished_at_s <= since_s:
            continue
        changes = ledger.passes.changes(record.id)
        for one in changes.trees if changes else ():
            if one.tree == tree:
                total += sum(one.tally(kind).size_bytes for kind in SENT)
    return total
