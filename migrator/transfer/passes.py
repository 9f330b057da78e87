"""The common part of all passes over a batch: guards, steps in order, the closing check, and the summary."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from migrator.core import states
from migrator.core.entry import Entry
from migrator.core.errors import Refused
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.core.tasks import SharedCall, through_cancellation
from migrator.core.units import several
from migrator.fs.model import Need, SourceHealth, TargetCapabilities
from migrator.gluster.model import volume_state
from migrator.gluster.rules import copies
from migrator.ledger.model import SiteRecord
from migrator.plan.model import Batch, Plan
from migrator.site.rules_guards import health_problems
from migrator.transfer import guards, layouts
from migrator.transfer import model as transfer
from migrator.transfer.context import PassUnderWay, RunInvocation, TransferPorts
from migrator.transfer.copier import copy_chunks
from migrator.transfer.judging import look_up
from migrator.transfer.model import PassRecord
from migrator.transfer.model_runs import BatchSummary, GuardFinding, TreeWork
from migrator.transfer.remaining import remaining
from migrator.transfer.routes import Routes
from migrator.transfer.rules import stop_reason
from migrator.transfer.storage_watch import StorageWatch


class Ready(Struct, frozen=True, kw_only=True):
    """The findings of a pass before it starts, when all guards have passed."""

    findings: tuple[GuardFinding, ...]
    health: SourceHealth
    since_s: float
    capabilities: TargetCapabilities


@dataclass(slots=True, kw_only=True)
class PassRun:
    """Runs passes over one batch as recorded in the ledger, except chunks of the trees that are left alone."""

    invocation: RunInvocation
    plan: Plan
    site: SiteRecord
    batch: Batch
    left_alone: frozenset[bytes] = frozenset()

    @property
    def world(self) -> TransferPorts:
        return self.invocation.world

    @property
    def timeout_s(self) -> float:
        return self.invocation.request.stall_timeout_s

    def report(self, kind: EventKind, severity: Severity, message: str) -> None:
        """Record an event about the batch."""
        self.invocation.report(kind, severity, f"batch {self.batch.number}", message)

    async def ready(self, need: Need, left: Sequence[TreeWork] = ()) -> Ready:
        """Evaluate all guards of a pass. Raises Refused with every reason."""
        world, request, since_s = self.world, self.invocation.request, self.world.clock.now_s()
        findings, health, warnings = await guards.find_problems(
            world, request, self.site, self.plan, self.batch, need=need, left=left
        )
        for warning in warnings:
            self.report(EventKind.QUOTA_NEAR, Severity.WARNING, warning)
        for problem in (problem for found in findings for problem in found.problems):
            self.report(EventKind.GUARD_REFUSED, Severity.ERROR, problem)
        of_batch = [usage for usage in self.plan.ranking if usage.tree in self.batch.trees]
        guards.refuse(self.batch, findings, largest=max(of_batch, key=lambda one: one.largest_bytes, default=None))
        capabilities = await self.capabilities()
        return Ready(findings=findings, health=health, since_s=since_s, capabilities=capabilities)

    async def capabilities(self) -> TargetCapabilities:
        """The recorded capabilities of the target; probed now if there is no record."""
        return self.site.capabilities or await probed_capabilities(self.world, timeout_s=self.timeout_s)

    async def make_trees(self) -> None:
        """Create the directories above each tree, and the trees, without access for users. This also proves that the
        target is writable.
        """
        world = self.world
        for tree in self.batch.trees:
            components = tree.path.split(b"/")
            above = [b"/".join(components[:depth]) for depth in range(1, len(components))]

            def make(path: bytes = tree.path, above: list[bytes] = above) -> None:
                like = [seen for directory in above if isinstance(seen := look_up(world.source, directory), Entry)]
                world.target.make_parents(path, like)

            with refused_if_unwritable(tree.path):
                is_new = await layouts.wants_stripes(self.invocation, tree.path)
                await world.blocking(make, timeout_s=self.timeout_s)
            if is_new:
                await layouts.set_stripes(self.invocation, tree.path)

    async def carry_out(
        self,
        record: PassRecord,
        ready: Ready,
        *,
        title: str,
        before: Callable[[PassUnderWay], Awaitable[None]],
        advance: Callable[[], None] = lambda: None,
    ) -> BatchSummary:
        """Run a pass to its end, or to a stop that is in the summary. `before` runs before its chunks. `advance` sets
        the next state of the batch when the pass is done.
        """
        world = self.world
        under_way = self.under_way(record, ready)
        routes = self._routes(record, ready.health)
        started_s = world.clock.monotonic_s()
        whole = False
        try:
            under_way.digests = await self._source_synced()
            await before(under_way)
            await self._copy_chunks(under_way, routes)
            if under_way.stop_found is None:
                await self._look_again(under_way)
            whole = under_way.stop_found is None
        finally:
            await under_way.confirmations.end()
            under_way.abandon_calls()
            routes.abandon()
            if under_way.storage is not None:
                await under_way.storage.close()
            if not whole:
                # Results that were recorded without waiting come first.
                await through_cancellation(world.ledger.write(lambda: None))
            # This also runs after a cancellation or an error: the ledger gets the state of the pass in any case.
            self._close(under_way, title, whole=whole)
            if whole:
                advance()
        tally, passes = under_way.tally, world.ledger.passes
        record = passes.read(record.id)
        return BatchSummary(
            batch=self.batch.number,
            chunks=tally.chunks,
            files=tally.files,
            size_bytes=tally.size_bytes,
            written_bytes=tally.written_bytes,
            elapsed_s=world.clock.monotonic_s() - started_s,
            chunks_by_kind=dict(tally.by_kind),
            vanished=passes.vanished_count(record.id),
            bad=tuple(passes.attention(record.id)),
            trees_gone=tuple(sorted(under_way.trees_gone)),
            left=remaining(world, self.plan, self.batch, record, left_alone=self.left_alone).trees,
            stopped=under_way.explain_stop(),
            guards=ready.findings,
        )

    def set_batch_states(self, states: Sequence[states.BatchState]) -> None:
        """Move the batch on, step by step."""
        for state in states:
            self.world.ledger.plans.set_batch_state(self.plan.name, self.batch.number, state)

    @property
    def batch_state(self) -> states.BatchState | None:
        """The state of the batch; None if it is not in the ledger."""
        record = self.world.ledger.plans.read(self.plan.name)
        return record.batches.get(self.batch.number) if record else None

    def under_way(self, record: PassRecord, ready: Ready) -> PassUnderWay:
        """The values of the pass in this run, before it starts."""
        world, timeout_s = self.world, self.timeout_s

        async def sync() -> None:
            await world.blocking(world.target.sync, timeout_s=timeout_s)

        async def health() -> SourceHealth:
            before, now = await guards.health_since(world, ready.health, ready.since_s)
            problems, doubts = health_problems(before, now, tasks_count=False), health_problems(before, now)
            return replace(now, problems=problems, doubts=doubts)

        return PassUnderWay(
            invocation=self.invocation,
            batch=self.batch,
            pass_id=record.id,
            kind=record.kind,
            chunk_list=record.chunk_list,
            capabilities=ready.capabilities,
            sync=SharedCall(sync),
            health=SharedCall(health),
            left_alone=self.left_alone,
            storage=(
                StorageWatch(world.storage, world.clock, self.invocation.report, f"batch {self.batch.number}")
                if world.storage
                else None
            ),
        )

    async def _source_synced(self) -> bool:
        """Sync the source after the begin of the pass, so that digests of what is copied prove something (see
        `is_carried_over`). If that fails, some client's writes were lost, and users will repeat them.
        """
        try:
            await self.world.blocking(self.world.source.sync, timeout_s=self.timeout_s)
        except (OSError, TimeoutError):
            return False
        return True

    async def _copy_chunks(self, under_way: PassUnderWay, routes: Routes) -> None:
        """Run all steps in order. A step starts when the streams of the one before have ended, with two exceptions. Big
        files are put in place only after every range of them is confirmed: an unconfirmed range may come from an
        untrusted brick, and the file would not be checked again. Times of directories, which change with every file,
        are set after everything else is confirmed. Unconfirmed chunks are copied again, and then the steps after them.
        """
        in_place, times = states.CHUNK_STEPS.index((states.ChunkKind.RANGED_FILES,)), len(states.CHUNK_STEPS) - 1
        pending = self.world.ledger.passes.pending
        for steps in (states.CHUNK_STEPS[:in_place], states.CHUNK_STEPS[in_place:times], states.CHUNK_STEPS[times:]):
            kinds = [kind.value for step in steps for kind in step]
            left = True
            while left and under_way.stop_found is None:
                for step in steps:
                    if under_way.stop_found is None:
                        await copy_chunks(under_way, routes, step)
                await under_way.confirmations.settled()
                left = any(pending(under_way.pass_id, kind, 1, but_trees=under_way.left_alone) for kind in kinds)

    def _routes(self, record: PassRecord, health: SourceHealth) -> Routes:
        world = self.world
        scan = next((scan for scan in world.ledger.scans.all() if scan.name == record.catalog), None)
        return Routes(
            clock=world.clock,
            report=self.invocation.report,
            lanes=world.lanes,
            guard=world.bricks,
            catalog_fingerprint=scan.health_fingerprint if scan else "",
            copies=copies(volume_state(health)),
        )

    async def _look_again(self, under_way: PassUnderWay) -> None:
        """Check the source and both mounts again. A pass counts as whole only if the source was whole and both mounts
        the same from its start to its end.
        """
        world, timeout_s = self.world, self.timeout_s
        if problems := (await under_way.health.begun_after_now()).problems:
            under_way.stop(transfer.StopReason.SOURCE_UNHEALTHY, "; ".join(problems))
            return
        changed = await guards.mounts_changed(world, self.site, timeout_s)
        if changed:
            under_way.stop(transfer.StopReason.MOUNT_CHANGED, "; ".join(changed))

    def _close(self, under_way: PassUnderWay, title: str, *, whole: bool) -> None:
        world, number = self.world, self.batch.number
        state = states.PassState.DONE if whole else states.PassState.STOPPED
        world.ledger.passes.set_state(under_way.pass_id, state, world.clock.now_s())
        tally = under_way.tally
        bad = len(world.ledger.passes.attention(under_way.pass_id))
        message = (
            f"{title} over batch {number} {'is done' if whole else 'stopped'}: "
            f"{several(tally.chunks, 'chunk')} and {several(tally.files, 'file')} copied in this run"
        )
        if bad:
            message += f"; {several(bad, 'file needs', 'files need')} attention"
        severity = Severity.INFO if whole and not bad else Severity.WARNING
        self.report(EventKind.PASS_FINISHED, severity, message)


async def probed_capabilities(world: TransferPorts, *, timeout_s: float, side: str = "target") -> TargetCapabilities:
    """Probe the target of this world, and record the result. `side` names it for people. Raises Refused."""
    try:
        probed = await world.blocking(world.target.probe, timeout_s=timeout_s)
    except (OSError, TimeoutError) as error:
        raise _unwritable(str(error), side=side) from error
    world.ledger.site.record_capabilities(probed, world.clock.now_s())
    return probed


@contextmanager
def refused_if_unwritable(path: bytes) -> Iterator[None]:
    """Raises Refused for an error of the target in the block."""
    try:
        yield
    except TimeoutError as error:
        raise _unwritable("it does not answer") from error
    except OSError as error:
        raise _unwritable(f"{show(path)}: {error.strerror or error}", error.errno) from error


def _unwritable(detail: str, code: int | None = None, side: str = "target") -> Refused:
    full = stop_reason(code) in (transfer.StopReason.TARGET_FULL, transfer.StopReason.TARGET_QUOTA)
    return Refused(
        f"the {side} cannot be written: {detail}",
        cause="it is full, or a quota is used up" if full else "it is mounted read-only, or does not answer",
        hint="see `migrator doctor`, then run the same command again",
    )
