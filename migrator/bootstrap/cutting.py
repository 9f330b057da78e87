"""What `cutover` and `rollback` are made of."""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

from migrator import bootstrap
from migrator.adapters.benchmarks.tree_timing import ConfinedTreeTiming
from migrator.adapters.catalog.file_samples import CatalogFileSamples
from migrator.adapters.executors.system import SystemExecutor
from migrator.adapters.filesystems.freezing import MountedTops
from migrator.adapters.filesystems.gluster import GlusterSource
from migrator.adapters.filesystems.posix import PosixSource
from migrator.adapters.filesystems.switching import SymlinkedPaths
from migrator.adapters.filesystems.target import MountedTarget
from migrator.adapters.ledger.sqlite import SqliteLedger
from migrator.adapters.native.program import native_program
from migrator.adapters.writers.search import BrickWriters, LocalWriters
from migrator.bootstrap.archiving import archive_folders, proven_archives, rows_to_archive
from migrator.bootstrap.carrying_back import carrying_back
from migrator.bootstrap.deltas import deltas_of
from migrator.bootstrap.examining import link_place
from migrator.bootstrap.hosts import host_specs, reached
from migrator.bootstrap.ledger_backups import backing_up
from migrator.bootstrap.streams import brick_guard, lanes_of
from migrator.config.site import Site
from migrator.decide.engine_choice import DRIVERS
from migrator.domain.errors import UsageError
from migrator.domain.plan import Plan
from migrator.domain.verification import DigestPolicy, VerificationRecord
from migrator.ports.freezing import WriterSearch
from migrator.ports.hosts import Hosts
from migrator.ports.progress import Progress
from migrator.ports.site import SiteRecord
from migrator.stages.cutover import Comparing, CutoverWorld, VerifyTree
from migrator.stages.run.context import World
from migrator.stages.verify import VerifyRequest, verify


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverParts:
    """Both worlds of a cutover."""

    run: World
    world: CutoverWorld


def pass_engine(site: Site) -> str:
    """What final passes copy with: drivers take whole trees, and send again what is there."""
    engine = site.transfer.engine
    return "auto" if engine in DRIVERS else engine


@asynccontextmanager
async def cutover_parts(
    wiring: bootstrap.Wiring,
    *,
    ledger: SqliteLedger,
    known: SiteRecord,
    policy: DigestPolicy,
    progress: Progress,
    ahead: bool,
) -> AsyncIterator[CutoverParts]:
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
            run = World(
                source=source,
                target=target,
                lanes=lanes,
                bricks=brick_guard(source),
                driving=None,
                chunk_lists=wiring.chunk_lists(),
                documents=wiring.plans(known.site_id),
                ledger=ledger,
                progress=progress,
                clock=wiring.clock,
                activity=wiring.activity(),
                blocking=wiring.blocking(),
                tokens=bootstrap.new_token,
                storage=wiring.storage_targets(),
            )
            target_side = PosixSource(wiring.target_root)
            stack.callback(target_side.close)
            # What it opens anew is what the source keeps, so no capabilities are given: all is tried.
            source_trees = MountedTarget(wiring.source_root)
            stack.callback(source_trees.close)
            place = link_place(site)
            world = CutoverWorld(
                freezer=MountedTops(wiring.source_root),
                trees=target,
                source_trees=source_trees,
                source_writers=_writers(wiring, source, hosts),
                target_writers=LocalWriters(wiring.processes, target_side),
                links=None if place is None else SymlinkedPaths(place),
                place=place,
                verify=_verifier(wiring, ledger=ledger, known=known, policy=policy, progress=progress),
                manifests=wiring.manifests(),
                policy=policy,
                deltas=deltas,
                back=carrying_back(wiring, own=ledger, known=known, progress=progress, policy=policy),
                backup=backing_up(ledger, site.site.state_dir),
                archive_folders=archive_folders(wiring),
                archived=lambda: proven_archives(wiring, ledger),
                to_archive=lambda plan, tree: rows_to_archive(wiring, plan)(tree),
                comparing=_comparing(wiring, ledger),
            )
            yield CutoverParts(run=run, world=world)


def _writers(wiring: bootstrap.Wiring, source: PosixSource | GlusterSource, hosts: Hosts) -> WriterSearch:
    if isinstance(source, GlusterSource):
        return BrickWriters(hosts, host_specs(wiring.site), source, processes=wiring.processes)
    return LocalWriters(wiring.processes, source)


def _comparing(wiring: bootstrap.Wiring, ledger: SqliteLedger) -> Comparing | None:
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
        timing=ConfinedTreeTiming(executor),
        samples=CatalogFileSamples(wiring.site.catalogs_dir, temp_dir=wiring.temp_dir),
        records=ledger.speed_ups,
        limit_s=float(cutover.compare_limit_s),
    )


def _verifier(
    wiring: bootstrap.Wiring, *, ledger: SqliteLedger, known: SiteRecord, policy: DigestPolicy, progress: Progress
) -> VerifyTree:
    async def verify_tree(plan: Plan, batch: int, tree: bytes) -> VerificationRecord:
        # Opened anew: what was looked at before the final pass must not be remembered.
        with wiring.source() as source, wiring.target(known.capabilities) as target:
            return await verify(
                VerifyRequest(
                    plan=plan,
                    batch=batch,
                    trees=(tree,),
                    policy=policy,
                    carry=True,
                    workers=wiring.site.verify.workers,
                ),
                source=source,
                target=target,
                manifests=wiring.manifests(),
                reap_lists=wiring.reap_lists(),
                archived=proven_archives(wiring, ledger),
                ledger=ledger,
                progress=progress,
                clock=wiring.clock,
            )

    return verify_tree
