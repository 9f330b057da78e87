"""How far batches and their user trees are, by their passes: read by `status`, and so by `report` and `metrics`."""

from collections import defaultdict
from collections.abc import Sequence

from migrator.decide.progress_facts import batch_facts, settled, tree_facts
from migrator.domain.changes import ChangeKind
from migrator.domain.ledger_sums import ChunkSum
from migrator.domain.report import BatchFacts, PassFacts, TreeFacts
from migrator.domain.states import PassKind, PassState
from migrator.domain.verification import VerificationRecord
from migrator.ports.ledger_facts import ReadableLedger
from migrator.ports.passes import PassRecord


def read_passes(ledger: ReadableLedger, plan: str) -> Sequence[PassFacts]:
    """Every pass of a plan, oldest first."""
    return [_pass(ledger, record) for record in ledger.passes.of_plan(plan)]


def _pass(ledger: ReadableLedger, record: PassRecord) -> PassFacts:
    changes = None if record.kind is PassKind.SEED else ledger.passes.changes(record.id)
    return PassFacts(
        id=record.id,
        batch=record.batch,
        kind=record.kind,
        number=record.number,
        state=record.state,
        started_at_s=record.started_at_s,
        finished_at_s=record.finished_at_s,
        catalog=record.catalog,
        base_catalog=record.base_catalog,
        scan_s=record.scan_s,
        moved_at_s=record.moved_at_s,
        total_files=record.total_files,
        total_bytes=record.total_bytes,
        changes=None if changes is None else {kind: changes.tally(kind) for kind in ChangeKind},
    )


def read_batches(
    ledger: ReadableLedger, plan: str, passes: Sequence[PassFacts]
) -> tuple[tuple[BatchFacts, ...], tuple[TreeFacts, ...]]:
    """The batches of a plan in their order, and its user trees in the order of their rank. `passes` are all of the plan, oldest
    first.
    """
    planned = ledger.facts.batches(plan)
    # The seed pass of a batch: what is done of it is done of the batch. Later ones bring what changed since.
    seeds = {entry.batch: entry for entry in passes if entry.kind is PassKind.SEED}
    newest = {entry.batch: entry for entry in passes}
    of_pass: dict[int, Sequence[ChunkSum]] = {
        number: ledger.facts.chunk_sums(number)
        for number in {entry.id for entry in (*seeds.values(), *newest.values())}
    }
    planned_trees = ledger.facts.trees(plan)
    own_trees: dict[int, set[bytes]] = defaultdict(set)
    for planned_tree in planned_trees:
        own_trees[planned_tree.batch].add(planned_tree.tree.path)
    own_passes: dict[int, list[PassFacts]] = defaultdict(list)
    for entry in passes:
        own_passes[entry.batch].append(entry)
    sums: dict[int, Sequence[ChunkSum]] = {}
    for batch, entry in seeds.items():
        followed = [one for one in own_passes[batch] if one.id != entry.id]
        sums[batch] = _settled(ledger, of_pass[entry.id], followed, own_trees[batch])
    states = {batch.number: batch.state for batch in planned}
    trees = tree_facts(planned_trees, sums, states, seeds)
    of_batch: dict[int, list[TreeFacts]] = defaultdict(list)
    for tree in trees:
        of_batch[tree.batch].append(tree)
    attention = ledger.facts.attention_counts(plan)
    verified: dict[int, VerificationRecord] = {
        record.batch: record for record in ledger.verifications.of_plan(plan) if not record.trees
    }
    predicted = {record.batch: record for record in ledger.predictions.of_plan(plan)}
    batches = tuple(
        batch_facts(
            batch,
            trees=of_batch[batch.number],
            sums=of_pass[newest[batch.number].id] if batch.number in newest else (),
            passes=own_passes[batch.number],
            attention=attention.get(batch.number),
            verification=verified.get(batch.number),
            convergence=predicted.get(batch.number),
        )
        for batch in planned
    )
    return batches, trees


def _settled(
    ledger: ReadableLedger, sums: Sequence[ChunkSum], passes: Sequence[PassFacts], trees: set[bytes]
) -> Sequence[ChunkSum]:
    """The sums of a seed pass, each tree settled by the newest of these passes over it that has gone through."""
    left = set(trees)
    for one in reversed(passes):
        if one.state is not PassState.DONE or not left:
            continue
        changes = ledger.passes.changes(one.id)
        its_own = left if changes is None else left & {tree.tree for tree in changes.trees}
        sums = settled(sums, ledger.facts.chunk_sums(one.id), its_own)
        left = left - its_own
    return sums
