"""What delta passes are made of."""

from collections.abc import Sequence
from dataclasses import replace

from migrator.adapters.executors.site_hosts import SiteHosts
from migrator.adapters.filesystems.gluster import GlusterSource
from migrator.adapters.filesystems.moving import MovingTarget
from migrator.adapters.filesystems.posix import PosixSource
from migrator.bootstrap import Wiring
from migrator.decide.engine_choice import DRIVERS, copies_ranges
from migrator.decide.packing import ChunkLimits
from migrator.domain.convergence import Limits
from migrator.domain.scan import CatalogRecord
from migrator.ports.ledger import Ledger
from migrator.ports.progress import Progress
from migrator.stages.run.delta import Deltas

SCAN_WORKERS = 8


def deltas_of(
    wiring: Wiring,
    source: PosixSource | GlusterSource,
    *,
    moves: MovingTarget,
    ledger: Ledger,
    progress: Progress,
    hosts: SiteHosts,
    engine: str,
    at_most: int,
) -> Deltas | None:
    """None where no delta pass is wanted, or a driver copies: it takes whole trees."""
    site = wiring.site
    if at_most == 0 or engine in DRIVERS:
        return None
    # What a scan is made of is loaded when there is to be one.
    from migrator.adapters.catalog.extras import ExtraFiles  # noqa: PLC0415
    from migrator.bootstrap.scanning import bricks, user_map  # noqa: PLC0415
    from migrator.stages.scan import ScanRequest, scan  # noqa: PLC0415

    request = ScanRequest(
        trees=site.users.trees,
        exclude=site.users.exclude,
        users=user_map(site),
        via=site.source.via,
        workers=SCAN_WORKERS,
    )

    async def scan_again(trees: Sequence[bytes]) -> CatalogRecord:
        with wiring.locks().hold("scan", "scan of a delta pass"):
            async with bricks(site, source, via=request.via, hosts=hosts) as found:
                return await scan(
                    replace(request, only=tuple(trees)),
                    source=source,
                    ledger=ledger,
                    catalogs=wiring.catalogs(),
                    progress=progress,
                    clock=wiring.clock,
                    bricks=found,
                )

    transfer = site.transfer
    return Deltas(
        scan=scan_again,
        comparisons=wiring.comparisons(),
        pass_lists=wiring.chunk_lists(),
        move_lists=wiring.move_lists(),
        reap_lists=wiring.reap_lists(),
        differing=wiring.manifests(),
        extras=ExtraFiles(site.catalogs_dir, temp_dir=wiring.temp_dir),
        moves=moves,
        chunk_limits=ChunkLimits(
            max_bytes=transfer.chunk_size_bytes,
            max_files=transfer.chunk_files,
            range_size_bytes=transfer.range_size_bytes if copies_ranges(transfer.engine) else None,
        ),
        max_shrink=transfer.max_shrink,
        trash_keep_s=transfer.trash_keep_s,
        limits=Limits(max_freeze_s=site.cutover.max_freeze_s, max_delta_passes=at_most),
    )
