"""The base of a pass, and the trees that a pass leaves alone."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.errors import LedgerCorrupt, Refused, UsageError
from migrator.core.states import PassKind, PassState
from migrator.core.units import several
from migrator.operations.ports import TreeMove, TreeMoves
from migrator.plan.model import Batch, Plan
from migrator.plan.rules import movable_trees
from migrator.transfer.model import PassRecord

if TYPE_CHECKING:
    from migrator.transfer.records import PassRecords, TransferLedger

# The default plan.


def active_plan(ledger: "TransferLedger") -> str:
    """The most recently activated plan. Raises UsageError if there is none."""
    active = ledger.plans.active()
    if active is None:
        raise UsageError("there is no plan yet", hint="run `migrator scan`, then `migrator plan`")
    return active.name


def choose_plan(ledger: "TransferLedger", name: str | None) -> str:
    """The named plan, or else the active one. Raises UsageError if there is none, or if a pass of another plan is
    unfinished: the same command has to resume that pass, and must not start anew because of a new plan.
    """
    if name is not None:
        return name
    active = active_plan(ledger)
    for older in ledger.plans.names():
        halves = [record.batch for record in ledger.passes.of_plan(older) if record.state is not PassState.DONE]
        if older != active and halves:
            raise UsageError(
                f"batch {halves[0]} of plan {older} is half copied, and {active} is the active plan",
                cause="a new plan was activated before the run of the older one had ended",
                hint=f"give --plan {older} to resume it, or --plan {active} to begin with the active one",
            )
    return active


# The base of a pass after the seed, tree by tree.


def covered(passes: "PassRecords", record: PassRecord) -> frozenset[bytes] | None:
    """The trees of a pass; None: all of its batch."""
    changes = None if record.kind is PassKind.SEED else passes.changes(record.id)
    return None if changes is None else frozenset(tree.tree for tree in changes.trees)


def covers(passes: "PassRecords", record: PassRecord, trees: Collection[bytes]) -> bool:
    """Whether a pass covers all of these trees of its batch."""
    its_own = covered(passes, record)
    return its_own is None or its_own.issuperset(trees)


def has_open_moves(record: PassRecord) -> bool:
    """Whether a pass was interrupted before its move list was completely applied."""
    return record.move_list is not None and record.moved_at_s is None and record.state is not PassState.DONE


def unfinished_delta(passes: "PassRecords", plan: Plan, batch: Batch) -> PassRecord | None:
    """The delta pass to resume: the newest one, if it is unfinished and covers the same trees. None: start anew."""
    record = passes.find(plan.name, batch.number, PassKind.DELTA)
    if record is None or record.state is PassState.DONE:
        return None
    its_own = covered(passes, record)
    return record if its_own is None or its_own <= {tree.path for tree in batch.trees} else None


def pass_number(passes: "PassRecords", plan: Plan, batch: Batch, kind: PassKind) -> int:
    """The number of the next pass, or of the delta pass to resume."""
    record = passes.find(plan.name, batch.number, kind)
    if record is None:
        return 1
    goes_on = kind is PassKind.DELTA and unfinished_delta(passes, plan, batch) is not None
    return record.number if goes_on else record.number + 1


def part_of(plan: Plan, batch: Batch, trees: Collection[bytes]) -> Batch:
    """A batch with only these trees and their usage in the plan. Its chunk list is still that of all trees. Like every
    batch, it does not count the trees' own directories; their usage does.
    """
    usages = [usage for usage in plan.ranking if usage.tree.path in trees]
    return replace(
        batch,
        trees=tuple(tree for tree in batch.trees if tree.path in trees),
        size_bytes=sum(usage.size_bytes for usage in usages),
        files=sum(usage.files for usage in usages),
        directories=sum(usage.directories - 1 for usage in usages),
    )


def same_base(passes: "PassRecords", plan: str, batch: int, trees: Iterable[bytes]) -> Mapping[str, Sequence[bytes]]:
    """The catalogs of the latest passes over these trees of a batch, each with the trees whose base it is. One pass
    compares with one catalog; there are several after passes over only some of the trees.

    An interrupted pass counts if its renames are complete: the ledger records the files that it did not copy. Raises
    LedgerCorrupt if no pass covers a tree.
    """
    earlier = reversed(passes.of_batch(plan, batch))
    known = [(one.catalog, covered(passes, one)) for one in earlier if not has_open_moves(one)]
    groups: dict[str, list[bytes]] = {}
    for tree in trees:
        catalog = next((catalog for catalog, its_own in known if its_own is None or tree in its_own), None)
        if catalog is None:
            raise LedgerCorrupt(
                "the ledger knows no pass over these user trees", hint="run `migrator run` for their batch"
            )
        groups.setdefault(catalog, []).append(tree)
    return groups


def base_catalog(passes: "PassRecords", plan: str, batch: int, trees: Iterable[bytes]) -> str:
    """The base of a pass over all of these trees. Raises LedgerCorrupt as `same_base`, or if the trees have different
    ones.
    """
    catalogs = list(same_base(passes, plan, batch, trees))
    if len(catalogs) != 1:
        raise LedgerCorrupt(
            "these user trees were last scanned by different passes",
            cause="a pass went over some of them alone",
            hint="run `migrator run` for their batch",
        )
    return catalogs[0]


# Trees of moved users are left alone.


class BatchRefused(Refused):
    """The refusal of one batch, which need not concern other batches. (A hook that refuses ends the run.)"""

    @classmethod
    def by(cls, refused: Refused) -> "BatchRefused":
        return cls(refused.message, cause=refused.cause, hint=refused.hint)


@contextmanager
def refusals_of_batch() -> Iterator[None]:
    """Raise a refusal in the block as one of the batch."""
    try:
        yield
    except BatchRefused:
        raise
    except Refused as refused:
        raise BatchRefused.by(refused) from refused


class Chosen(Struct, frozen=True, kw_only=True):
    """A batch with the trees that a run copies (`whole`: all that it may), and the trees that it leaves alone."""

    batch: Batch
    left_alone: frozenset[bytes]
    whole: bool

    @property
    def words(self) -> str:
        """The trees that are left alone, for display."""
        those = several(len(self.left_alone), "user tree is", "user trees are")
        return f"{those} left alone: the users work on the target, or are being cut over (see `migrator status`)"


def newest_cutovers(cutovers: TreeMoves, trees: Iterable[bytes]) -> Mapping[bytes, TreeMove]:
    """The newest attempt of each tree, of any plan; omits trees without one."""
    return {tree: record for tree in trees if (record := cutovers.latest(tree)) is not None}


def choose_trees(ledger: "TransferLedger", plan: Plan, batch: Batch, wanted: frozenset[bytes] | None) -> Chosen:
    """The trees of a batch that a run copies; `wanted` None: all that it may. Call it while no cutover can start.
    Raises Refused if a tree overlaps one that was moved.
    """
    ledger.cutovers.require_apart(tree.path for tree in batch.trees)
    newest = newest_cutovers(ledger.cutovers, (tree.path for tree in batch.trees))
    left, moved = movable_trees(batch.trees, newest)
    may = frozenset(tree.path for tree in left)
    chosen = may if wanted is None else may & wanted
    return Chosen(
        batch=batch if len(chosen) == len(batch.trees) else part_of(plan, batch, chosen),
        left_alone=frozenset(tree.path for tree in moved if wanted is None or tree.path in wanted),
        whole=chosen == may,
    )


def refusal_of(ledger: "TransferLedger", plan: Plan, chosen: Chosen, *, recopy: bool) -> BatchRefused | None:
    """Why this batch, or only some of its trees, cannot be copied in this way; None if they can."""
    number = chosen.batch.number
    seed = ledger.passes.find(plan.name, number, PassKind.SEED)
    is_done = seed is not None and seed.state is PassState.DONE
    if recopy and is_done:
        return BatchRefused(
            f"batch {number} had been copied before, and only a seed pass can send every file again",
            cause="its seed pass is done; delta passes send what has changed since",
            hint="leave --recopy out. To send every file again, make another plan (`migrator scan`, `migrator plan --activate`) "
            "and run it with --recopy. `migrator verify --reread` only compares the content of both sides",
        )
    if chosen.whole or not chosen.batch.trees or is_done:
        return None
    return BatchRefused(
        f"the seed pass over batch {number} is not done: single users of it can be copied only after it",
        cause="a seed pass is one over the whole batch",
        hint=f"run `migrator run --user-batch {number}` first",
    )


def require_part(ledger: "TransferLedger", plan: Plan, chosen: Chosen, *, deltas: bool, recopy: bool) -> None:
    """Raises BatchRefused (see `refusal_of`), or UsageError for single users without delta passes."""
    if refusal := refusal_of(ledger, plan, chosen, recopy=recopy):
        raise refusal
    if not chosen.whole and chosen.batch.trees and not deltas:
        raise UsageError(
            "delta passes copy single users of a batch, and this run makes none",
            hint="leave --deltas 0 out",
        )
