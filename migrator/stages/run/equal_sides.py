"""Writing down that both sides of some trees are equal, where passes of another direction have made them so."""

import asyncio

from migrator.domain.changes import Changes, TreeChanges
from migrator.domain.errors import Refused
from migrator.domain.paths import show
from migrator.domain.plan import Batch, Plan
from migrator.domain.scan import CatalogRecord
from migrator.domain.states import PassKind, PassState
from migrator.ports.passes import PassRecord
from migrator.stages.run.bases import pass_number
from migrator.stages.run.context import World
from migrator.stages.run.delta import Deltas


async def note_equal(world: World, deltas: Deltas, plan: Plan, batch: Batch) -> PassRecord:
    """Scan the trees of a batch, and write that down as a final pass that had nothing to bring: the next pass compares with
    what the source is now. Without it, what users made on the target and removed after their rollback would stay there.

    Both sides have to be proven equal, and to be frozen. May be called again. Raises Refused where the scan is not whole, and
    what scanning raises; nothing is written down then.
    """
    began_s = world.clock.monotonic_s()
    catalog = await deltas.scan([tree.path for tree in batch.trees])
    if not catalog.whole:
        raise Refused(
            f"what the source of {', '.join(show(tree.path) for tree in batch.trees)} is now could not be read: "
            + "; ".join(catalog.reasons),
            cause="a part of the source could not be read",
            hint="see to that, then run the same command again",
        )
    passes = world.ledger.passes
    number = pass_number(passes, plan, batch, PassKind.FINAL)
    written, changes = await asyncio.to_thread(_nothing_to_bring, deltas, plan, batch, number, catalog)
    record = passes.start(
        plan=plan.name,
        batch=batch.number,
        kind=PassKind.FINAL,
        number=number,
        catalog=catalog.name,
        base_catalog=catalog.name,
        chunk_list=written,
        scan_s=world.clock.monotonic_s() - began_s,
        changes=changes,
        chunks=(),
        at_s=world.clock.now_s(),
    )
    passes.set_state(record.id, PassState.DONE, world.clock.now_s())
    return passes.read(record.id)


def _nothing_to_bring(
    deltas: Deltas, plan: Plan, batch: Batch, number: int, catalog: CatalogRecord
) -> tuple[str, Changes]:
    """An empty list of chunks, and the sizes of the trees with no change in them. Blocking."""
    trees = [tree.path for tree in batch.trees]
    with deltas.comparisons.open(catalog.name, catalog.name, trees=trees, unsettled=(), unsettled_trees=()) as found:
        sizes = found.changes.trees
    written = deltas.pass_lists.write_pass(plan.name, batch.number, number, (), kind=PassKind.FINAL)
    nothing = tuple(
        TreeChanges(tree=one.tree, names_before=one.names_before, bytes_before=one.bytes_before) for one in sizes
    )
    return written.chunk_list, Changes(base=catalog.name, now=catalog.name, trees=nothing)
