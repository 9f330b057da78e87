"""`run`: one invocation over one or more batches, each copied by a seed pass, and by delta passes while they are useful."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.model import CatalogRecord
from migrator.core.errors import Interrupted, LockHeld, MigratorError
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.core.states import ChunkState, PassKind, PassState
from migrator.core.units import by_numbers, several
from migrator.fs.probing import ProbePorts, probing
from migrator.hooks.calls import Hooks
from migrator.ledger.locks import VOLUME, of_batch, of_tree
from migrator.ledger.model import SiteRecord
from migrator.operations.run_files import RunFiles
from migrator.plan.model import Batch, Plan
from migrator.transfer import bases
from migrator.transfer.capacity import capacity_watch
from migrator.transfer.context import LOG, RunInvocation, TransferPorts
from migrator.transfer.convergence import check_of_trees, judge_passes
from migrator.transfer.delta.delta import DeltaPass, Deltas, NoTreeLeft, Scan
from migrator.transfer.delta.trash import expire_trash
from migrator.transfer.governor import governed
from migrator.transfer.guards import read_plan
from migrator.transfer.model import PassRecord
from migrator.transfer.model_convergence import Decision
from migrator.transfer.model_runs import (
    BatchSummary,
    DeltaSummary,
    Refusal,
    RunRequest,
    RunStopped,
    RunSummary,
    TreeApart,
)
from migrator.transfer.preview import preview_batch
from migrator.transfer.recovery import recover
from migrator.transfer.run_hooks import RUN_STEPS, RunHooks, RunStep
from migrator.transfer.seed import SeedPass

VERB = "run"


async def run_batches(
    request: RunRequest,
    world: TransferPorts,
    *,
    files: RunFiles,
    hooks: Hooks,
    deltas: Deltas | None = None,
    probes: ProbePorts | None = None,
) -> RunSummary:
    """Copy batches one after the other, each from its present state. The same call resumes after any crash.

    Without `deltas` there are only seed passes; `probes` None: no probes run. Cancelling the task ends every stream, then
    raises Interrupted; cancelling again meanwhile has no effect.

    Raises UsageError (no such batch), Refused (a guard, with every reason), LockHeld, RunStopped (the pool stopped: a
    full target, an input/output error, ...; the summary is in it), Interrupted, LedgerCorrupt.
    """
    plan, site = read_plan(world, request)
    ledger, clock = world.ledger, world.clock
    numbered = [batch for number in dict.fromkeys(request.batches) for batch in plan.batches if batch.number == number]
    which = by_numbers([batch.number for batch in numbered], "batch", "batches")

    def choose(batch: Batch) -> bases.Chosen:
        return bases.choose_trees(ledger, plan, batch, request.trees)

    if request.dry_run:
        previewed = [
            await preview_batch(world, request, plan, site, choose(batch), hooks=hooks, deltas=deltas)
            for batch in numbered
        ]
        return RunSummary(run_id=None, directory=None, dry_run=True, batches=tuple(previewed))
    purpose = f"run of {which} of plan {plan.name}"
    for batch in numbered:
        choose(batch)
    with world.locks.hold(purpose, shared=(VOLUME,)):
        async with files.recorded(ledger, clock, verb=VERB, pid=request.pid, log=LOG) as recorded:
            invocation = RunInvocation(world=world, request=request, run_id=recorded.id, directory=recorded.directory)
            governor = governed(
                world.governing,
                world.lanes,
                run_id=recorded.id,
                clock=clock,
                report=lambda severity, words: invocation.report(EventKind.STREAMS_SET, severity, "governor", words),
            )
            run_hooks = RunHooks(invocation=invocation, hooks=hooks, plan=plan)
            try:
                async with capacity_watch(world), probing(probes), governor as invocation.governor:
                    invocation.report(EventKind.RUN_STARTED, Severity.INFO, f"plan {plan.name}", purpose)
                    await run_hooks.steps().begin(RUN_STEPS)
                    await recover(invocation, site)
                    if deltas is not None:
                        await expire_trash(invocation, deltas, site)
                    summary = await _copy(run_hooks, site, numbered, choose, deltas)
            except asyncio.CancelledError:
                invocation.report(
                    EventKind.RUN_INTERRUPTED, Severity.WARNING, purpose, "interrupted: every stream ended"
                )
                raise Interrupted(
                    f"{purpose} was interrupted: every stream has been ended",
                    hint="run the same command again to resume",
                ) from None
            words, severity = describe_run(summary)
            invocation.report(EventKind.RUN_FINISHED, severity, f"plan {plan.name}", f"{which}: {words}")
            recorded.exit_code = summary.exit_code
    return summary


async def _copy(
    hooks: RunHooks,
    site: SiteRecord,
    batches: Sequence[Batch],
    choose: Callable[[Batch], bases.Chosen],
    deltas: Deltas | None,
) -> RunSummary:
    """Copy the batches one after the other. If there are several, a refused one does not stop the others."""
    invocation, plan = hooks.invocation, hooks.plan
    world = invocation.world
    done: list[BatchSummary] = []
    whole = RunSummary(run_id=invocation.run_id, directory=invocation.directory.path, dry_run=False, batches=())
    for batch in batches:
        purpose = f"run of batch {batch.number} of plan {plan.name}"
        try:
            before = choose(batch)
            trees = frozenset(tree.path for tree in before.batch.trees)
            with world.locks.hold(purpose, of_batch(plan.name, batch.number), *map(of_tree, trees)):
                # None of these users is moved from here on.
                chosen = bases.choose_trees(world.ledger, plan, batch, trees)
                chosen = replace(chosen, left_alone=before.left_alone | chosen.left_alone)
                summary = await BatchRun(hooks=hooks, site=site, chosen=chosen, deltas=deltas).run()
        except (bases.BatchRefused, LockHeld) as refused:
            if len(batches) == 1:
                raise
            summary = _refused(invocation, choose(batch), refused)
        done.append(summary)
        whole = replace(whole, batches=tuple(done))
        if summary.stopped is not None:
            raise RunStopped(summary.stopped, whole)
    return whole


def _refused(invocation: RunInvocation, chosen: bases.Chosen, refused: MigratorError) -> BatchSummary:
    """The summary of a refused batch. The run continues with the others: the refusal need not concern them."""
    number = chosen.batch.number
    message = f"batch {number} was refused, and the next one follows: {refused.message}"
    invocation.report(EventKind.BATCH_REFUSED, Severity.ERROR, f"batch {number}", message)
    LOG.error("%s", refused.message, extra={"hint": refused.hint})
    return BatchSummary(
        batch=number,
        left_alone=tuple(sorted(chosen.left_alone)),
        refusal=Refusal(message=refused.message, cause=refused.cause, hint=refused.hint),
    )


def describe_run(run: RunSummary) -> tuple[str, Severity]:
    """The outcome of a run for display, in one sentence, with its severity."""
    skipped = [str(batch.batch) for batch in run.batches if batch.skipped]
    refused = [str(batch.batch) for batch in run.batches if batch.refusal]
    nothing = run.nothing_to_do or len(skipped) + len(refused) == len(run.batches)
    words = "nothing was copied" if nothing else "copied"
    if skipped:
        words += f"; skipped by hooks: {', '.join(skipped)}"
    if refused:
        words += f"; refused: {', '.join(refused)}"
    apart = sorted({one.tree for batch in run.batches for one in batch.set_apart})
    if apart:
        words += f"; set apart: {', '.join(map(show, apart))}"
    bad = sum(len(batch.bad) for batch in run.batches)
    if bad:
        words += f"; {several(bad, 'file needs', 'files need')} attention"
    return words, Severity.WARNING if bad or skipped or refused or apart else Severity.INFO


# One batch of a run: its seed pass, and delta passes until another one is not useful.


class BatchRun(Struct, frozen=True, kw_only=True):
    """All passes of one batch in this run. Without `deltas` there is only the seed pass.

    If the run does not copy all trees of the batch (`chosen.whole`), the seed pass is already done.
    """

    hooks: RunHooks
    site: SiteRecord
    chosen: bases.Chosen
    deltas: Deltas | None

    async def run(self) -> BatchSummary:
        """Run all passes, with the hooks of the batch around them. A stop on the way is in the summary.
        Raises Refused.
        """
        batch, invocation = self.chosen.batch, self.hooks.invocation
        left_alone = tuple(sorted(self.chosen.left_alone))
        if left_alone:
            invocation.report(EventKind.TREES_LEFT_ALONE, Severity.INFO, f"batch {batch.number}", self.chosen.words)
        if not batch.trees and left_alone:
            return BatchSummary(batch=batch.number, nothing_to_do=True, left_alone=left_alone)
        recopy, deltas = invocation.request.recopy, self.deltas
        bases.require_part(self._world.ledger, self.hooks.plan, self.chosen, deltas=deltas is not None, recopy=recopy)
        follows = deltas is not None and deltas.limits.max_delta_passes > 0
        if follows or not (self._is_seeded or self._is_followed):
            summary = await self.hooks.around(RunStep(batch=batch), self._passes)
        else:
            summary = await self._passes()
            await self.hooks.catch_up(RunStep(batch=batch), summary)
        return replace(summary, left_alone=left_alone)

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
        """Run the seed pass. Later passes also send the files that failed in it."""
        batch, hooks = self.chosen.batch, self.hooks
        step = RunStep(batch=batch, kind=PassKind.SEED)
        if self._is_followed or not self.chosen.whole:
            # Call the hooks that are due after passes that a killed run had finished.
            await hooks.catch_up(step)
            latest = self._latest_delta
            if latest is not None and latest.state is PassState.DONE:
                await hooks.catch_up(RunStep(batch=batch, kind=PassKind.DELTA, number=latest.number))
            return BatchSummary(batch=batch.number, nothing_to_do=True)
        seed = SeedPass(
            invocation=hooks.invocation,
            plan=hooks.plan,
            site=self.site,
            batch=batch,
            left_alone=self.chosen.left_alone,
        )
        if self._is_seeded:
            summary = await seed.run()
            await hooks.catch_up(step, summary)
            return summary
        await self._until_open()
        return await hooks.around(step, seed.run)

    async def _round(self, deltas: Deltas, made: int, so_far: BatchSummary) -> tuple[BatchSummary, bool]:
        """Run one more delta pass over all trees. If different passes scanned them last, make one pass for each group
        from one scan, so that the next pass has them together again. Returns the sum so far, and whether another pass
        follows. Raises BatchRefused if every tree is set apart.
        """
        batch, plan = self.chosen.batch, self.hooks.plan
        every = frozenset(tree.path for tree in batch.trees)
        passes = self._world.ledger.passes
        begun = bases.unfinished_delta(passes, plan, batch)
        if begun is None:
            await self._pass_over(batch, deltas).end_earlier()
            groups = [frozenset(group) for group in bases.same_base(passes, plan.name, batch.number, every).values()]
        else:
            its_own = bases.covered(passes, begun)
            groups = [every if its_own is None else its_own]
        if len(groups) > 1:
            await self._until_open()
            deltas = replace(deltas, scan=_once(deltas.scan, [tree.path for tree in batch.trees]))
        apart: dict[bytes, TreeApart] = {}
        covered: list[frozenset[bytes]] = []
        for group in groups:
            part = batch if len(group) == len(every) else bases.part_of(plan, batch, group)
            try:
                so_far = await self._delta(deltas, part, so_far)
            except NoTreeLeft as refused:
                # The trees of other groups do not wait for these.
                if len(groups) == 1 or (group is groups[-1] and not covered):
                    raise bases.BatchRefused.by(refused) from refused
                apart |= {one.tree: one for one in refused.set_apart}
                continue
            apart |= {one.tree: one for one in so_far.set_apart}
            so_far = replace(so_far, set_apart=tuple(apart[tree] for tree in sorted(apart)))
            if so_far.stopped is not None or so_far.skipped:
                return so_far, False
            covered.append(group.difference(apart))
        so_far = replace(so_far, set_apart=tuple(apart[tree] for tree in sorted(apart)))
        if len(covered) > 1 or (begun is not None and groups != [every]):
            return so_far, True
        return self._judged(deltas, made, covered[0], so_far)

    async def _delta(self, deltas: Deltas, part: Batch, so_far: BatchSummary) -> BatchSummary:
        """Run one pass over these trees of the batch. Raises NoTreeLeft."""
        await self._until_open()
        passes = self._world.ledger.passes
        number = bases.pass_number(passes, self.hooks.plan, part, PassKind.DELTA)
        step = RunStep(batch=part, kind=PassKind.DELTA, number=number)
        summary = await self.hooks.around(step, self._pass_over(part, deltas).run)
        if summary.skipped:
            return replace(so_far, skipped=summary.skipped)
        record = self._latest_delta
        delta = DeltaSummary(
            number=record.number if record else 0,
            files=summary.files,
            size_bytes=summary.size_bytes,
            elapsed_s=summary.elapsed_s,
            scan_s=(record.scan_s if record else None) or 0.0,
            changes=passes.changes(record.id) if record else None,
            outcome=None,
            freeze_s=None,
            sentence="",
        )
        return _together(so_far, summary, delta)

    def _judged(
        self, deltas: Deltas, made: int, covered: frozenset[bytes], so_far: BatchSummary
    ) -> tuple[BatchSummary, bool]:
        """Decide about another pass after one over all trees but those that are set apart; those do not make passes
        necessary. A pass over single users predicts no freeze: another one follows if anything had changed.
        """
        *before, last = so_far.deltas
        if not self.chosen.whole:
            return so_far, last.changes is not None and not last.changes.nothing
        decision = self._judge(deltas, made, covered)
        last = replace(
            last,
            outcome=decision.outcome,
            freeze_s=decision.prediction.freeze_s if decision.prediction else None,
            sentence=decision.sentence,
        )
        return replace(so_far, deltas=(*before, last)), decision.go_on

    async def _until_open(self) -> None:
        """Wait for the governor: a pass reads and renames before its first chunk."""
        if (governor := self.hooks.invocation.governor) is not None:
            await governor.until_open()

    def _pass_over(self, part: Batch, deltas: Deltas) -> DeltaPass:
        invocation, plan = self.hooks.invocation, self.hooks.plan
        return DeltaPass(invocation=invocation, plan=plan, site=self.site, batch=part, deltas=deltas)

    def _judge(self, deltas: Deltas, made: int, trees: frozenset[bytes]) -> Decision:
        world, plan, batch = self._world, self.hooks.plan, self.chosen.batch
        decision = judge_passes(
            world.ledger,
            plan=plan.name,
            batch=batch.number,
            trees=trees,
            at_s=world.clock.now_s(),
            streams=world.streams,
            check=check_of_trees(world.ledger, plan, batch.number, trees),
            limits=deltas.limits,
            made=made,
            moves_of=partial(moves_of, deltas),
        )
        self.hooks.invocation.report(EventKind.PASS_JUDGED, Severity.INFO, f"batch {batch.number}", decision.sentence)
        return decision

    @property
    def _world(self) -> TransferPorts:
        return self.hooks.invocation.world

    @property
    def _is_seeded(self) -> bool:
        return is_seeded(self._world, self.hooks.plan, self.chosen.batch)

    @property
    def _latest_delta(self) -> PassRecord | None:
        return self._world.ledger.passes.find(self.hooks.plan.name, self.chosen.batch.number, PassKind.DELTA)

    @property
    def _is_followed(self) -> bool:
        """Whether passes after the seed exist."""
        of_batch = self._world.ledger.passes.of_batch(self.hooks.plan.name, self.chosen.batch.number)
        return any(one.kind is not PassKind.SEED for one in of_batch)


def _once(scan: Scan, trees: Sequence[bytes]) -> Scan:
    """Scans all these trees once, whichever are requested, and returns the same catalog each time."""
    made: list[CatalogRecord] = []

    async def scan_once(_: Sequence[bytes]) -> CatalogRecord:
        if not made:
            made.append(await scan(trees))
        return made[0]

    return scan_once


def moves_of(deltas: Deltas, record: PassRecord) -> tuple[int, int]:
    """The number of renames and outermost deletions in the move list of a pass."""
    if record.move_list is None:
        return 0, 0
    lists = deltas.move_lists
    return sum(1 for _ in lists.renames(record.move_list)), sum(1 for _ in lists.gone(record.move_list))


def _together(so_far: BatchSummary, summary: BatchSummary, delta: DeltaSummary) -> BatchSummary:
    """Merge both summaries. The later pass sends the files that had not arrived before, so only its own bad files
    remain.
    """
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


def is_seeded(world: TransferPorts, plan: Plan, batch: Batch) -> bool:
    """Whether the seed pass has nothing left to do."""
    record = world.ledger.passes.find(plan.name, batch.number, PassKind.SEED)
    if record is None or record.state is not PassState.DONE:
        return False
    return not world.ledger.passes.totals(record.id).chunks.get(ChunkState.FAILED, 0)
