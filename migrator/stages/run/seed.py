"""The seed pass over one batch: guards, steps in their order, and the closing look."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass, replace

from migrator.decide.batch_states import unverified
from migrator.decide.site_guards import health_problems
from migrator.decide.stopping import stop_reason
from migrator.domain.brick import SourceHealth
from migrator.domain.entry import Entry
from migrator.domain.errors import Refused
from migrator.domain.events import EventKind, Severity
from migrator.domain.paths import show
from migrator.domain.plan import Batch, Plan
from migrator.domain.run import BatchSummary
from migrator.domain.site import TargetCapabilities
from migrator.domain.states import CHUNK_STEPS, BatchState, ChunkKind, PassKind, PassState
from migrator.domain.transfer import StopReason
from migrator.domain.units import several
from migrator.ports.drivers import DriverResult
from migrator.ports.ledger import PassRecord, SiteRecord
from migrator.stages.run.context import HealthNow, Invocation, PassUnderWay
from migrator.stages.run.drive import doubtful_trees, run_driver_step, say_second_look
from migrator.stages.run.guards import find_problems, mount_findings, refuse
from migrator.stages.run.looking import look
from migrator.stages.run.pool import run_step
from migrator.stages.run.preview import Remaining, remaining
from migrator.stages.run.routes import Routes
from migrator.stages.run.shared_call import SharedCall


@dataclass(slots=True, kw_only=True)
class SeedPass:
    """Copies one batch as far as it goes. `run` may be called again: it goes on where the pass is."""

    invocation: Invocation
    plan: Plan
    site: SiteRecord
    batch: Batch

    async def run(self) -> BatchSummary:
        """Raises Refused where a guard trips before anything is copied; a stop on the way is in the summary."""
        world = self.invocation.world
        left = remaining(world, self.plan, self.batch)
        if self._is_finished(left):
            return self._nothing_to_do(left)
        if not (world.driving or self.invocation.request.dry_run):
            for lane in world.lanes.all:
                lane.expect(left.bricks)
        findings, health = await find_problems(world, self.invocation.request, self.site, self.batch, left.need)
        self._note_refusal(findings_problems := [problem for found in findings for problem in found.problems])
        if findings_problems:
            refuse(self.batch, findings)
        capabilities = await self._capabilities()
        await self._make_trees()
        record = self._start(left)
        under_way = self._under_way(record, capabilities, health)
        routes = self._routes()
        started_s = world.clock.monotonic_s()
        whole = False
        try:
            driven = await self._drive(under_way)
            await self._copy_chunks(under_way, routes)
            if driven is not None and world.driving is not None:
                say_second_look(under_way, world.driving, driven)
            if under_way.stop_found is None:
                await self._look_again(under_way)
            whole = under_way.stop_found is None
        finally:
            await under_way.confirmations.end()
            under_way.abandon_calls()
            routes.abandon()
            # Also after a cancellation and an error: what goes on later says so in the ledger.
            self._close(under_way, whole=whole)
        summary = self._summary(under_way, world.clock.monotonic_s() - started_s)
        return replace(summary, guards=findings)

    def _is_finished(self, left: Remaining) -> bool:
        return left.record is not None and left.record.state is PassState.DONE and not left.chunks

    def _nothing_to_do(self, left: Remaining) -> BatchSummary:
        """The pass had been finished before. A crash between the pass and its batch is made good here."""
        self._set_batch(BatchState.SEEDED)
        passes = self.invocation.world.ledger.passes
        pass_id = left.record.id if left.record else 0
        return BatchSummary(
            batch=self.batch.number,
            nothing_to_do=True,
            vanished=passes.vanished_count(pass_id),
            bad=tuple(passes.attention(pass_id)),
        )

    def _note_refusal(self, problems: list[str]) -> None:
        for problem in problems:
            self.invocation.say(EventKind.GUARD_REFUSED, Severity.ERROR, f"batch {self.batch.number}", problem)

    async def _capabilities(self) -> TargetCapabilities:
        """What the target keeps, as it was probed; probed now where it never was."""
        if self.site.capabilities is not None:
            return self.site.capabilities
        world = self.invocation.world
        try:
            probed = await world.blocking(world.target.probe, timeout_s=self.invocation.request.stall_timeout_s)
        except (OSError, TimeoutError) as error:
            raise _unwritable(str(error)) from error
        world.ledger.site.record_capabilities(probed, world.clock.now_s())
        return probed

    async def _make_trees(self) -> None:
        """The directories above each tree, and the trees' own, closed. Also proves that the target can be written."""
        world = self.invocation.world
        for tree in self.batch.trees:
            components = tree.path.split(b"/")
            above = [b"/".join(components[:depth]) for depth in range(1, len(components))]

            def make(path: bytes = tree.path, above: list[bytes] = above) -> None:
                like = [seen for directory in above if isinstance(seen := look(world.source, directory), Entry)]
                world.target.make_parents(path, like)

            try:
                await world.blocking(make, timeout_s=self.invocation.request.stall_timeout_s)
            except TimeoutError as error:
                raise _unwritable("it does not answer") from error
            except OSError as error:
                raise _unwritable(f"{show(tree.path)}: {error.strerror or error}", error.errno) from error

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
        self._set_batch(BatchState.SEEDING)
        again = passes.retry_failed(record.id)
        message = f"seed pass over batch {number}: {several(left.chunks, 'chunk')} to do"
        if again:
            message += f", {again} of them failed before"
        self.invocation.say(EventKind.PASS_STARTED, Severity.INFO, f"batch {number}", message)
        return record

    def _under_way(
        self, record: PassRecord, capabilities: TargetCapabilities, health_before: SourceHealth
    ) -> PassUnderWay:
        world, timeout_s = self.invocation.world, self.invocation.request.stall_timeout_s

        async def sync() -> None:
            await world.blocking(world.target.sync, timeout_s=timeout_s)

        async def health() -> HealthNow:
            now = await world.source.health()
            return HealthNow(
                problems=health_problems(health_before, now, tasks_count=False),
                doubts=health_problems(health_before, now),
            )

        known = {
            problem.path: problem for problem in world.ledger.passes.attention(record.id) if problem.errno == errno.EIO
        }
        return PassUnderWay(
            invocation=self.invocation,
            batch=self.batch,
            pass_id=record.id,
            kind=record.kind,
            chunk_list=record.chunk_list,
            capabilities=capabilities,
            health_before=health_before,
            sync=SharedCall(sync),
            health=SharedCall(health),
            known_io_errors=known,
        )

    async def _drive(self, under_way: PassUnderWay) -> DriverResult | None:
        """Let a driver copy whole trees first, where one was asked for."""
        driving = under_way.world.driving
        result = None if driving is None else await run_driver_step(under_way, driving)
        under_way.doubtful_trees = doubtful_trees(under_way)
        return result

    async def _copy_chunks(self, under_way: PassUnderWay, routes: Routes) -> None:
        """All steps in their order. A step begins when the streams of the one before have ended; but big files are put
        in place when every range of them is confirmed (a range that is not was read while its brick could not be
        trusted, and the file would not be looked at again), and the times of directories, which change with every file,
        are set when everything else is. What is not confirmed is copied again, and so all the rest after it.
        """
        in_place, times = CHUNK_STEPS.index((ChunkKind.RANGED_FILES,)), len(CHUNK_STEPS) - 1
        passes = under_way.world.ledger.passes

        async def run(steps: Sequence[Sequence[ChunkKind]]) -> None:
            while under_way.stop_found is None:
                for step in steps:
                    if under_way.stop_found is None:
                        await run_step(under_way, routes, step)
                await under_way.confirmations.settled()
                if not any(passes.pending(under_way.pass_id, kind.value, 1) for step in steps for kind in step):
                    return

        for steps in (CHUNK_STEPS[:in_place], CHUNK_STEPS[in_place:times], CHUNK_STEPS[times:]):
            await run(steps)

    def _routes(self) -> Routes:
        world = self.invocation.world
        scan = next((scan for scan in world.ledger.scans.all() if scan.name == self.plan.catalog), None)
        return Routes(
            invocation=self.invocation,
            lanes=world.lanes.all,
            guard=world.bricks,
            catalog_fingerprint=scan.health_fingerprint if scan else "",
        )

    async def _look_again(self, under_way: PassUnderWay) -> None:
        """A pass counts as whole only if the source was whole and both mounts the same from its start to its end."""
        world, timeout_s = self.invocation.world, self.invocation.request.stall_timeout_s
        problems = health_problems(under_way.health_before, await world.source.health(), tasks_count=False)
        if problems:
            under_way.stop(StopReason.SOURCE_UNHEALTHY, "; ".join(problems))
            return
        changed = (
            *await mount_findings(world, world.source, self.site.source, timeout_s),
            *await mount_findings(world, world.target, self.site.target, timeout_s),
        )
        if changed:
            under_way.stop(StopReason.MOUNT_CHANGED, "; ".join(changed))

    def _close(self, under_way: PassUnderWay, *, whole: bool) -> None:
        world, number = self.invocation.world, self.batch.number
        now_s = world.clock.now_s()
        world.ledger.passes.set_state(under_way.pass_id, PassState.DONE if whole else PassState.STOPPED, now_s)
        if whole:
            self._set_batch(BatchState.SEEDED)
        tally = under_way.tally
        bad = len(world.ledger.passes.attention(under_way.pass_id))
        message = (
            f"seed pass over batch {number} {'has gone through' if whole else 'stopped'}: "
            f"{several(tally.chunks, 'chunk')} and {several(tally.files, 'file')} copied in this run"
        )
        if bad:
            message += f"; {several(bad, 'file needs', 'files need')} attention"
        severity = Severity.INFO if whole and not bad else Severity.WARNING
        self.invocation.say(EventKind.PASS_FINISHED, severity, f"batch {number}", message)

    def _set_batch(self, state: BatchState) -> None:
        """A batch that is further than that already stays as it is, except that a verified one that got new files is
        to be verified again.
        """
        world = self.invocation.world
        record = world.ledger.plans.read(self.plan.name)
        now = record.batches.get(self.batch.number) if record else None
        kinds = [one.kind for one in world.ledger.passes.of_batch(self.plan.name, self.batch.number)]
        steps = {
            (BatchState.PLANNED, BatchState.SEEDING): (BatchState.SEEDING,),
            (BatchState.PLANNED, BatchState.SEEDED): (BatchState.SEEDING, BatchState.SEEDED),
            (BatchState.SEEDING, BatchState.SEEDED): (BatchState.SEEDED,),
            (BatchState.VERIFIED, BatchState.SEEDING): (unverified(kinds),),
        }
        for step in steps.get((now, state), ()) if now else ():
            world.ledger.plans.set_batch_state(self.plan.name, self.batch.number, step)

    def _summary(self, under_way: PassUnderWay, elapsed_s: float) -> BatchSummary:
        world, tally = self.invocation.world, under_way.tally
        return BatchSummary(
            batch=self.batch.number,
            chunks=tally.chunks,
            files=tally.files,
            size_bytes=tally.size_bytes,
            written_bytes=tally.written_bytes,
            elapsed_s=elapsed_s,
            chunks_by_kind=dict(tally.by_kind),
            vanished=world.ledger.passes.vanished_count(under_way.pass_id),
            bad=tuple(world.ledger.passes.attention(under_way.pass_id)),
            trees_gone=tuple(sorted(under_way.trees_gone)),
            left=remaining(world, self.plan, self.batch).trees,
            stopped=under_way.explain_stop(),
        )


def _unwritable(detail: str, code: int | None = None) -> Refused:
    full = stop_reason(code) in (StopReason.TARGET_FULL, StopReason.TARGET_QUOTA)
    return Refused(
        f"the target cannot be written: {detail}",
        cause="it is full, or a quota is used up" if full else "it is mounted read-only, or does not answer",
        hint="see `migrator doctor`, then run the same command again",
    )
