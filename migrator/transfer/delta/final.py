"""The final passes of a freeze; and after a rollback, the record that both sides are equal."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from migrator.core.errors import LedgerCorrupt, MigratorError, Refused
from migrator.core.paths import show
from migrator.core.states import PassKind, PassState
from migrator.plan.model import Batch, Plan
from migrator.transfer import bases
from migrator.transfer.context import TransferPorts
from migrator.transfer.delta.delta import Deltas
from migrator.transfer.delta.model import Changes, TreeChanges
from migrator.transfer.delta.moves import only_not_renamed
from migrator.transfer.model import PassRecord
from migrator.transfer.model_runs import BatchSummary

if TYPE_CHECKING:
    from migrator.transfer.records import TransferLedger

_MOST_PASSES = 3


async def final_passes(
    ledger: "TransferLedger", plan: Plan, batch: Batch, run: Callable[[], Awaitable[BatchSummary]]
) -> AsyncIterator[tuple[BatchSummary, PassRecord]]:
    """Make final passes until every rename succeeds. Raises MigratorError if one is skipped or stops.

    A path that was missing on the target, or had changed there, cannot be renamed (a rollback has renamed it already):
    the next pass sends it. Files that change during the pass are no reason for another one: they stop the switch.
    """
    for _ in range(_MOST_PASSES):
        summary = await run()
        if summary.skipped:
            raise MigratorError(summary.skipped)
        if (stopped := summary.stopped) is not None:
            raise MigratorError(f"the final pass stopped: {stopped.message}", cause=stopped.cause, hint=stopped.hint)
        made = ledger.passes.find(plan.name, batch.number, PassKind.FINAL)
        if made is None:
            raise LedgerCorrupt("the ledger has lost the final pass", hint="run the same command again")
        yield summary, made
        if not only_not_renamed(ledger.passes, made.id):
            return


async def note_equal(world: TransferPorts, deltas: Deltas, plan: Plan, batch: Batch) -> PassRecord:
    """Scan the trees of a batch, and record the scan as a final pass without changes, so that the next pass compares
    with the present source. Otherwise files that users created on the target, and removed after their rollback, would
    stay there.

    Both sides must be proven equal, and be frozen. May be called again. Raises Refused if the scan is incomplete, and
    any error of scanning; nothing is recorded then.
    """
    began_s = world.clock.monotonic_s()
    catalog = await deltas.scan([tree.path for tree in batch.trees])
    if not catalog.whole:
        raise Refused(
            f"the source of {', '.join(show(tree.path) for tree in batch.trees)} could not be scanned: "
            + "; ".join(catalog.reasons),
            cause="a part of the source could not be read",
            hint="solve that, then run the same command again",
        )
    passes = world.ledger.passes
    number = bases.pass_number(passes, plan, batch, PassKind.FINAL)
    trees = tuple(TreeChanges(tree=tree.path, names_before=0, bytes_before=0) for tree in batch.trees)
    written = await asyncio.to_thread(
        world.chunk_lists.write_pass, plan.name, batch.number, number, (), kind=PassKind.FINAL
    )
    record = passes.start(
        plan=plan.name,
        batch=batch.number,
        kind=PassKind.FINAL,
        number=number,
        catalog=catalog.name,
        base_catalog=catalog.name,
        chunk_list=written.chunk_list,
        scan_s=world.clock.monotonic_s() - began_s,
        changes=Changes(base=catalog.name, now=catalog.name, trees=trees),
        chunks=(),
        at_s=world.clock.now_s(),
    )
    passes.set_state(record.id, PassState.DONE, world.clock.now_s())
    return passes.read(record.id)
