"""A delta pass over one batch: what changed on the source since the last pass, and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace

from migrator.decide.batch_states import after_delta
from migrator.decide.deletion_guards import deletion_problems
from migrator.decide.packing import ChunkLimits, pack
from migrator.decide.site_guards import health_problems
from migrator.domain.changes import ChangeKind, Changes
from migrator.domain.convergence import Limits
from migrator.domain.entry import EntryType
from migrator.domain.errors import LedgerCorrupt, Refused
from migrator.domain.events import EventKind, Severity
from migrator.domain.plan import Batch, Plan
from migrator.domain.run import BatchSummary
from migrator.domain.scan import CatalogRecord
from migrator.domain.site import Need, TargetCapabilities
from migrator.domain.states import PassKind, PassState
from migrator.domain.transfer import FileProblem, FileProblemKind
from migrator.domain.trash import trash_place
from migrator.domain.units import format_count, several
from migrator.ports.changes import Comparison, Comparisons
from migrator.ports.ledger import PassRecord, PassRecords, SiteRecord
from migrator.ports.move_lists import MoveLists, WrittenMoves
from migrator.ports.target_moves import TargetMoves
from migrator.ports.usage import PassListWriter, WrittenList
from migrator.stages.run.context import Invocation, PassUnderWay, World
from migrator.stages.run.copying import Copying
from migrator.stages.run.guards import mount_findings
from migrator.stages.run.moving import Moved, MovingWorld, apply_moves
from migrator.stages.run.preview import remaining_of

_NOT_RENAMED = "renamed on the source, and not found as it was on the target: the next pass sends it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deltas:
    """What delta passes need beside what every run has. `scan` makes a new catalog of user trees.

    A tree may lose the share `max_shrink` of its names and bytes between two scans. `limits` say when passes end.
    """

    scan: Callable[[Sequence[bytes]], Awaitable[CatalogRecord]]
    comparisons: Comparisons
    pass_lists: PassListWriter
    move_lists: MoveLists
    moves: TargetMoves
    chunk_limits: ChunkLimits
    max_shrink: float
    trash_keep_s: float
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lists:
    changes: Changes
    chunks: WrittenList
    moves: WrittenMoves


@dataclass(slots=True, kw_only=True)
class DeltaPass:
    """One delta pass: a new one, or the last one where that has not gone through. `run` is called once."""

    invocation: Invocation
    plan: Plan
    site: SiteRecord
    batch: Batch
    deltas: Deltas

    async def run(self) -> BatchSummary:
        """Raises Refused where a guard trips before anything is changed; a stop on the way is in the summary."""
        copying = self._copying
        record = unfinished_delta(self.invocation.world, self.plan, self.batch)
        if record is None:
            record = await self._begin()
        left = remaining_of(self.invocation.world, self.plan, self.batch, record)
        copying.expect(left.bricks)
        findings, health = await copying.guard(_room(left.need, self.invocation.world.ledger.passes.changes(record.id)))
        capabilities = await copying.capabilities()
        await copying.make_trees()
        record = self._go_on(record)
        summary = await copying.carry_out(
            record,
            capabilities=capabilities,
            health_before=health,
            title=_title(record),
            before=lambda under_way: self._move(record, under_way, capabilities),
            advance=lambda: None,
        )
        return replace(summary, guards=findings)

    @property
    def _copying(self) -> Copying:
        return Copying(invocation=self.invocation, plan=self.plan, site=self.site, batch=self.batch)

    async def _begin(self) -> PassRecord:
        """Scan, compare, ask the guards, write the lists, and only then record the pass."""
        world, passes = self.invocation.world, self.invocation.world.ledger.passes
        earlier = passes.of_batch(self.plan.name, self.batch.number)
        number = delta_number(world, self.plan, self.batch)
        trees = [tree.path for tree in self.batch.trees]
        base = base_catalog(passes, earlier, trees)
        began_s = world.clock.monotonic_s()
        catalog = await self.deltas.scan(trees)
        if not catalog.whole:
            raise Refused(
                f"batch {self.batch.number} is not compared: the scan {catalog.name} is not whole: "
                + "; ".join(catalog.reasons),
                cause="a part of the source could not be read, and what is in it would look as if it had been deleted",
                hint="see to that, then run the same command again: nothing was changed on the target",
            )
        lists = await asyncio.to_thread(self._make_lists, number, base, catalog)
        moves = bool(lists.moves.renames or lists.moves.gone)
        if moves:
            await self._ask_guards(lists.changes, base, catalog)
        record = passes.start(
            plan=self.plan.name,
            batch=self.batch.number,
            kind=PassKind.DELTA,
            number=number,
            catalog=catalog.name,
            base_catalog=base,
            chunk_list=lists.chunks.chunk_list,
            move_list=lists.moves.move_list if moves else None,
            move_list_digest=lists.moves.digest if moves else None,
            scan_s=world.clock.monotonic_s() - began_s,
            changes=lists.changes,
            chunks=world.chunk_lists.chunks(lists.chunks.chunk_list),
            at_s=world.clock.now_s(),
        )
        self._set_state(sent=not lists.changes.nothing)
        return record

    def _make_lists(self, number: int, base: str, catalog: CatalogRecord) -> _Lists:
        """Compare both catalogs, and write what is to be sent and what is to be moved. Blocking."""
        world, deltas = self.invocation.world, self.deltas
        missing = world.ledger.passes.not_arrived(self.plan.name, self.batch.number)
        in_chunks = (
            listed.path
            for chunk in missing.chunks
            for listed in world.chunk_lists.paths(chunk.chunk_list, chunk.number)
        )
        trees = [tree.path for tree in self.batch.trees]
        with deltas.comparisons.open(
            base,
            catalog.name,
            trees=trees,
            unsettled=(*missing.paths, *in_chunks),
            unsettled_trees=missing.trees,
        ) as comparison:
            moves = deltas.move_lists.write(
                f"{self.plan.name}-batch-{self.batch.number:04d}-delta-{number:04d}",
                comparison.renames(),
                comparison.gone(),
            )
            return _Lists(
                changes=comparison.changes,
                chunks=self._write_chunks(number, comparison, trees, catalog),
                moves=moves,
            )

    def _write_chunks(
        self, number: int, comparison: Comparison, trees: Sequence[bytes], catalog: CatalogRecord
    ) -> WrittenList:
        packed = pack(
            comparison.listings([trees]),
            self.deltas.chunk_limits,
            bricks=sorted(walk.brick for walk in catalog.bricks),
        )
        return self.deltas.pass_lists.write_pass(self.plan.name, self.batch.number, number, packed)

    async def _ask_guards(self, changes: Changes, base: str, catalog: CatalogRecord) -> None:
        """Raises Refused where what seems to have vanished may be there."""
        world, timeout_s = self.invocation.world, self.invocation.request.stall_timeout_s
        scans = {scan.name: scan for scan in world.ledger.scans.all()}
        health = await world.source.health()
        before = scans.get(base)
        problems = deletion_problems(
            changes,
            base_whole=None if before is None else before.whole,
            now_whole=catalog.whole,
            base_fingerprint=None if before is None else before.health_fingerprint,
            now_fingerprint=catalog.health_fingerprint,
            source_fingerprint=health.fingerprint,
            source_problems=health_problems(health, health),
            mount_problems=(
                *await mount_findings(world, world.source, self.site.source, timeout_s),
                *await mount_findings(world, world.target, self.site.target, timeout_s),
            ),
            max_shrink=self.deltas.max_shrink,
        )
        for problem in problems:
            self.invocation.say(EventKind.GUARD_REFUSED, Severity.ERROR, f"batch {self.batch.number}", problem)
        if problems:
            raise Refused(
                f"batch {self.batch.number}: nothing is renamed or taken away on the target: {'; '.join(problems)}",
                cause="what a scan does not see looks as if it had been deleted",
                hint="see to that, then run the same command again: nothing was changed on the target",
            )

    def _go_on(self, record: PassRecord) -> PassRecord:
        passes = self.invocation.world.ledger.passes
        if record.state is not PassState.RUNNING:
            passes.set_state(record.id, PassState.RUNNING, self.invocation.world.clock.now_s())
        passes.retry_failed(record.id)
        changes = passes.changes(record.id)
        words = "nothing changed" if changes is None or changes.nothing else change_words(changes)
        message = f"{_title(record)} over batch {self.batch.number}: {words}"
        self.invocation.say(EventKind.PASS_STARTED, Severity.INFO, f"batch {self.batch.number}", message)
        return passes.read(record.id)

    async def _move(self, record: PassRecord, under_way: PassUnderWay, capabilities: TargetCapabilities) -> None:
        """Carry the move list out, unless that was done before."""
        world = self.invocation.world
        if record.moved_at_s is not None or record.move_list is None:
            return
        moved = await apply_moves(
            MovingWorld(
                source=world.source,
                moves=self.deltas.moves,
                lists=self.deltas.move_lists,
                capabilities=capabilities,
                blocking=world.blocking,
                sync=under_way.sync.begun_after_now,
                health=under_way.health.begun_after_now,
                timeout_s=self.invocation.request.stall_timeout_s,
            ),
            move_list=record.move_list,
            digest=record.move_list_digest or "",
            place=trash_place(record.started_at_s, self.batch.number, record.kind.value, record.number),
        )
        self._say_moved(record, moved)
        if moved.stop is not None:
            under_way.stop(*moved.stop)
            return
        world.ledger.passes.note(record.id, _not_renamed(moved), world.clock.now_s())
        world.ledger.passes.moves_done(record.id, world.clock.now_s())

    def _say_moved(self, record: PassRecord, moved: Moved) -> None:
        said = [
            f"{several(count, 'path', 'paths')} {what}"
            for count, what in (
                (moved.renamed, "renamed"),
                (moved.trashed, "moved to the trash"),
                (moved.displaced, "in the way of others, moved to the trash"),
                (moved.reappeared, "on the source again, left alone"),
                (moved.doubtful, "not known to be gone, left alone"),
                (len(moved.to_send), "to be sent with the next pass instead of being renamed"),
            )
            if count
        ]
        if said:
            severity = Severity.WARNING if moved.doubtful or moved.to_send else Severity.INFO
            message = f"{_title(record)} over batch {self.batch.number}, on the target: {'; '.join(said)}"
            self.invocation.say(EventKind.PASS_MOVED, severity, f"batch {self.batch.number}", message)

    def _set_state(self, *, sent: bool) -> None:
        now = self._copying.batch_state
        if now is not None and (then := after_delta(now, sent=sent)) is not now:
            self._copying.set_batch_states((then,))


def unfinished_delta(world: World, plan: Plan, batch: Batch) -> PassRecord | None:
    """The delta pass that was begun and has not gone through; None where the next one is a new one."""
    record = world.ledger.passes.find(plan.name, batch.number, PassKind.DELTA)
    return None if record is None or record.state is PassState.DONE else record


def delta_number(world: World, plan: Plan, batch: Batch) -> int:
    """The number of the delta pass that is made next, or gone on with."""
    record = world.ledger.passes.find(plan.name, batch.number, PassKind.DELTA)
    if record is None:
        return 1
    return record.number + (record.state is PassState.DONE)


def base_catalog(passes: PassRecords, earlier: Sequence[PassRecord], trees: Collection[bytes]) -> str:
    """The catalog of the latest of these passes that covered the trees, the seed all of them. Raises LedgerCorrupt."""
    for record in reversed(earlier):
        changes = None if record.kind is PassKind.SEED else passes.changes(record.id)
        if changes is None or {tree.tree for tree in changes.trees}.issuperset(trees):
            return record.catalog
    raise LedgerCorrupt("the ledger knows no pass over these user trees", hint="run `migrator run` for their batch")


def change_words(changes: Changes) -> str:
    """What changed, by kind."""
    found = [(kind, changes.tally(kind)) for kind in ChangeKind]
    return ", ".join(f"{format_count(tally.paths)} {kind.value}" for kind, tally in found if tally.paths)


def _room(need: Need, changes: Changes | None) -> Need:
    """What has to fit on the target: what is new or has grown. What is sent again takes the place of what is there; where
    nothing is, because it failed before, a full target stops the pass.
    """
    if changes is None:
        return need
    new, grown = changes.tally(ChangeKind.NEW), changes.tally(ChangeKind.GROWN)
    return Need(size_bytes=min(need.size_bytes, new.size_bytes + grown.size_bytes), inodes=min(need.inodes, new.paths))


def _title(record: PassRecord) -> str:
    return f"{record.kind.value} pass {record.number}"


def _not_renamed(moved: Moved) -> list[FileProblem]:
    """Of a directory everything in it has to be sent: its whole tree is, since that is rare."""
    paths = {one.tree if one.type is EntryType.DIRECTORY else one.new for one in moved.to_send}
    return [
        FileProblem(path=path, kind=FileProblemKind.CHANGED, errno=None, reason=_NOT_RENAMED) for path in sorted(paths)
    ]
