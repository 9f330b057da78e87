"""What a pass after the seed begins from: the passes before it, tree by tree."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from migrator.domain.errors import LedgerCorrupt
from migrator.domain.plan import Batch, Plan
from migrator.domain.states import PassKind, PassState
from migrator.domain.tree import UserTree
from migrator.ports.passes import PassHistory, PassRecord


def covered(passes: PassHistory, record: PassRecord) -> frozenset[bytes] | None:
    """The trees that a pass went over; None: all of its batch."""
    changes = None if record.kind is PassKind.SEED else passes.changes(record.id)
    return None if changes is None else frozenset(tree.tree for tree in changes.trees)


def covers(passes: PassHistory, record: PassRecord, trees: Collection[bytes]) -> bool:
    """Whether a pass went over all of these trees of its batch."""
    its_own = covered(passes, record)
    return its_own is None or its_own.issuperset(trees)


def has_open_moves(record: PassRecord) -> bool:
    """Whether a pass was cut off before all was renamed and taken away on the target that its list says."""
    return record.move_list is not None and record.moved_at_s is None and record.state is not PassState.DONE


def unfinished_delta(passes: PassHistory, plan: Plan, batch: Batch) -> PassRecord | None:
    """The delta pass that is gone on with: the newest one, where it has not gone through. None where the next one is a
    new one, also because it goes over other trees than these of the batch.
    """
    record = passes.find(plan.name, batch.number, PassKind.DELTA)
    if record is None or record.state is PassState.DONE:
        return None
    its_own = covered(passes, record)
    return record if its_own is None or its_own <= {tree.path for tree in batch.trees} else None


def pass_number(passes: PassHistory, plan: Plan, batch: Batch, kind: PassKind) -> int:
    """The number of the pass that is made next, or of the delta pass that is gone on with."""
    record = passes.find(plan.name, batch.number, kind)
    if record is None:
        return 1
    goes_on = kind is PassKind.DELTA and unfinished_delta(passes, plan, batch) is not None
    return record.number if goes_on else record.number + 1


def part_of(plan: Plan, batch: Batch, trees: Collection[bytes]) -> Batch:
    """A batch with these of its trees alone, and with what the plan counted in them. Its chunk list stays that of all."""
    usages = [usage for usage in plan.ranking if usage.tree.path in trees]
    return replace(
        batch,
        trees=tuple(tree for tree in batch.trees if tree.path in trees),
        size_bytes=sum(usage.size_bytes for usage in usages),
        files=sum(usage.files for usage in usages),
        directories=sum(usage.directories for usage in usages),
    )


def same_base(passes: PassHistory, plan: Plan, batch: Batch) -> Sequence[tuple[UserTree, ...]]:
    """The trees of a batch, those together that were last scanned by the same pass: one pass compares with one catalog.

    They differ after passes over some of the trees alone. Raises LedgerCorrupt where no pass knows a tree.
    """
    earlier = passes.of_batch(plan.name, batch.number)
    known = [(one, covered(passes, one)) for one in reversed(earlier) if not has_open_moves(one)]
    groups: dict[str, list[UserTree]] = {}
    for tree in batch.trees:
        found = (one.catalog for one, trees in known if trees is None or tree.path in trees)
        groups.setdefault(_known(next(found, None)), []).append(tree)
    return [tuple(group) for group in groups.values()]


def base_catalog(passes: PassHistory, earlier: Sequence[PassRecord], trees: Collection[bytes]) -> str:
    """The catalog that every one of these trees was last scanned for, by the latest of these passes over it.

    A pass that was cut off counts where its renames are made: what it had not brought is known. Raises LedgerCorrupt
    where there is none, or the trees have different ones.
    """
    known = [(one, covered(passes, one)) for one in reversed(earlier) if not has_open_moves(one)]
    found = {
        next((one.catalog for one, its_own in known if its_own is None or tree in its_own), None) for tree in trees
    }
    if len(found) > 1:
        raise LedgerCorrupt(
            "these user trees were last scanned by different passes",
            cause="a pass went over some of them alone",
            hint="run `migrator run` for their batch",
        )
    return _known(next(iter(found), None))


def _known(catalog: str | None) -> str:
    if catalog is None:
        raise LedgerCorrupt("the ledger knows no pass over these user trees", hint="run `migrator run` for their batch")
    return catalog
