"""What cutovers, rollbacks, purges and archives are made of."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from migrator import app
from migrator.app import Wiring
from migrator.app.doctor import link_place, target_writers
from migrator.app.hosts import host_specs, reached
from migrator.app.scan import user_map
from migrator.app.transfer import (
    OWN_HOST,
    SCAN_WORKERS,
    OneHost,
    Places,
    WayMaker,
    chunk_limits,
    deltas_of,
    lanes_of,
    run_request,
    run_world,
)
from migrator.beegfs.tool import NoStorageTargets
from migrator.bench.tree_timing import ConfinedTreeTiming
from migrator.catalog.files import ClosedCatalogs
from migrator.catalog.manifest import ManifestDirectories
from migrator.catalog.model import CatalogRecord
from migrator.catalog.queries import CatalogFileSamples
from migrator.catalog.writer import CatalogDirectories
from migrator.core.durable import write_durably
from migrator.core.entry import Entry, EntryType, UserTree
from migrator.core.errors import Refused, ToolFailed, UsageError
from migrator.core.paths import join, parent
from migrator.core.progress import Progress
from migrator.core.states import PassKind
from migrator.cutover.carry_back import PLAN, BackParts, CarryingBack, SourceSide, TargetSide, exchanged, newest_pass
from migrator.cutover.catalogs import SwitchedCatalogFiles, changed_source
from migrator.cutover.files import MountedTops, SymlinkedPaths
from migrator.cutover.model import BackupSeen, CutoverRecord, CutoverState, FrozenTop
from migrator.cutover.ports import SourceChange, SourceChangeKind, WriterSearch
from migrator.cutover.rules import carried_top
from migrator.cutover.rules_guards import newest_attempts
from migrator.cutover.steps import Comparing, CutoverWorld, VerifyTree
from migrator.cutover.writers import BrickWriters, LocalWriters
from migrator.delta.delta import Deltas
from migrator.delta.store import Comparisons, MoveListFiles
from migrator.fs.model import TargetCapabilities, trash_place
from migrator.fs.moving import MovingTarget
from migrator.fs.reading import PosixSource, ReadingFileSystem
from migrator.fs.writing import MountedTarget
from migrator.gluster.model import VolumeState
from migrator.gluster.volume import GlusterSource
from migrator.hosts.local import LocalHost
from migrator.hosts.ports import Host, Hosts
from migrator.ledger.call import backing_up
from migrator.ledger.exchanged import ProofLedger
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.ledger.model import SiteRecord
from migrator.native.program import native_program
from migrator.plan.chunk_lists import ChunkListFiles
from migrator.plan.document import PlanFiles
from migrator.plan.model import Plan
from migrator.purge.files import MountedPlaces
from migrator.purge.model import LeadsTo
from migrator.purge.proofs import ManifestFiles
from migrator.purge.removal import PurgeWorld
from migrator.reap.archive import ArchivingWorld, ProvenArchives, Rows
from migrator.reap.files import MemberReader, MountedArchiveFolders
from migrator.reap.model import ARCHIVE_DIRECTORY, ReapAction, ReapRow
from migrator.reap.restore import RestoringWorld
from migrator.scan.session import ScanRequest
from migrator.scan.stage import scan
from migrator.site.config import Site
from migrator.site.rules_links import naming_problem
from migrator.transfer.context import World
from migrator.transfer.executors import LocalExecutor, SystemExecutor
from migrator.transfer.lanes import HostLane, Lanes
from migrator.transfer.model import DRIVERS, PassLimits
from migrator.transfer.ports import Executor, Way
from migrator.transfer.run_files import RunFiles
from migrator.verify.model import DigestPolicy, VerificationRecord
from migrator.verify.stage import Verification, VerifyRequest

# ---
# What archives of reaped files are made with, and put back by.


def archive_folders(wiring: Wiring) -> MountedArchiveFolders:
    """The archive directories of the trees on the target."""
    return MountedArchiveFolders(wiring.target_root)


def proven_archives(wiring: Wiring, ledger: Ledger) -> ProvenArchives:
    """Archived paths, for verification and purge."""
    return ProvenArchives(ledger.archives, archive_folders(wiring))


def archiving_world(
    wiring: Wiring, plan: Plan, source: ReadingFileSystem, target: MountedTarget, *, ledger: Ledger, progress: Progress
) -> ArchivingWorld:
    """What `reap archive` works with."""
    return ArchivingWorld(
        source=source,
        target=target,
        members=MemberReader(source, algorithm=wiring.site.verify.digest),
        folders=archive_folders(wiring),
        rows=reap_rows(wiring, plan, ReapAction.ARCHIVE),
        ledger=ledger,
        progress=progress,
        clock=wiring.clock,
        storage=wiring.storage_targets(),
    )


def restoring_world(
    wiring: Wiring, *, to: Path | None, capabilities: TargetCapabilities | None, ledger: Ledger, progress: Progress
) -> RestoringWorld:
    """What `reap restore` works with. `to` is a directory that exists; None: the target, whose `capabilities` are known."""
    if to is not None and not to.is_dir():
        raise UsageError(f"{to} is no directory", hint="make it first: files are restored below it")
    return RestoringWorld(
        folders=archive_folders(wiring),
        destination=ReadingFileSystem(wiring.target_root if to is None else os.fsencode(to)),
        capabilities=(capabilities if to is None else None) or TargetCapabilities(),
        ledger=ledger,
        progress=progress,
        clock=wiring.clock,
    )


def reap_rows(wiring: Wiring, plan: Plan, action: ReapAction) -> Rows:
    """The rows of the plan's reap list with this action, by tree. Raises Refused if the list is not the plan's."""
    if plan.reap is None or plan.reap.reap_list is None:
        return lambda _tree: iter(())
    lists, reap_list = wiring.reap_lists(), plan.reap.reap_list
    lists.checked(plan.reap)
    return lambda tree: lists.paths(reap_list, trees={tree}, action=action)


# ---
# The ledgers of rollbacks, to be read: where they lie, and which of them have carried something.


def back_directory(wiring: Wiring, record: CutoverRecord) -> Path:
    """Of the rollback of one cutover: no other one has the same, whatever ledger it is in."""
    return wiring.site.site.state_dir / "back" / record.own_name


@contextmanager
def back_ledger(wiring: Wiring, record: CutoverRecord) -> Iterator[Ledger | None]:
    """The ledger of a cutover's rollback, to be read; None where none was made, or its making was interrupted."""
    directory = back_directory(wiring, record)
    if not (directory / "made").exists():
        yield None
        return
    with open_ledger(directory / "ledger.db", read_only=True) as ledger:
        yield ledger


def carried_of(wiring: Wiring, ledger: Ledger, users: Sequence[str]) -> tuple[CutoverRecord, ...]:
    """The cutovers, of any plan, of users who work on the target, but to whose kept source a rollback has carried something
    before it was given up.
    """
    found: list[CutoverRecord] = []
    for record in sorted(newest_attempts(ledger.cutovers.all()), key=lambda one: one.tree.path):
        if record.tree.user not in users or record.state is not CutoverState.RETAINED:
            continue
        with back_ledger(wiring, record) as carried:
            if carried is not None and newest_pass(carried, record) is not None:
                found.append(record)
    return tuple(found)


# ---
# What carrying back is made of: the sides of one user tree, and the site of its rollback.


_GIVEN_UP = "given-up"
"""In the directory of a rollback: the paths, each with a NUL, that are carried back whether they changed or not."""


@dataclass(frozen=True, kw_only=True)
class BackSites(CarryingBack):
    """Carrying back for one site, in `state_dir/back/NUMBER-TOKEN`, by the number and the token of the cutover. `own` is the ledger
    of the migration, `known` the site as that has it.
    """

    wiring: app.Wiring
    own: Ledger
    known: SiteRecord
    progress: Progress

    def read(self, record: CutoverRecord) -> AbstractContextManager[Ledger | None]:
        """One whose making was interrupted is none yet."""
        return back_ledger(self.wiring, record)

    @asynccontextmanager
    async def open(self, record: CutoverRecord) -> AsyncIterator[BackParts]:
        directory, wiring = back_directory(self.wiring, record), self.wiring
        with open_ledger(directory / "ledger.db", create=True) as ledger, wiring.source() as real:
            kept = ledger.site.read()
            if kept is None:
                ledger.site.create(exchanged(self.known, None))
            (directory / "made").touch()
            source, target = self._sides(record, real, kept.capabilities if kept else None)
            moves, here = MovingTarget(wiring.source_root), _Here()
            try:
                yield self._parts(
                    record, directory, ledger=ledger, source=source, target=target, moves=moves, here=here
                )
            finally:
                await here.close()
                for side in (source, target, moves):
                    side.close()

    def top(self, record: CutoverRecord, *, source_before: FrozenTop, target_before: FrozenTop) -> Entry:
        capabilities = self.known.capabilities
        if capabilities is None:
            raise Refused("what the target can keep is not known", hint="run `migrator doctor`")
        with self.wiring.source() as real:
            sides = self._sides(record, real, None)
            try:
                source, target = (side.top() for side in sides)
            finally:
                for side in sides:
                    side.close()
        return carried_top(
            source, target, source_before=source_before, target_before=target_before, capabilities=capabilities
        )

    def changed_source(self, record: CutoverRecord, *, before: str, now: str) -> Sequence[SourceChange]:
        catalogs, directory = self.wiring.closed_catalogs(self.own), back_directory(self.wiring, record)
        with self.read(record) as ledger:
            passes = () if ledger is None else ledger.passes.of_batch(PLAN, record.id)
            back = None if ledger is None else ClosedCatalogs(directory / "catalogs", ledger.scans.named)
            carried = [back.open(one.catalog) for one in passes if back and one.kind is not PassKind.SEED]
        return changed_source(
            catalogs.open(before),
            catalogs.open(now),
            tree=record.tree.path,
            carried=carried,
            ctimes=self.wiring.site.source.kind != "gluster",
            scratch=self.wiring.scratch,
        )

    def give_up_source(self, record: CutoverRecord, changes: Sequence[SourceChange]) -> int:
        directory = back_directory(self.wiring, record)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        again = {*self._given_up(directory)}
        for change in changes:
            # What was made and what is moved away changes the times of the directory that holds it.
            again |= {change.path, parent(change.path)}
        write_durably(directory / _GIVEN_UP, b"".join(path + b"\0" for path in sorted(again)))
        place, kept = trash_place(record.since_s, record.id, "rollback", 0), 0
        moves = MovingTarget(self.wiring.source_root)
        try:
            moves.open_place(place)
            for change in changes:
                # Of a directory that was there before only attributes differ, and what lies in it is listed by itself.
                if change.stands is EntryType.DIRECTORY and change.kind is SourceChangeKind.CHANGED:
                    continue
                kept += moves.trash(change.path, place) is not None
        finally:
            moves.close()
        return kept

    @staticmethod
    def _given_up(directory: Path) -> tuple[bytes, ...]:
        try:
            return tuple(path for path in (directory / _GIVEN_UP).read_bytes().split(b"\0") if path)
        except FileNotFoundError:
            return ()

    def _sides(
        self, record: CutoverRecord, real: PosixSource | GlusterSource, kept: TargetCapabilities | None
    ) -> tuple[SourceSide, TargetSide]:
        wiring, tree = self.wiring, record.tree.path
        source = SourceSide(wiring.source_root, kept, tree=tree, hidden=ARCHIVE_DIRECTORY, source=real)
        known = self.known.capabilities
        return source, TargetSide(wiring.target_root, known, tree=tree, hidden=ARCHIVE_DIRECTORY, source=real)

    def _parts(
        self,
        record: CutoverRecord,
        directory: Path,
        *,
        ledger: Ledger,
        source: SourceSide,
        target: TargetSide,
        moves: MovingTarget,
        here: "_Here",
    ) -> BackParts:
        wiring, site = self.wiring, self.wiring.site
        lists = ChunkListFiles(directory / "plans", splits_dir=directory / "splits", passes_dir=directory / "passes")
        catalogs = ClosedCatalogs(directory / "catalogs", ledger.scans.named)
        manifests = ManifestDirectories(directory / "manifests", catalogs=catalogs, scratch=wiring.scratch)

        async def compare(plan: Plan) -> VerificationRecord:
            # What the plan has archived, or left where it is, is on the source alone.
            own, _ = await asyncio.to_thread(wiring.plans(self.known.site_id).read, record.plan)
            return await Verification(
                request=VerifyRequest(
                    plan=replace(plan, reap=own.reap),
                    batch=record.id,
                    policy=self.policy,
                    carry=True,
                    workers=site.verify.workers,
                ),
                source=source,
                target=target,
                manifests=manifests,
                ledger=ProofLedger.over(ledger, site=self.known, own=self.own),
                progress=self.progress,
                clock=wiring.clock,
                reap_lists=wiring.reap_lists(),
            ).run()

        return BackParts(
            site=self.known,
            source=source,
            target=target,
            # Its device number changes with every mount: a file system of servers, or of FUSE.
            flushes=self.known.source.device is None,
            # The verification that the cutover was switched with.
            proof=next(
                (one for one in self.own.verifications.of_plan(record.plan) if one.id == record.notes.verification_id),
                None,
            ),
            switched=SwitchedCatalogFiles(
                catalogs, manifests=wiring.manifests(self.own), hidden=ARCHIVE_DIRECTORY, scratch=wiring.scratch
            ),
            world=World(
                source=target,
                target=source,
                lanes=self._lanes(ledger, here),
                bricks=None,
                driving=None,
                chunk_lists=lists,
                documents=PlanFiles(directory / "plans", site_id=self.known.site_id),
                ledger=ledger,
                progress=self.progress,
                clock=wiring.clock,
                activity=wiring.activity(),
                blocking=wiring.blocking(),
                tokens=app.new_token,
            ),
            files=RunFiles(directory / "runs"),
            deltas=Deltas(
                scan=self._scan(directory, ledger=ledger, target=target),
                comparisons=Comparisons(catalogs, scratch=wiring.scratch),
                pass_lists=lists,
                move_lists=MoveListFiles(directory / "moves"),
                differing=manifests,
                moves=moves,
                chunk_limits=chunk_limits(site),
                again=self._given_up(directory),
                reap_lists=wiring.reap_lists(),
                max_shrink=site.transfer.max_shrink,
                trash_keep_s=site.transfer.trash_keep_s,
                limits=PassLimits(max_freeze_s=site.cutover.max_freeze_s, max_delta_passes=1),
            ),
            # The free inodes that site.toml names are those of the target.
            request=replace(run_request(site, PLAN, (record.id,), engine=pass_engine(site)), inodes_free=None),
            verify=compare,
        )

    def _lanes(self, ledger: Ledger, here: "_Here") -> Lanes:
        """This machine, through both mounts."""

        async def no_volume() -> VolumeState:
            raise ToolFailed("what is carried back is not read from bricks")

        wiring = self.wiring
        maker = WayMaker(wiring.site, known=ledger.site.read(), volume=no_volume)
        places = Places(source=wiring.target_root, target=wiring.source_root, own=True)

        async def make(host: Host, brick: str | None) -> Way:
            way = await maker.way(host, brick, places)
            here.executors.append(way.executor)
            return way

        hosts = OneHost(here.host)
        return Lanes([HostLane(OWN_HOST, jobs=wiring.site.transfer.jobs, reads_mount=True, hosts=hosts, make_way=make)])

    def _scan(
        self, directory: Path, *, ledger: Ledger, target: TargetSide
    ) -> Callable[[Sequence[bytes]], Awaitable[CatalogRecord]]:
        wiring, site = self.wiring, self.wiring.site

        async def scan_target(trees: Sequence[bytes]) -> CatalogRecord:
            return await scan(
                ScanRequest(
                    trees=site.users.trees,
                    exclude=site.users.exclude,
                    users=user_map(site),
                    via="mount",
                    workers=SCAN_WORKERS,
                    only=tuple(trees),
                ),
                source=target,
                ledger=ledger,
                catalogs=CatalogDirectories(directory / "catalogs", scratch=wiring.scratch),
                progress=self.progress,
                clock=wiring.clock,
            )

        return scan_target


class _Here:
    """This machine, with the executors that were made for it: they hold the source open, to tell of every error."""

    def __init__(self) -> None:
        self.host = LocalHost(name=OWN_HOST)
        self.executors: list[Executor] = []

    async def close(self) -> None:
        """Let go of all."""
        for executor in self.executors:
            if isinstance(executor, LocalExecutor):
                await executor.close()
        await self.host.close()


# ---
# What `cutover` and `rollback` are made of.


def pass_engine(site: Site) -> str:
    """What final passes copy with: drivers take whole trees, and send again what is there."""
    engine = site.transfer.engine
    return "auto" if engine in DRIVERS else engine


@asynccontextmanager
async def cutover_world(
    wiring: app.Wiring,
    *,
    ledger: Ledger,
    known: SiteRecord,
    policy: DigestPolicy,
    progress: Progress,
    ahead: bool,
) -> AsyncIterator[CutoverWorld]:
    """For the length of the block; `known` is the site as the ledger has it. `ahead`: reach the brick servers at once."""
    site = wiring.site
    engine = pass_engine(site)
    with ExitStack() as stack:
        source = stack.enter_context(wiring.source())
        target = stack.enter_context(wiring.target(known.capabilities))
        moves = stack.enter_context(wiring.target_moves())
        async with (
            reached(site) as hosts,
            lanes_of(site, source, known, jobs=None, engine=engine, ahead=ahead, hosts=hosts) as lanes,
        ):
            deltas = deltas_of(
                wiring,
                source,
                moves=moves,
                ledger=ledger,
                progress=progress,
                hosts=hosts,
                engine=engine,
                at_most=1,
            )
            if deltas is None:
                raise UsageError("final passes cannot be made with this engine", hint='set [transfer] engine = "auto"')
            run = run_world(wiring, source, target, lanes, known=known, ledger=ledger, progress=progress, engine=engine)
            target_side = PosixSource(wiring.target_root)
            stack.callback(target_side.close)
            # What it opens anew is what the source keeps, so no capabilities are given: all is tried.
            source_trees = MountedTarget(wiring.source_root)
            stack.callback(source_trees.close)
            place = link_place(site)
            yield CutoverWorld(
                run=run,
                hooks=wiring.hooks(),
                locks=wiring.locks(),
                files=wiring.run_files(),
                freezer=MountedTops(wiring.source_root),
                trees=target,
                source_trees=source_trees,
                source_writers=_writers(wiring, source, hosts),
                target_writers=target_writers(wiring, target_side),
                links=None if place is None else SymlinkedPaths(place),
                place=place,
                verify=_verifier(wiring, ledger=ledger, known=known, policy=policy, progress=progress),
                manifests=wiring.manifests(ledger),
                policy=policy,
                deltas=deltas,
                back=BackSites(wiring=wiring, own=ledger, known=known, progress=progress, policy=policy),
                backup=backing_up(ledger, site.site.state_dir),
                archive_folders=archive_folders(wiring),
                archived=lambda: proven_archives(wiring, ledger),
                to_archive=lambda plan, tree: reap_rows(wiring, plan, ReapAction.ARCHIVE)(tree),
                comparing=_comparing(wiring, ledger),
            )


def _writers(wiring: app.Wiring, source: PosixSource | GlusterSource, hosts: Hosts) -> WriterSearch:
    if isinstance(source, GlusterSource):
        return BrickWriters(hosts, host_specs(wiring.site), source, processes=wiring.processes)
    return LocalWriters(wiring.processes, source)


def _comparing(wiring: app.Wiring, ledger: Ledger) -> Comparing | None:
    cutover = wiring.site.cutover
    if not cutover.compare:
        return None
    executor = SystemExecutor(
        wiring.processes,
        source_root=wiring.source_root,
        target_root=wiring.target_root,
        compiled=native_program().path,
    )
    return Comparing(
        timing=ConfinedTreeTiming(executor).visit,
        samples=CatalogFileSamples(wiring.closed_catalogs(ledger), scratch=wiring.scratch),
        records=ledger.speed_ups,
        limit_s=float(cutover.compare_limit_s),
    )


def _verifier(
    wiring: app.Wiring, *, ledger: Ledger, known: SiteRecord, policy: DigestPolicy, progress: Progress
) -> VerifyTree:
    async def verify_tree(plan: Plan, batch: int, tree: bytes) -> VerificationRecord:
        # Opened anew: what was looked at before the final pass must not be remembered.
        with wiring.source() as source, wiring.target(known.capabilities) as target:
            return await Verification(
                request=VerifyRequest(
                    plan=plan,
                    batch=batch,
                    trees=(tree,),
                    policy=policy,
                    carry=True,
                    workers=wiring.site.verify.workers,
                ),
                source=source,
                target=target,
                manifests=wiring.manifests(ledger),
                reap_lists=wiring.reap_lists(),
                archived=proven_archives(wiring, ledger),
                ledger=ledger,
                progress=progress,
                clock=wiring.clock,
            ).run()

    return verify_tree


# ---
# What a purge is made of.


@asynccontextmanager
async def purge_world(
    wiring: Wiring, source: PosixSource | GlusterSource, target: MountedTarget, ledger: Ledger, progress: Progress
) -> AsyncIterator[PurgeWorld]:
    """The ports of a purge, for the length of the block. Raises UsageError, OSError where the source cannot be opened."""
    site = wiring.site
    places = MountedPlaces(wiring.source_root)
    try:
        async with reached(site) as hosts:
            yield PurgeWorld(
                source=source,
                target=target,
                places=places,
                manifest=ManifestFiles(scratch=wiring.scratch),
                manifests=wiring.manifests(ledger),
                storage=wiring.storage_targets() or NoStorageTargets(),
                writers=_writers(wiring, source, hosts),
                link=_link(wiring),
                backup=_recorded(wiring, ledger),
                back_up=backing_up(ledger, site.site.state_dir),
                archived=lambda: proven_archives(wiring, ledger),
                skipped=_skipped(wiring, ledger),
                **wiring.operation_ports(ledger, progress),
                carried=_carried(wiring),
            )
    finally:
        places.close()


def _recorded(wiring: Wiring, ledger: Ledger) -> Callable[[CutoverRecord], BackupSeen]:
    """Whether a backup of the tree is recorded that began after its user was let in."""

    def look(record: CutoverRecord) -> BackupSeen:
        if not wiring.site.cutover.wait_for_backup:
            return BackupSeen.NOT_ASKED
        begun_s, let_in_s = ledger.target_backups.latest(record.tree.path), record.thawed_at_s
        known = begun_s is not None and let_in_s is not None and begun_s >= let_in_s
        return BackupSeen.RECORDED if known else BackupSeen.MISSING

    return look


def _skipped(wiring: Wiring, ledger: Ledger) -> Callable[[CutoverRecord], Iterable[Sequence[ReapRow]]]:
    def look(record: CutoverRecord) -> Iterable[Sequence[ReapRow]]:
        known = ledger.site.read()
        plan, _ = wiring.plans(known.site_id if known else None).read(record.plan)
        return reap_rows(wiring, plan, ReapAction.SKIP)(record.tree.path)

    return look


def _carried(wiring: Wiring) -> Callable[[CutoverRecord], Sequence[VerificationRecord] | None]:
    def look(record: CutoverRecord) -> Sequence[VerificationRecord] | None:
        with back_ledger(wiring, record) as ledger:
            if ledger is None or newest_pass(ledger, record) is None:
                return None
            return [one for one in ledger.verifications.of_plan(PLAN) if one.batch == record.id]

    return look


def _link(wiring: Wiring) -> Callable[[UserTree], LeadsTo]:
    """Where the path of a user leads; real paths are compared."""
    place = link_place(wiring.site)
    if place is None:
        return lambda _tree: LeadsTo.UNTOLD
    links = SymlinkedPaths(place)

    def look(tree: UserTree) -> LeadsTo:
        if problem := naming_problem(place.link, tree):
            raise OSError(0, problem, tree.path)
        found = links.read_link(tree)
        if found.unread:
            raise OSError(0, found.unread, found.path)
        source, target = join(wiring.source_root, tree.path), join(wiring.target_root, tree.path)
        if found.leads_to is None:
            # While a tree is purged its path on the source is gone, but a link may still name it.
            named = os.path.normpath(os.path.join(found.directory or b"/", found.text or b""))
            return LeadsTo.SOURCE if named == source else LeadsTo.ELSEWHERE
        sides = {os.path.realpath(source): LeadsTo.SOURCE, os.path.realpath(target): LeadsTo.TARGET}
        return sides.get(found.leads_to, LeadsTo.ELSEWHERE)

    return look
