"""How long the freeze of one tree of a batch will be. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from migrator.decide.freeze_forecast import predict
from migrator.domain.changes import SENT, ChangeKind, TreeChanges
from migrator.domain.convergence import FreezeCheck, PassFacts
from migrator.domain.plan import TransferCost
from migrator.domain.states import PassKind


def predict_freeze(
    passes: Sequence[PassFacts], tree: bytes, *, at_s: float, cost: TransferCost, check: FreezeCheck
) -> float | None:
    """Seconds, as `predict` says it of a batch, by the changes of this tree alone; None before a delta pass over it.

    Scans and what a pass takes whatever it sends count in full, though a final pass goes over one tree: it is rather said
    too long than too short.
    """
    found = predict(passes_of_tree(passes, tree), at_s=at_s, cost=cost, check=check)
    return None if found is None else found.freeze_s


def passes_of_tree(passes: Sequence[PassFacts], tree: bytes) -> list[PassFacts]:
    """The passes that went over a tree, as if they had gone over nothing else."""
    found: list[PassFacts] = []
    for one in passes:
        if one.kind is PassKind.SEED:
            found.append(one)
            continue
        its_own = next((changes for changes in one.trees if changes.tree == tree), None)
        if its_own is not None:
            found.append(_alone(one, its_own))
    return found


def _alone(one: PassFacts, tree: TreeChanges) -> PassFacts:
    files, size_bytes = _sent(tree)
    all_files, all_bytes = (sum(sums) for sums in zip(*(_sent(changes) for changes in one.trees), strict=True))
    renamed = tree.tally(ChangeKind.RENAMED).paths
    vanished = tree.tally(ChangeKind.VANISHED).paths
    return replace(
        one,
        # What it did not change it did not send; where something failed, less was sent than had changed.
        sent_files=round(one.sent_files * files / all_files) if all_files else 0,
        sent_bytes=round(one.sent_bytes * size_bytes / all_bytes) if all_bytes else 0,
        changes={kind: tree.tally(kind) for kind in ChangeKind},
        renames=min(one.renames, renamed),
        gone=min(one.gone, vanished),
        trees=(tree,),
    )


def _sent(tree: TreeChanges) -> tuple[int, int]:
    tallies = [tree.tally(kind) for kind in SENT]
    return sum(one.paths - one.directories for one in tallies), sum(one.size_bytes for one in tallies)
