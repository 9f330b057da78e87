"""One batch in a run: its seed pass, and delta passes until another one is not worth while."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from migrator.domain.convergence import Decision
from migrator.domain.errors import Refused
from migrator.domain.events import EventKind, Severity
from migrator.domain.plan import Batch, Plan
from migrator.domain.run import BatchSummary, DeltaSummary
from migrator.domain.scan import CatalogRecord
from migrator.domain.states import PassKind, PassState
from migrator.ports.passes import PassRecord, PassRecords
from migrator.ports.site import SiteRecord
from migrator.stages.run.bases import covered, part_of, pass_number, same_base, unfinished_delta
from migrator.stages.run.context import Invocation
from migrator.stages.run.convergence import judge_passes
from migrator.stages.run.delta import DeltaPass, Deltas, Scan
from migrator.stages.run.freeze_check import check_of_trees
from migrator.stages.run.hook_looks import is_seeded
from migrator.stages.run.hooking import Hooking
from migrator.stages.run.left_alone import BatchRefused
from migrator.stages.run.seed import SeedPass

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRun:
    """Brings one batch as far as this run is to bring it. Without `deltas` there is only the seed pass.

    `batch` has the trees that are to be brought; `whole` tells whether these are all of it but for those of `left_alone`,
    whose users work on the target. Where they are not, its seed pass has gone through before.
    """

    hooking: Hooking
    batch: Batch
    deltas: Deltas | None
    whole: bool = True
    left_alone: frozenset[bytes] = frozenset()

    async def run(self) -> BatchSummary:
        """All passes, with the hooks of the batch around them. A stop on the way is in the summary. Raises Refused."""
        follows = self.deltas is not None and self.deltas.limits.max_delta_passes > 0
        idle = not follows and (self._is_seeded or self._is_followed)
        return await self.hooking.around_batch(self.batch, self._passes, idle=idle)

    async def _passes(self) -> BatchSummary:
        summary = await self._seed()
        deltas = self.deltas
        if deltas is None or summary.stopped is not None or summary.skipped:
            return summary
        for made in range(1, deltas.limits.max_delta_passes + 1):
            summary, go_on = await self._round(deltas, made, summary)
            if not go_on:
                break
        return summary

    async def _seed(self) -> BatchSummary:
        """What failed in a seed pass that other passes followed comes with those."""
        if self._is_followed or not self.whole:
            await self._catch_up()
            return BatchSummary(batch=self.batch.number, nothing_to_do=True)
        seed = SeedPass(
            invocation=self._invocation,
            plan=self._plan,
            site=self._site,
            batch=self.batch,
            left_alone=self.left_alone,
        )
        if not self._is_seeded:
            await self._until_open()
        return await self.hooking.around_pass(
            self.batch, PassKind.SEED, partial(_guarded, seed.run), idle=self._is_seeded
        )

    async def _catch_up(self) -> None:
        """The hooks after passes that a run which was killed had brought to their end."""
        await self.hooking.catch_up(self.batch, PassKind.SEED)
        latest = self._records.find(self._plan.name, self.batch.number, PassKind.DELTA)
        if latest is not None and latest.state is PassState.DONE:
            await self.hooking.catch_up(self.batch, PassKind.DELTA, number=latest.number)

    async def _round(self, deltas: Deltas, made: int, so_far: BatchSummary) -> tuple[BatchSummary, bool]:
        """One more delta pass over all trees; where they were last scanned by different passes, one for each of these,
        from one scan, so that the next one has them together again. What came before it and it together, and whether
        another one is to follow.
        """
        groups = await self._groups(deltas)
        if len(groups) > 1:
            deltas = replace(deltas, scan=_once(deltas.scan, [tree.path for tree in self.batch.trees]))
        go_on = False
        for group in groups:
            part = self.batch if len(group) == len(self.batch.trees) else part_of(self._plan, self.batch, group)
            so_far, go_on = await self._delta(deltas, part, made, so_far)
            if so_far.stopped is not None or so_far.skipped:
                return so_far, False
        return so_far, go_on

    async def _groups(self, deltas: Deltas) -> Sequence[frozenset[bytes]]:
        """The trees of each pass that comes next: of the one that is gone on with, or of new ones."""
        begun = unfinished_delta(self._records, self._plan, self.batch)
        if begun is None:
            await _guarded(self._pass_over(self.batch, deltas).end_earlier)
            return [
                frozenset(tree.path for tree in group) for group in same_base(self._records, self._plan, self.batch)
            ]
        its_own = covered(self._records, begun)
        return [frozenset(tree.path for tree in self.batch.trees) if its_own is None else its_own]

    async def _delta(self, deltas: Deltas, part: Batch, made: int, so_far: BatchSummary) -> tuple[BatchSummary, bool]:
        """One pass over these trees of the batch. One that did not go over all of it predicts no freeze: then another one
        follows where anything had changed, or where the next one has all trees together again.
        """
        await self._until_open()
        number = pass_number(self._records, self._plan, part, PassKind.DELTA)
        work = partial(_guarded, self._pass_over(part, deltas).run)
        summary = await self.hooking.around_pass(part, PassKind.DELTA, work, idle=False, number=number)
        if summary.skipped:
            return replace(so_far, skipped=summary.skipped), False
        record = self._records.find(self._plan.name, self.batch.number, PassKind.DELTA)
        decision = None
        if self.whole and part is self.batch and summary.stopped is None and record is not None:
            decision = self._judge(deltas, made)
        told = self._of(record, summary, decision)
        changed = told.changes is not None and not told.changes.nothing
        go_on = decision.go_on if decision is not None else changed or part is not self.batch
        return _together(so_far, summary, told), go_on

    async def _until_open(self) -> None:
        """A pass reads and moves things before its first chunk: it is not begun while nothing may be."""
        if self._invocation.governor is not None:
            await self._invocation.governor.until_open()

    def _pass_over(self, part: Batch, deltas: Deltas) -> DeltaPass:
        return DeltaPass(invocation=self._invocation, plan=self._plan, site=self._site, batch=part, deltas=deltas)

    def _judge(self, deltas: Deltas, made: int) -> Decision:
        world = self._invocation.world
        decision = judge_passes(
            world.ledger,
            plan=self._plan.name,
            batch=self.batch.number,
            trees=[tree.path for tree in self.batch.trees],
            at_s=world.clock.now_s(),
            streams=max(sum(lane.jobs for lane in world.lanes.all), 1),
            check=check_of_trees(world.ledger, self._plan, self.batch.number, [tree.path for tree in self.batch.trees]),
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
    def _is_followed(self) -> bool:
        """Whether passes after the seed were made."""
        kinds = (PassKind.DELTA, PassKind.FINAL)
        return any(self._records.find(self._plan.name, self.batch.number, kind) is not None for kind in kinds)

    @property
    def _records(self) -> PassRecords:
        return self._invocation.world.ledger.passes


async def _guarded(work: Callable[[], Awaitable[T]]) -> T:
    try:
        return await work()
    except Refused as refused:
        raise BatchRefused.by(refused) from refused


def _once(scan: Scan, trees: Sequence[bytes]) -> Scan:
    """Makes one scan of these trees, whichever of them are asked for, and gives it again and again."""
    made: list[CatalogRecord] = []

    async def scan_once(_: Sequence[bytes]) -> CatalogRecord:
        if not made:
            made.append(await scan(trees))
        return made[0]

    return scan_once


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
