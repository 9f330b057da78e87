"""What of the batches of a run is brought: trees whose users work on the target are left alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from migrator.decide.movable import movable_trees
from migrator.domain.cutover import CutoverRecord
from migrator.domain.errors import Refused, UsageError
from migrator.domain.plan import Batch, Plan
from migrator.domain.states import PassKind, PassState
from migrator.domain.units import several
from migrator.ports.cutovers import CutoverRecords
from migrator.ports.ledger import Ledger
from migrator.stages.run.bases import part_of


class BatchRefused(Refused):
    """What speaks against one batch, and need not speak against others. (A hook that refuses ends the run.)"""

    @classmethod
    def by(cls, refused: Refused) -> "BatchRefused":
        """As it was refused."""
        return cls(refused.message, cause=refused.cause, hint=refused.hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A batch with those of its trees that a run brings (`whole`: all that it may), and those that it leaves alone."""

    batch: Batch
    left_alone: frozenset[bytes]
    whole: bool

    @property
    def words(self) -> str:
        """That trees are left alone, for people."""
        those = several(len(self.left_alone), "user tree is", "user trees are")
        return f"{those} left alone: the users work on the target, or are being cut over (see `migrator status`)"


def newest_cutovers(cutovers: CutoverRecords, trees: Iterable[bytes]) -> Mapping[bytes, CutoverRecord]:
    """The newest attempt of each tree, of any plan; trees without one are left out."""
    return {tree: record for tree in trees if (record := cutovers.latest(tree)) is not None}


def choose_trees(ledger: Ledger, plan: Plan, batch: Batch, wanted: frozenset[bytes] | None) -> Chosen:
    """What a run brings of a batch; `wanted` None: all that may be. To be called while no cutover can begin."""
    newest = newest_cutovers(ledger.cutovers, (tree.path for tree in batch.trees))
    left, moved = movable_trees(batch.trees, newest)
    may = frozenset(tree.path for tree in left)
    chosen = may if wanted is None else may & wanted
    return Chosen(
        batch=batch if len(chosen) == len(batch.trees) else part_of(plan, batch, chosen),
        left_alone=frozenset(tree.path for tree in moved if wanted is None or tree.path in wanted),
        whole=chosen == may,
    )


def problem_of_part(ledger: Ledger, plan: Plan, chosen: Chosen) -> str:
    """Why some trees of a batch cannot be brought alone; empty where they can."""
    if chosen.whole or not chosen.batch.trees:
        return ""
    number = chosen.batch.number
    seed = ledger.passes.find(plan.name, number, PassKind.SEED)
    if seed is not None and seed.state is PassState.DONE:
        return ""
    return f"the seed pass over batch {number} has not gone through: single users of it are brought only after it"


def require_part(ledger: Ledger, plan: Plan, chosen: Chosen, *, deltas: bool) -> None:
    """Raises BatchRefused or UsageError where some trees of a batch cannot be brought alone."""
    if problem := problem_of_part(ledger, plan, chosen):
        raise BatchRefused(
            problem,
            cause="a seed pass is one over the whole batch",
            hint=f"run `migrator run --user-batch {chosen.batch.number}` first",
        )
    if not chosen.whole and chosen.batch.trees and not deltas:
        raise UsageError(
            "single users of a batch are brought by delta passes, and this run makes none",
            hint="leave --deltas 0 out, and an engine that takes whole trees (fpsync, parsyncfp2)",
        )
