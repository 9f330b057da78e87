"""One delta or final pass over a batch, or over some of its trees. A delta pass resumes; a final pass is always new."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.model import CatalogRecord
from migrator.catalog.rules_packing import ChunkLimits, pack
from migrator.core.errors import Refused
from migrator.core.events import EventKind, Severity
from migrator.core.paths import is_beneath, parent, show
from migrator.core.states import PassKind, PassState
from migrator.core.units import format_count
from migrator.fs.model import Need
from migrator.fs.moving import MovingTarget
from migrator.plan.model import WrittenList
from migrator.plan.rules import after_delta, moved_trees
from migrator.site.rules_guards import health_problems
from migrator.transfer import bases
from migrator.transfer.context import PassUnderWay
from migrator.transfer.delta.extras import open_differences, search_extras
from migrator.transfer.delta.model import ChangeKind, Changes, WrittenMoves
from migrator.transfer.delta.moves import carry_out_moves
from migrator.transfer.delta.rules import deletion_problems, shrunk_trees
from migrator.transfer.governor import governed
from migrator.transfer.guards import mounts_changed
from migrator.transfer.model import PassRecord
from migrator.transfer.model_convergence import PassLimits
from migrator.transfer.model_runs import BatchSummary, TreeApart
from migrator.transfer.passes import PassRun
from migrator.transfer.remaining import remaining

if TYPE_CHECKING:
    from migrator.catalog.manifest import ManifestDirectories
    from migrator.reap.store import ReapListFiles
    from migrator.transfer.delta.store import Comparisons, Extras, FoundExtras, MoveListFiles
    from migrator.transfer.records import TransferLedger


def found_to_differ(
    ledger: "TransferLedger", differing: "ManifestDirectories", *, plan: str, batch: int, trees: Collection[bytes]
) -> Sequence[bytes]:
    """Paths that the newest verification of each tree found to differ, unless a pass after the seed has covered the
    tree since. Blocking. Raises Refused if the list of differences is missing or was changed.
    """
    found: set[bytes] = set()
    for tree in trees:
        newest = open_differences(ledger, plan, batch, tree)
        if newest is not None and newest.manifest is not None:
            paths = differing.differing(newest.manifest, digest=newest.differences_digest)
            found.update(path for path in paths if is_beneath(path, tree))
    return sorted(found)


Scan = Callable[[Sequence[bytes]], Awaitable[CatalogRecord]]
"""Makes a new catalog of user trees."""


class Deltas(Struct, frozen=True, kw_only=True):
    """Ports and limits of delta passes, in addition to those of every run.

    A tree may lose at most the share `max_shrink` of its names and bytes between two scans. `manifests` are those
    that `verify` writes: a pass sends again the paths that were found to differ. With `extras`, it moves paths that only the target has to
    the trash. `again` are paths to send whether they changed or not.
    """

    scan: Scan
    comparisons: "Comparisons"
    move_lists: "MoveListFiles"
    moves: MovingTarget
    chunk_limits: ChunkLimits
    max_shrink: float
    trash_keep_s: float
    limits: PassLimits
    reap_lists: "ReapListFiles"
    manifests: "ManifestDirectories"
    extras: "Extras | None" = None
    again: Sequence[bytes] = ()


class NoTreeLeft(bases.BatchRefused):
    """Every tree of a pass is set apart."""

    def __init__(self, message: str, *, cause: str, hint: str, set_apart: tuple[TreeApart, ...]) -> None:
        super().__init__(message, cause=cause, hint=hint)
        self.set_apart = set_apart


@dataclass(slots=True, kw_only=True)
class DeltaPass(PassRun):
    """One delta pass: a new one, or the last one if it is unfinished. A final pass (`kind`) is always new, and also
    sends the paths that an interrupted one did not. It does not change the state of the batch, because its own
    verification follows.

    `batch` may hold only some of its trees: then the pass compares and changes only these. They must have the same base
    (see `same_base`). A tree that the scan could not read everywhere, or that lost too much, is set apart: the pass
    leaves it unchanged, and the summary names it. Call `run` once.
    """

    deltas: Deltas
    kind: PassKind = PassKind.DELTA
    set_apart: tuple[TreeApart, ...] = ()

    async def run(self) -> BatchSummary:
        """Raises BatchRefused if a guard trips before anything is changed (NoTreeLeft if every tree is set apart); a
        later stop is in the summary.
        """
        with bases.refusals_of_batch():
            async with AsyncExitStack() as governing:
                if self.kind is PassKind.FINAL:
                    governor = governed(
                        self.world.governing,
                        self.world.lanes,
                        run_id=None,
                        clock=self.world.clock,
                        report=partial(self.report, EventKind.STREAMS_SET),
                        frozen=True,
                    )
                    self.invocation.governor = await governing.enter_async_context(governor)
                record = None
                if self.kind is PassKind.DELTA:
                    record = bases.unfinished_delta(self.world.ledger.passes, self.plan, self.batch)
                if record is None:
                    await self.end_earlier()
                    record = await self._begin()
                left = remaining(self.world, self.plan, self.batch, record)
                ready = await self.ready(_room(left.need, self.world.ledger.passes.changes(record.id)))
                await self.make_trees()
                record = self._go_on(record)
                summary = await self.carry_out(
                    record,
                    ready,
                    title=_title(record),
                    before=lambda under_way: self._move(record, under_way),
                )
                return replace(summary, set_apart=self.set_apart)

    @property
    def _trees(self) -> list[bytes]:
        return [tree.path for tree in self.batch.trees]

    async def end_earlier(self) -> None:
        """Close interrupted passes over these trees that no pass resumes. Finish their move lists: otherwise the
        locations of paths on the target would be unknown. This may change the base of the next passes. May be called
        again. Raises BatchRefused.
        """
        world, passes = self.world, self.world.ledger.passes
        with bases.refusals_of_batch():
            for record in passes.of_batch(self.plan.name, self.batch.number):
                if record.kind is PassKind.SEED or record.state is PassState.DONE:
                    continue
                its_own = bases.covered(passes, record) or frozenset()
                if its_own and its_own.isdisjoint(self._trees):
                    continue
                if record.state is PassState.RUNNING:
                    passes.set_state(record.id, PassState.STOPPED, world.clock.now_s())
                others = its_own - set(self._trees)
                # Nothing may move in a tree whose user works on the target. In that case the other trees are sent again as
                # a whole.
                if bases.has_open_moves(record) and not moved_trees(
                    bases.newest_cutovers(world.ledger.cutovers, others)
                ):
                    await self._end_moves(record)

    async def _end_moves(self, record: PassRecord) -> None:
        ready = await self.ready(Need())
        under_way = self.under_way(record, ready)
        try:
            await self._move(record, under_way)
        finally:
            await under_way.confirmations.end()
            under_way.abandon_calls()
        if stopped := under_way.explain_stop():
            raise Refused(
                f"{_title(record)} over batch {self.batch.number}, which was interrupted, could not be finished: "
                + stopped.message,
                cause=stopped.cause,
                hint=stopped.hint,
            )

    async def _begin(self) -> PassRecord:
        """Scan, compare, write the lists, and check the guards. Only then record the pass."""
        world, passes = self.world, self.world.ledger.passes
        number = bases.pass_number(passes, self.plan, self.batch, self.kind)
        trees = self._trees
        base = bases.base_catalog(passes, self.plan.name, self.batch.number, trees)
        began_s = world.clock.monotonic_s()
        catalog = await self.deltas.scan(trees)
        self._set_apart(dict.fromkeys(catalog.set_apart, "; ".join(catalog.reasons)))
        if not catalog.whole_of(self._trees):
            raise Refused(
                f"batch {self.batch.number} is not compared: the scan {catalog.name} is not whole: "
                + "; ".join(catalog.reasons),
                cause="a part of the source could not be read, and what is in it would look as if it had been deleted",
                hint="fix that, then run the same command again: nothing was changed on the target",
            )
        extras_found = search_extras(
            self.deltas.extras,
            invocation=self.invocation,
            plan=self.plan,
            batch=self.batch,
            base=base,
            now=catalog.name,
            problems=lambda changes, before: self._problems(changes, before, catalog),
            max_shrink=self.deltas.max_shrink,
        )
        async with extras_found as extras:
            changes, chunks, moves, shrunk = await asyncio.to_thread(self._make_lists, number, base, catalog, extras)
        self._set_apart(shrunk)
        has_moves = bool(moves.renames or moves.gone)
        # The guards have already judged the extras.
        if moves.renames or changes.tally(ChangeKind.VANISHED).paths:
            await self._ask_guards(changes, base, catalog)
        record = passes.start(
            plan=self.plan.name,
            batch=self.batch.number,
            kind=self.kind,
            number=number,
            catalog=catalog.name,
            base_catalog=base,
            chunk_list=chunks.chunk_list,
            move_list=moves.move_list if has_moves else None,
            move_list_digest=moves.digest if has_moves else None,
            scan_s=world.clock.monotonic_s() - began_s,
            changes=changes,
            chunks=world.chunk_lists.chunks(chunks.chunk_list),
            at_s=world.clock.now_s(),
        )
        self._set_state(sent=not changes.nothing)
        return record

    def _make_lists(
        self, number: int, base: str, catalog: CatalogRecord, extras: "FoundExtras | None"
    ) -> tuple[Changes, WrittenList, WrittenMoves, Mapping[bytes, str]]:
        """Compare both catalogs, and write the chunk list and the move list without the trees that lost too much, which
        are returned with the reasons. Blocking.
        """
        world, deltas = self.world, self.deltas
        trees = self._trees
        missing = world.ledger.passes.not_arrived(self.plan.name, self.batch.number, trees)
        in_chunks = (
            listed.path
            for chunk in missing.chunks
            for listed in world.chunk_lists.paths(chunk.chunk_list, chunk.number)
        )
        differing = found_to_differ(
            world.ledger, deltas.manifests, plan=self.plan.name, batch=self.batch.number, trees=trees
        )
        # Moving an entry out of a directory changes the directory's times on the target.
        emptied = sorted({parent(one.path) for one in extras.gone()}) if extras else []
        with deltas.comparisons.open(
            base,
            catalog.name,
            trees=trees,
            unsettled=(*missing.paths, *in_chunks, *differing, *emptied, *deltas.again),
            unsettled_trees=missing.trees,
            leftovers=missing.paths,
            reap_list=deltas.reap_lists.checked(self.plan.reap),
        ) as comparison:
            shrunk = shrunk_trees(comparison.changes, deltas.max_shrink)
            kept = tuple(one for one in comparison.changes.trees if one.tree not in shrunk)
            moves = deltas.move_lists.write(
                f"{self.plan.name}-batch-{self.batch.number:04d}-{self.kind.value}-{number:04d}",
                (one for one in comparison.renames() if one.tree not in shrunk),
                (one for one in chain(comparison.gone(), extras.gone() if extras else ()) if one.tree not in shrunk),
            )
            bricks = sorted(walk.brick for walk in catalog.bricks)
            listings = comparison.listings([[one.tree for one in kept]])
            packed = pack(listings, deltas.chunk_limits, bricks=bricks)
            plan, batch = self.plan.name, self.batch.number
            chunks = world.chunk_lists.write_pass(plan, batch, number, packed, kind=self.kind)
            return replace(comparison.changes, trees=kept), chunks, moves, shrunk

    def _set_apart(self, reasons: Mapping[bytes, str]) -> None:
        """Leave these trees out of the pass. Raises NoTreeLeft if there is no other."""
        trees = self._trees
        apart = tuple(TreeApart(tree=tree, reason=reasons[tree]) for tree in trees if tree in reasons)
        self.set_apart += apart
        for one in apart:
            message = f"set apart: {show(one.tree)}: {one.reason}; the next pass scans it again"
            self.report(EventKind.TREES_SET_APART, Severity.WARNING, message)
        left = [tree for tree in trees if tree not in reasons]
        if not left:
            raise NoTreeLeft(
                f"batch {self.batch.number}: nothing is changed on the target: "
                + "; ".join(dict.fromkeys(one.reason for one in self.set_apart)),
                cause="paths that a scan misses look deleted",
                hint="fix that, then run the same command again: nothing was changed on the target",
                set_apart=self.set_apart,
            )
        if apart:
            self.batch = bases.part_of(self.plan, self.batch, left)

    async def _ask_guards(self, changes: Changes, base: str, catalog: CatalogRecord) -> None:
        """Raises Refused if paths that appear to have vanished may still exist."""
        problems = await self._problems(changes, base, catalog)
        for problem in problems:
            self.report(EventKind.GUARD_REFUSED, Severity.ERROR, problem)
        if problems:
            raise Refused(
                f"batch {self.batch.number}: nothing is renamed or removed on the target: {'; '.join(problems)}",
                cause="paths that a scan misses look deleted",
                hint="fix that, then run the same command again: nothing was changed on the target",
            )

    async def _problems(self, changes: Changes, base: str, catalog: CatalogRecord) -> tuple[str, ...]:
        world, timeout_s = self.world, self.timeout_s
        scans = {scan.name: scan for scan in world.ledger.scans.all()}
        health = await world.source.health()
        before = scans.get(base)
        then, now = None if before is None else before.health_fingerprint, catalog.health_fingerprint
        # A recorded drain is no reason against deletions: it has moved every file before its commit.
        if before and world.ledger.drains.explain(before.health_fingerprint, now, since_s=before.started_at_s):
            then = now
        return deletion_problems(
            changes,
            base_whole=None if before is None else before.whole_of(tree.tree for tree in changes.trees),
            base_fingerprint=then,
            now_fingerprint=now,
            source_fingerprint=health.fingerprint,
            source_problems=health_problems(health, health),
            mount_problems=(*await mounts_changed(world, self.site, timeout_s),),
        )

    def _go_on(self, record: PassRecord) -> PassRecord:
        passes = self.world.ledger.passes
        if record.state is not PassState.RUNNING:
            passes.set_state(record.id, PassState.RUNNING, self.world.clock.now_s())
        passes.retry_failed(record.id)
        changes = passes.changes(record.id)
        words = "nothing changed" if changes is None or changes.nothing else describe_changes(changes)
        message = f"{_title(record)} over batch {self.batch.number}: {words}"
        self.report(EventKind.PASS_STARTED, Severity.INFO, message)
        return passes.read(record.id)

    async def _move(self, record: PassRecord, under_way: PassUnderWay) -> None:
        await carry_out_moves(
            under_way, record, title=_title(record), moves=self.deltas.moves, lists=self.deltas.move_lists
        )

    def _set_state(self, *, sent: bool) -> None:
        if self.kind is PassKind.FINAL:
            return
        now = self.batch_state
        if now is not None and (then := after_delta(now, sent=sent)) is not now:
            self.set_batch_states((then,))


_SAID = {ChangeKind.ATTRIBUTES: "with other attributes", ChangeKind.UNSETTLED: "sent to be sure"}


def describe_changes(changes: Changes) -> str:
    """The changes, by kind."""
    found = [(kind, changes.tally(kind)) for kind in ChangeKind]
    return ", ".join(
        f"{format_count(tally.paths)} {_SAID.get(kind, kind.value)}" for kind, tally in found if tally.paths
    )


def _room(need: Need, changes: Changes | None) -> Need:
    """The room that new and grown files need. Files that are sent again replace those on the target. If these are
    missing because they failed before, a full target stops the pass.
    """
    if changes is None:
        return need
    new, grown = changes.tally(ChangeKind.NEW), changes.tally(ChangeKind.GROWN)
    return Need(size_bytes=min(need.size_bytes, new.size_bytes + grown.size_bytes), inodes=min(need.inodes, new.paths))


def _title(record: PassRecord) -> str:
    return f"{record.kind.value} pass {record.number}"
