"""Which plan a cutover goes by: that of an attempt that is under way, or has been made, before the latest."""

from collections.abc import Mapping, Sequence

from migrator.domain.cutover import ENDED_STATES, CutoverRecord
from migrator.domain.tree import UserTree
from migrator.ports.ledger import Ledger

ByBatch = Mapping[int, tuple[UserTree, ...]]
"""Trees by the number of their batch."""


def attempts_of_users(ledger: Ledger, users: Sequence[str], *, back: bool) -> Mapping[str, ByBatch]:
    """By plan, the trees of these users of which an attempt has to be gone on with: one that is under way, or (`back`) one that
    can be taken back. Users who have none are in no plan.
    """
    found: dict[str, dict[int, list[UserTree]]] = {}
    for record in newest_of_all(ledger):
        wanted = record.state not in ENDED_STATES if back else record.under_way
        if record.tree.user in users and wanted:
            found.setdefault(record.plan, {}).setdefault(record.batch, []).append(record.tree)
    return {plan: {batch: tuple(trees) for batch, trees in batches.items()} for plan, batches in found.items()}


def newest_of_all(ledger: Ledger) -> Sequence[CutoverRecord]:
    """The newest attempt of every tree, whatever plan it was made by."""
    trees = {record.tree.path for plan in ledger.plans.names() for record in ledger.cutovers.of_plan(plan)}
    newest = [ledger.cutovers.latest(tree) for tree in sorted(trees)]
    return [record for record in newest if record is not None]
