"""What the verbs of bricks work with."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from migrator.adapters.filesystems.gluster import GlusterSource
from migrator.bootstrap import Wiring
from migrator.domain.errors import UsageError

if TYPE_CHECKING:
    from migrator.adapters.catalog.brick_usage import BrickUsageFiles


@contextmanager
def open_volume(wiring: Wiring) -> Iterator[GlusterSource]:
    """The volume, for the length of the block. Raises UsageError where the source is none."""
    with wiring.source() as source:
        if not isinstance(source, GlusterSource):
            raise UsageError(
                "the source has no bricks: it is no Gluster volume",
                hint='bricks are there where site.toml has `[source] kind = "gluster"`',
            )
        yield source


@asynccontextmanager
async def host_versions(
    wiring: Wiring,
) -> AsyncIterator[Callable[[Collection[str]], Awaitable[Mapping[str, str | None]]] | None]:
    """Asks the hosts that site.toml names for their versions of GlusterFS, for the length of the block; None where it names none."""
    if not wiring.site.source.hosts:
        yield None
        return
    from migrator.adapters.bricks.places import gluster_versions  # noqa: PLC0415
    from migrator.bootstrap.hosts import reached  # noqa: PLC0415

    async with reached(wiring.site) as hosts:
        yield lambda names: gluster_versions(hosts, names)


def brick_usage(wiring: Wiring) -> "BrickUsageFiles":
    """What catalogs know of bricks; its libraries are loaded when it is asked for."""
    from migrator.adapters.catalog.brick_usage import BrickUsageFiles  # noqa: PLC0415

    return BrickUsageFiles(wiring.site.catalogs_dir, temp_dir=wiring.temp_dir)
