"""`brick list`: every brick with its room, users and state."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from migrator.bricks.model import NO_ROOM_TOLD, BrickFacts, BrickListing, BrickState
from migrator.catalog.model import BrickUse, CatalogRecord
from migrator.catalog.queries import CatalogReads
from migrator.core.errors import UsageError
from migrator.core.units import several
from migrator.gluster.model import Brick, VolumeState, remove_brick_of
from migrator.gluster.rules import faults_of_volume, subvolumes
from migrator.gluster.volume import GlusterSource, VolumeOverview

# The listing, from a snapshot of the volume and a catalog. Pure.


Uses = Mapping[str | None, tuple[BrickUse, ...]]

_AGAIN = "run `migrator scan --via bricks` to list the users of each brick"
_STATES = {True: BrickState.UP, False: BrickState.DOWN, None: BrickState.UNKNOWN}


def brick_listing(
    seen: VolumeOverview,
    *,
    versions: Mapping[str, str | None],
    catalog: CatalogRecord | None,
    uses: Uses,
    user: str | None = None,
) -> BrickListing:
    """Build the listing. `catalog` is None before the first scan. With `user`, only the files of this user count."""
    state = seen.state
    return BrickListing(
        volume=state.volume,
        volume_type=state.type,
        started=state.started,
        gluster_version=seen.version,
        versions=dict(versions),
        faults=faults_of_volume(state, [seen.version, *versions.values()]),
        # In the order of the volume.
        bricks=tuple(
            BrickFacts(
                name=brick.name,
                host=brick.host,
                path=brick.path,
                subvolume=number,
                arbiter=brick.arbiter,
                state=_STATES[brick.online],
                draining=remove_brick_of(seen.tasks, (brick.name,)) is not None,
                room=seen.rooms.get(brick.name, NO_ROOM_TOLD),
                uses=_uses_of(brick, members, uses, user),
            )
            for number, members in enumerate(_sets(state), start=1)
            for brick in members
        ),
        tasks=tuple(
            replace(task, counters=None if progress is None else progress.counters)
            for task, progress in ((task, seen.progress.get(task.id)) for task in seen.tasks)
        ),
        peers_down=state.peers_down,
        catalog=None if catalog is None else catalog.name,
        catalog_at_s=None if catalog is None else catalog.started_at_s,
        user=user,
        notes=tuple(_notes(state, seen.version, versions, catalog, uses)),
    )


def _sets(state: VolumeState) -> tuple[tuple[Brick, ...], ...]:
    try:
        return subvolumes(state)
    except ValueError:
        # A brick list that does not divide evenly is shown as it is. Every operation on sets refuses it.
        return tuple((brick,) for brick in state.bricks)


def _uses_of(brick: Brick, members: Sequence[Brick], uses: Uses, user: str | None) -> tuple[BrickUse, ...] | None:
    """Return the use of one brick. In a replica set one copy was read, and the others have the same content."""
    read = next((uses[member.name] for member in members if member.name in uses), None)
    if read is None:
        return None
    if brick.arbiter:
        # An arbiter has the names without the content.
        read = tuple(BrickUse(user=use.user, files=use.files, size_bytes=0, allocated_bytes=0) for use in read)
    return tuple(use for use in read if user is None or use.user == user)


def _notes(
    state: VolumeState,
    version: str | None,
    versions: Mapping[str, str | None],
    catalog: CatalogRecord | None,
    uses: Uses,
) -> Iterator[str]:
    if not state.started:
        yield f"volume {state.volume} is not started: the state and room of its bricks are unknown"
    if version is None:
        yield "the version of GlusterFS is unknown: every known fault is listed"
    silent = sorted(host for host, reported in versions.items() if reported is None)
    if silent:
        yield f"the version of GlusterFS on {', '.join(silent)} is unknown: every known fault is listed"
    if not versions:
        yield "the version of GlusterFS is that of the queried host; with [source.hosts] the versions of all hosts are listed"
    if len({reported for reported in (version, *versions.values()) if reported is not None}) > 1:
        reported = ", ".join(f"{found} on {host}" for host, found in sorted(versions.items()) if found is not None)
        yield f"not all hosts have the same version of GlusterFS ({reported}): upgrade them to one version before bricks are drained or added"
    if state.disperse_count:
        yield "a dispersed volume keeps a piece of every file on each brick of a set: sizes are not those of files"
    if catalog is None:
        yield f"nothing was scanned yet: {_AGAIN}"
        return
    if not catalog.whole:
        yield f"catalog {catalog.name} is not whole: users may have more files than it lists"
    walked = {name for name in uses if name is not None}
    if not walked:
        yield f"catalog {catalog.name} was scanned through the mount, which does not show bricks: {_AGAIN}"
        return
    through_mount = sum(use.files for use in uses.get(None, ()))
    if through_mount:
        yield f"{several(through_mount, 'file')} of catalog {catalog.name} were read through the mount, and are counted for no brick"
    gone = sorted(walked - {brick.name for brick in state.bricks})
    if gone:
        yield f"catalog {catalog.name} was scanned before {', '.join(gone)} left the volume: files that moved since are counted in their old places"


# The verb. It changes nothing.


async def list_bricks(
    volume: GlusterSource,
    *,
    catalog: CatalogRecord | None,
    usage: Callable[[], CatalogReads],
    versions: Callable[[Collection[str]], Awaitable[Mapping[str, str | None]]] | None = None,
    user: str | None = None,
) -> BrickListing:
    """List the bricks that glusterd reports, with the catalog's facts about their users. `usage` is called in a thread,
    while glusterd is queried, and only if there is a catalog. `versions` queries the GlusterFS version of each host;
    None if hosts cannot be reached.

    Raises ToolFailed if glusterd does not answer, UsageError for a user that the catalog does not have.
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
    return brick_listing(seen, versions=by_host, catalog=catalog, uses=uses, user=user)


def _check_user(user: str, uses: Uses, catalog: CatalogRecord | None) -> None:
    """A user without a file is known too."""
    if catalog is None:
        raise UsageError(
            "the users of bricks are unknown: nothing was scanned yet", hint="run `migrator scan --via bricks`"
        )
    if user not in {use.user for found in uses.values() for use in found} | {tree.user for tree in catalog.trees}:
        raise UsageError(
            f"catalog {catalog.name} has no user {user!r}",
            hint="`migrator brick list` names the users; a new one appears after the next `migrator scan`",
        )
