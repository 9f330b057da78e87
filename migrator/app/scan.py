"""Wiring of scans of bricks: the volume, and the walkers on the hosts in site.toml."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from migrator.app import Wiring
from migrator.app.hosts import connecting
from migrator.catalog.model import CatalogRecord
from migrator.core.errors import UsageError
from migrator.core.progress import Progress
from migrator.fs.ports import SourceFileSystem
from migrator.gluster.volume import GlusterSource
from migrator.gluster.walks import HostBrickWalks
from migrator.hosts.site import SiteHosts
from migrator.native.program import native_program
from migrator.scan.marks import ReadMarks, read_marks
from migrator.scan.rules import parse_user_map
from migrator.scan.session import ScanRequest
from migrator.site.config import Site

if TYPE_CHECKING:
    from migrator.app.ledger import MigrationLedger


@asynccontextmanager
async def bricks(
    site: Site, source: SourceFileSystem, *, via: str = "auto", hosts: SiteHosts | None = None
) -> AsyncIterator[HostBrickWalks | None]:
    """Walks of the source's bricks, for the length of the block; None if it has none. Connects to their hosts at once,
    unless `via` is the mount; `hosts` of the caller are used instead, and stay open. Raises UsageError.
    """
    if not isinstance(source, GlusterSource):
        yield None
        return
    async with AsyncExitStack() as own:
        if hosts is None:
            hosts = await own.enter_async_context(connecting(site, source, via=via))
        yield HostBrickWalks(hosts, native_program().place, names=tuple(hosts.names))


def marks_reader(site: Site, source: SourceFileSystem, hosts: SiteHosts) -> ReadMarks | None:
    """Reads the marks of trees on all bricks; None if no host reads bricks of this source."""
    if not isinstance(source, GlusterSource) or not site.source.hosts:
        return None
    walks = HostBrickWalks(hosts, native_program().place, names=tuple(hosts.names))
    return partial(read_marks, source, walks)


def user_map(site: Site) -> dict[bytes, str]:
    """The user map, if there is one. Raises UsageError."""
    if site.users.map is None:
        return {}
    hint = "put [users] map right in site.toml, or leave it out"
    with UsageError.of_files(f"the owner map {site.users.map} cannot be read", hint=hint):
        return parse_user_map(site.users.map.read_bytes())


WORKERS = 16
"""The default number of readers of the mount: each call on the mount of a network file system waits for a server."""


def scan_request(site: Site, *, via: str | None = None, workers: int = WORKERS, restart: bool = False) -> ScanRequest:
    """The request for a scan of the whole source. Raises UsageError."""
    return ScanRequest(
        trees=site.users.trees,
        exclude=site.users.exclude,
        users=user_map(site),
        via=via or site.source.via,
        workers=workers,
        restart=restart,
    )


def whole_scan(
    wiring: Wiring,
    source: GlusterSource,
    ledger: "MigrationLedger",
    progress: Progress,
    walks: HostBrickWalks | None,
    *,
    via: str,
) -> Callable[[], Awaitable[CatalogRecord]]:
    """A complete new scan, as a step of another verb. The call raises MigratorError."""
    from migrator.scan.scan import scan

    async def scanned() -> CatalogRecord:
        return await scan(
            scan_request(wiring.site, via=via, restart=True),
            source=source,
            ledger=ledger,
            catalogs=wiring.catalogs(),
            progress=progress,
            clock=wiring.clock,
            walks=walks,
        )

    return scanned
