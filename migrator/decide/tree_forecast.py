"""How long the freeze of one tree of a batch will be. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from migrator.decide.freeze_forecast import predict
from migrator.domain.changes import ChangeKind, TreeChanges
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
    over_it = [one for one in passes if one.kind is PassKind.SEED or _changes_of(one, tree) is not None]
    alone = [_alone(one, tree) for one in over_it]
    found = predict(over_it, at_s=at_s, cost=cost, check=check, changed_in=alone)
    return None if found is None else found.freeze_s


def _changes_of(one: PassFacts, tree: bytes) -> TreeChanges | None:
    return next((changes for changes in one.trees if changes.tree == tree), None)


def _alone(one: PassFacts, tree: bytes) -> PassFacts:
    """A pass as if nothing but this tree had changed."""
    changes = _changes_of(one, tree)
    if changes is None:
        return one
    return replace(
        one,
        changes={kind: changes.tally(kind) for kind in ChangeKind},
        renames=min(one.renames, changes.tally(ChangeKind.RENAMED).paths),
        gone=min(one.gone, changes.tally(ChangeKind.VANISHED).paths),
        trees=(changes,),
    )
