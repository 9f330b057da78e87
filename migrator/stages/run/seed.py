"""The seed pass over one batch: everything that the plan lists."""

from dataclasses import dataclass, replace

from migrator.decide.batch_states import unverified
from migrator.domain.events import EventKind, Severity
from migrator.domain.plan import Batch, Plan
from migrator.domain.run import BatchSummary
from migrator.domain.states import BatchState, PassKind, PassState
from migrator.domain.units import several
from migrator.ports.drivers import DriverResult
from migrator.ports.passes import PassRecord
from migrator.ports.site import SiteRecord
from migrator.stages.run.context import Invocation, PassUnderWay
from migrator.stages.run.copying import Copying
from migrator.stages.run.drive import doubtful_trees, run_driver_step, say_second_look
from migrator.stages.run.preview import Remaining, remaining


@dataclass(slots=True, kw_only=True)
class SeedPass:
    """Copies one batch as far as it goes, but for the trees that are left alone: their chunks stay as they are, and count
    as not arrived. `run` may be called again: it goes on where the pass is.
    """

    invocation: Invocation
    plan: Plan
    site: SiteRecord
    batch: Batch
    left_alone: frozenset[bytes] = frozenset()
    _driven: DriverResult | None = None

    async def run(self) -> BatchSummary:
        """Raises Refused where a guard trips before anything is copied; a stop on the way is in the summary."""
        left = remaining(self.invocation.world, self.plan, self.batch, left_alone=self.left_alone)
        if self._is_finished(left):
            return self._nothing_to_do(left)
        copying = self._copying
        copying.expect(left.bricks)
        findings, health = await copying.guard(left.need, left.trees)
        capabilities = await copying.capabilities()
        await copying.make_trees()
        summary = await copying.carry_out(
            self._start(left),
            capabilities=capabilities,
            health_before=health,
            title="seed pass",
            before=self._drive,
            after=self._say_second_look,
            advance=lambda: self._advance(BatchState.SEEDED),
        )
        return replace(summary, guards=findings)

    @property
    def _copying(self) -> Copying:
        return Copying(
            invocation=self.invocation,
            plan=self.plan,
            site=self.site,
            batch=self.batch,
            left_alone=self.left_alone,
        )

    def _is_finished(self, left: Remaining) -> bool:
        return left.record is not None and left.record.state is PassState.DONE and not left.chunks

    def _nothing_to_do(self, left: Remaining) -> BatchSummary:
        """The pass had been finished before. A crash between the pass and its batch is made good here."""
        self._advance(BatchState.SEEDED)
        passes = self.invocation.world.ledger.passes
        pass_id = left.record.id if left.record else 0
        return BatchSummary(
            batch=self.batch.number,
            nothing_to_do=True,
            vanished=passes.vanished_count(pass_id),
            bad=tuple(passes.attention(pass_id)),
        )

    def _start(self, left: Remaining) -> PassRecord:
        """Record the pass, or let it go on; failed chunks are tried again with every run."""
        world, number = self.invocation.world, self.batch.number
        passes, now_s = world.ledger.passes, world.clock.now_s()
        record = left.record
        if record is None:
            chunks = world.chunk_lists.chunks(self.batch.chunk_list)
            record = passes.start(
                plan=self.plan.name,
                batch=number,
                kind=PassKind.SEED,
                catalog=self.plan.catalog,
                chunk_list=self.batch.chunk_list,
                chunks=chunks,
                at_s=now_s,
            )
        elif record.state is not PassState.RUNNING:
            passes.set_state(record.id, PassState.RUNNING, now_s)
        self._advance(BatchState.SEEDING)
        again = passes.retry_failed(record.id, but_trees=self.left_alone)
        message = f"seed pass over batch {number}: {several(left.chunks, 'chunk')} to do"
        if again:
            message += f", {again} of them failed before"
        self.invocation.say(EventKind.PASS_STARTED, Severity.INFO, f"batch {number}", message)
        return record

    async def _drive(self, under_way: PassUnderWay) -> None:
        """Let a driver copy whole trees first, where one was asked for."""
        driving = under_way.world.driving
        self._driven = None if driving is None else await run_driver_step(under_way, driving)
        under_way.doubtful_trees = doubtful_trees(under_way)

    def _say_second_look(self, under_way: PassUnderWay) -> None:
        if self._driven is not None and under_way.world.driving is not None:
            say_second_look(under_way, under_way.world.driving, self._driven)

    def _advance(self, state: BatchState) -> None:
        """A batch that is further than that already stays as it is, except that a verified one that got new files is
        to be verified again.
        """
        passes = self.invocation.world.ledger.passes.of_batch(self.plan.name, self.batch.number)
        steps = {
            (BatchState.PLANNED, BatchState.SEEDING): (BatchState.SEEDING,),
            (BatchState.PLANNED, BatchState.SEEDED): (BatchState.SEEDING, BatchState.SEEDED),
            (BatchState.SEEDING, BatchState.SEEDED): (BatchState.SEEDED,),
            (BatchState.VERIFIED, BatchState.SEEDING): (unverified(one.kind for one in passes),),
        }
        now = self._copying.batch_state
        self._copying.set_batch_states(steps.get((now, state), ()) if now else ())
