"""Wiring of runs and their lanes."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from migrator.app import Wiring, new_token
from migrator.app.hosts import format_time, host_specs
from migrator.beegfs.model import LaidOut, LayoutRule
from migrator.catalog.model import CatalogRecord
from migrator.catalog.rules_packing import ChunkLimits
from migrator.core.clock import local_time
from migrator.core.errors import LockHeld, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.progress import Progress
from migrator.fs.moving import MovingTarget
from migrator.fs.ports import FileSystem, SourceFileSystem
from migrator.fs.rules_owners import between
from migrator.fs.writing import MountedTarget
from migrator.gluster.model import VolumeState
from migrator.gluster.rules import brick_rules
from migrator.gluster.volume import GlusterSource
from migrator.hosts.far_procfs import activity
from migrator.hosts.local import LocalHost, load_of
from migrator.hosts.model import TARGET_HOSTS, HostRoots, brick_problem, target_problem
from migrator.hosts.ports import Host, HostFacts, Hosts
from migrator.hosts.process import LocalProcesses
from migrator.hosts.site import SiteHosts, assign_writers, names
from migrator.ledger.event_log import emit_event
from migrator.ledger.model import SiteRecord
from migrator.native.program import native_program
from migrator.site.config import Site
from migrator.site.model import DRIVERS, copies_ranges, needs_rsync
from migrator.transfer.context import LOG, TransferPorts
from migrator.transfer.delta.delta import Deltas
from migrator.transfer.engines.direct import DirectEngine
from migrator.transfer.engines.rsync import RsyncEngine, ask, carries_acls_by_value
from migrator.transfer.engines.rules_rsync import RsyncFeatures
from migrator.transfer.executors import Executor, LocalExecutor
from migrator.transfer.governor import Governing
from migrator.transfer.model_convergence import PassLimits
from migrator.transfer.model_governor import Limits, StreamsBy
from migrator.transfer.model_runs import RunRequest
from migrator.transfer.ports import BrickRefused, ConnectedHost, CopyEngine, Driving
from migrator.transfer.routes import HostLane, VolumeGuard
from migrator.transfer.two_ends import TwoEnds

if TYPE_CHECKING:
    from migrator.app.ledger import MigrationLedger
    from migrator.hosts.slurm import SlurmHosts


# Lanes: on this machine, on the brick servers, on nodes of a batch system


OWN_HOST = "localhost"


class StreamRoots(Struct, frozen=True, kw_only=True):
    """The paths that streams of one host read (except bricks) and write. `source` is empty where it is not mounted."""

    source: bytes
    target: bytes
    own: bool = False


class HostConnector:
    """Connects hosts: checks the file systems at their roots, and finds the engines of each host that the
    requested one may need.
    """

    def __init__(
        self, known: SiteRecord, source: SourceFileSystem, target: FileSystem, *, engine: str, atimes: bool = False
    ) -> None:
        self._known = known
        self._source = source
        self._owners = between(source.owners, target.owners)
        self._engine = engine
        self._atimes = atimes
        self._state: VolumeState | None = None
        self._asking = asyncio.Lock()
        self._rsyncs: dict[tuple[str, str, int], tuple[bytes, RsyncFeatures] | None] = {}

    async def connect(self, host: Host, brick: str | None, places: StreamRoots) -> ConnectedHost:
        """The host, with its executor and engines. Raises HostLost, and ToolFailed if the host cannot copy."""
        source = places.source if brick is None else _path_of(brick)
        if not places.own:
            await self._prove(host, brick, places)

        async def compiled() -> bytes:
            native = native_program()
            return native.path if places.own else await native.place(host)

        facts = await host.identity()
        privileged = facts.effective_uid == 0
        direct = self._direct(await compiled(), facts)
        engines: dict[str, CopyEngine] = {direct.name: direct}
        # Only `direct` reads bricks.
        has_mount = brick is None and bool(places.source)
        found = await self._rsync_of(host, facts) if has_mount and needs_rsync(self._engine) else None
        kept = self._known.capabilities
        by_value = bool(self._owners) and kept is not None and carries_acls_by_value(kept)
        if found is not None and found[1].problem() is None and not by_value:
            rsync = RsyncEngine(
                program=found[0],
                features=found[1],
                privileged=privileged,
                atimes=self._atimes,
                owners=self._owners,
            )
            engines[rsync.name] = rsync
        executor = (
            LocalExecutor(
                host.processes, source_root=source, target_root=places.target, host=host.name, compiled=compiled
            )
            if places.own
            else Executor(host, source_root=source, target_root=places.target, compiled=compiled, facts=facts)
        )
        rules = None if brick is None else brick_rules(await self._volume_state())
        return ConnectedHost(executor=executor, engines=engines, brick=rules)

    async def connect_two(
        self, reader: Host, brick: str | None, *, hosts: Hosts, writer: str, target: bytes
    ) -> ConnectedHost:
        """A brick server without the target, and the host that writes for it. For no brick, the latter alone. Raises
        HostLost, ToolFailed.
        """
        host = await hosts.reach(writer)
        place = StreamRoots(source=b"", target=target)
        if brick is None:
            return await self.connect(host, None, place)
        await self._prove(host, None, place)
        await self._prove_brick(await reader.roots(b"", _path_of(brick)), brick)
        native, facts = native_program(), await host.identity()
        executor = TwoEnds(
            host,
            Executor(
                reader,
                source_root=_path_of(brick),
                target_root=b"",
                compiled=partial(native.place, reader),
                facts=await reader.identity(),
            ),
            target_root=target,
            compiled=partial(native.place, host),
            facts=facts,
        )
        engine = self._direct(await executor.compiled_program(), facts)
        rules = brick_rules(await self._volume_state())
        return ConnectedHost(executor=executor, engines={engine.name: engine}, brick=rules)

    def _direct(self, program: bytes, facts: HostFacts) -> DirectEngine:
        return DirectEngine(
            program=program,
            privileged=facts.effective_uid == 0,
            name_seed=self._known.name_seed,
            atimes=self._atimes,
            owners=self._owners,
        )

    async def _prove_brick(self, roots: HostRoots, brick: str) -> None:
        if problem := brick_problem((await self._volume_state()).volume_id, roots, brick):
            raise BrickRefused(problem, hint="see `migrator doctor`")

    async def _prove(self, host: Host, brick: str | None, places: StreamRoots) -> None:
        """Verify the file systems at the roots: an unmounted target is an empty directory, and a brick's path may be
        any directory.
        """
        roots = await host.roots(places.target, b"" if brick is None else _path_of(brick))
        problem = target_problem(self._known.target, roots, os.fsdecode(places.target))
        if problem is None and brick is None and places.source:
            roots = await host.roots(places.source, b"")
            problem = target_problem(self._known.source, roots, os.fsdecode(places.source), where="the source")
        if problem is not None:
            raise ToolFailed(problem, hint="see `migrator doctor`")
        if brick is not None:
            await self._prove_brick(roots, brick)

    async def _rsync_of(self, host: Host, facts: HostFacts) -> tuple[bytes, RsyncFeatures] | None:
        """The rsync of a host, queried once per connection; None if there is none."""
        key = (host.name, facts.boot_id, facts.process_id)
        if key not in self._rsyncs:
            rsync = await host.find("rsync")
            self._rsyncs[key] = None if rsync is None else (rsync, await ask(host.processes, rsync))
        return self._rsyncs[key]

    async def _volume_state(self) -> VolumeState:
        async with self._asking:
            if not isinstance(self._source, GlusterSource):
                raise ToolFailed("the source has no bricks")
            if self._state is None:
                self._state = await self._source.state_for_bricks()
            return self._state


def driving(wiring: Wiring, engine: str) -> Driving | None:
    """The requested driver; None for engines that copy chunks. Raises ToolFailed if it is missing."""
    if engine not in DRIVERS:
        return None
    # Imported late: few runs use a driver.
    from migrator.transfer.engines import drivers

    site, privileged, atimes = wiring.site, os.geteuid() == 0, wiring.site.transfer.atimes
    return Driving(
        driver=drivers.Fpsync(drivers.locate_fpsync(), privileged=privileged, atimes=atimes)
        if engine == "fpsync"
        else drivers.Parsyncfp2(drivers.locate_parsyncfp2(), privileged=privileged, atimes=atimes),
        executor=wiring.executor(),
        states=drivers.DriverDirectories(site.site.state_dir / "drivers"),
        part_files=site.transfer.chunk_files,
        part_bytes=site.transfer.chunk_size_bytes,
    )


@asynccontextmanager
async def run_world(
    wiring: Wiring,
    source: SourceFileSystem,
    target: MountedTarget,
    *,
    hosts: SiteHosts,
    ledger: "MigrationLedger",
    progress: Progress,
    engine: str,
    jobs: int | None = None,
    bwlimit_bytes_per_s: int | None = None,
    controls: "MigrationLedger | None" = None,
) -> AsyncIterator[TransferPorts]:
    """The ports of a run, for the length of the block. `jobs` from the command line applies to every host. `controls` has the
    operators' settings, if `ledger` is that of a rollback.

    The lanes are the mount's first, then one for each brick server that has the target, or a host of the target to write for it. After a driver, all is compared
    through the mount: the times on a brick are not those that the driver set. Raises ToolFailed if the requested driver
    is missing.
    """
    site, known, own = wiring.site, ledger.site.required(), LocalHost(name=OWN_HOST)

    async def here(_name: str) -> Host:
        return own

    connector = HostConnector(known, source, target, engine=engine, atimes=site.transfer.atimes)
    connect = connector.connect
    mount = StreamRoots(source=wiring.source_root, target=wiring.target_root, own=True)
    movers = _movers(site, known, jobs) if site.transfer.movers == "slurm" and engine not in DRIVERS else None
    # If nodes move the data, this machine only watches.
    own_jobs = 0 if movers else jobs or site.transfer.jobs
    lanes = [HostLane(OWN_HOST, own_jobs, reads_mount=True, reach=here, prepare=partial(connect, places=mount))]
    if movers is not None:
        on_nodes = StreamRoots(
            source=os.fsencode(site.slurm.source or site.source.mount),
            target=wiring.target_root
            if site.slurm.target is None
            else os.fsencode(site.slurm.target / site.target.path),
        )
        streams, prepare = jobs or site.slurm.jobs or site.transfer.jobs, partial(connect, places=on_nodes)
        lanes += [
            HostLane(name, streams, reads_mount=True, reach=movers.reach, movers=movers, prepare=prepare)
            for name in movers.names
        ]
    servers = () if site.source.via == "mount" or engine in DRIVERS else site.source.hosts
    writers = {
        name: section.target or site.target.mount
        for section in site.target.hosts
        for name in names(section.name, of=TARGET_HOSTS)
    }
    without = [name for section in servers if section.target is None for name in names(section.name)]
    written_by = assign_writers(without, list(writers))
    for section in servers:
        streams = jobs or section.jobs or site.transfer.jobs
        for name in names(section.name):
            writer = written_by.get(name, "")
            if section.target is not None:
                there = StreamRoots(source=b"", target=os.fsencode(section.target / site.target.path))
                prepare = partial(connect, places=there)
            elif writer:
                target_there = os.fsencode(writers[writer] / site.target.path)
                prepare = partial(connector.connect_two, hosts=hosts, writer=writer, target=target_there)
            else:
                continue
            lane = HostLane(name, streams, reads_mount=False, reach=hosts.reach, prepare=prepare, writer=writer)
            lanes.append(lane)
    try:
        world = TransferPorts(
            source=source,
            target=target,
            lanes=lanes,
            bricks=VolumeGuard(source) if isinstance(source, GlusterSource) else None,
            driving=driving(wiring, engine),
            chunk_lists=wiring.chunk_lists(),
            copy_digests=wiring.copy_digests(),
            documents=wiring.plans(known),
            ledger=ledger,
            locks=wiring.locks(),
            progress=progress,
            clock=wiring.clock,
            activity=activity,
            blocking=wiring.blocking,
            tokens=new_token,
            storage=wiring.storage_targets(),
            layouts=partial(_layouts, wiring, ledger),
            target_state=wiring.target_tool.state,
            governing=_governing(wiring, hosts, controls or ledger, bwlimit_bytes_per_s),
        )
        loop, call = asyncio.get_running_loop(), asyncio.current_task()

        def waits(held: LockHeld) -> bool:
            shown = EventKind.LEDGER_HELD, Severity.WARNING, "ledger", f"{held.message}: results wait for it"
            loop.call_soon_threadsafe(partial(emit_event, world, *shown, run_id=None, log=LOG))
            return call is None or not call.cancelling()

        with ledger.written_aside(waits):
            yield world
    finally:
        if movers is not None:
            await movers.close()
        await own.close()


def _movers(site: Site, known: SiteRecord, jobs: int | None) -> "SlurmHosts":
    # Imported late, as above, for nodes of a batch system.
    from migrator.hosts.slurm import SlurmHosts

    return SlurmHosts(
        LocalProcesses(),
        site_id=known.site_id,
        nodes=site.slurm.nodes,
        options=site.slurm.options,
        python=site.slurm.python,
        cpus=jobs or site.slurm.jobs or site.transfer.jobs,
        lease_s=site.transfer.lease_s,
    )


def _path_of(brick: str) -> bytes:
    return b"/" + os.fsencode(brick.partition(":/")[2])


# Runs


def run_request(
    site: Site, plan: str, batches: Sequence[int], *, engine: str, dry_run: bool = False, jobs: int | None = None
) -> RunRequest:
    """The request of a run, with the settings of site.toml."""
    transfer = site.transfer
    return RunRequest(
        plan=plan,
        batches=tuple(batches),
        jobs=jobs or transfer.jobs,
        pid=os.getpid(),
        dry_run=dry_run,
        engine=engine,
        lease_s=transfer.lease_s,
        stall_timeout_s=transfer.stall_timeout_s,
        sample_interval_s=transfer.sample_interval_s,
        reserve_bytes=transfer.reserve_bytes,
        inodes_free=site.target.inodes_free,
    )


def pass_engine(site: Site) -> str:
    """The engine of final passes. Drivers only make seed passes."""
    engine = site.transfer.engine
    return "auto" if engine in DRIVERS else engine


def _layouts(
    wiring: Wiring, ledger: "MigrationLedger", catalog: str, rules: Mapping[bytes, Sequence[LayoutRule]]
) -> Mapping[bytes, Sequence[LaidOut]]:
    with wiring.catalog_queries(ledger).open(catalog) as queries:
        return queries.laid_out(rules)


# The governor


def _governing(
    wiring: Wiring, hosts: SiteHosts, ledger: "MigrationLedger", bwlimit_bytes_per_s: int | None
) -> Governing:
    governor, transfer = wiring.site.governor, wiring.site.transfer
    return Governing(
        ledger=ledger,
        load_of=partial(load_of, hosts=hosts, names=host_specs(wiring.site), own=(OWN_HOST,)),
        limits=Limits(
            bwlimit_bytes_per_s=bwlimit_bytes_per_s or transfer.bwlimit_bytes_per_s,
            max_latency_s=governor.max_latency_s,
            max_load=governor.max_load,
        ),
        windows=transfer.windows,
        local_time=local_time,
        in_words=format_time,
        by=StreamsBy(governor.streams),
    )


# Delta passes


def scanning(
    wiring: Wiring, world: TransferPorts, *, hosts: SiteHosts, via: str
) -> Callable[[Sequence[bytes]], Awaitable[CatalogRecord]]:
    """Scans of some user trees, which the plan has given to users."""
    # Imports for scans, only if there is one.
    from migrator.app.scan import WORKERS, bricks
    from migrator.scan.scan import scan
    from migrator.scan.session import ScanRequest

    site = wiring.site

    async def scan_again(trees: Sequence[bytes]) -> CatalogRecord:
        request = ScanRequest(
            trees=site.users.trees,
            exclude=site.users.exclude,
            via=via,
            workers=WORKERS,
            only=tuple(trees),
        )
        catalogs = wiring.catalogs()
        async with bricks(site, world.source, via=via, hosts=hosts) as walks:
            if walks is not None and via != "mount":
                # Loaded in the background while the volume and the bricks are checked.
                asyncio.get_running_loop().run_in_executor(None, catalogs.load_for_bricks)
            return await scan(
                request,
                source=world.source,
                ledger=world.ledger,
                catalogs=catalogs,
                progress=world.progress,
                clock=wiring.clock,
                walks=walks,
            )

    return scan_again


def deltas_of(
    wiring: Wiring, world: TransferPorts, *, hosts: SiteHosts, moves: MovingTarget, at_most: int = 1
) -> Deltas:
    """The ports of a batch's delta passes; at most `at_most` of them are made. Drivers take no part in them: what an
    earlier pass left, and what changed since, is sent by chunks.
    """
    site, ledger = wiring.site, world.ledger
    # Imported late: not every run has delta passes.
    from migrator.transfer.delta.store import Extras

    transfer = site.transfer
    return Deltas(
        scan=scanning(wiring, world, hosts=hosts, via=site.source.via),
        comparisons=wiring.comparisons(ledger),
        move_lists=wiring.move_lists(),
        reap_lists=wiring.reap_lists(),
        manifests=wiring.manifests(ledger),
        extras=Extras(wiring.closed_catalogs(ledger), scratch=wiring.scratch),
        moves=moves,
        chunk_limits=ChunkLimits(
            max_bytes=transfer.chunk_size_bytes,
            max_files=transfer.chunk_files,
            range_size_bytes=transfer.range_size_bytes if copies_ranges(transfer.engine) else None,
        ),
        max_shrink=transfer.max_shrink,
        trash_keep_s=transfer.trash_keep_s,
        limits=PassLimits(max_freeze_s=site.cutover.max_freeze_s, max_delta_passes=at_most),
    )
