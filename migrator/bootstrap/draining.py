"""What `brick drain` and `brick stop` are made of."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from migrator.adapters.bricks.leftovers import HostLeftovers
from migrator.adapters.bricks.marks import marks_on_bricks, still_strange_on
from migrator.adapters.bricks.places import gluster_versions, look_at_places
from migrator.adapters.catalog.block_paths import paths_of
from migrator.adapters.catalog.brick_contents import BrickContentFiles
from migrator.adapters.filesystems.gluster import GlusterSource
from migrator.adapters.filesystems.gluster_drains import GlusterDrains
from migrator.adapters.filesystems.recovering import MountedVolumeRecovery
from migrator.adapters.ledger.sqlite import SqliteLedger
from migrator.adapters.output.left_list import LeftListFile
from migrator.adapters.writers.descriptors import open_on_bricks
from migrator.bootstrap import Wiring, new_token
from migrator.bootstrap.hosts import reached
from migrator.bootstrap.ledger_backups import backing_up
from migrator.bootstrap.local_time import local_time
from migrator.bootstrap.probing import probe_world
from migrator.bootstrap.scanning import bricks
from migrator.domain.brick import Brick
from migrator.domain.drain_preflight import BrickMarks
from migrator.domain.drain_seen import PlaceSeen
from migrator.domain.errors import UsageError
from migrator.ports.progress import Progress
from migrator.stages.bricks.drain_context import DrainWorld


@asynccontextmanager
async def drain_world(
    wiring: Wiring, source: GlusterSource, ledger: SqliteLedger, progress: Progress
) -> AsyncIterator[DrainWorld]:
    """The ports of a drain, for the length of the block. Raises UsageError."""
    site = wiring.site
    volume = site.source.volume or ""
    async with reached(site) as hosts, bricks(site, source, via="mount", hosts=hosts) as found:
        if found is None:
            raise UsageError("the source has no bricks: it is no Gluster volume")

        async def versions(names: Collection[str]) -> Mapping[str, str | None]:
            return await gluster_versions(hosts, names)

        async def open_files(some: Sequence[Brick], trees: Sequence[bytes]) -> int | None:
            return await open_on_bricks(hosts, some, trees)

        async def marks(some: Sequence[Brick], volume_id: str) -> tuple[BrickMarks, ...] | None:
            return await marks_on_bricks(hosts, some, volume_id)

        async def strange(brick: Brick, volume_id: str, paths: Sequence[bytes]) -> frozenset[bytes]:
            return await still_strange_on(hosts, brick, volume_id, paths)

        async def places(some: Sequence[Brick], volume_id: str) -> Mapping[str, PlaceSeen]:
            return await look_at_places(hosts, some, volume_id=volume_id)

        yield DrainWorld(
            volume=GlusterDrains(source.commands, volume=volume),
            source=source,
            target_root=wiring.target_root,
            walks=found.walks,
            read_block=paths_of,
            left_list=LeftListFile,
            contents=lambda: BrickContentFiles(site.catalogs_dir, temp_dir=wiring.temp_dir),
            versions=versions,
            open_files=open_files,
            places=places,
            back_up=backing_up(ledger, site.site.state_dir),
            throttle=site.drain.throttle,
            windows=site.drain.windows,
            local_time=local_time,
            max_latency_s=site.governor.max_latency_s,
            probing=probe_world(wiring, ledger),
            hooks=wiring.hooks(),
            ledger=ledger,
            locks=wiring.locks(),
            files=wiring.run_files(),
            progress=progress,
            clock=wiring.clock,
            blocking=wiring.blocking(),
            tokens=new_token,
            plans=wiring.plans(known.site_id if (known := ledger.site.read()) else None),
            retain_s=site.cutover.retain_s,
            leftovers=HostLeftovers(hosts),
            marks=marks,
            strange=strange,
            recovery=MountedVolumeRecovery(source.root),
        )
