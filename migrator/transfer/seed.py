"""The seed pass over one batch: everything that the plan lists."""

from migrator.core import states
from migrator.core.events import EventKind, Severity
from migrator.core.units import several
from migrator.plan.rules import unverified
from migrator.transfer import layouts
from migrator.transfer.bases import refusals_of_batch
from migrator.transfer.context import PassUnderWay
from migrator.transfer.model import PassRecord
from migrator.transfer.model_runs import BatchSummary
from migrator.transfer.passes import PassRun, refused_if_unwritable
from migrator.transfer.remaining import Remaining, remaining
from migrator.transfer.tree_driver import doubtful_trees, drive_trees


class SeedPass(PassRun):
    """The seed pass over one batch, except the trees that are left alone: their chunks stay unchanged, and count as not
    arrived. `run` may be called again: it resumes the pass.
    """

    async def run(self) -> BatchSummary:
        """Raises BatchRefused if a guard fails before anything is copied; a later stop is in the summary."""
        passes = self.world.ledger.passes
        with refusals_of_batch():
            seed = passes.find(self.plan.name, self.batch.number, states.PassKind.SEED)
            left = remaining(self.world, self.plan, self.batch, seed, left_alone=self.left_alone)
            if left.record is not None and left.record.state is states.PassState.DONE and not left.chunks:
                # This also repairs the state of the batch after a crash between the two records.
                self._advance(states.BatchState.SEEDED)
                return BatchSummary(
                    batch=self.batch.number,
                    nothing_to_do=True,
                    vanished=passes.vanished_count(left.record.id),
                    bad=tuple(passes.attention(left.record.id)),
                )
            ready = await self.ready(left.need, left.trees)
            await self.make_trees()
            trees = [tree.path for tree in self.batch.trees]
            with refused_if_unwritable(trees[0]):
                # Not in later passes: they would make directories again that have gone since the plan's scan.
                await layouts.lay_out(self.invocation, self.plan.catalog, trees)
            return await self.carry_out(
                self._start(left),
                ready,
                title="seed pass",
                before=self._drive,
                advance=lambda: self._advance(states.BatchState.SEEDED),
            )

    def _start(self, left: Remaining) -> PassRecord:
        """Record the pass, or resume it; every run retries failed chunks."""
        batch, passes, now_s = self.batch, self.world.ledger.passes, self.world.clock.now_s()
        record = left.record
        if record is None:
            record = passes.start(
                plan=self.plan.name,
                batch=batch.number,
                kind=states.PassKind.SEED,
                catalog=self.plan.catalog,
                chunk_list=batch.chunk_list,
                chunks=self.world.chunk_lists.chunks(batch.chunk_list),
                at_s=now_s,
            )
        elif record.state is not states.PassState.RUNNING:
            passes.set_state(record.id, states.PassState.RUNNING, now_s)
        self._advance(states.BatchState.SEEDING)
        again = passes.retry_failed(record.id, but_trees=self.left_alone)
        message = f"seed pass over batch {batch.number}: {several(left.chunks, 'chunk')} to do"
        self.report(
            EventKind.PASS_STARTED, Severity.INFO, message + (f", {again} of them failed before" if again else "")
        )
        return record

    async def _drive(self, under_way: PassUnderWay) -> None:
        """If a driver was requested, let it copy whole trees first."""
        if under_way.world.driving is not None:
            await drive_trees(under_way, under_way.world.driving)
        under_way.doubtful_trees = doubtful_trees(under_way)

    def _advance(self, state: states.BatchState) -> None:
        """Advance the state of a batch. One in a later state stays there, except that a verified one with new files has
        to be verified again.
        """
        passes = self.world.ledger.passes.of_batch(self.plan.name, self.batch.number)
        steps = {
            (states.BatchState.PLANNED, states.BatchState.SEEDING): (states.BatchState.SEEDING,),
            (states.BatchState.PLANNED, states.BatchState.SEEDED): (
                states.BatchState.SEEDING,
                states.BatchState.SEEDED,
            ),
            (states.BatchState.SEEDING, states.BatchState.SEEDED): (states.BatchState.SEEDED,),
            (states.BatchState.VERIFIED, states.BatchState.SEEDING): (unverified(one.kind for one in passes),),
        }
        now = self.batch_state
        self.set_batch_states(steps.get((now, state), ()) if now else ())
