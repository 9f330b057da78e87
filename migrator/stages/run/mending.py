"""What a verification found to differ is sent again: size and times need not show it."""

from collections.abc import Collection, Sequence

from migrator.domain.paths import is_beneath
from migrator.domain.states import PassKind, PassState
from migrator.ports.ledger import Ledger
from migrator.ports.manifest import Differing
from migrator.stages.run.bases import covers


def found_to_differ(
    ledger: Ledger, differing: Differing, *, plan: str, batch: int, trees: Collection[bytes]
) -> Sequence[bytes]:
    """Paths of these trees that the newest verification of each found to differ, where no pass after the seed has gone over
    the tree since. Blocking; raises Refused where its list is missing.
    """
    passes = ledger.passes
    later = [
        one
        for one in passes.of_batch(plan, batch)
        if one.kind is not PassKind.SEED and one.state is PassState.DONE and one.finished_at_s is not None
    ]
    found: set[bytes] = set()
    for tree in trees:
        newest = next(iter(reversed(ledger.verifications.of_tree(plan, batch, tree))), None)
        if newest is None or newest.finished_at_s is None or newest.manifest is None or not newest.differences:
            continue
        if not any(one.started_at_s >= newest.finished_at_s and covers(passes, one, (tree,)) for one in later):
            found.update(path for path in differing.differing(newest.manifest) if is_beneath(path, tree))
    return sorted(found)
