"""Which plan a cutover goes by: that of an attempt that has begun before the latest."""

from collections.abc import Mapping, Sequence

from migrator.domain.cutover import ENDED_STATES, CutoverRecord
from migrator.domain.tree import UserTree
from migrator.ports.ledger import Ledger

ByBatch = Mapping[int, tuple[UserTree, ...]]
"""Trees by the number of their batch."""


def attempts_of_users(ledger: Ledger, users: Sequence[str]) -> Mapping[str, ByBatch]:
    """By plan, the trees of these users that were moved, or are being moved, and did not come back. Users who have none are
    in no plan.
    """
    found: dict[str, dict[int, list[UserTree]]] = {}
    for record in newest_of_all(ledger):
        if record.tree.user in users and record.state not in ENDED_STATES:
            found.setdefault(record.plan, {}).setdefault(record.batch, []).append(record.tree)
    return {plan: {batch: tuple(trees) for batch, trees in batches.items()} for plan, batches in found.items()}


def newest_of_all(ledger: Ledger) -> Sequence[CutoverRecord]:
    """The newest attempt of every tree, whatever plan it was made by."""
    trees = {record.tree.path for plan in ledger.plans.names() for record in ledger.cutovers.of_plan(plan)}
    newest = [ledger.cutovers.latest(tree) for tree in sorted(trees)]
    return [record for record in newest if record is not None]
