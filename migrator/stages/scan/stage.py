"""The stage: guards, then one of two ways, then a closed catalog."""

import asyncio

from migrator.domain.errors import Refused, UsageError
from migrator.domain.events import EventKind, Severity
from migrator.domain.scan import CatalogRecord
from migrator.ports.catalog import Catalogs
from migrator.ports.clock import Clock
from migrator.ports.filesystem import SourceFileSystem
from migrator.ports.ledger import Ledger
from migrator.ports.progress import Progress
from migrator.stages.scan import brick_way, mount_way
from migrator.stages.scan.brick_way import BrickWay
from migrator.stages.scan.mount_way import MountWay
from migrator.stages.scan.session import ScanRequest, Session
from migrator.stages.scan.way import Bricks, Way, choose

_WAYS = ("auto", "bricks", "mount")


async def scan(
    request: ScanRequest,
    *,
    source: SourceFileSystem,
    ledger: Ledger,
    catalogs: Catalogs,
    progress: Progress,
    clock: Clock,
    bricks: Bricks | None = None,
) -> CatalogRecord:
    """Read the source, or the trees `request.only` of it, into a catalog, and return its closing record: `whole`, or not
    with the reasons.

    `bricks` is None where the source has none. The caller holds the lock `scan`. On cancellation Interrupted is raised;
    what a scan of everything read through the mount is kept. Raises Refused where the source is not the recorded mount or is lost on the
    way, or where its bricks were asked for and cannot be trusted; UsageError for globs that cannot be.
    """
    if request.via not in _WAYS:
        raise UsageError(f"there is no way {request.via!r} to scan", hint=f"use one of {', '.join(_WAYS)}")
    site = ledger.site.read()
    if site is None:
        raise UsageError("the ledger knows no site yet", hint="run `migrator init` first")
    session = Session(
        request, site=site, source=source, ledger=ledger, catalogs=catalogs, progress=progress, clock=clock
    )
    await session.require_recorded_mount()
    await asyncio.to_thread(_clear_away_of_trees, session)
    closed = await asyncio.to_thread(_finish_closed, session)
    if closed is not None:
        return closed
    # One after the other: a glob that names nothing is told before glusterd is asked.
    trees = await asyncio.to_thread(session.find_trees)
    before = await source.health()
    way = await choose(session, bricks, trees=trees, before=before)
    await asyncio.to_thread(_say_what_starts_over, session, way)
    if way.greeted is None:
        return await MountWay(session, trees=trees, before=before, way_reasons=way.reasons).run()
    greeted = way.greeted
    try:
        return await BrickWay(
            session, greeted.volume, greeted.team, trees=trees, before=before, state=greeted.state
        ).run()
    finally:
        await greeted.team.stop()


def _clear_away_of_trees(session: Session) -> None:
    """Scans of some trees alone that were killed: nothing goes on with them. One that was closed is told the ledger."""
    for left in session.ledger.scans.unfinished_of_trees():
        try:
            closed = session.catalogs.closing_record(left.name)
        except Refused:
            # Damaged since: `verify`, which reads every catalog, says so. It stands in nobody else's way.
            continue
        if closed is None:
            session.catalogs.discard(left.name)
        else:
            session.ledger.scans.finish(closed)


def _finish_closed(session: Session) -> CatalogRecord | None:
    """A scan that was killed between its closing record and the ledger is over: only the ledger has to be told."""
    unfinished = None if session.request.begins_anew else session.ledger.scans.unfinished()
    closed = None if unfinished is None else session.catalogs.closing_record(unfinished.name)
    if closed is not None:
        session.finish(closed)
    return closed


def _say_what_starts_over(session: Session, way: Way) -> None:
    """Only a scan of the mount can be gone on with, and only through the mount."""
    unfinished = None if session.request.begins_anew else session.ledger.scans.unfinished()
    if unfinished is None:
        return
    if unfinished.via == brick_way.VIA:
        session.catalogs.discard(unfinished.name)
        said = "a scan of the bricks was stopped before its end: it starts over"
    elif unfinished.via == mount_way.VIA and way.greeted is not None:
        said = "a scan through the mount was stopped before its end: a new one reads the bricks instead"
    else:
        return
    session.event(EventKind.SCAN_STARTED, Severity.INFO, unfinished.name, said)
