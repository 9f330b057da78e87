"""Wiring of cutovers, rollbacks, purges and archives."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from migrator.app import Wiring
from migrator.app.doctor import target_writers
from migrator.app.hosts import connecting, endpoints, host_specs, reached
from migrator.app.ledger import MigrationLedger
from migrator.app.scan import marks_reader
from migrator.app.transfer import deltas_of, pass_engine, run_request, run_world
from migrator.app.verification import archive_folders, proven_archives, readers_of, reading_hosts, verification
from migrator.bench.tree_timing import visit_tree
from migrator.catalog.model import VerificationRecord
from migrator.core.entry import UserTree
from migrator.core.errors import UsageError
from migrator.core.paths import join
from migrator.core.progress import Progress
from migrator.cutover.call import Comparing, CutoverCall
from migrator.cutover.links import links_of
from migrator.cutover.migration import ROLLBACK_PLAN, Migration, RollbackSites, Verifying, exchanged
from migrator.cutover.model import CutoverRecord
from migrator.cutover.model_calls import CutoverRequest
from migrator.cutover.model_snapshot import LinkState
from migrator.cutover.rollback import Rollback, Rollbacks, newest_pass
from migrator.cutover.rollback_sides import SourceAsTarget, TargetAsSource
from migrator.cutover.tops import MountedTops
from migrator.cutover.writers import SearchBegun, SearchesAhead, brick_writers, local_writers, unseen_writers
from migrator.fs.model import DigestPolicy, TargetCapabilities
from migrator.fs.ports import SourceFileSystem
from migrator.fs.reading import PosixSource, ReadingFileSystem
from migrator.fs.writing import MountedTarget
from migrator.gluster.changes import GlusterVolumeCommands
from migrator.gluster.volume import GlusterSource
from migrator.hosts.ports import Hosts
from migrator.hosts.site import SiteHosts
from migrator.ledger.model import SiteRecord
from migrator.plan.model import Plan
from migrator.purge.call import PurgePorts
from migrator.purge.files import MountedPlaces
from migrator.reap.archive import ArchivePorts, Rows
from migrator.reap.files import MemberReader
from migrator.reap.model import ReapRow
from migrator.reap.restore import RestorePorts
from migrator.site.model import ReapAction
from migrator.transfer.context import TransferPorts

if TYPE_CHECKING:
    from migrator.verify.content import Readers
    from migrator.verify.verify import Verification

# ---
# Archives of reaped files


def archiving_world(
    wiring: Wiring,
    plan: Plan,
    source: ReadingFileSystem,
    target: MountedTarget,
    *,
    ledger: MigrationLedger,
    progress: Progress,
) -> ArchivePorts:
    """The ports of `reap archive`."""
    return ArchivePorts(
        source=source,
        target=target,
        members=MemberReader(source, algorithm=wiring.site.verify.digest),
        folders=archive_folders(wiring, ledger),
        rows=reap_rows(wiring, plan, ReapAction.ARCHIVE),
        ledger=ledger,
        progress=progress,
        clock=wiring.clock,
        storage=wiring.storage_targets(),
    )


def restoring_world(
    wiring: Wiring,
    *,
    to: Path | None,
    capabilities: TargetCapabilities | None,
    ledger: MigrationLedger,
    progress: Progress,
) -> RestorePorts:
    """The ports of `reap restore`. `to` is an existing directory; None: the target, whose `capabilities` are known.
    Raises UsageError if `to` is no directory.
    """
    if to is not None and not to.is_dir():
        raise UsageError(f"{to} is no directory", hint="make it first: files are restored below it")
    return RestorePorts(
        folders=archive_folders(wiring, ledger),
        destination=ReadingFileSystem(wiring.target_root, owners=wiring.site.users.owners)
        if to is None
        else ReadingFileSystem(os.fsencode(to)),
        capabilities=(capabilities if to is None else None) or TargetCapabilities(),
        ledger=ledger,
        locks=wiring.locks(),
        progress=progress,
        clock=wiring.clock,
    )


def reap_rows(wiring: Wiring, plan: Plan, action: ReapAction) -> Rows:
    """The rows of the plan's reap list with this action, by tree. Raises Refused if the list does not belong to the
    plan.
    """
    if plan.reap is None or plan.reap.reap_list is None:
        return lambda _tree: iter(())
    lists, reap_list = wiring.reap_lists(), plan.reap.reap_list
    lists.checked(plan.reap)
    return lambda tree: lists.paths(reap_list, trees={tree}, action=action)


# ---
# Migrations, and rollbacks: the same migration with its sides exchanged


@asynccontextmanager
async def migration(
    wiring: Wiring,
    source: SourceFileSystem,
    target: MountedTarget,
    *,
    hosts: SiteHosts,
    ledger: MigrationLedger,
    progress: Progress,
    verifying: Callable[[TransferPorts], Verifying],
    controls: MigrationLedger | None = None,
) -> AsyncIterator[Migration]:
    """The migration from `source` to `target`, for the length of the block. `controls` as for `run_world`."""
    with wiring.target_moves() as moves:
        async with run_world(
            wiring,
            source,
            target,
            hosts=hosts,
            ledger=ledger,
            controls=controls,
            progress=progress,
            engine=pass_engine(wiring.site),
        ) as world:
            yield Migration(
                world=world,
                files=wiring.run_files(),
                deltas=deltas_of(wiring, world, hosts=hosts, moves=moves),
                catalogs=wiring.closed_catalogs(ledger),
                scratch=wiring.scratch,
                verifying=verifying(world),
            )


def rollback_sites(wiring: Wiring) -> RollbackSites:
    """The sites of all rollbacks."""
    return RollbackSites(directory=wiring.rollbacks, open=partial(MigrationLedger.open, read_only=True))


def rollbacks(wiring: Wiring, own: MigrationLedger, *, progress: Progress, policy: DigestPolicy) -> Rollbacks:
    """The rollbacks of a site, whose ledger is `own`."""
    sites, known = rollback_sites(wiring), own.site.required()

    @asynccontextmanager
    async def opened(record: CutoverRecord) -> AsyncIterator[Rollback]:
        back = Wiring(exchanged(wiring.site, sites.directory_of(record)), own_journal=False)
        with back.ledger(create=True) as ledger, wiring.source() as real, ExitStack() as stack:
            kept = sites.prepare(record, ledger, known)
            plan = wiring.plan(own, record.plan)
            read = TargetAsSource(
                back.source_root,
                known.capabilities,
                tree=record.tree.path,
                name_seed=known.name_seed,
                source=real,
                tool=back.source_tool,
                owners=wiring.site.users.owners,
            )
            written = SourceAsTarget(
                back.target_root,
                kept.capabilities,
                tree=record.tree.path,
                name_seed=known.name_seed,
                source=real,
                tool=back.target_tool,
                links=back.site.rewritten_links,
            )
            for one in (read, written):
                stack.callback(one.close)

            @contextmanager
            def verifying(of_rollback: Plan, batch: int, trees: tuple[bytes, ...]) -> Iterator["Verification"]:
                # The source and the target as at the cutover. Paths that the plan has archived or left behind are on
                # the source only.
                made = verification(
                    back,
                    written,
                    read,
                    plan=replace(of_rollback, reap=plan.reap),
                    batch=batch,
                    trees=trees,
                    policy=policy,
                    ledger=ledger,
                    progress=progress,
                )
                made.own, made.reap_lists, made.archived = own, wiring.reap_lists(), None
                made.links = wiring.site.rewritten_links
                yield made

            async with (
                reached(back.site) as hosts,
                migration(
                    back,
                    read,
                    written,
                    hosts=hosts,
                    ledger=ledger,
                    controls=own,
                    progress=progress,
                    verifying=lambda _: verifying,
                ) as made,
            ):
                yield Rollback(
                    record=record,
                    plan=plan,
                    own=own,
                    migration=replace(made, deltas=replace(made.deltas, extras=None, reap_lists=wiring.reap_lists())),
                    source=written,
                    request=run_request(back.site, ROLLBACK_PLAN, (record.id,), engine=pass_engine(wiring.site)),
                )

    return Rollbacks(
        sites=sites,
        source_root=wiring.source_root,
        catalogs=wiring.closed_catalogs(own),
        ctimes=wiring.site.source.kind != "gluster" and wiring.source_tool.kind.ctimes.holds,
        links=exchanged(wiring.site, wiring.rollbacks).rewritten_links,
        scratch=wiring.scratch,
        open=opened,
    )


# ---
# `cutover` and `rollback`


@asynccontextmanager
async def cutover_call(
    wiring: Wiring,
    ledger: MigrationLedger,
    progress: Progress,
    *,
    request: CutoverRequest,
    policy: DigestPolicy,
) -> AsyncIterator[CutoverCall]:
    """A call of `cutover` or `rollback`, for the length of the block. Connects to the brick servers at once, except for
    a dry run.
    """
    site, known = wiring.site, ledger.site.required()
    with ExitStack() as stack:
        source = stack.enter_context(wiring.source())
        target = stack.enter_context(wiring.target(known))

        def verifying(world: TransferPorts) -> Verifying:
            readers = readers_of(wiring, world, source, hosts=hosts, frozen=True)
            return _verifying(wiring, readers, ledger=ledger, known=known, policy=policy, progress=progress)

        async with (
            connecting(site, source, ahead=not request.run.dry_run) as hosts,
            migration(
                wiring, source, target, hosts=hosts, ledger=ledger, progress=progress, verifying=verifying
            ) as there,
        ):
            target_side = stack.enter_context(closing(PosixSource(wiring.target_root)))
            # It restores attributes that the source has kept, so no capabilities are given: all attributes are tried.
            source_trees = stack.enter_context(closing(MountedTarget(wiring.source_root)))
            yield CutoverCall(
                request=request,
                migration=there,
                rollbacks=rollbacks(wiring, ledger, progress=progress, policy=policy),
                ledger=ledger,
                freezer=MountedTops(wiring.source_root),
                trees=target,
                source_trees=source_trees,
                source_writers=SearchesAhead(_writers(wiring, source, hosts)),
                target_writers=target_writers(wiring, target_side),
                unseen_writers=_unseen_writers(wiring, source, hosts),
                hooks=wiring.hooks(),
                links=links_of(site),
                policy=policy,
                backup=partial(ledger.back_up, site.site.state_dir),
                to_archive=lambda plan, tree: reap_rows(wiring, plan, ReapAction.ARCHIVE)(tree),
                comparing=_comparing(wiring, ledger),
            )


def _writers(wiring: Wiring, source: PosixSource | GlusterSource, hosts: Hosts) -> SearchBegun:
    if isinstance(source, GlusterSource):
        return partial(brick_writers, hosts, host_specs(wiring.site), source, wiring.processes)
    return partial(local_writers, wiring.processes, source)


def _unseen_writers(
    wiring: Wiring, source: PosixSource | GlusterSource, hosts: SiteHosts
) -> Callable[[], Awaitable[tuple[str, ...]]] | None:
    if not isinstance(source, GlusterSource):
        return None
    clients = GlusterVolumeCommands(source.commands).clients
    return partial(unseen_writers, source, clients, endpoints(wiring, source, hosts), wiring.clock)


def _comparing(wiring: Wiring, ledger: MigrationLedger) -> Comparing | None:
    cutover = wiring.site.cutover
    if not cutover.compare:
        return None
    return Comparing(
        visit=partial(visit_tree, wiring.executor()),
        samples=wiring.catalog_reads(ledger),
        limit_s=float(cutover.compare_limit_s),
    )


def _verifying(
    wiring: Wiring,
    readers: "Readers",
    *,
    ledger: MigrationLedger,
    known: SiteRecord,
    policy: DigestPolicy,
    progress: Progress,
) -> Verifying:
    @contextmanager
    def verifying(plan: Plan, batch: int, trees: tuple[bytes, ...]) -> Iterator["Verification"]:
        with wiring.source() as source, wiring.target(known) as target:
            made = verification(
                wiring,
                source,
                target,
                plan=plan,
                batch=batch,
                trees=trees,
                policy=policy,
                ledger=ledger,
                progress=progress,
            )
            # As in `verify`: bricks are listed and read by their hosts, not through the mount.
            made.readers = readers
            yield made

    return verifying


# ---
# Purges


@asynccontextmanager
async def purge_ports(
    wiring: Wiring,
    source: PosixSource | GlusterSource,
    target: MountedTarget,
    ledger: MigrationLedger,
    progress: Progress,
) -> AsyncIterator[PurgePorts]:
    """The ports of a purge, for the length of the block. Raises UsageError, and OSError if the source cannot be opened."""
    site, storage = wiring.site, wiring.storage_targets()
    with closing(MountedPlaces(wiring.source_root)) as places:
        async with reached(site) as hosts:
            yield PurgePorts(
                source=source,
                target=target,
                places=places,
                scratch=wiring.scratch,
                manifests=wiring.manifests(ledger),
                storage=wiring.target_tool.missing if storage is None else storage.problems,
                writers=_writers(wiring, source, hosts),
                link=_link(wiring),
                back_up=partial(ledger.back_up, site.site.state_dir),
                archived=lambda: proven_archives(wiring, ledger),
                skipped=_skipped(wiring, ledger),
                **wiring.operation_ports(ledger, progress),
                carried=_carried(rollback_sites(wiring)),
                marks=marks_reader(site, source, hosts),
                readers=partial(
                    reading_hosts,
                    wiring,
                    source,
                    target,
                    hosts=hosts,
                    ledger=ledger,
                    progress=progress,
                    jobs=None,
                    reread=False,
                ),
            )


def _skipped(wiring: Wiring, ledger: MigrationLedger) -> Callable[[CutoverRecord], Iterable[Sequence[ReapRow]]]:
    def rows(record: CutoverRecord) -> Iterable[Sequence[ReapRow]]:
        plan, _ = wiring.plans(ledger.site.read()).read(record.plan)
        return reap_rows(wiring, plan, ReapAction.SKIP)(record.tree.path)

    return rows


def _carried(sites: RollbackSites) -> Callable[[CutoverRecord], Sequence[VerificationRecord] | None]:
    def verifications(record: CutoverRecord) -> Sequence[VerificationRecord] | None:
        with sites.read(record) as rollback:
            if rollback is None or newest_pass(rollback) is None:
                return None
            of_plan = rollback.ledger.verifications.of_plan(rollback.plan)
            return [one for one in of_plan if one.batch == rollback.batch]

    return verifications


def _link(wiring: Wiring) -> Callable[[UserTree], LinkState]:
    """Finds where a user's path leads; real paths are compared."""
    links = links_of(wiring.site)
    if links is None:
        return lambda _tree: LinkState.BY_HOOK

    def side_of(tree: UserTree) -> LinkState:
        found = links.read_link(tree)
        if found.unread:
            raise OSError(0, found.unread, found.path)
        if found.leads_to is not None:
            return links.side_of(tree, found)
        # During a purge the tree's path on the source is gone, but a link may still name it.
        named = os.path.normpath(os.path.join(found.directory or b"/", found.text or b""))
        return LinkState.SOURCE if named == join(wiring.source_root, tree.path) else LinkState.OTHER

    return side_of
