"""`brick list`: every brick of the volume. Looks only."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from migrator.decide.brick_list import Uses, brick_listing, users_of
from migrator.domain.brick_list import BrickListing
from migrator.domain.errors import UsageError
from migrator.domain.scan import CatalogRecord
from migrator.ports.volume import BrickUsage, VolumeLook


async def list_bricks(
    volume: VolumeLook,
    *,
    catalog: CatalogRecord | None,
    usage: Callable[[], BrickUsage],
    versions: Callable[[Collection[str]], Awaitable[Mapping[str, str | None]]] | None = None,
    user: str | None = None,
) -> BrickListing:
    """The bricks as glusterd tells them, with what the catalog knows of their users. `usage` is called in a thread, while
    glusterd is asked, and only where there is a catalog. `versions` asks hosts for theirs; None: they cannot be reached.

    Raises ToolFailed where glusterd does not answer, UsageError for a user that the catalog does not know.
    """
    looking = asyncio.ensure_future(volume.overview())
    try:
        uses: Uses = {} if catalog is None else await asyncio.to_thread(lambda: usage().uses(catalog.name))
        if user is not None:
            _check_user(user, uses, catalog)
        seen = await looking
        hosts = {brick.host for brick in seen.state.bricks}
        by_host = {} if versions is None else await versions(sorted(hosts))
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    return brick_listing(
        state=seen.state,
        version=seen.version,
        versions=by_host,
        rooms=seen.rooms,
        tasks=seen.tasks,
        progress=seen.progress,
        catalog=catalog,
        uses=uses,
        user=user,
    )


def _check_user(user: str, uses: Uses, catalog: CatalogRecord | None) -> None:
    if catalog is None:
        raise UsageError(
            "who uses which brick is not known: nothing was scanned yet", hint="run `migrator scan --via bricks`"
        )
    if user not in users_of(uses, catalog):
        raise UsageError(
            f"catalog {catalog.name} knows no user {user!r}",
            hint="`migrator brick list` names the users; one who is new is known after the next `migrator scan`",
        )
