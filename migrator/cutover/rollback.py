"""Rollbacks: carry a user's changes on the target back to the source, and compare both sides."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, closing
from functools import partial
from itertools import islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.files import ClosedCatalogs
from migrator.catalog.model import CatalogRecord, VerificationRecord
from migrator.catalog.ports import Scratch
from migrator.core.durable import write_durably
from migrator.core.entry import EntryType
from migrator.core.errors import ExitCode, MigratorError, Refused
from migrator.core.paths import parent, show
from migrator.core.states import BatchState, PassKind, PassState
from migrator.cutover import model
from migrator.cutover.migration import ROLLBACK_PLAN, Migration, RollbackSites, TreeMigration, rollback_of
from migrator.cutover.records import CutoverLedger
from migrator.cutover.rollback_sides import SourceAsTarget
from migrator.cutover.rules_states import newest_attempts
from migrator.cutover.source_changes import SourceChange, SourceChangeKind, changed_source
from migrator.cutover.switched_catalog import write_switched
from migrator.fs.model import RewrittenLinks, trash_place
from migrator.fs.moving import MovingTarget
from migrator.plan.model import Plan
from migrator.transfer.context import RunInvocation
from migrator.transfer.delta.model import ChangeKind
from migrator.transfer.delta.trash import expire_trash
from migrator.transfer.model import PassRecord
from migrator.transfer.model_runs import RunRequest
from migrator.transfer.passes import probed_capabilities
from migrator.transfer.records import TransferLedger
from migrator.transfer.recovery import recover

VERB = "rollback"
Scan = Callable[[Sequence[bytes]], Awaitable[CatalogRecord]]

_FLUSHED_AT_ONCE = 256
_ROLES = "a rollback reads the target as its source, and writes to the source as its target: "

# Passes of a rollback, in its own ledger. Both sides were equal at the switch, so its seed pass has no chunks. That pass
# represents the catalog of the target at the switch, with which the first pass compares.


_MADE = (ChangeKind.NEW, ChangeKind.GROWN, ChangeKind.REWRITTEN)
_TOUCHED = (*_MADE, ChangeKind.ATTRIBUTES, ChangeKind.RENAMED)


def newest_pass(rollback: TreeMigration) -> PassRecord | None:
    """The newest pass that carries back, whatever its result."""
    return rollback.ledger.passes.find(rollback.plan, rollback.batch, PassKind.FINAL)


def target_changes(rollback: TreeMigration) -> model.TargetChanges:
    """The user's changes since the switch, over all passes that carried them back. `gone` includes directories."""
    passes = rollback.ledger.passes
    carried = [one for one in passes.of_batch(rollback.plan, rollback.batch) if one.kind is not PassKind.SEED]
    found = [changes for one in carried if (changes := passes.changes(one.id)) is not None]
    touched = [changes.tally(kind) for changes in found for kind in _TOUCHED]
    return model.TargetChanges(
        files=sum(tally.paths - tally.directories for tally in touched),
        size_bytes=sum(changes.tally(kind).size_bytes for changes in found for kind in _MADE),
        gone=sum(changes.tally(ChangeKind.VANISHED).paths for changes in found),
    )


def carried_cutovers(
    ledger: CutoverLedger, sites: RollbackSites, users: Sequence[str]
) -> tuple[model.CutoverRecord, ...]:
    """The cutovers, of any plan, of users who work on the target, but whose rollback carried something to the kept
    source before it was given up.
    """
    found: list[model.CutoverRecord] = []
    for record in sorted(newest_attempts(ledger.cutovers.all()), key=lambda one: one.tree.path):
        if record.tree.user not in users or record.state is not model.CutoverState.RETAINED:
            continue
        with sites.read(record) as rollback:
            if rollback is not None and newest_pass(rollback) is not None:
                found.append(record)
    return tuple(found)


# The rollback of one tree, with its file systems.


class Rollback(Struct, frozen=True, kw_only=True):
    """The rollback of one cutover: `migration` reads the target and writes to the source.

    `plan` is the plan of the cutover, `own` the ledger of the migration that is rolled back. `source` is the side that is
    written.
    """

    record: model.CutoverRecord
    plan: Plan
    own: CutoverLedger
    migration: Migration
    source: SourceAsTarget
    request: RunRequest

    @property
    def ledger(self) -> TransferLedger:
        """The ledger of the rollback."""
        return self.migration.world.ledger

    async def probe_source(self) -> None:
        """Probe the source once for each rollback; each opening passes the result to its file system."""
        if self.ledger.site.required().capabilities is not None:
            return
        if problems := (await self.source.health()).problems:
            raise Refused(
                f"nothing is carried back: {'; '.join(problems)}",
                cause="writes to an unhealthy source may be lost",
                hint="see `migrator doctor`, then run the same command again",
            )
        await probed_capabilities(self.migration.world, timeout_s=self.request.stall_timeout_s, side="source")

    async def carry(self, again: Sequence[bytes]) -> model.TargetChanges:
        """Recover from a killed call, then read the target and send the changes, until a pass leaves nothing to retry.
        The paths `again` are sent even if unchanged.
        """
        try:
            async with self.migration.recorded(self.request, verb=VERB) as (run, invocation):
                await self._carry(invocation, again)
                run.exit_code = ExitCode.DONE
        except MigratorError as error:
            error.message = _ROLES + error.message
            error.args = (error.message,)
            raise
        return target_changes(rollback_of(self.ledger, self.record))

    async def compare(self) -> VerificationRecord:
        """Compare both sides as they are now."""
        with self.migration.verifying(self._plan_of_passes(), self.record.id, ()) as verification:
            return await verification.run()

    async def _carry(self, invocation: RunInvocation, again: Sequence[bytes]) -> None:
        passes, site = self.ledger.passes, self.ledger.site.required()
        deltas = self.migration.deltas
        await recover(invocation, site)
        await expire_trash(invocation, deltas, site)
        deltas = replace(deltas, again=again)
        opening = self._opening_pass()
        if opening is None or opening.state is not PassState.DONE:
            now = await self._scan_whole()
            opening = opening or self._start_opening_pass(await self._write_opening_catalog(now))
            passes.set_state(opening.id, PassState.DONE, self.migration.world.clock.now_s())
            deltas = replace(deltas, scan=_first(now, deltas.scan))
        plan = self._plan_of_passes()
        (batch,) = plan.batches
        migration = replace(self.migration, deltas=deltas)
        async for _, made in migration.final_passes(invocation, plan, site, batch):
            # The device number of a server or FUSE mount changes with every mount: such a mount does not pass on a sync
            # of all.
            if site.target.device is None:
                await self._flush(made)

    def _opening_pass(self) -> PassRecord | None:
        """The pass that represents the target at the switch; None if it was not recorded."""
        return self.ledger.passes.find(ROLLBACK_PLAN, self.record.id, PassKind.SEED)

    def _plan_of_passes(self) -> Plan:
        """The plan of the rollback. Raises Refused if nothing was carried back yet."""
        opening = self._opening_pass()
        if opening is None:
            raise Refused(
                f"nothing was carried back of {show(self.record.tree.path)} yet", hint="run the same command again"
            )
        return self._plan(scan_id=0, catalog=opening.catalog, chunk_list=opening.chunk_list)

    def _plan(self, *, scan_id: int, catalog: str, chunk_list: str) -> Plan:
        """A plan of one batch with one tree. The batch has the number of the cutover, so each user has their own
        directory in the trash of the source.
        """
        own = next(one for one in self.plan.batches if one.number == self.record.batch)
        batch = replace(
            own,
            number=self.record.id,
            trees=(self.record.tree,),
            chunk_list=chunk_list,
            chunk_list_digest=self.migration.world.chunk_lists.digest(chunk_list),
            # Both sides were equal at the switch: nothing is reaped, and no size is known yet.
            size_bytes=0,
            files=0,
            directories=0,
            chunks=0,
        )
        return replace(
            self.plan,
            name=ROLLBACK_PLAN,
            catalog=catalog,
            scan_id=scan_id,
            batches=(batch,),
            ranking=(),
            owners=(),
            reap=None,
        )

    async def _write_opening_catalog(self, now: CatalogRecord) -> CatalogRecord:
        """Write the catalog of the target at the switch; `now` is its present catalog. Raises Refused if the state at
        the switch is unknown.
        """
        record, catalogs = self.record, self.migration.catalogs
        tree, known = record.tree.path, self.own.verifications.of_plan(record.plan)
        proof = next((one for one in known if one.id == record.notes.verification_id), None)
        if proof is None or not proof.whole or proof.differences:
            raise Refused(
                f"the state of {show(tree)} on the target at the switch is unknown",
                cause="the ledger has no verification without differences for this cutover",
                hint="restore the ledger from its backup: without it the user's changes since the switch are unknown",
            )
        # Files that changed later than 2 s before the record's begin are sent again: no user could change anything
        # before the thaw.
        at_s = record.times.get(model.CutoverState.THAWING, proof.finished_at_s or proof.started_at_s)
        name, scans = f"switch-{now.name}", self.ledger.scans
        opening = replace(
            now,
            name=name,
            scan_id=scans.start(catalog=name, via="manifest", at_s=at_s, scope=(tree,)),
            via="manifest",
            started_at_s=at_s,
            finished_at_s=at_s,
            problems=0,
        )
        closed = await asyncio.to_thread(
            write_switched,
            opening,
            tree=tree,
            name_seed=self.own.site.required().name_seed,
            proof=proof,
            now=now.name,
            catalogs=catalogs,
            scratch=self.migration.scratch,
        )
        scans.finish(closed)
        return closed

    def _start_opening_pass(self, catalog: CatalogRecord) -> PassRecord:
        batch, plans, world = self.record.id, self.ledger.plans, self.migration.world
        written = world.chunk_lists.write(ROLLBACK_PLAN, batch, ())
        plan = self._plan(scan_id=catalog.scan_id, catalog=catalog.name, chunk_list=written.chunk_list)
        # The recorded plan never changes: the ledger needs only its name and its batch.
        plans.record(plan, path="", checksum="")
        for now, then in ((BatchState.PLANNED, BatchState.SEEDING), (BatchState.SEEDING, BatchState.SEEDED)):
            known = plans.read(ROLLBACK_PLAN)
            if known is not None and known.batches.get(batch) is now:
                plans.set_batch_state(ROLLBACK_PLAN, batch, then)
        return self.ledger.passes.start(
            plan=ROLLBACK_PLAN,
            batch=batch,
            kind=PassKind.SEED,
            catalog=catalog.name,
            chunk_list=written.chunk_list,
            chunks=(),
            at_s=world.clock.now_s(),
        )

    async def _scan_whole(self) -> CatalogRecord:
        tree = self.record.tree.path
        catalog = await self.migration.deltas.scan([tree])
        if not catalog.whole:
            raise Refused(
                f"{show(tree)} could not be read completely: {'; '.join(catalog.reasons)}",
                cause="the content of unreadable directories would be removed from the source",
                hint="fix that, then run the same command again: nothing was changed",
            )
        return catalog

    async def _flush(self, made: PassRecord) -> None:
        """Sync every path that a pass has sent before the pass counts: the bricks have them only in memory."""
        world = self.migration.world
        for chunk in world.chunk_lists.chunks(made.chunk_list):
            paths = iter(await asyncio.to_thread(world.chunk_lists.paths, made.chunk_list, chunk.number))
            while some := [listed.path for listed in islice(paths, _FLUSHED_AT_ONCE)]:
                try:
                    await world.blocking(partial(self.source.flush, some), timeout_s=self.request.stall_timeout_s)
                except (OSError, TimeoutError) as error:
                    raise MigratorError(
                        f"the files that were carried back could not be synced on the source: {error}",
                        hint="check the bricks, then run the same command again",
                    ) from error


def _first(now: CatalogRecord, scan: Scan) -> Scan:
    """The pass that follows uses the scan that was just made."""
    waiting = [now]

    async def scan_or_take(trees: Sequence[bytes]) -> CatalogRecord:
        return waiting.pop() if waiting else await scan(trees)

    return scan_or_take


# The rollbacks of a migration.


_GIVEN_UP = "given-up"
"""A file in the directory of a rollback: the paths to carry back even if unchanged."""


def note_paths(file: Path, paths: Iterable[bytes]) -> None:
    """Add paths to a list, which survives a power cut. Blocking; raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_durably(file, b"".join(path + b"\0" for path in sorted({*noted_paths(file), *paths})))


def noted_paths(file: Path) -> Sequence[bytes]:
    """The paths of such a list, in order. Blocking; raises OSError."""
    try:
        return [path for path in file.read_bytes().split(b"\0") if path]
    except FileNotFoundError:
        return ()


class Rollbacks(Struct, frozen=True, kw_only=True):
    """Carries back users' changes on the target since the switch, one user tree at a time.

    `open` opens the rollback of a cutover, creates its site if there is none, and opens the file systems anew each
    time. `catalogs` are those of the migration; `ctimes`: the ctimes of the source are reliable; `links`
    as rollbacks rewrite them.

    The caller holds the lock of the tree and has frozen both sides: the target's top may be closed or frozen, the
    source's is frozen and stays so. Every method may be called again after a crash at any instant. All raise Refused if
    a check fails, and MigratorError if something stopped the work; the next call of `carry` then resumes.
    """

    sites: RollbackSites
    source_root: bytes
    catalogs: ClosedCatalogs
    ctimes: bool
    links: RewrittenLinks | None
    scratch: Scratch
    open: Callable[[model.CutoverRecord], AbstractAsyncContextManager[Rollback]]

    def changed_source(self, record: model.CutoverRecord, *, before: str, now: str) -> Sequence[SourceChange]:
        """Changes of the retained source between the migration's catalogs `before` and `now`, without those that
        rollbacks carried. Blocking; raises UsageError, Refused.
        """
        with self.sites.read(record) as rollback:
            passes = () if rollback is None else rollback.ledger.passes.of_batch(rollback.plan, rollback.batch)
            directory = self.sites.directory_of(record) / "catalogs"
            back = None if rollback is None else ClosedCatalogs(directory, rollback.ledger.scans.named)
            carried = [back.open(one.catalog) for one in passes if back and one.kind is not PassKind.SEED]
        return changed_source(
            self.catalogs.open(before),
            self.catalogs.open(now),
            tree=record.tree.path,
            carried=carried,
            ctimes=self.ctimes,
            links=self.links,
            scratch=self.scratch,
        )

    def give_up_source(self, record: model.CutoverRecord, changes: Sequence[SourceChange]) -> int:
        """Let the rollback overwrite changes on the source, and return the number of paths moved to its trash.

        First records durably the paths to carry back even if unchanged, then moves the present entries to the trash of
        the source. Blocking; raises OSError.
        """
        # Creating or moving away a path changes the times of its directory.
        again = [path for change in changes for path in (change.path, parent(change.path))]
        note_paths(self._given_up(record), again)
        place, kept = trash_place(record.since_s, record.id, "rollback", 0), 0
        with closing(MovingTarget(self.source_root)) as moves:
            moves.open_place(place)
            for change in changes:
                # A directory that was there before differs only in attributes; its entries are listed themselves.
                if change.stands is EntryType.DIRECTORY and change.kind is SourceChangeKind.CHANGED:
                    continue
                kept += moves.trash(change.path, place) is not None
        return kept

    async def carry(self, record: model.CutoverRecord) -> model.TargetChanges:
        """Carry the user's new, changed, renamed and removed paths on the target back to the source.

        Replaced and removed entries go to the trash of the source. Always reads the target anew. On return, all of it
        is on the source's disks.

        Also raises Refused if the state of the target at the switch can no longer be known.
        """
        async with self.open(record) as rollback:
            await rollback.probe_source()
        # Opened again, so attributes that the source cannot keep are not tried there.
        async with self.open(record) as rollback:
            return await rollback.carry(noted_paths(self._given_up(record)))

    async def compare(self, record: model.CutoverRecord) -> VerificationRecord:
        """Compare both sides as they are now, source against target as at the cutover.

        So an attribute that the target could not keep, of a file that the user did not touch, is the same loss as
        before. An attribute of a new file on the target that the source cannot keep is a difference. The next `carry`
        sends what differs. Raises what the verb `verify` raises.
        """
        async with self.open(record) as rollback:
            return await rollback.compare()

    def changes(self, record: model.CutoverRecord) -> model.TargetChanges | None:
        """The changes found on the target since the switch; None before the first search. Blocking."""
        with self.sites.read(record) as rollback:
            return None if rollback is None or newest_pass(rollback) is None else target_changes(rollback)

    def _given_up(self, record: model.CutoverRecord) -> Path:
        return self.sites.directory_of(record) / _GIVEN_UP
