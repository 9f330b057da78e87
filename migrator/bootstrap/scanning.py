"""What a scan of bricks is made of: the volume, and the walkers on the hosts that site.toml names."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from migrator.adapters.bricks import walker_program
from migrator.adapters.bricks.walks import HostBrickWalks, WalkPrograms
from migrator.adapters.filesystems.gluster import GlusterSource
from migrator.adapters.filesystems.posix import PosixSource
from migrator.adapters.native.program import NativeProgram, native_program
from migrator.bootstrap.hosts import host_specs, site_hosts
from migrator.config.site import Site
from migrator.stages.scan import Bricks


@asynccontextmanager
async def bricks(site: Site, source: PosixSource | GlusterSource, *, via: str = "auto") -> AsyncIterator[Bricks | None]:
    """The bricks of the source, for the length of the block; None where it has none. Their hosts are connected to from
    the beginning, unless `via` says that the mount is read. Raises UsageError.
    """
    if not isinstance(source, GlusterSource):
        yield None
        return
    hosts = site_hosts(site)
    pythons = {name: spec.python for name, spec in host_specs(site).items()}
    try:
        if via != "mount":
            hosts.begin(hosts.names)
        walks = HostBrickWalks(
            hosts,
            await asyncio.to_thread(walk_programs),
            names=tuple(hosts.names),
            pythons=lambda host: pythons.get(host, "python3"),
        )
        yield Bricks(volume=source, walks=walks)
    finally:
        await hosts.close()


def walk_programs() -> WalkPrograms:
    """The compiled walker, where the installation has one, and the Python one. Blocking."""
    native = native_program()
    if isinstance(native, NativeProgram):
        return WalkPrograms(python=walker_program(), native=native.content(), native_architecture=native.architecture)
    return WalkPrograms(python=walker_program())
