"""What an addition of bricks is made of."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from migrator.adapters.bricks.blamed import blamed_in_set
from migrator.adapters.bricks.directories import HostDirectories
from migrator.adapters.bricks.known_directories import DirectoryFiles
from migrator.adapters.bricks.marks import still_strange_on
from migrator.adapters.bricks.new_places import look_at_new_places
from migrator.adapters.bricks.places import gluster_versions
from migrator.adapters.filesystems.giving_back import MountedDirectories
from migrator.adapters.filesystems.gluster import GlusterSource
from migrator.adapters.filesystems.gluster_additions import GlusterAdditions
from migrator.adapters.ledger.sqlite import SqliteLedger
from migrator.bootstrap import Wiring, new_token
from migrator.bootstrap.hosts import reached
from migrator.bootstrap.ledger_backups import backing_up
from migrator.bootstrap.local_time import local_time
from migrator.bootstrap.probing import probe_world
from migrator.bootstrap.scanning import bricks, whole_scan
from migrator.domain.addition import TargetRoom
from migrator.domain.errors import ToolFailed, UsageError
from migrator.domain.storage_targets import Reachability, StorageSeen, TargetKind
from migrator.ports.progress import Progress
from migrator.stages.bricks.add_context import AdditionWorld, DirectoryWorld
from migrator.stages.bricks.throttling import ThrottleRules


@asynccontextmanager
async def addition_world(
    wiring: Wiring, source: GlusterSource, ledger: SqliteLedger, progress: Progress
) -> AsyncIterator[AdditionWorld]:
    """The ports of an addition, for the length of the block. Raises UsageError."""
    volume = wiring.site.source.volume
    if volume is None:
        raise UsageError("[source] volume is missing", hint="name the Gluster volume in site.toml")
    site = wiring.site
    async with reached(site) as hosts, bricks(site, source, via="mount", hosts=hosts) as found:
        yield AdditionWorld(
            volume=GlusterAdditions(source.commands, volume=volume),
            source_root=wiring.source_root,
            target_root=wiring.target_root,
            places=lambda bricks: look_at_new_places(hosts, bricks),
            versions=lambda names: gluster_versions(hosts, names),
            target_room=lambda: _room(wiring),
            back_up=backing_up(ledger, wiring.site.site.state_dir),
            hooks=wiring.hooks(),
            ledger=ledger,
            locks=wiring.locks(),
            files=wiring.run_files(),
            progress=progress,
            clock=wiring.clock,
            blocking=wiring.blocking(),
            tokens=new_token,
            throttle=ThrottleRules(
                throttle=wiring.site.drain.throttle,
                windows=wiring.site.drain.windows,
                local_time=local_time,
                max_latency_s=wiring.site.governor.max_latency_s,
            ),
            probing=probe_world(wiring, ledger),
            scan=whole_scan(wiring, source, ledger, progress, found, via="bricks") if site.source.hosts else None,
            blamed=lambda state, name: blamed_in_set(hosts, state, name),
            strange=lambda brick, volume_id, paths: still_strange_on(hosts, brick, volume_id, paths),
            directories=DirectoryWorld(
                walks=HostDirectories(hosts),
                memory=DirectoryFiles(wiring.site.site.state_dir / "additions"),
                mender=MountedDirectories(wiring.source_root),
                mount=wiring.source_root,
            ),
        )


async def _room(wiring: Wiring) -> TargetRoom:
    """How large the target is; what cannot be asked is None."""
    storage = wiring.storage_targets()
    seen: StorageSeen | None = None
    if storage is not None:
        try:
            seen = await storage.look()
        except ToolFailed:
            # The file system's own size tells as well.
            seen = None
    known = None if seen is None else sum(_counts(seen))
    return TargetRoom(total_bytes=await asyncio.to_thread(_total, wiring), storage_targets=known)


def _counts(seen: StorageSeen) -> list[bool]:
    """Those that take files now; one that is only registered is none."""
    return [one.kind is TargetKind.STORAGE and one.reachability is Reachability.ONLINE for one in seen.targets]


def _total(wiring: Wiring) -> int | None:
    try:
        with wiring.target() as target:
            return target.capacity().total_bytes
    except OSError:
        return None
