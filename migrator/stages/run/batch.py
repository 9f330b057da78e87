"""One batch in a run: its seed pass, and delta passes until another one is not worth while."""

from dataclasses import dataclass, replace
from functools import partial

from migrator.domain.convergence import Decision
from migrator.domain.events import EventKind, Severity
from migrator.domain.plan import Batch, Plan
from migrator.domain.run import BatchSummary, DeltaSummary
from migrator.domain.states import PassKind
from migrator.ports.ledger import PassRecord, SiteRecord
from migrator.stages.run.bases import pass_number, unfinished_delta
from migrator.stages.run.context import Invocation
from migrator.stages.run.convergence import judge_passes
from migrator.stages.run.delta import DeltaPass, Deltas
from migrator.stages.run.freeze_check import check_of_trees
from migrator.stages.run.hook_looks import is_seeded
from migrator.stages.run.hooking import Hooking
from migrator.stages.run.seed import SeedPass


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRun:
    """Brings one batch as far as this run is to bring it. Without `deltas` there is only the seed pass."""

    hooking: Hooking
    batch: Batch
    deltas: Deltas | None

    async def run(self) -> BatchSummary:
        """All passes, with the hooks of the batch around them. A stop on the way is in the summary. Raises Refused."""
        follows = self.deltas is not None and self.deltas.limits.max_delta_passes > 0
        idle = not follows and (self._is_seeded or self._has_deltas)
        return await self.hooking.around_batch(self.batch, self._passes, idle=idle)

    async def _passes(self) -> BatchSummary:
        summary = await self._seed()
        deltas = self.deltas
        if deltas is None or summary.stopped is not None or summary.skipped:
            return summary
        for made in range(1, deltas.limits.max_delta_passes + 1):
            summary, decision = await self._delta(deltas, made, summary)
            if decision is None or not decision.go_on:
                break
        return summary

    async def _seed(self) -> BatchSummary:
        """What failed in a seed pass that delta passes followed comes with those."""
        if self._has_deltas:
            await self._catch_up()
            return BatchSummary(batch=self.batch.number, nothing_to_do=True)
        seed = SeedPass(invocation=self._invocation, plan=self._plan, site=self._site, batch=self.batch)
        return await self.hooking.around_pass(self.batch, PassKind.SEED, seed.run, idle=self._is_seeded)

    async def _catch_up(self) -> None:
        """The hooks after passes that a run which was killed had brought to their end."""
        await self.hooking.catch_up(self.batch, PassKind.SEED)
        world = self._invocation.world
        latest = world.ledger.passes.find(self._plan.name, self.batch.number, PassKind.DELTA)
        if latest is not None and unfinished_delta(world.ledger.passes, self._plan, self.batch) is None:
            await self.hooking.catch_up(self.batch, PassKind.DELTA, number=latest.number)

    async def _delta(self, deltas: Deltas, made: int, so_far: BatchSummary) -> tuple[BatchSummary, Decision | None]:
        """One more delta pass; what came before it and it together, and whether another one is to follow."""
        ledger = self._invocation.world.ledger
        number = pass_number(ledger.passes, self._plan, self.batch, PassKind.DELTA)
        delta = DeltaPass(
            invocation=self._invocation, plan=self._plan, site=self._site, batch=self.batch, deltas=deltas
        )
        summary = await self.hooking.around_pass(self.batch, PassKind.DELTA, delta.run, idle=False, number=number)
        if summary.skipped:
            return replace(so_far, skipped=summary.skipped), None
        record = ledger.passes.find(self._plan.name, self.batch.number, PassKind.DELTA)
        decision = None if summary.stopped or record is None else self._judge(deltas, made)
        return _together(so_far, summary, self._of(record, summary, decision)), decision

    def _judge(self, deltas: Deltas, made: int) -> Decision:
        world = self._invocation.world
        decision = judge_passes(
            world.ledger,
            plan=self._plan.name,
            batch=self.batch.number,
            at_s=world.clock.now_s(),
            streams=max(sum(lane.jobs for lane in world.lanes.all), 1),
            check=check_of_trees(
                world.ledger, self._plan, self.batch.number, [tree.path for tree in self.batch.trees]
            ),
            limits=deltas.limits,
            made=made,
            moves_of=partial(moves_of, deltas),
        )
        self._invocation.say(EventKind.PASS_JUDGED, Severity.INFO, f"batch {self.batch.number}", decision.sentence)
        return decision

    def _of(self, record: PassRecord | None, summary: BatchSummary, decision: Decision | None) -> DeltaSummary:
        ledger = self._invocation.world.ledger
        return DeltaSummary(
            number=record.number if record else 0,
            files=summary.files,
            size_bytes=summary.size_bytes,
            elapsed_s=summary.elapsed_s,
            scan_s=(record.scan_s if record else None) or 0.0,
            changes=ledger.passes.changes(record.id) if record else None,
            outcome=decision.outcome if decision else None,
            freeze_s=decision.prediction.freeze_s if decision and decision.prediction else None,
            sentence=decision.sentence if decision else "",
        )

    @property
    def _invocation(self) -> Invocation:
        return self.hooking.invocation

    @property
    def _plan(self) -> Plan:
        return self.hooking.plan

    @property
    def _site(self) -> SiteRecord:
        return self.hooking.site

    @property
    def _is_seeded(self) -> bool:
        return is_seeded(self._invocation.world, self._plan, self.batch)

    @property
    def _has_deltas(self) -> bool:
        passes = self._invocation.world.ledger.passes
        return passes.find(self._plan.name, self.batch.number, PassKind.DELTA) is not None


def moves_of(deltas: Deltas, record: PassRecord) -> tuple[int, int]:
    """How many renames a pass made, and how many outermost paths it took away."""
    if record.move_list is None:
        return 0, 0
    lists = deltas.move_lists
    return sum(1 for _ in lists.renames(record.move_list)), sum(1 for _ in lists.gone(record.move_list))


def _together(so_far: BatchSummary, summary: BatchSummary, delta: DeltaSummary) -> BatchSummary:
    """The later pass settles what had not arrived before it: only what is bad in it is left."""
    kinds = {
        kind: so_far.chunks_by_kind.get(kind, 0) + summary.chunks_by_kind.get(kind, 0)
        for kind in (*so_far.chunks_by_kind, *summary.chunks_by_kind)
    }
    idle = delta.changes is not None and delta.changes.nothing and not summary.chunks
    return replace(
        summary,
        chunks=so_far.chunks + summary.chunks,
        files=so_far.files + summary.files,
        size_bytes=so_far.size_bytes + summary.size_bytes,
        written_bytes=so_far.written_bytes + summary.written_bytes,
        elapsed_s=so_far.elapsed_s + delta.scan_s + summary.elapsed_s,
        chunks_by_kind=kinds,
        trees_gone=tuple(sorted({*so_far.trees_gone, *summary.trees_gone})),
        nothing_to_do=so_far.nothing_to_do and idle,
        deltas=(*so_far.deltas, delta),
    )
