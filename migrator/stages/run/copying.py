"""What every pass over a batch has in common: guards, steps in their order, the closing look, and the summary."""

import errno
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from migrator.decide.site_guards import health_problems
from migrator.decide.stopping import stop_reason
from migrator.domain.brick import SourceHealth
from migrator.domain.entry import Entry
from migrator.domain.errors import Refused
from migrator.domain.events import EventKind, Severity
from migrator.domain.paths import show
from migrator.domain.plan import Batch, Plan
from migrator.domain.run import BatchSummary, GuardFinding, TreeWork
from migrator.domain.site import Need, TargetCapabilities
from migrator.domain.states import CHUNK_STEPS, BatchState, ChunkKind, PassState
from migrator.domain.transfer import StopReason
from migrator.domain.units import several
from migrator.ports.passes import PassRecord
from migrator.ports.site import SiteRecord
from migrator.stages.run.context import HealthNow, Invocation, PassUnderWay
from migrator.stages.run.guards import find_problems, mount_findings, refuse
from migrator.stages.run.looking import look
from migrator.stages.run.pool import run_step
from migrator.stages.run.preview import remaining_of
from migrator.stages.run.quotas import look_at_limits, quota_finding
from migrator.stages.run.routes import Routes
from migrator.stages.run.shared_call import SharedCall
from migrator.stages.run.storage_watch import StorageWatch
from migrator.stages.run.stripes import Stripes

Before = Callable[[PassUnderWay], Awaitable[None]]


async def nothing_before(_: PassUnderWay) -> None:
    """A pass that consists of its chunks."""


def nothing_after(_: PassUnderWay) -> None:
    """A pass that has nothing else to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """Carries passes over one batch out, as the ledger has them, but for chunks of the trees that are left alone."""

    invocation: Invocation
    plan: Plan
    site: SiteRecord
    batch: Batch
    left_alone: frozenset[bytes] = frozenset()

    def expect(self, bricks: Collection[str]) -> None:
        """Chunks of these bricks will be read soon: their hosts are reached meanwhile."""
        if self.invocation.world.driving is None:
            for lane in self.invocation.world.lanes.all:
                lane.expect(bricks)

    async def guard(self, need: Need, left: Sequence[TreeWork] = ()) -> tuple[tuple[GuardFinding, ...], SourceHealth]:
        """Look at everything that a pass needs; the source's health as it is before it. `left` is what is new on the target, by
        tree. Raises Refused with every reason.
        """
        findings, health = await find_problems(
            self.invocation.world, self.invocation.request, self.site, self.batch, need
        )
        if not any(found.problems for found in findings):
            words = await look_at_limits(self.invocation.world, self.plan, left)
            findings = (*findings, *quota_finding(words))
            for warning in words.warnings:
                self.invocation.say(EventKind.QUOTA_NEAR, Severity.WARNING, f"batch {self.batch.number}", warning)
        for problem in (problem for found in findings for problem in found.problems):
            self.invocation.say(EventKind.GUARD_REFUSED, Severity.ERROR, f"batch {self.batch.number}", problem)
        refuse(self.batch, findings)
        return findings, health

    async def capabilities(self) -> TargetCapabilities:
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

    async def make_trees(self) -> None:
        """The directories above each tree, and the trees' own, closed. Also proves that the target can be written."""
        world = self.invocation.world
        stripes = Stripes(invocation=self.invocation)
        for tree in self.batch.trees:
            components = tree.path.split(b"/")
            above = [b"/".join(components[:depth]) for depth in range(1, len(components))]

            def make(path: bytes = tree.path, above: list[bytes] = above) -> None:
                like = [seen for directory in above if isinstance(seen := look(world.source, directory), Entry)]
                world.target.make_parents(path, like)

            try:
                is_new = await stripes.is_new(tree.path)
                await world.blocking(make, timeout_s=self.invocation.request.stall_timeout_s)
            except TimeoutError as error:
                raise _unwritable("it does not answer") from error
            except OSError as error:
                raise _unwritable(f"{show(tree.path)}: {error.strerror or error}", error.errno) from error
            if is_new:
                await stripes.give(tree.path)

    async def carry_out(
        self,
        record: PassRecord,
        *,
        capabilities: TargetCapabilities,
        health_before: SourceHealth,
        title: str,
        before: Before = nothing_before,
        after: Callable[[PassUnderWay], None] = nothing_after,
        advance: Callable[[], None],
    ) -> BatchSummary:
        """Bring a pass to its end, or to a stop that is in the summary. `before` does what comes before its chunks, and
        `after` is called when they are done; `advance` moves the batch on when the pass has gone through.
        """
        world = self.invocation.world
        under_way = self.under_way(record, capabilities, health_before)
        routes = self._routes(record)
        started_s = world.clock.monotonic_s()
        whole = False
        try:
            await before(under_way)
            await self._copy_chunks(under_way, routes)
            after(under_way)
            if under_way.stop_found is None:
                await self._look_again(under_way)
            whole = under_way.stop_found is None
        finally:
            await under_way.confirmations.end()
            under_way.abandon_calls()
            routes.abandon()
            if under_way.storage is not None:
                await under_way.storage.close()
            # Also after a cancellation and an error: what goes on later says so in the ledger.
            self._close(under_way, title, whole=whole)
            if whole:
                advance()
        return self._summary(under_way, world.clock.monotonic_s() - started_s)

    def set_batch_states(self, states: Sequence[BatchState]) -> None:
        """Move the batch on, step by step."""
        for state in states:
            self.invocation.world.ledger.plans.set_batch_state(self.plan.name, self.batch.number, state)

    @property
    def batch_state(self) -> BatchState | None:
        """How far the batch is; None where the ledger does not know it."""
        record = self.invocation.world.ledger.plans.read(self.plan.name)
        return record.batches.get(self.batch.number) if record else None

    def under_way(
        self, record: PassRecord, capabilities: TargetCapabilities, health_before: SourceHealth
    ) -> PassUnderWay:
        """The pass in this run, before anything of it is done."""
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
            left_alone=self.left_alone,
            storage=self._storage_watch(),
        )

    def _storage_watch(self) -> StorageWatch | None:
        world = self.invocation.world
        if world.storage is None:
            return None

        def say(new: tuple[str, ...]) -> None:
            subject = f"batch {self.batch.number}"
            if new:
                message = f"storage of the target is lost, streams wait for it: {'; '.join(new)}"
                self.invocation.say(EventKind.STORAGE_LOST, Severity.ERROR, subject, message)
            else:
                message = "all storage targets of the target answer again"
                self.invocation.say(EventKind.STORAGE_BACK, Severity.INFO, subject, message)

        return StorageWatch(world.storage, world.clock, say)

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
                if not any(
                    passes.pending(under_way.pass_id, kind.value, 1, but_trees=under_way.left_alone)
                    for step in steps
                    for kind in step
                ):
                    return

        for steps in (CHUNK_STEPS[:in_place], CHUNK_STEPS[in_place:times], CHUNK_STEPS[times:]):
            await run(steps)

    def _routes(self, record: PassRecord) -> Routes:
        world = self.invocation.world
        scan = next((scan for scan in world.ledger.scans.all() if scan.name == record.catalog), None)
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

    def _close(self, under_way: PassUnderWay, title: str, *, whole: bool) -> None:
        world, number = self.invocation.world, self.batch.number
        state = PassState.DONE if whole else PassState.STOPPED
        world.ledger.passes.set_state(under_way.pass_id, state, world.clock.now_s())
        tally = under_way.tally
        bad = len(world.ledger.passes.attention(under_way.pass_id))
        message = (
            f"{title} over batch {number} {'has gone through' if whole else 'stopped'}: "
            f"{several(tally.chunks, 'chunk')} and {several(tally.files, 'file')} copied in this run"
        )
        if bad:
            message += f"; {several(bad, 'file needs', 'files need')} attention"
        severity = Severity.INFO if whole and not bad else Severity.WARNING
        self.invocation.say(EventKind.PASS_FINISHED, severity, f"batch {number}", message)

    def _summary(self, under_way: PassUnderWay, elapsed_s: float) -> BatchSummary:
        world, tally = self.invocation.world, under_way.tally
        record = world.ledger.passes.read(under_way.pass_id)
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
            left=remaining_of(world, self.plan, self.batch, record, left_alone=self.left_alone).trees,
            stopped=under_way.explain_stop(),
        )


def _unwritable(detail: str, code: int | None = None) -> Refused:
    full = stop_reason(code) in (StopReason.TARGET_FULL, StopReason.TARGET_QUOTA)
    return Refused(
        f"the target cannot be written: {detail}",
        cause="it is full, or a quota is used up" if full else "it is mounted read-only, or does not answer",
        hint="see `migrator doctor`, then run the same command again",
    )
