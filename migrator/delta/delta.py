"""A pass after the seed: it applies the changes of the source to the target."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from migrator.catalog.model import CatalogRecord
from migrator.catalog.rules_packing import ChunkLimits, pack
from migrator.core.errors import LedgerCorrupt, MigratorError, Refused
from migrator.core.events import EventKind, Severity
from migrator.core.paths import is_beneath, parent, show
from migrator.core.states import ChunkState, PassKind, PassState
from migrator.core.units import format_count, format_duration, format_size, several
from migrator.delta.model import ChangeKind, Changes, ExtrasOfTree, TreeChanges, WrittenMoves
from migrator.delta.moving import carry_out_moves, only_not_renamed
from migrator.fs.model import Need, trash_place
from migrator.fs.moving import MovingTarget
from migrator.ledger.model import PassRecord, SiteRecord
from migrator.plan.model import Batch, Plan, WrittenList
from migrator.plan.rules import after_delta, moved_trees
from migrator.site.rules_guards import health_problems
from migrator.transfer import bases
from migrator.transfer.bases import covers
from migrator.transfer.context import Invocation, PassUnderWay, World
from migrator.transfer.guards import mount_findings, mounts_changed
from migrator.transfer.model import BatchSummary, FileProblemKind, PassLimits
from migrator.transfer.passes import Copying, remaining
from migrator.verify.model import VerificationRecord

if TYPE_CHECKING:
    from migrator.catalog.manifest import ManifestDirectories
    from migrator.delta.store import Comparisons, Extras, FoundExtras, MoveListFiles
    from migrator.ledger.ledger import Ledger
    from migrator.plan.chunk_lists import ChunkListFiles
    from migrator.reap.store import ReapListFiles

# Problems that forbid renames and deletions on the target. A path that is missing from a catalog may only have been
# missed by its scan, so anything that cannot be evaluated counts as a problem.


_LOOK = "look at it on the source"
_RIGHT_ALL_THE_SAME = (
    "if it is right, make a new plan with `migrator plan --activate`, whose passes begin from the source as it is now"
)


def deletion_problems(
    changes: Changes,
    *,
    base_whole: bool | None,
    base_fingerprint: str | None,
    now_fingerprint: str | None,
    source_fingerprint: str | None,
    source_problems: Sequence[str],
    mount_problems: Sequence[str],
    max_shrink: float,
) -> tuple[str, ...]:
    """Every problem, each with the next step; empty if renames and deletions may be applied.

    `base_whole`: whether the catalog of the base is complete; an incomplete one is never compared with the new one. The
    fingerprints are those of the source's health at the start of each scan, and now. `source_problems` are problems and
    doubts (a rebalance process) of the source, `mount_problems` those of both mounts. None means unknown. A tree may
    lose at most the share `max_shrink` of its names and of its bytes since the base; renamed paths do not count as
    lost.
    """
    return (
        *_catalog_problems(changes.base, base_whole),
        *_brick_problems(changes, base_fingerprint, now_fingerprint, source_fingerprint),
        *source_problems,
        *mount_problems,
        *(problem for tree in changes.trees for problem in _tree_problems(tree, max_shrink)),
    )


def _catalog_problems(name: str, whole: bool | None) -> Iterable[str]:
    if whole is None:
        yield f"whether the catalog {name} is whole is not known: bring it back, or scan again"
    elif not whole:
        yield f"the catalog {name} is not whole, so what it lacks may be there: see `migrator scan`, and scan again"


def _brick_problems(changes: Changes, base: str | None, now: str | None, source: str | None) -> Iterable[str]:
    if not base or not now:
        yield "which bricks the source had when it was scanned is not known: make a new plan with `migrator plan --activate`"
    elif base != now:
        yield (
            f"the source's bricks or options were changed between the catalogs {changes.base} and {changes.now}, so what "
            f"vanished may have been on a brick that was taken away: look at `gluster volume info`; {_RIGHT_ALL_THE_SAME}"
        )
    if not source:
        yield "which bricks the source has now is not known: see `migrator doctor`"
    elif now and now != source:
        yield f"the source's bricks or options were changed since the catalog {changes.now}: scan again"


def _tree_problems(tree: TreeChanges, max_shrink: float) -> Iterable[str]:
    gone, new = tree.tally(ChangeKind.VANISHED), tree.tally(ChangeKind.NEW)
    name = f"the user tree {show(tree.tree)}"
    if not gone.paths and not gone.size_bytes:
        return
    if gone.paths > tree.names_before or gone.size_bytes > tree.bytes_before:
        yield (
            f"{name} cannot be judged: {format_count(gone.paths)} names of {format_count(tree.names_before)} and "
            f"{format_size(gone.size_bytes)} of {format_size(tree.bytes_before)} vanished: scan again"
        )
    elif not new.paths and gone.paths == tree.names_before:
        yield f"{name} is empty now, or gone: {_LOOK}; {_RIGHT_ALL_THE_SAME}"
    else:
        lost = []
        if not gone.paths <= max_shrink * tree.names_before:
            lost.append(f"{format_count(gone.paths)} of {format_count(tree.names_before)} names")
        if not gone.size_bytes <= max_shrink * tree.bytes_before:
            lost.append(f"{format_size(gone.size_bytes)} of {format_size(tree.bytes_before)}")
        if lost:
            yield (
                f"{name} has lost {' and '.join(lost)} since the pass before: {_LOOK}; if it is right, allow it once with a "
                f"larger [transfer] max_shrink (now {max_shrink:.0%})"
            )


Problems = Callable[[Changes, str], Awaitable[tuple[str, ...]]]
"""Returns the problems that forbid applying changes whose base is this catalog."""


@asynccontextmanager
async def search_extras(
    extras: "Extras | None",
    *,
    invocation: Invocation,
    plan: Plan,
    batch: Batch,
    base: str,
    now: str,
    problems: Problems,
) -> "AsyncIterator[FoundExtras | None]":
    """Find the extras that a pass over the batch may move to the trash, given its base `base` and the new catalog
    `now`. They are valid inside the block.

    None if there are no extras, or if `problems` forbid their deletion: then they stay and are reported, and the pass
    continues without them. Raises Refused as `Extras` does.
    """

    def where() -> list[ExtrasOfTree]:
        ledger = invocation.world.ledger
        found = (extras_of(ledger, plan.name, batch.number, tree.path) for tree in batch.trees)
        return [one for one in found if one.earlier or one.manifest is not None]

    async def may_go(found: "FoundExtras") -> bool:
        lost = await asyncio.to_thread(lambda: [one for tree in wanted if (one := found.lost(tree.tree))])
        names = sum(tree.tally(ChangeKind.VANISHED).paths for tree in lost)
        if not names:
            return False
        # A verification has looked its extras up on the source. Extras of an earlier catalog have had no look-up.
        against: dict[str, None] = {}
        for catalog in sorted({now, *(catalog for one in wanted for catalog in one.earlier)}):
            changes = Changes(base=catalog, now=now, trees=tuple(lost))
            against |= dict.fromkeys(await problems(changes, catalog))
        those = f"{several(names, 'path')} that the source has no more, and no pass of this plan removed"
        subject = f"batch {batch.number}"
        if against:
            message = f"left on the target: {those}: {'; '.join(against)}"
            invocation.say(EventKind.GUARD_REFUSED, Severity.WARNING, subject, message)
            return False
        trees = ", ".join(show(tree.tree) for tree in lost[:_SHOWN])
        invocation.say(EventKind.PASS_MOVED, Severity.INFO, subject, f"to the target's trash: {those}, in {trees}")
        return True

    wanted = await asyncio.to_thread(where)
    if extras is None or not wanted:
        yield None
        return
    opened = extras.open(wanted, base=base, now=now)
    found = await asyncio.to_thread(opened.__enter__)
    try:
        yield found if await may_go(found) else None
    finally:
        await asyncio.to_thread(opened.__exit__, None, None, None)


_SHOWN = 5


def extras_of(ledger: "Ledger", plan: str, batch: int, tree: bytes) -> ExtrasOfTree:
    """The catalogs and the manifest to search for extras of a tree before the next pass after the seed of this plan.
    Blocking.
    """
    passes = ledger.passes.over_tree(tree)
    own = [one for one in passes if (one.plan, one.batch) == (plan, batch) and one.kind is not PassKind.SEED]
    earlier: list[str] = []
    if not any(one.state is PassState.DONE for one in own):
        for one in reversed(passes):
            if (one.plan, one.batch) != (plan, batch):
                earlier.append(one.catalog)
                # This pass has removed earlier extras. A seed pass removes nothing.
                if one.kind is not PassKind.SEED and one.state is PassState.DONE:
                    break
    named = standing_verification(ledger, plan, batch, tree)
    return ExtrasOfTree(
        tree=tree,
        brought=tuple(dict.fromkeys(one.catalog for one in passes)),
        earlier=tuple(dict.fromkeys(earlier)),
        manifest=named.manifest if named is not None and named.whole else None,
        differences_digest=None if named is None else named.differences_digest,
    )


def standing_verification(ledger: "Ledger", plan: str, batch: int, tree: bytes) -> VerificationRecord | None:
    """The newest verification of a tree, if it found differences and no pass after the seed has covered the
    tree since.
    """
    newest = next(iter(reversed(ledger.verifications.of_tree(plan, batch, tree))), None)
    if newest is None or newest.finished_at_s is None or not newest.differences:
        return None
    since_s = newest.finished_at_s
    done = (one for one in ledger.passes.of_batch(plan, batch) if one.state is PassState.DONE)
    later = (one for one in done if one.kind is not PassKind.SEED and one.started_at_s >= since_s)
    return None if any(covers(ledger.passes, one, (tree,)) for one in later) else newest


# Differences that a verification found: sent again, because size and times may not show them.


def found_to_differ(
    ledger: "Ledger", differing: "ManifestDirectories", *, plan: str, batch: int, trees: Collection[bytes]
) -> Sequence[bytes]:
    """Paths that the newest verification of each tree found to differ, unless a pass after the seed has covered the
    tree since. Blocking. Raises Refused if the list of differences is missing or was changed.
    """
    found: set[bytes] = set()
    for tree in trees:
        newest = standing_verification(ledger, plan, batch, tree)
        if newest is not None and newest.manifest is not None:
            paths = differing.differing(newest.manifest, digest=newest.differences_digest)
            found.update(path for path in paths if is_beneath(path, tree))
    return sorted(found)


# Facts of a final pass that determine whether to switch.


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalPassFacts:
    """Files that `changed` or `vanished` while a pass copied them, and files that did not arrive (`failed`; includes
    the files of unfinished chunks, and counts an unfinished chunk without files as one).
    """

    changed: int
    vanished: int
    failed: int


def final_pass_facts(ledger: "Ledger", pass_id: int) -> FinalPassFacts:
    """Read the facts from the ledger. Raises LedgerCorrupt if it has no such pass."""
    passes = ledger.passes
    passes.read(pass_id)
    counts, totals = passes.problem_counts(pass_id), passes.totals(pass_id)
    left = sum(count for state, count in totals.chunks.items() if state not in (ChunkState.DONE, ChunkState.SPLIT))
    return FinalPassFacts(
        changed=counts.get(FileProblemKind.CHANGED, 0),
        vanished=counts.get(FileProblemKind.VANISHED, 0),
        failed=counts.get(FileProblemKind.BAD, 0)
        + counts.get(FileProblemKind.MOVED, 0)
        + max(totals.files - totals.done_files, left),
    )


# One delta or final pass over a batch, or over some of its trees. A delta pass resumes; a final pass is always new.


Scan = Callable[[Sequence[bytes]], Awaitable[CatalogRecord]]
"""Makes a new catalog of user trees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deltas:
    """Ports and limits of delta passes, in addition to those of every run.

    A tree may lose at most the share `max_shrink` of its names and bytes between two scans. With `differing`, a pass
    sends again the paths that a verification found to differ. With `extras`, it moves paths that only the target has to
    the trash. `again` are paths to send whether they changed or not.
    """

    scan: Scan
    comparisons: "Comparisons"
    pass_lists: "ChunkListFiles"
    move_lists: "MoveListFiles"
    moves: MovingTarget
    chunk_limits: ChunkLimits
    max_shrink: float
    trash_keep_s: float
    limits: PassLimits
    reap_lists: "ReapListFiles"
    differing: "ManifestDirectories | None" = None
    extras: "Extras | None" = None
    again: Sequence[bytes] = ()


@dataclass(slots=True, kw_only=True)
class DeltaPass(Copying):
    """One delta pass: a new one, or the last one if it is unfinished. A final pass (`kind`) is always new, and also
    sends the paths that an interrupted one did not. It does not change the state of the batch, because its own
    verification follows.

    `batch` may hold only some of its trees: then the pass compares and changes only these. They must have the same base
    (see `same_base`). If the scan could not read a tree everywhere, the tree is set apart: the pass leaves it
    unchanged, and the summary names it. Call `run` once.
    """

    deltas: Deltas
    kind: PassKind = PassKind.DELTA
    set_apart: tuple[bytes, ...] = ()

    async def run(self) -> BatchSummary:
        """Raises Refused if a guard trips before anything is changed; a later stop is in the summary."""
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
        again. Raises Refused.
        """
        world, passes = self.world, self.world.ledger.passes
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
            if bases.has_open_moves(record) and not moved_trees(bases.newest_cutovers(world.ledger.cutovers, others)):
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
        self.set_apart = catalog.set_apart
        trees = [tree for tree in trees if tree not in catalog.set_apart]
        if not trees or not catalog.whole_of(trees):
            raise Refused(
                f"batch {self.batch.number} is not compared: the scan {catalog.name} is not whole: "
                + "; ".join(catalog.reasons),
                cause="a part of the source could not be read, and what is in it would look as if it had been deleted",
                hint="solve that, then run the same command again: nothing was changed on the target",
            )
        if self.set_apart:
            self.batch = bases.part_of(self.plan, self.batch, trees)
            self._say_set_apart(catalog)
        extras_found = search_extras(
            self.deltas.extras,
            invocation=self.invocation,
            plan=self.plan,
            batch=self.batch,
            base=base,
            now=catalog.name,
            problems=lambda changes, before: self._problems(changes, before, catalog),
        )
        async with extras_found as extras:
            changes, chunks, moves = await asyncio.to_thread(self._make_lists, number, base, catalog, extras)
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
    ) -> tuple[Changes, WrittenList, WrittenMoves]:
        """Compare both catalogs, and write the chunk list and the move list. Blocking."""
        world, deltas = self.world, self.deltas
        trees = self._trees
        missing = world.ledger.passes.not_arrived(self.plan.name, self.batch.number, trees)
        in_chunks = (
            listed.path
            for chunk in missing.chunks
            for listed in world.chunk_lists.paths(chunk.chunk_list, chunk.number)
        )
        differing: Sequence[bytes] = ()
        if deltas.differing is not None:
            differing = found_to_differ(
                world.ledger, deltas.differing, plan=self.plan.name, batch=self.batch.number, trees=trees
            )
        # Moving an entry out of a directory changes the directory's times on the target.
        emptied = sorted({parent(one.path) for one in extras.gone()}) if extras else []
        with deltas.comparisons.open(
            base,
            catalog.name,
            trees=trees,
            unsettled=(*missing.paths, *in_chunks, *differing, *emptied, *deltas.again),
            unsettled_trees=missing.trees,
            reap_list=deltas.reap_lists.checked(self.plan.reap),
        ) as comparison:
            moves = deltas.move_lists.write(
                f"{self.plan.name}-batch-{self.batch.number:04d}-{self.kind.value}-{number:04d}",
                comparison.renames(),
                chain(comparison.gone(), extras.gone() if extras else ()),
            )
            bricks = sorted(walk.brick for walk in catalog.bricks)
            packed = pack(comparison.listings([trees]), deltas.chunk_limits, bricks=bricks)
            plan, batch = self.plan.name, self.batch.number
            chunks = deltas.pass_lists.write_pass(plan, batch, number, packed, kind=self.kind)
            return comparison.changes, chunks, moves

    def _say_set_apart(self, catalog: CatalogRecord) -> None:
        named = ", ".join(show(tree) for tree in self.set_apart)
        message = (
            f"set apart, and not compared: {named}: {'; '.join(catalog.reasons)}; the next pass scans "
            f"{'it' if len(self.set_apart) == 1 else 'them'} again"
        )
        self.say(EventKind.TREES_SET_APART, Severity.WARNING, message)

    async def _ask_guards(self, changes: Changes, base: str, catalog: CatalogRecord) -> None:
        """Raises Refused if paths that appear to have vanished may still exist."""
        problems = await self._problems(changes, base, catalog)
        for problem in problems:
            self.say(EventKind.GUARD_REFUSED, Severity.ERROR, problem)
        if problems:
            raise Refused(
                f"batch {self.batch.number}: nothing is renamed or removed on the target: {'; '.join(problems)}",
                cause="what a scan does not see looks as if it had been deleted",
                hint="solve that, then run the same command again: nothing was changed on the target",
            )

    async def _problems(self, changes: Changes, base: str, catalog: CatalogRecord) -> tuple[str, ...]:
        world, timeout_s = self.world, self.timeout_s
        scans = {scan.name: scan for scan in world.ledger.scans.all()}
        health = await world.source.health()
        before = scans.get(base)
        return deletion_problems(
            changes,
            base_whole=None if before is None else before.whole_of(self._trees),
            base_fingerprint=None if before is None else before.health_fingerprint,
            now_fingerprint=catalog.health_fingerprint,
            source_fingerprint=health.fingerprint,
            source_problems=health_problems(health, health),
            mount_problems=(*await mounts_changed(world, self.site, timeout_s),),
            max_shrink=self.deltas.max_shrink,
        )

    def _go_on(self, record: PassRecord) -> PassRecord:
        passes = self.world.ledger.passes
        if record.state is not PassState.RUNNING:
            passes.set_state(record.id, PassState.RUNNING, self.world.clock.now_s())
        passes.retry_failed(record.id)
        changes = passes.changes(record.id)
        words = "nothing changed" if changes is None or changes.nothing else change_words(changes)
        message = f"{_title(record)} over batch {self.batch.number}: {words}"
        self.say(EventKind.PASS_STARTED, Severity.INFO, message)
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


def change_words(changes: Changes) -> str:
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


# Final passes in one freeze.


_MOST_PASSES = 3


async def final_passes(
    ledger: "Ledger", plan: Plan, batch: Batch, run: Callable[[], Awaitable[BatchSummary]]
) -> AsyncIterator[tuple[BatchSummary, PassRecord]]:
    """Make final passes until every rename succeeds. Raises MigratorError if one is skipped or stops.

    A path that was missing on the target, or had changed there, cannot be renamed (a rollback has renamed it already):
    the next pass sends it. Files that change during the pass are no reason for another one: they stop the switch.
    """
    for _ in range(_MOST_PASSES):
        summary = await run()
        if summary.skipped:
            raise MigratorError(summary.skipped)
        if (stopped := summary.stopped) is not None:
            raise MigratorError(f"the final pass stopped: {stopped.message}", cause=stopped.cause, hint=stopped.hint)
        made = ledger.passes.find(plan.name, batch.number, PassKind.FINAL)
        if made is None:
            raise LedgerCorrupt("the ledger has lost the final pass", hint="run the same command again")
        yield summary, made
        if not only_not_renamed(ledger.passes, made.id):
            return


# After a rollback: record that both sides of some trees are equal.


async def note_equal(world: World, deltas: Deltas, plan: Plan, batch: Batch) -> PassRecord:
    """Scan the trees of a batch, and record the scan as a final pass without changes, so that the next pass compares
    with the present source. Otherwise files that users created on the target, and removed after their rollback, would
    stay there.

    Both sides must be proven equal, and be frozen. May be called again. Raises Refused if the scan is incomplete, and
    any error of scanning; nothing is recorded then.
    """
    began_s = world.clock.monotonic_s()
    catalog = await deltas.scan([tree.path for tree in batch.trees])
    if not catalog.whole:
        raise Refused(
            f"what the source of {', '.join(show(tree.path) for tree in batch.trees)} is now could not be read: "
            + "; ".join(catalog.reasons),
            cause="a part of the source could not be read",
            hint="solve that, then run the same command again",
        )
    passes = world.ledger.passes
    number = bases.pass_number(passes, plan, batch, PassKind.FINAL)
    trees = tuple(TreeChanges(tree=tree.path, names_before=0, bytes_before=0) for tree in batch.trees)
    written = await asyncio.to_thread(
        deltas.pass_lists.write_pass, plan.name, batch.number, number, (), kind=PassKind.FINAL
    )
    record = passes.start(
        plan=plan.name,
        batch=batch.number,
        kind=PassKind.FINAL,
        number=number,
        catalog=catalog.name,
        base_catalog=catalog.name,
        chunk_list=written.chunk_list,
        scan_s=world.clock.monotonic_s() - began_s,
        changes=Changes(base=catalog.name, now=catalog.name, trees=trees),
        chunks=(),
        at_s=world.clock.now_s(),
    )
    passes.set_state(record.id, PassState.DONE, world.clock.now_s())
    return passes.read(record.id)


# Expiry of the target's trash, before delta passes add to it.


_SUBJECT = "the trash of the target"


async def expire_trash(invocation: Invocation, deltas: Deltas, site: SiteRecord) -> None:
    """Remove places older than the retention time, except those of unfinished passes. May be called again.

    An event reports the removed places. A failure is only a warning: the run continues, and the next run tries again.
    """
    world = invocation.world
    timeout_s = invocation.request.stall_timeout_s
    if await mount_findings(world, world.target, site.target, timeout_s):
        return  # The guards of the first pass report it.
    expire = partial(
        deltas.moves.expire, world.clock.now_s() - deltas.trash_keep_s, keep=unfinished_places(world.ledger)
    )
    try:
        expired = await world.blocking(expire, timeout_s=timeout_s)
    except TimeoutError:
        _warn(invocation, "expired places were not removed in time: the next run continues")
        return
    except (OSError, Refused) as error:
        why = error.message if isinstance(error, Refused) else error.strerror or error
        _warn(invocation, f"expired places are not removed: {why}")
        return
    if expired.places:
        message = (
            f"removed {several(expired.places, 'place')} older than {format_duration(deltas.trash_keep_s)}, "
            f"with {several(expired.names, 'name')}"
        )
        invocation.say(EventKind.TRASH_EXPIRED, Severity.INFO, _SUBJECT, message)
    for problem in expired.problems:
        _warn(invocation, problem)


def unfinished_places(ledger: "Ledger") -> frozenset[str]:
    """The trash places of all unfinished passes, which may still need them. An interrupted final pass needs its place
    only until its renames are complete, because it is never resumed.
    """
    return frozenset(
        trash_place(record.started_at_s, record.batch, record.kind.value, record.number)
        for plan in ledger.plans.names()
        for record in ledger.passes.of_plan(plan)
        if record.move_list is not None
        and record.state is not PassState.DONE
        and (record.kind is not PassKind.FINAL or bases.has_open_moves(record))
    )


def _warn(invocation: Invocation, message: str) -> None:
    invocation.say(EventKind.TRASH_EXPIRED, Severity.WARNING, _SUBJECT, message)
