"""`scan`: guards, the choice between bricks and mount, then a closed catalog."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from migrator.catalog.model import CatalogRecord
from migrator.core.clock import Clock
from migrator.core.entry import UserTree
from migrator.core.errors import MigratorError, Refused, UsageError
from migrator.core.events import EventKind, Severity
from migrator.core.progress import Progress
from migrator.fs.model import SourceHealth
from migrator.fs.ports import SourceFileSystem
from migrator.gluster.model import volume_state
from migrator.gluster.volume import GlusterSource
from migrator.gluster.walks import HostBrickWalks
from migrator.scan import bricks as brick_way
from migrator.scan.bricks import BrickScan, BrickTeam
from migrator.scan.rules import select_bricks
from migrator.scan.session import ScanRequest, Session

if TYPE_CHECKING:
    from migrator.catalog.writer import CatalogDirectories
    from migrator.scan.records import ScanLedger

# --- Choice between bricks and mount


Way = tuple[BrickTeam | None, tuple[str, ...]]
"""The team that has greeted bricks, and must be stopped at the end (None: the mount is read), and the reasons against
the bricks, if they were considered."""


async def choose(
    session: Session, walks: HostBrickWalks | None, *, trees: Sequence[UserTree], before: SourceHealth
) -> Way:
    """Choose, and report the choice. Raises Refused if the bricks were requested explicitly and cannot be read."""
    via = session.request.via
    if via == "mount" or (via == "auto" and walks is None):
        return None, ()
    if walks is None or not isinstance(session.source, GlusterSource):
        return _no_bricks(session, ("the source is no Gluster volume, so it has no bricks",))
    if not walks.hosts:
        why = "site.toml has no [source.hosts] sections, which define how to reach the hosts of bricks"
        return _no_bricks(session, (why,))
    if (known := volume_state(before)) is None:
        return _no_bricks(session, before.problems or ("the volume's state is unknown",))
    try:
        state = await session.source.state_for_bricks(known)
    except MigratorError as error:
        return _no_bricks(session, (f"the volume's state is unknown: {error.message}",))
    wanted = sorted({brick.host for brick in state.bricks} & set(walks.hosts))
    answers = await asyncio.gather(*(_reach(walks, host) for host in wanted))
    unreachable = {host: answer for host, answer in zip(wanted, answers, strict=True) if answer is not None}
    chosen = select_bricks(
        state, reachable=[host for host in wanted if host not in unreachable], unreachable=unreachable
    )
    if chosen.rules is None:
        return _no_bricks(session, chosen.reasons)
    team = BrickTeam(walks, chosen.bricks, state, copies=chosen.copies, rules=chosen.rules, clock=session.clock)
    try:
        reasons = await team.greet([tree.path for tree in trees], only_trees=bool(session.request.only))
    except BaseException:
        await team.stop()
        raise
    if reasons:
        await team.stop()
        return _no_bricks(session, reasons)
    return team, ()


def _no_bricks(session: Session, reasons: tuple[str, ...]) -> Way:
    if session.request.via == "bricks":
        message = "the bricks are not to be read: " + "; ".join(reasons)
        session.event(EventKind.GUARD_REFUSED, Severity.ERROR, "scan", message)
        raise Refused(
            message,
            cause="bricks and mount show the same files only while the whole volume is up, healed and quiet",
            hint="restore that state, or run `migrator scan --via mount`, which is always right and slower",
        )
    message = "the mount is read, and not the bricks: " + "; ".join(reasons)
    session.event(EventKind.BRICKS_UNFIT, Severity.INFO, "scan", message)
    return None, reasons


async def _reach(walks: HostBrickWalks, host: str) -> str | None:
    """Why a host is unreachable; None if it is reachable."""
    try:
        await walks.reach(host)
    except MigratorError as error:
        return error.message
    return None


# --- The stage


async def scan(
    request: ScanRequest,
    *,
    source: SourceFileSystem,
    ledger: "ScanLedger",
    catalogs: "CatalogDirectories",
    progress: Progress,
    clock: Clock,
    walks: HostBrickWalks | None = None,
) -> CatalogRecord:
    """Read the source, or its trees `request.only`, into a catalog, and return the closing record: `whole`, or the
    reasons why not.

    `walks` are those of its bricks, None if it has none. The caller holds the lock `scan`. Cancellation raises
    Interrupted; a scan of the whole source through the mount can then be resumed. Raises Refused if the source is not
    the recorded mount or is lost meanwhile, or if its bricks were requested and cannot be trusted; UsageError for
    invalid globs.
    """
    site = ledger.site.read()
    if site is None:
        raise UsageError("the ledger knows no site yet", hint="run `migrator init` first")
    session = Session(
        request=request, site=site, source=source, ledger=ledger, catalogs=catalogs, progress=progress, clock=clock
    )
    await session.require_recorded_mount()
    await asyncio.to_thread(_clear_away_of_trees, session)
    closed = await asyncio.to_thread(_finish_closed, session)
    if closed is not None:
        return closed
    # In this order: a glob that matches nothing is reported before glusterd is called.
    trees = await asyncio.to_thread(session.find_trees)
    before = await source.health()
    team, reasons = await choose(session, walks, trees=trees, before=before)
    await asyncio.to_thread(_report_restart, session, via_bricks=team is not None)
    if team is None:
        from migrator.scan.mount import MountWay  # noqa: PLC0415 - loads pyarrow, for which `--help` does not wait

        return await MountWay(session=session, trees=trees, before=before, way_reasons=reasons).run()
    try:
        return await BrickScan(session=session, team=team, trees=trees, before=before).run()
    finally:
        await team.stop()


def _clear_away_of_trees(session: Session) -> None:
    """Discard killed scans of these trees, which cannot be resumed; record those that were closed. Scans of others may be
    in progress.
    """
    for left in session.ledger.scans.unfinished_of_trees():
        if not set(left.scope).intersection(session.request.only):
            continue
        try:
            closed = session.catalogs.closing_record(left.name)
        except Refused:
            # Damaged since: `verify`, which reads every catalog, reports it. It does not block anything else.
            continue
        if closed is None:
            session.catalogs.discard(left.name)
        else:
            session.ledger.scans.finish(closed)


def _finish_closed(session: Session) -> CatalogRecord | None:
    """Finish a scan that was killed between its closing record and the ledger: only the ledger is missing."""
    unfinished = None if session.request.begins_anew else session.ledger.scans.unfinished()
    closed = None if unfinished is None else session.catalogs.closing_record(unfinished.name)
    if closed is not None:
        session.finish(closed)
    return closed


def _report_restart(session: Session, *, via_bricks: bool) -> None:
    """Report unfinished scans that start over: only a scan of the mount can be resumed, and only through the mount."""
    unfinished = None if session.request.begins_anew else session.ledger.scans.unfinished()
    if unfinished is None:
        return
    if unfinished.via == brick_way.VIA:
        session.catalogs.discard(unfinished.name)
        message = "a scan of the bricks was interrupted: it starts over"
    elif via_bricks:
        message = "a scan through the mount was interrupted: a new scan reads the bricks instead"
    else:
        return
    session.event(EventKind.SCAN_STARTED, Severity.INFO, unfinished.name, message)
